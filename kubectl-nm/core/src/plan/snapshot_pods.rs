//! The pods that a plan depends on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use nm_shared::PodReference;
use nm_shared::cluster::metadata;
use nm_shared::cluster::pod::{DrainPod, PodPhase};
use nm_shared::cluster::volumes::{self, Volumes};
use nm_shared::drain::surge::WorkloadKey;
use nm_shared::drain::virtual_machine;
use nm_shared::gate::etcd_guard::ETCD_NAMESPACE;

use crate::client::cluster::Cluster;
use crate::client::list_pages::{PAGE_SIZE, list_pages};
use crate::error::Error;
use crate::plan::pods_elsewhere::{self, MAX_CONCURRENT, PodsElsewhere, ReadElsewhere};

/// How many requests for the pods of a node or a workload take about as long as one for a page of all pods.
const REQUESTS_PER_PAGE: usize = 4;

/// The pods that are assigned to nodes.
#[derive(Debug, Default)]
pub struct SnapshotPods {
    /// The pods on planned nodes, by node.
    pub planned: HashMap<String, Vec<Arc<Pod>>>,
    /// What the plan depends on of the pods on other nodes; none if it is not known.
    pub(crate) elsewhere: Option<PodsElsewhere>,
    pub(super) etcd: Vec<DrainPod>,
    /// How many requests are cheaper than a list of all pods.
    requests: usize,
}

impl SnapshotPods {
    /// Reads the pods on planned nodes; those on other nodes as well if a list of all pods costs no more.
    pub(super) async fn read(planned: &HashSet<&str>, cluster: &Cluster) -> Result<Self, Error> {
        let pods: Api<Pod> = Api::all(cluster.client());
        let one = ListParams::default().limit(1);
        let first = cluster.request("list pods", async || pods.list(&one).await).await?;
        let more =
            usize::try_from(first.metadata.remaining_item_count.unwrap_or_default()).unwrap_or_default();
        let requests = more.div_ceil(PAGE_SIZE as usize).saturating_sub(1) * REQUESTS_PER_PAGE;
        if planned.len() > requests {
            return Self::read_all(planned, cluster).await;
        }
        let mut read = Self { requests: requests - planned.len(), ..Self::default() };
        let of_node = async |node: &&str| {
            let pods = pods_elsewhere::of_node(node, cluster).await?;
            Ok::<_, Error>(((*node).to_owned(), pods.into_iter().map(Arc::new).collect()))
        };
        read.planned = stream::iter(planned).map(of_node).buffered(MAX_CONCURRENT).try_collect().await?;
        let etcd: Api<Pod> = Api::namespaced(cluster.client(), ETCD_NAMESPACE);
        let add = |etcd: &mut Vec<DrainPod>, pod: Pod| add_etcd(etcd, &pod);
        read.etcd = list_pages(&etcd, cluster, "list pods", ListParams::default(), add).await?;
        Ok(read)
    }

    async fn read_all(planned: &HashSet<&str>, cluster: &Cluster) -> Result<Self, Error> {
        let add = |all: &mut Self, pod: Pod| all.add(pod, planned);
        let mut all: Self =
            list_pages(&Api::all(cluster.client()), cluster, "list pods", ListParams::default(), add).await?;
        all.elsewhere.get_or_insert_default();
        Ok(all)
    }

    fn add(&mut self, pod: Pod, planned: &HashSet<&str>) {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        add_etcd(&mut self.etcd, &pod);
        if planned.contains(node.as_str()) {
            self.planned.entry(node).or_default().push(Arc::new(pod));
        } else {
            self.elsewhere.get_or_insert_default().add(&node, &pod);
        }
    }

    /// Reads what the plan depends on of the pods on other nodes, unless it is known.
    pub(super) async fn read_elsewhere(
        &mut self,
        nodes: Option<&[Node]>,
        volumes: &Volumes,
        cluster: &Cluster,
    ) -> Result<(), Error> {
        if self.elsewhere.is_some() {
            return Ok(());
        }
        let planned: Vec<_> =
            self.planned.iter().map(|(node, pods)| (node.as_str(), pods.as_slice())).collect();
        let read = PodsElsewhere::read(&planned, nodes, volumes, cluster, self.requests).await?;
        let names: HashSet<&str> = self.planned.keys().map(String::as_str).collect();
        match read {
            ReadElsewhere::Enough(read) => {
                self.elsewhere = Some(read);
                return Ok(());
            }
            // The time may be over before all pods are listed.
            ReadElsewhere::WithoutVictims(read) => self.elsewhere = Some(read),
            ReadElsewhere::TooLittle => {}
        }
        self.elsewhere = Some(Self::read_all(&names, cluster).await?.elsewhere.unwrap_or_default());
        Ok(())
    }

