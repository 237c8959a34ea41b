//! What a round of health checks reads: each object once, however many nodes it matters to.

use std::cell::{Cell, RefCell};
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

use crate::record::{DisturbedKind, DisturbedObject};

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
    problems: Reads<DisturbedObject, Option<String>>,
    budgets: Reads<String, Rc<Vec<PodDisruptionBudget>>>,
    lacks_permission: Cell<bool>,
}

impl<'a> Round<'a> {
    pub(crate) fn new(cluster: &'a Cluster, workloads: &Workloads) -> Self {
        let workloads = workloads.clone();
        Self {
            cluster,
            workloads,
            problems: RefCell::default(),
            budgets: RefCell::default(),
            lacks_permission: Cell::new(false),
        }
    }

    /// Whether the user had no permission for one of the reads, so that something may not be healthy without being seen.
    pub(crate) fn lacks_permission(&self) -> bool {
        self.lacks_permission.get()
    }

    /// None if the user has no permission to read it.
    pub(crate) fn if_permitted<T>(&self, read: Result<T, Error>) -> Result<Option<T>, Error> {
        let read = if_permitted(read)?;
        if read.is_none() {
            self.lacks_permission.set(true);
        }
        Ok(read)
    }

    /// Why an object is not healthy; none if it is. What was deleted meanwhile, and what the user may not read any more, cannot
    /// recover.
    pub(crate) async fn problem(&self, one: &DisturbedObject) -> Result<Option<String>, Error> {
        let read = async {
            let found = self.if_permitted(objects::get(self.cluster, &one.reference()).await)?.flatten();
            Ok(found.and_then(|object| one.problem(&object)))
        };
        once(&self.problems, one.clone(), read).await
    }

    /// The object of this name; none if it does not exist.
    pub(crate) async fn object(&self, one: &DisturbedObject) -> Result<Option<Value>, Error> {
        objects::get(self.cluster, &one.reference()).await
    }

    /// The pods of a node, as far as the user may list them.
    pub(crate) async fn pods(&self, node: &str) -> Result<Vec<Pod>, Error> {
        let which = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let api = Api::<Pod>::all(self.cluster.client());
        Ok(self.if_permitted(self.cluster.list(&api, "pods", &which).await)?.unwrap_or_default())
    }

    /// The budgets of a namespace, as far as the user may list them.
    pub(crate) async fn budgets(&self, namespace: &str) -> Result<Rc<Vec<PodDisruptionBudget>>, Error> {
        let read = async {
            let api: Api<PodDisruptionBudget> = Api::namespaced(self.cluster.client(), namespace);
            let listed = self.cluster.list(&api, "poddisruptionbudgets.policy", &ListParams::default()).await;
            let listed = self.if_permitted(listed)?.unwrap_or_default();
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
        let problem = one.problem(&json!(budget));
        let read = || Rc::new(OnceCell::new_with(Some(problem)));
        self.problems.borrow_mut().entry(one).or_insert_with(read);
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
        Ok(self.if_permitted(once(&self.workloads.0, uid, read).await)?.flatten())
    }
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
