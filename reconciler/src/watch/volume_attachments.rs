//! The watch on the volumes that are attached to nodes, and the claims of these volumes.
//!
//! The API server cannot select `VolumeAttachment`s by node, so one watch serves the whole cluster. It runs only while a
//! maintenance waits for volumes. The persistent volumes of its node are read one by one, because all that is needed of
//! them is the claim, which does not change while the volume is attached.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use nm_shared::ClaimReference;
use nm_shared::cluster::volume_attachment::{ClaimsOfVolumes, NodeVolumes, VolumeAttachment, claim_of};
use nm_shared::drain::eviction_outcome::AccessDenied;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{error, warn};

use crate::cache::triggers::Triggers;
use crate::client::with_timeout;
use crate::runtime::backoff::Backoff;
use crate::runtime::tasks::{ScopedTask, TaskSpawner};
use crate::watch::watch_stream::{WatchUpdate, run_watch, watch_stream};

/// How many attachments are listed in a page.
const PAGE_SIZE: u32 = 500;

/// How many persistent volumes are read at once.
const MAX_CONCURRENT_READS: usize = 8;

/// How long to wait for the answer to a read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a read that was denied is not repeated. It keeps its place among the concurrent reads for that time.
const FORBIDDEN_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Starts and ends the watch.
pub(crate) struct VolumeAttachments {
    client: Client,
    triggers: Triggers,
    tasks: TaskSpawner,
    watch: Mutex<Option<AttachmentWatch>>,
}

/// A running watch. Dropping this ends it.
struct AttachmentWatch {
    /// The nodes whose maintenances wait for volumes.
    nodes: HashSet<String>,
    known: Arc<SharedKnownVolumes>,
    /// The volumes to read, each with the node that it is attached to.
    wanted: UnboundedSender<(String, Box<str>)>,
    _task: ScopedTask,
}

#[derive(Default)]
struct SharedKnownVolumes(Mutex<KnownVolumes>);

/// What is known beside the attachments.
#[derive(Default)]
struct KnownVolumes {
    /// Whether all attachments are known.
    is_complete: bool,
    attachments: AttachmentIndex,
    /// The denial, if the API server denies listing the attachments.
    forbidden: Option<AccessDenied>,
    claims: ClaimsOfVolumes,
    /// The volumes whose claims are being read.
    requested: HashSet<Box<str>>,
    /// The denial, if the API server denies reading volumes.
    claims_forbidden: Option<AccessDenied>,
}

/// The attachments by node, so that a reconcile does not search those of the whole cluster.
#[derive(Default)]
struct AttachmentIndex {
    by_node: HashMap<Box<str>, HashMap<String, Arc<VolumeAttachment>>>,
    /// The node of each attachment, by its name. One that is deleted and created again may be of another node.
    nodes: HashMap<String, Box<str>>,
}

impl AttachmentIndex {
    fn new(all: Vec<Arc<VolumeAttachment>>) -> Self {
        let mut index = Self::default();
        for attachment in all {
            index.insert(attachment);
        }
        index
    }

    fn insert(&mut self, attachment: Arc<VolumeAttachment>) {
        let name = attachment.name_any();
        self.remove(&name);
        self.nodes.insert(name.clone(), attachment.node.clone());
        self.by_node.entry(attachment.node.clone()).or_default().insert(name, attachment);
    }

    fn remove(&mut self, name: &str) {
        let Some(node) = self.nodes.remove(name) else { return };
        if let Entry::Occupied(mut attached) = self.by_node.entry(node) {
            attached.get_mut().remove(name);
            if attached.get().is_empty() {
                attached.remove();
            }
        }
    }

    fn on_node(&self, node: &str) -> Vec<Arc<VolumeAttachment>> {
        self.by_node.get(node).into_iter().flat_map(HashMap::values).cloned().collect()
    }
}

impl KnownVolumes {
    fn denied(&self) -> Option<AccessDenied> {
        self.forbidden.clone().or_else(|| self.claims_forbidden.clone())
    }
}

impl SharedKnownVolumes {
    fn lock(&self) -> MutexGuard<'_, KnownVolumes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VolumeAttachments {
    /// No watch runs yet. Each change of an attachment triggers the reconciles of its node.
    pub(crate) fn new(client: Client, triggers: Triggers, tasks: TaskSpawner) -> Self {
        Self { client, triggers, tasks, watch: Mutex::default() }
    }

    /// Starts the watch for `node`, which runs until no node needs it. Returns the denial, if access is missing.
    pub(crate) fn prepare(&self, node: &str) -> Option<AccessDenied> {
        let mut watch = self.lock();
        let AttachmentWatch { nodes, known, .. } = watch.get_or_insert_with(|| self.start());
        if !nodes.contains(node) {
            nodes.insert(node.to_owned());
        }
        known.lock().denied()
    }