    /// The whole pod of this uid on a planned node.
    pub(crate) fn find(&self, node: &str, uid: &str) -> Option<&Arc<Pod>> {
        self.planned.get(node)?.iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }

    /// A pod on a planned node that this `ReplicaSet` controls.
    pub(super) fn controlled_by(&self, set: &WorkloadKey) -> Option<&Arc<Pod>> {
        self.planned.values().flatten().find(|pod| {
            let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
            pod.metadata.namespace.as_ref() == Some(&set.namespace)
                && metadata::controller(owners).is_some_and(|owner| {
                    metadata::is_of(owner, "apps", "ReplicaSet") && owner.name == set.name
                })
        })
    }

    pub(super) fn have_machines(&self) -> bool {
        let mut pods = self.planned.values().flatten();
        pods.any(|pod| virtual_machine::is_launcher(&DrainPod::from(&**pod)))
    }

    /// The Jobs of pods that have not ended, by namespace and name.
    pub(super) fn jobs(&self) -> BTreeSet<PodReference> {
        let running = self.planned.values().flatten().filter(|pod| PodPhase::of(pod) != PodPhase::Finished);
        let job = |pod: &Arc<Pod>| {
            let owner = metadata::controller(pod.metadata.owner_references.as_deref()?)?;
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            metadata::is_of(owner, "batch", "Job")
                .then(|| PodReference { namespace, name: owner.name.clone() })
        };
        running.filter_map(job).collect()
    }

    /// The volume claims of the pods, by namespace and name.
    pub(super) fn claims(&self) -> BTreeSet<PodReference> {
        let of_pod = |pod: &Arc<Pod>| {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            let names: Vec<String> = volumes::claims(pod).map(str::to_owned).collect();
            names.into_iter().map(move |name| PodReference { namespace: namespace.clone(), name })
        };
        self.planned.values().flatten().flat_map(of_pod).collect()
    }
}

