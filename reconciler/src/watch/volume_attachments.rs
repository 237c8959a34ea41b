//! The watch on the volumes that are attached to nodes, and the claims of these volumes.
//!
//! The API server cannot select `VolumeAttachment`s by node, so one watch serves the whole cluster. It runs only while a
//! maintenance waits for volumes. The persistent volumes of its node are read one by one, because all that is needed of
//! them is the claim, which does not change while the volume is attached.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::runtime::watcher;
use kube::{Api, Client};
use nm_shared::ClaimReference;
use nm_shared::cluster::volume_attachment::{VolumeAttachment, claim_of};
use nm_shared::drain::eviction_outcome::AccessDenied;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{error, warn};

use crate::cache::shared_state::SharedState;
use crate::cache::term_state::TermState;
use crate::cache::volumes::{KnownVolumes, WantedVolume};
use crate::cache::watched::WatchUpdate;
use crate::client::with_timeout;
use crate::runtime::backoff::Backoff;
use crate::runtime::tasks::{ScopedTask, TaskSpawner};
use crate::watch::watch_stream::{run_watch, watch_stream};

/// How many attachments are listed in a page.
const PAGE_SIZE: u32 = 500;

/// How many persistent volumes are read at once.
const MAX_CONCURRENT_READS: usize = 8;

/// How long to wait for the answer to a read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a read that was denied is not repeated. It keeps its place among the concurrent reads for that time.
const FORBIDDEN_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Starts the watch. [`TermState`] ends it.
pub(crate) struct VolumeAttachments {
    client: Client,
    state: Arc<SharedState>,
    tasks: TaskSpawner,
}

impl VolumeAttachments {
    /// No watch runs yet. Each change of an attachment triggers the reconciles of its node.
    pub(crate) fn new(client: Client, state: Arc<SharedState>, tasks: TaskSpawner) -> Self {
        Self { client, state, tasks }
    }

    /// What is known of volumes. The first call starts the watch, which runs until no node needs it.
    pub(crate) fn for_node<'a>(&self, state: &'a mut TermState, node: &str) -> &'a mut KnownVolumes {
        state.volumes.for_node(node, || self.start())
    }

    fn start(&self) -> (KnownVolumes, ScopedTask) {
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let stream = watch_stream(Api::<VolumeAttachment>::all(self.client.clone()), config);
        let (wanted, requests) = unbounded();
        let reader = ClaimReader {
            api: Api::all(self.client.clone()),
            permits: Semaphore::new(MAX_CONCURRENT_READS),
            state: self.state.clone(),
        };
        let state = self.state.clone();
        let task = self.tasks.spawn_scoped("the watch on volume attachments", async move {
            let watch = run_watch("volumeattachments", None, stream, |update| {
                if let WatchUpdate::Forbidden(refusal) = &update {
                    error!(resource = "volumeattachments", "cannot be listed: {refusal}");
                }
                let mut state = state.lock();
                if let Some(concerns) = state.volumes.known().map(|known| known.apply(update)) {
                    state.trigger(concerns);
                }
            });
            tokio::join!(watch, reader.run(requests));
        });
        (KnownVolumes::new(wanted), task)
    }
}

/// Reads the claims of volumes.
struct ClaimReader {
    api: Api<PersistentVolume>,
    permits: Semaphore,
    state: Arc<SharedState>,
}

impl ClaimReader {
    /// Reads the volumes that are wanted, and triggers the reconciles of their nodes.
    async fn run(self, mut wanted: UnboundedReceiver<WantedVolume>) {
        let mut reads = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((node, volume)) = wanted.next() => {
                    let read = self.read(volume.clone());
                    reads.push(async move { (node, volume, read.await) });
                }
                Some((node, volume, claim)) = reads.next() => {
                    let mut state = self.state.lock();
                    if let Some(known) = state.volumes.known() {
                        known.claim_read(volume, claim);
                    }
                    state.trigger_node(&node);
                }
                // Nobody can want a volume any more.
                else => return,
            }
        }
    }

    /// Records whether reading volumes is denied, and returns whether that is new.
    fn note_denial(&self, denied: Option<AccessDenied>) -> bool {
        let mut state = self.state.lock();
        let is_new = state.volumes.known().is_some_and(|known| known.claims_denied(denied));
        if is_new {
            state.trigger_all();
        }
        is_new
    }

    /// The claim of a volume. A volume that no longer exists has none.
    async fn read(&self, volume: Box<str>) -> Option<ClaimReference> {
        let mut backoff = Backoff::default();
        loop {
            // The semaphore is never closed.
            let permit = self.permits.acquire().await;
            match with_timeout(READ_TIMEOUT, self.api.get_opt(&volume)).await {
                Ok(found) => {
                    self.note_denial(None);
                    return found.as_ref().and_then(claim_of);
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    let denied = AccessDenied::from(status.message.as_str());
                    if self.note_denial(Some(denied.clone())) {
                        warn!(volume = &*volume, "the claims of volumes cannot be read: {denied}");
                    }
                    sleep(FORBIDDEN_RETRY_INTERVAL).await;
                }
                Err(error) => {
                    drop(permit);
                    if backoff.record_failure(false) {
                        warn!(volume = &*volume, %error, "cannot read a volume; retrying");
                    }
                    sleep(backoff.delay()).await;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "volume_attachments_tests.rs"]
mod tests;