    /// The volumes attached to `node`, as far as they are known, and the denial if access is missing. Their claims are read
    /// from the first call on.
    pub(crate) fn on_node(&self, node: &str) -> (NodeVolumes, Option<AccessDenied>) {
        self.prepare(node);
        let mut watch = self.lock();
        let AttachmentWatch { known, wanted, .. } = watch.get_or_insert_with(|| self.start());
        let mut known = known.lock();
        let attachments = known.attachments.on_node(node);
        let mut claims = ClaimsOfVolumes::new();
        for volume in attachments.iter().filter_map(|attachment| attachment.volume.as_ref()) {
            if let Some(claim) = known.claims.get(volume) {
                claims.insert(volume.clone(), claim.clone());
            } else if known.requested.insert(volume.clone()) {
                // The receiver is gone only when the term ends.
                let _ = wanted.unbounded_send((node.to_owned(), volume.clone()));
            }
        }
        let forbidden = known.denied();
        (NodeVolumes { attachments, is_complete: known.is_complete, claims }, forbidden)
    }

    /// Records that `node` does not need the volumes, which ends the watch if no other node needs it.
    pub(crate) fn leave_node(&self, node: &str) {
        self.change_nodes(|nodes| {
            nodes.remove(node);
        });
    }

    /// Records that no other nodes need the volumes, which ends the watch if none is left.
    pub(crate) fn retain_nodes(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.change_nodes(|nodes| nodes.retain(|node| in_maintenance(node)));
    }

    fn change_nodes(&self, change: impl FnOnce(&mut HashSet<String>)) {
        let mut watch = self.lock();
        if let Some(AttachmentWatch { nodes, .. }) = &mut *watch {
            change(nodes);
            if nodes.is_empty() {
                *watch = None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<AttachmentWatch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> AttachmentWatch {
        let (objects, writer) = reflector::store();
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let stream = watch_stream(Api::<VolumeAttachment>::all(self.client.clone()), config).reflect(writer);
        let known = Arc::new(SharedKnownVolumes::default());
        let (wanted, requests) = unbounded();
        let reader = ClaimReader {
            api: Api::all(self.client.clone()),
            permits: Semaphore::new(MAX_CONCURRENT_READS),
            known: known.clone(),
            triggers: self.triggers.clone(),
        };
        let (store, state, triggers) = (objects, known.clone(), self.triggers.clone());
        let task = self.tasks.spawn_scoped("the watch on volume attachments", async move {
            let watch = run_watch("volumeattachments", None, stream, |update| {
                let mut known = state.lock();
                match update {
                    WatchUpdate::Changed(attachment) => {
                        if let Some(now) = store.get(&ObjectRef::from_obj(attachment)) {
                            known.attachments.insert(now);
                        } else {
                            known.attachments.remove(&attachment.name_any());
                            if let Some(volume) = &attachment.volume {
                                known.claims.remove(volume);
                            }
                        }
                        triggers.node(&attachment.node);
                    }
                    WatchUpdate::Listed => {
                        (known.is_complete, known.forbidden) = (true, None);
                        known.attachments = AttachmentIndex::new(store.state());
                        known.claims.clear();
                        triggers.all();
                    }
                    WatchUpdate::Interrupted => known.is_complete = false,
                    WatchUpdate::Forbidden(refusal) => {
                        error!(resource = "volumeattachments", "cannot be listed: {refusal}");
                        let denied = AccessDenied::from(refusal.0.as_str());
                        (known.is_complete, known.forbidden) = (false, Some(denied));
                        triggers.all();
                    }
                }
            });
            tokio::join!(watch, reader.run(requests));
        });
        AttachmentWatch { nodes: HashSet::new(), known, wanted, _task: task }
    }
}

/// Reads the claims of volumes.
struct ClaimReader {
    api: Api<PersistentVolume>,
    permits: Semaphore,
    known: Arc<SharedKnownVolumes>,
    triggers: Triggers,
}

impl ClaimReader {
    /// Reads the volumes that are wanted, and triggers the reconciles of their nodes.
    async fn run(self, mut wanted: UnboundedReceiver<(String, Box<str>)>) {
        let mut reads = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((node, volume)) = wanted.next() => {
                    let read = self.read(volume.clone());
                    reads.push(async move { (node, volume, read.await) });
                }
                Some((node, volume, claim)) = reads.next() => {
                    let mut known = self.known.lock();
                    known.requested.remove(&volume);
                    known.claims.insert(volume, claim);
                    drop(known);
                    self.triggers.node(&node);
                }
                // Nobody can want a volume any more.
                else => return,
            }
        }
    }

    /// The claim of a volume. A volume that no longer exists has none.
    async fn read(&self, volume: Box<str>) -> Option<ClaimReference> {
        let mut backoff = Backoff::default();
        loop {
            // The semaphore is never closed.
            let permit = self.permits.acquire().await;
            match with_timeout(READ_TIMEOUT, self.api.get_opt(&volume)).await {
                Ok(found) => {
                    if self.known.lock().claims_forbidden.take().is_some() {
                        self.triggers.all();
                    }
                    return found.as_ref().and_then(claim_of);
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    let denied = AccessDenied::from(status.message.as_str());
                    if self.known.lock().claims_forbidden.replace(denied.clone()).is_none() {
                        warn!(volume = &*volume, "the claims of volumes cannot be read: {denied}");
                        self.triggers.all();
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