fn add_etcd(etcd: &mut Vec<DrainPod>, pod: &Pod) {
    if pod.metadata.namespace.as_deref() == Some(ETCD_NAMESPACE) {
        etcd.push(DrainPod::from(pod));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::{NEVER, cluster};

    const ALL: &str = "GET /api/v1/pods";

    fn node(name: &str) -> Node {
        let status = json!({"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]});
        let labels = json!({"number": name.len().to_string()});
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "status": status}))
            .unwrap()
    }

    /// A pod that uses three of the four CPUs of a node.
    fn pod(name: &str, node: &str) -> Value {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "o", "controller": true});
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [owner], "labels": {"app": "db"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    }

    fn list(items: &[Value], remaining: Option<u32>) -> (u16, Value) {
        let metadata = json!({"resourceVersion": "1", "remainingItemCount": remaining});
        (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}))
    }

    /// What is read for a plan of `n0` of 100 nodes, if the lists of pods of a node are these, the first for `n0`; and the
    /// number of lists of pods in all namespaces.
    async fn read(
        count: u32,
        of_nodes: impl Fn(usize) -> Vec<Value> + Send + Sync + 'static,
    ) -> (SnapshotPods, usize) {
        let asked = Mutex::new(0);
        let (cluster, requests) = cluster(move |_, path| {
            if path != "/api/v1/pods" {
                let elsewhere = if path.contains("/shop/") { vec![pod("db-9", "n99")] } else { Vec::new() };
                return list(&elsewhere, None);
            }
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            if *asked == 1 {
                list(&[pod("first", "n7")], Some(count))
            } else {
                list(&of_nodes(*asked - 2), None)
            }
        });
        let nodes: Vec<Node> = (0..100).map(|number| node(&format!("n{number}"))).collect();
        let mut pods = SnapshotPods::read(&HashSet::from(["n0"]), &cluster).await.unwrap();
        pods.read_elsewhere(Some(&nodes), &Volumes::default(), &cluster).await.unwrap();
        let requests = requests.lock().unwrap();
        (pods, requests.iter().filter(|request| *request == ALL).count())
    }

    #[tokio::test]
    async fn of_a_large_cluster_the_pods_of_nodes_are_read_until_all_fit() {
        let (pods, lists) =
            read(100_000, |asked| if asked < 9 { vec![pod("db-0", "n0")] } else { Vec::new() }).await;
        let elsewhere = pods.elsewhere.unwrap();
        assert_eq!((pods.planned["n0"].len(), elsewhere.ready.workloads()), (1, 1));
        // The count, the planned node, and two times eight nodes, of which the first are full.
        assert_eq!(lists, 18);
        let unread = elsewhere.used.values().filter(|used| used.requested.amount("pods") == 10_000).count();
        assert_eq!(unread, 99 - 16, "these count as full");
    }

    #[tokio::test]
    async fn all_pods_are_listed_if_many_nodes_are_full_or_if_there_are_few() {
        let everywhere = || (1..100).map(|number| pod("p", &format!("n{number}"))).collect();
        let (pods, lists) =
            read(100_000, move |asked| if asked < 65 { vec![pod("db-0", "n0")] } else { everywhere() }).await;
        assert_eq!((lists, pods.elsewhere.unwrap().used.len()), (67, 99));
        let (pods, lists) = read(400, move |_| vec![pod("db-0", "n0"), pod("db-1", "n1")]).await;
        assert_eq!((lists, pods.planned["n0"].len(), pods.elsewhere.unwrap().used.len()), (2, 1, 1));
    }

    #[tokio::test]
    async fn all_pods_are_listed_if_some_fit_only_by_preemption() {
        let read_for = async |priority: i32| {
            let mut planned = pod("db-0", "n0");
            planned["spec"]["priority"] = json!(priority);
            // Of the ten nodes with a name of two letters.
            planned["spec"]["nodeSelector"] = json!({"number": "2"});
            let full = move |asked| if asked == 0 { vec![planned.clone()] } else { vec![pod("db-1", "n1")] };
            read(100_000, full).await.1
        };
        assert_eq!(read_for(0).await, 11, "the count, the planned node, and nine others");
        assert_eq!(read_for(100).await, 12, "and all pods");
    }

    #[tokio::test(start_paused = true)]
    async fn what_shows_a_preemption_is_kept_if_the_time_is_over_before_all_pods_are_listed() {
        let asked = Mutex::new(0);
        let (cluster, _) = cluster(move |_, path| {
            if path != "/api/v1/pods" {
                return list(&[], None);
            }
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            match *asked {
                1 => list(&[], Some(100_000)),
                2 => {
                    let mut planned = pod("db-0", "n0");
                    planned["spec"]["priority"] = json!(100);
                    list(&[planned], None)
                }
                3 => list(&[pod("low-0", "n1")], None),
                _ => (NEVER, Value::Null),
            }
        });
        let mut pods = SnapshotPods::read(&HashSet::from(["n0"]), &cluster).await.unwrap();
        let (nodes, volumes) = (["n0", "n1"].map(node), Volumes::default());
        let read = pods.read_elsewhere(Some(&nodes), &volumes, &cluster);
        tokio::time::timeout(Duration::from_millis(100), read).await.unwrap_err();
        assert_eq!(pods.elsewhere.unwrap().used.keys().collect::<Vec<_>>(), ["n1"]);
    }

    #[tokio::test]
    async fn a_ready_pod_whose_labels_differ_is_found_too() {
        let asked = Mutex::new(Vec::new());
        let (cluster, _) = cluster(move |_, path| {
            let mut asked = asked.lock().unwrap();
            asked.push(path.to_owned());
            let count = asked.iter().filter(|other| *other == path).count();
            match (path, count) {
                ("/api/v1/pods", 1) => list(&[pod("first", "n7")], Some(100_000)),
                ("/api/v1/pods", 2) => list(&[pod("db-0", "n0")], None),
                // The replicas of the primary have another role.
                ("/api/v1/namespaces/shop/pods", 2) => list(&[pod("db-9", "n99")], None),
                _ => list(&[], None),
            }
        });
        let mut pods = SnapshotPods::read(&HashSet::from(["n0"]), &cluster).await.unwrap();
        pods.read_elsewhere(None, &Volumes::default(), &cluster).await.unwrap();
        assert_eq!(pods.elsewhere.unwrap().ready.workloads(), 1);
    }
}
