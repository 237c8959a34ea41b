//! The watch on the migrations of virtual machines.
//!
//! The API server cannot select them by node, and the limits of KubeVirt apply to the whole cluster, so one watch serves all
//! nodes. It runs only while a node in maintenance has virtual machines. Without access to migrations it lists them again at
//! intervals, in case access is granted. Whether KubeVirt can cancel evacuations is discovered whenever the watch starts.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use nm_shared::drain::migration::{EVACUATION_ANNOTATION, VirtualMachineInstanceMigration};
use tracing::{debug, warn};

use crate::cache::triggers::Triggers;
use crate::client::discovery::cancels_evacuations;
use crate::runtime::tasks::{ScopedTask, TaskSpawner};
use crate::watch::watch_stream::{WatchUpdate, drop_managed_fields, run_watch, watch_stream};

/// How many migrations are listed in a page.
const PAGE_SIZE: u32 = 500;

/// How long to wait after discovery failed. KubeVirt serves it itself, and may be starting.
const DISCOVERY_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Starts and ends the watch.
pub(crate) struct Migrations {
    client: Client,
    triggers: Triggers,
    tasks: TaskSpawner,
    watch: Mutex<Option<MigrationWatch>>,
}

/// A running watch. Dropping this ends it.
struct MigrationWatch {
    /// The nodes in maintenance that have virtual machines.
    nodes: HashSet<String>,
    objects: Store<VirtualMachineInstanceMigration>,
    is_listed: Arc<AtomicBool>,
    cancels: Arc<AtomicBool>,
    _task: ScopedTask,
}

impl Migrations {
    /// No watch runs yet. Each change of a migration triggers the reconciles of the node that it evacuates.
    pub(crate) fn new(client: Client, triggers: Triggers, tasks: TaskSpawner) -> Self {
        Self { client, triggers, tasks, watch: Mutex::default() }
    }

    /// All migrations, and whether KubeVirt is known to cancel evacuations. No migrations while they are not known, or without
    /// access to them. The first call starts the watch, which runs until no node needs it.
    pub(crate) fn for_node(&self, node: &str) -> (Option<Vec<Arc<VirtualMachineInstanceMigration>>>, bool) {
        let mut watch = self.lock();
        let MigrationWatch { nodes, objects, is_listed, cancels, .. } =
            watch.get_or_insert_with(|| self.start());
        if !nodes.contains(node) {
            nodes.insert(node.to_owned());
        }
        let found = is_listed.load(Ordering::Acquire).then(|| objects.state());
        (found, cancels.load(Ordering::Acquire))
    }

    /// Records that `node` does not need the migrations, which ends the watch if no other node needs it.
    pub(crate) fn leave_node(&self, node: &str) {
        self.change_nodes(|nodes| {
            nodes.remove(node);
        });
    }

    /// Records that no other nodes need the migrations, which ends the watch if none is left.
    pub(crate) fn retain_nodes(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.change_nodes(|nodes| nodes.retain(|node| in_maintenance(node)));
    }

    fn change_nodes(&self, change: impl FnOnce(&mut HashSet<String>)) {
        let mut watch = self.lock();
        if let Some(MigrationWatch { nodes, .. }) = &mut *watch {
            change(nodes);
            if nodes.is_empty() {
                *watch = None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<MigrationWatch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> MigrationWatch {
        let (objects, writer) = reflector::store();
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let api = Api::<VirtualMachineInstanceMigration>::all(self.client.clone());
        let stream = watch_stream(api, config).modify(drop_managed_fields).reflect(writer);
        let (is_listed, cancels) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (listed, triggers) = (is_listed.clone(), self.triggers.clone());
        let discovery = discover(self.client.clone(), cancels.clone(), self.triggers.clone());
        let task = self.tasks.spawn_scoped("the watch on virtual machine migrations", async move {
            let watch = run_watch("virtualmachineinstancemigrations", None, stream, |update| match update {
                WatchUpdate::Changed(migration) => {
                    let annotations = migration.metadata.annotations.as_ref();
                    if let Some(node) = annotations.and_then(|all| all.get(EVACUATION_ANNOTATION)) {
                        triggers.node(node);
                    }
                }
                WatchUpdate::Listed => {
                    listed.store(true, Ordering::Release);
                    triggers.all();
                }
                WatchUpdate::Interrupted => {}
                WatchUpdate::Forbidden(refusal) => {
                    warn!("virtual machines leave even if their maintenance is stopped before they move: {refusal}");
                    listed.store(false, Ordering::Release);
                    triggers.all();
                }
            });
            futures::join!(watch, discovery);
        });
        MigrationWatch { nodes: HashSet::new(), objects, is_listed, cancels, _task: task }
    }
}

/// Records whether KubeVirt can cancel evacuations, once the API server tells that.
async fn discover(client: Client, cancels: Arc<AtomicBool>, triggers: Triggers) {
    loop {
        match cancels_evacuations(&client).await {
            Ok(true) => {
                cancels.store(true, Ordering::Release);
                return triggers.all();
            }
            Ok(false) => return,
            Err(error) => {
                debug!(%error, "cannot discover whether KubeVirt cancels evacuations; retrying");
                tokio::time::sleep(DISCOVERY_RETRY_INTERVAL).await;
            }
        }
    }
}
