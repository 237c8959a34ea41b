//! What a round of health checks reads: each object once, however many nodes it matters to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_shared::cluster::metadata;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::record::{DisturbedKind, DisturbedObject, Health};

/// What was read, and what is being read. Errors are not kept.
type Reads<K, V> = RefCell<BTreeMap<K, Rc<OnceCell<V>>>>;

async fn once<K: Ord, V: Clone>(
    reads: &Reads<K, V>,
    key: K,
    read: impl Future<Output = Result<V, Error>>,
) -> Result<V, Error> {
    let cell = Rc::clone(reads.borrow_mut().entry(key).or_default());
    cell.get_or_try_init(|| read).await.cloned()
}

/// The workloads of `ReplicaSet`s, by the uid of the `ReplicaSet`. It keeps its controller, so they outlast a round.
#[derive(Clone, Default)]
pub(crate) struct Workloads(Rc<Reads<String, Option<DisturbedObject>>>);

/// A round of checks, all of which see the same state.
pub(crate) struct Round<'a> {
    cluster: &'a Cluster,
    workloads: Workloads,
    health: Reads<DisturbedObject, Option<Health>>,
    lacking_pods: Reads<DisturbedObject, Option<bool>>,
    budgets: Reads<String, Rc<Vec<PodDisruptionBudget>>>,
}

impl<'a> Round<'a> {
    pub(crate) fn new(cluster: &'a Cluster, workloads: &Workloads) -> Self {
        let workloads = workloads.clone();
        Self {
            cluster,
            workloads,
            health: RefCell::default(),
            lacking_pods: RefCell::default(),
            budgets: RefCell::default(),
        }
    }

    /// The health of an object; none if the user has no permission to read it. What was deleted meanwhile cannot recover.
    pub(crate) async fn health(&self, one: &DisturbedObject) -> Result<Option<Health>, Error> {
        let read = async {
            let found = if_permitted(self.object(one).await)?;
            Ok(found.map(|object| health_of(one, object.as_ref())))
        };
        once(&self.health, one.clone(), read).await
    }

    /// Whether a DaemonSet exists that lacks pods on nodes that it selects; none if the user has no permission to read it.
    pub(crate) async fn lacks_pods(&self, set: &DisturbedObject) -> Result<Option<bool>, Error> {
        let read = async {
            let found = if_permitted(self.object(set).await)?;
            Ok(found.map(|set| set.is_some_and(|set| set_lacks_pods(&set))))
        };
        once(&self.lacking_pods, set.clone(), read).await
    }

    /// The object of this name; none if it does not exist.
    async fn object(&self, one: &DisturbedObject) -> Result<Option<Value>, Error> {
        objects::get(self.cluster, &one.reference()).await
    }

    /// The pods of a node; none if the user has no permission to list them.
    pub(crate) async fn pods(&self, node: &str) -> Result<Option<Vec<Pod>>, Error> {
        let which = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let api = Api::<Pod>::all(self.cluster.client());
        if_permitted(self.cluster.list(&api, "pods", &which).await)
    }

    /// The budgets of a namespace, as far as the user may list them.
    pub(crate) async fn budgets(&self, namespace: &str) -> Result<Rc<Vec<PodDisruptionBudget>>, Error> {
        let read = async {
            let api: Api<PodDisruptionBudget> = Api::namespaced(self.cluster.client(), namespace);
            let listed = self.cluster.list(&api, "poddisruptionbudgets.policy", &ListParams::default()).await;
            let listed = if_permitted(listed)?.unwrap_or_default();
            for budget in &listed {
                self.note(namespace, budget);
            }
            Ok(Rc::new(listed))
        };
        once(&self.budgets, namespace.to_owned(), read).await
    }

    /// A budget that was listed is not read again.
    fn note(&self, namespace: &str, budget: &PodDisruptionBudget) {
        let one = DisturbedObject {
            kind: DisturbedKind::PodDisruptionBudget,
            namespace: namespace.to_owned(),
            name: budget.name_any(),
        };
        let health = health_of(&one, Some(&json!(budget)));
        let read = || Rc::new(OnceCell::new_with(Some(Some(health))));
        self.health.borrow_mut().entry(one).or_insert_with(read);
    }

    /// The workload of a pod: that of its `ReplicaSet`, if that has one.
    pub(crate) async fn workload(&self, pod: &Pod) -> Result<Option<DisturbedObject>, Error> {
        let namespace = pod.namespace().unwrap_or_default();
        let Some((owner, uid)) = controller(pod.owner_references(), &namespace) else { return Ok(None) };
        if owner.kind != DisturbedKind::ReplicaSet {
            return Ok(Some(owner));
        }
        let read = async {
            let Some(set) = self.object(&owner).await? else { return Ok(None) };
            let owners =
                serde_json::from_value(set["metadata"]["ownerReferences"].clone()).unwrap_or(Vec::new());
            Ok(controller(&owners, &namespace).map(|(workload, _)| workload).or(Some(owner.clone())))
        };
        Ok(if_permitted(once(&self.workloads.0, uid, read).await)?.flatten())
    }
}

fn health_of(one: &DisturbedObject, object: Option<&Value>) -> Health {
    object.and_then(|object| one.problem(object)).map_or(Health::Healthy, Health::Waiting)
}

fn set_lacks_pods(set: &Value) -> bool {
    let number = |path: &str| set.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let is_processed = number("/status/observedGeneration") >= number("/metadata/generation");
    let scheduled = number("/status/currentNumberScheduled");
    !is_processed || scheduled < number("/status/desiredNumberScheduled")
}

/// The workload that controls an object, and its uid.
pub(crate) fn controller(owners: &[OwnerReference], namespace: &str) -> Option<(DisturbedObject, String)> {
    let owner = metadata::controller(owners)?;
    let kind = DisturbedKind::of_workload(owner)?;
    let workload = DisturbedObject { kind, namespace: namespace.to_owned(), name: owner.name.clone() };
    Some((workload, owner.uid.clone()))
}

/// None if the user has no permission to read it.
///
/// # Errors
///
/// If the read failed for a reason other than missing permission.
pub fn if_permitted<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}
