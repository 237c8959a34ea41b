//! The watch on the migrations of virtual machines.
//!
//! The API server cannot select them by node, and the limits of KubeVirt apply to the whole cluster, so one watch serves all
//! nodes. It runs only while a node in maintenance has virtual machines. Without access to migrations it lists them again at
//! intervals, in case access is granted. Whether KubeVirt can cancel evacuations is discovered whenever the watch starts.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use nm_shared::drain::migration::VirtualMachineInstanceMigration;
use tracing::{debug, warn};

use crate::cache::migrations::KnownMigrations;
use crate::cache::shared_state::SharedState;
use crate::cache::term_state::TermState;
use crate::cache::watched::WatchUpdate;
use crate::client::discovery::cancels_evacuations;
use crate::runtime::tasks::{ScopedTask, TaskSpawner};
use crate::watch::watch_stream::{drop_managed_fields, run_watch, watch_stream};

/// How many migrations are listed in a page.
const PAGE_SIZE: u32 = 500;

/// How long to wait after discovery failed. KubeVirt serves it itself, and may be starting.
const DISCOVERY_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the watch. [`TermState`] ends it.
pub(crate) struct Migrations {
    client: Client,
    state: Arc<SharedState>,
    tasks: TaskSpawner,
}

impl Migrations {
    /// No watch runs yet. Each change of a migration triggers the reconciles of the node that it evacuates.
    pub(crate) fn new(client: Client, state: Arc<SharedState>, tasks: TaskSpawner) -> Self {
        Self { client, state, tasks }
    }

    /// What is known of migrations. The first call starts the watch, which runs until no node needs it.
    pub(crate) fn for_node<'a>(&self, state: &'a mut TermState, node: &str) -> &'a KnownMigrations {
        state.migrations.for_node(node, || (KnownMigrations::default(), self.start()))
    }

    fn start(&self) -> ScopedTask {
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let api = Api::<VirtualMachineInstanceMigration>::all(self.client.clone());
        let stream = watch_stream(api, config).modify(drop_managed_fields);
        let discovery = discover(self.client.clone(), self.state.clone());
        let state = self.state.clone();
        self.tasks.spawn_scoped("the watch on virtual machine migrations", async move {
            let watch = run_watch("virtualmachineinstancemigrations", None, stream, |update| {
                if let WatchUpdate::Forbidden(refusal) = &update {
                    warn!("virtual machines leave even if their maintenance is stopped before they move: {refusal}");
                }
                let mut state = state.lock();
                if let Some(concerns) = state.migrations.known().map(|known| known.apply(update)) {
                    state.trigger(concerns);
                }
            });
            futures::join!(watch, discovery);
        })
    }
}

/// Records whether KubeVirt can cancel evacuations, once the API server tells that.
async fn discover(client: Client, state: Arc<SharedState>) {
    loop {
        match cancels_evacuations(&client).await {
            Ok(true) => {
                let mut state = state.lock();
                state.migrations.known().into_iter().for_each(|known| known.cancels = true);
                return state.trigger_all();
            }
            Ok(false) => return,
            Err(error) => {
                debug!(%error, "cannot discover whether KubeVirt cancels evacuations; retrying");
                tokio::time::sleep(DISCOVERY_RETRY_INTERVAL).await;
            }
        }
    }
}
