//! Watches which workloads drains leave without a ready pod, for lines that nothing ends.
//!
//! A full read takes several requests and lists events of the cluster. So there is one only after pods have left: once their
//! replacements have had their usual time, or after a while if pods keep leaving. Otherwise, only the namespaces of the workloads that
//! are down are read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use nm_shared::NodeMaintenance;
use tokio::time::{Instant, sleep};

use crate::client::cluster::Cluster;
use crate::explain::lasting_outages::{self, KnownOutages, SETTLED, may_have, still_down};
use crate::maintenance::{node, pods_gone, status, uid};
use crate::watch::outage_change::OutageChange;

/// How often it is checked whether a read is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The time between two reads, at least.
const MIN_INTERVAL: Duration = Duration::from_secs(60);

/// While pods keep leaving a node, there is a read after this time.
const LONG_DRAIN: Duration = Duration::from_secs(300);

/// The maintenances that are watched.
pub type Watched = Rc<RefCell<Vec<Arc<NodeMaintenance>>>>;

/// Reports when workloads are down since pods left the nodes of these maintenances, and when they are no longer. Nothing where the
/// user may not see that.
pub fn outage_changes(cluster: Cluster, watched: Watched) -> impl Stream<Item = OutageChange> {
    let watch = OutageWatch {
        cluster,
        watched,
        nodes: BTreeMap::new(),
        down: BTreeMap::new(),
        last_read: None,
        changes: VecDeque::new(),
    };
    stream::unfold(watch, async |mut watch| Some((watch.next().await, watch)))
}

struct OutageWatch {
    cluster: Cluster,
    watched: Watched,
    /// By the uids of maintenances, because a node may have had another one before.
    nodes: BTreeMap<String, LeftNode>,
    /// The workloads that are down, each with a node that pods of it left.
    down: BTreeMap<String, String>,
    last_read: Option<Instant>,
    changes: VecDeque<OutageChange>,
}

/// A node that pods have left.
struct LeftNode {
    gone: i32,
    /// When the number of gone pods was seen to change.
    changed: Instant,
    /// Since when what they left has to be read again; none if nothing has changed since it was.
    unread: Option<Instant>,
}

impl LeftNode {
    fn is_due(&self, now: Instant) -> bool {
        self.unread.is_some_and(|since| self.is_settled(now) || now.duration_since(since) >= LONG_DRAIN)
    }

    fn is_settled(&self, now: Instant) -> bool {
        now.duration_since(self.changed) >= SETTLED.unsigned_abs()
    }
}

impl OutageWatch {
    async fn next(&mut self) -> OutageChange {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            sleep(CHECK_INTERVAL).await;
            let due = self.due(Instant::now());
            if !due.is_empty() || !self.down.is_empty() {
                self.read(due).await;
            }
        }
    }

    /// The maintenances for which a read is due.
    fn due(&mut self, now: Instant) -> Vec<Arc<NodeMaintenance>> {
        let mut left = self.watched.borrow().clone();
        left.retain(|maintenance| may_have(maintenance));
        let uids: BTreeSet<String> = left.iter().map(|maintenance| uid(maintenance)).collect();
        self.nodes.retain(|uid, _| uids.contains(uid));
        left.retain(|maintenance| {
            let gone = pods_gone(status(maintenance));
            let new = LeftNode { gone, changed: now, unread: Some(now) };
            let known = self.nodes.entry(uid(maintenance)).or_insert(new);
            if known.gone != gone {
                (known.gone, known.changed) = (gone, now);
                known.unread.get_or_insert(now);
            }
            known.is_due(now)
        });
        left
    }

    async fn read(&mut self, due: Vec<Arc<NodeMaintenance>>) {
        let now = Instant::now();
        if self.last_read.is_some_and(|last| now.duration_since(last) < MIN_INTERVAL) {
            return;
        }
        for maintenance in &due {
            if let Some(known) = self.nodes.get_mut(&uid(maintenance)) {
                known.unread = (!known.is_settled(now)).then_some(now);
            }
        }
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        if !due.is_empty() {
            let known = |maintenance: &Arc<NodeMaintenance>| KnownOutages {
                maintenance: maintenance.clone(),
                down: Vec::new(),
            };
            let known: Vec<KnownOutages> = due.iter().map(known).collect();
            let seen = Box::pin(lasting_outages::read(&self.cluster, &known)).await;
            for maintenance in &due {
                let down = seen.get(&uid(maintenance)).map(|seen| seen.down.as_slice()).unwrap_or_default();
                found.extend(down.iter().map(|workload| (workload.clone(), node(maintenance).to_owned())));
            }
        }
        let others = self.down.keys().filter(|workload| !found.contains_key(*workload));
        let still = still_down(&self.cluster, others.cloned().collect()).await;
        // A read of a large cluster takes long.
        self.last_read = Some(Instant::now());
        let is_over = |workload: &str| !found.contains_key(workload) && !still.contains(workload);
        let change = |workload: &String, node: &String, is_down| OutageChange {
            node: node.clone(),
            workload: workload.clone(),
            is_down,
        };
        let over = self.down.iter().filter(|(workload, _)| is_over(workload));
        self.changes.extend(over.map(|(workload, node)| change(workload, node, false)));
        let new = found.iter().filter(|(workload, _)| !self.down.contains_key(*workload));
        self.changes.extend(new.map(|(workload, node)| change(workload, node, true)));
        self.down.retain(|workload, _| found.contains_key(workload) || still.contains(workload));
        self.down.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use futures::StreamExt;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::testing::fake_server::cluster;
    use crate::testing::objects::{running, with_status};

    fn left(gone: i32) -> Vec<Arc<NodeMaintenance>> {
        let mut status = running(40, &[]);
        status["podCounts"] = json!({"gone": gone});
        status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        vec![Arc::new(with_status("n1", status))]
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_is_reported_once_when_it_is_down_and_when_it_is_no_longer_with_few_requests() {
        let list = |items: Value| (200, json!({"kind": "List", "metadata": {}, "items": items}));
        let ready = Arc::new(AtomicI32::new(0));
        let of_web = ready.clone();
        let killing = json!([{"metadata": {"name": "a"}, "reason": "Killing", "source": {"host": "n1"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-6c4-bcdfg", "uid": "u"},
            "lastTimestamp": "2026-01-02T03:04:10Z"}]);
        let (cluster, requests) = cluster(move |_, path| match path {
            "/api/v1/events" => list(killing.clone()),
            "/apis/apps/v1/namespaces/shop/deployments" => {
                let ready = of_web.load(Ordering::Relaxed);
                list(json!([{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 1},
                    "status": {"replicas": 1, "readyReplicas": ready}}]))
            }
            _ => list(json!([])),
        });
        let count = |path: &str| {
            let requests = requests.lock().unwrap();
            requests.iter().filter(|request| request.ends_with(path)).count()
        };
        let (start, watched) = (Instant::now(), Watched::default());
        let mut changes = Box::pin(outage_changes(cluster, watched.clone()));
        assert!(timeout(Duration::from_secs(3600), changes.next()).await.is_err());
        assert_eq!(count("/v1/events"), 0, "no pod has left");
        *watched.borrow_mut() = left(1);
        let shown = |change: Option<OutageChange>| {
            let change = change.unwrap();
            format!("{} {}", change.node, change.line())
        };
        let down = "n1 shop/deploy/web is down: none of its pods is ready; `kubectl nm explain n1` shows why";
        assert_eq!(shown(changes.next().await), down);
        assert_eq!(start.elapsed().as_secs(), 3600 + 40);
        assert!(timeout(Duration::from_secs(3600), changes.next()).await.is_err(), "it is reported once");
        assert_eq!(count("/v1/events"), 2, "those of stopped and of preempted pods, once");
        let before = count("/deployments");
        assert!((50..=61).contains(&before), "{before}");
        ready.store(1, Ordering::Relaxed);
        assert_eq!(shown(changes.next().await), "n1 shop/deploy/web is no longer down");
        let before = count("");
        assert!(timeout(Duration::from_secs(3600), changes.next()).await.is_err());
        assert_eq!(count(""), before, "nothing is down, and no pod has left");
        // Pods keep leaving.
        for gone in 2..33 {
            *watched.borrow_mut() = left(gone);
            assert!(timeout(Duration::from_secs(20), changes.next()).await.is_err());
        }
        assert_eq!(count("/v1/events"), 2 + 2 * 2, "after five minutes, and after ten");
        assert!(timeout(Duration::from_secs(3600), changes.next()).await.is_err());
        assert_eq!(count("/v1/events"), 2 + 3 * 2, "once the last replacement had its time");
    }
}
