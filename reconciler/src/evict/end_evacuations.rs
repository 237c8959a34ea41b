//! Ends the evacuation of virtual machines with their maintenance. KubeVirt keeps moving a virtual machine that an eviction has
//! marked, even after its node has returned to service.
//!
//! Since 1.7 KubeVirt has a subresource that removes the mark: `PUT virtualmachineinstances/NAME/evacuate/cancel` of
//! `subresources.kubevirt.io`, with the node's name in the body and an empty answer
//! (`pkg/virt-api/rest/evacuate_cancel.go` in kubevirt/kubevirt, v1.7.0). Discovery lists it (`pkg/virt-api/api.go`). Before 1.7
//! only KubeVirt itself ends an evacuation. Without its mark, the migration of a virtual machine still exists, and is deleted
//! unless it has begun.
//!
//! What is left to do is read live until nothing is left, because another process may have evicted pods, and KubeVirt may just
//! be creating migrations. This ends after [`TIMEOUT`]: a KubeVirt that does not answer keeps no maintenance.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use nm_shared::decide::decision::PendingEvent;
use nm_shared::decide::evacuation_end::{EvacuationEnd, StillLeaving, still_leaving};
use nm_shared::drain::migration::VirtualMachineInstanceMigration;
use nm_shared::drain::virtual_machine::{LAUNCHER_SELECTOR, MachineKey, NODE_LABEL, VirtualMachineInstance};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::client::discovery::{KUBEVIRT_SUBRESOURCES, cancels_evacuations};

/// The maintenance ends after this time at the latest. Its node has returned to service before.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for the answer to a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait after a request that failed. The wait doubles up to [`MAX_RETRY_INTERVAL`].
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(4);

/// For how long after the last mark was removed KubeVirt may still create a migration because of it. It was seen to take 0.3 s.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// How many migrations an answer lists at most.
const PAGE_SIZE: u32 = 500;

/// How many requests are in progress at once.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// Makes KubeVirt leave the virtual machines on `node` where they are, as far as they have not begun to move. Returns the events
/// about those that may leave nevertheless.
pub(crate) async fn end_evacuations(client: &Client, node: &str) -> Vec<PendingEvent> {
    let mut ending = Ending {
        client,
        node,
        may_delete: true,
        cancels: None,
        last: EvacuationEnd::default(),
        undeleted: BTreeSet::new(),
        error: None,
    };
    let ended = timeout(TIMEOUT, ending.run()).await;
    let Ending { may_delete, cancels, last, mut undeleted, error, .. } = ending;
    let mut events = Vec::new();
    if cancels == Some(false) {
        events.extend(still_leaving(node, &last.marked, &StillLeaving::CannotCancel));
    } else if ended.is_err() {
        warn!(node, error, "virtual machines may still leave the node: KubeVirt did not answer in time");
        let undeleted = last.deletable.iter().map(VirtualMachineInstanceMigration::machine);
        let left: Vec<MachineKey> = last.marked.iter().cloned().chain(undeleted).collect();
        events.extend(still_leaving(node, &left, &StillLeaving::NotInTime(error)));
    }
    if !may_delete {
        undeleted.retain(|machine| !last.moving.contains(machine));
        events.extend(still_leaving(node, &undeleted, &StillLeaving::MayNotDelete));
    }
    events.extend(still_leaving(node, &last.moving, &StillLeaving::Begun));
    for event in &events {
        info!(node, "{}", event.note);
    }
    events
}

struct Ending<'a> {
    client: &'a Client,
    node: &'a str,
    /// Whether migrations may be listed and deleted.
    may_delete: bool,
    /// Whether this version of KubeVirt can cancel evacuations.
    cancels: Option<bool>,
    /// What was last seen to be left.
    last: EvacuationEnd,
    /// The virtual machines that KubeVirt may move because of a migration that was not deleted.
    undeleted: BTreeSet<MachineKey>,
    /// The last request that failed.
    error: Option<String>,
}

impl Ending<'_> {
    async fn run(&mut self) {
        let mut retry = RETRY_INTERVAL;
        // An eviction whose request was given up may still be marking a virtual machine.
        let mut settled = Instant::now() + SETTLING_TIME;
        loop {
            match self.step().await {
                Ok(Progress::Nothing) if Instant::now() >= settled => return,
                Ok(Progress::Nothing) => sleep(settled - Instant::now()).await,
                Ok(Progress::Impossible) => return,
                Ok(progress @ (Progress::Cancelled | Progress::Deleted)) => {
                    if matches!(progress, Progress::Cancelled) {
                        settled = Instant::now() + SETTLING_TIME;
                    }
                    sleep(RETRY_INTERVAL).await;
                }
                Err(error) => {
                    debug!(node = self.node, %error, "retrying to end the evacuation of virtual machines");
                    self.error = Some(error.to_string());
                    sleep(retry).await;
                    retry = (retry * 2).min(MAX_RETRY_INTERVAL);
                }
            }
        }
    }

    /// Reads what is left and does it.
    async fn step(&mut self) -> kube::Result<Progress> {
        if !self.has_launchers().await? {
            return Ok(Progress::Impossible);
        }
        let on_node = ListParams::default().labels(&format!("{NODE_LABEL}={}", self.node));
        let instances =
            match within(Api::<VirtualMachineInstance>::all(self.client.clone()).list(&on_node)).await {
                Ok(found) => found.items,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Progress::Impossible),
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    warn!(
                        node = self.node,
                        "cannot list the virtual machines that are leaving the node: {}", status.message
                    );
                    return Ok(Progress::Impossible);
                }
                Err(error) => return Err(error),
            };
        self.last = EvacuationEnd::new(&instances, None, self.node);
        // Marks go even if the migrations cannot be read.
        if !self.last.marked.is_empty() {
            if !self.can_cancel().await? {
                return Ok(Progress::Impossible);
            }
            self.cancel_all().await?;
            return Ok(Progress::Cancelled);
        }
        let migrations = self.migrations().await?;
        self.last = EvacuationEnd::new(&instances, migrations.as_deref(), self.node);
        if self.last.is_done() {
            return Ok(Progress::Nothing);
        }
        self.delete_all().await?;
        Ok(Progress::Deleted)
    }

    /// Whether the node has pods that run virtual machines. Most clusters have none, and are not asked anything else.
    async fn has_launchers(&self) -> kube::Result<bool> {
        let on_node =
            ListParams::default().fields(&format!("spec.nodeName={}", self.node)).labels(LAUNCHER_SELECTOR);
        match within(Api::<Pod>::all(self.client.clone()).list_metadata(&on_node)).await {
            Ok(found) => Ok(!found.items.is_empty()),
            // The virtual machines themselves may be readable.
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The migrations under way that evacuate the node; none without access to them.
    async fn migrations(&mut self) -> kube::Result<Option<Vec<VirtualMachineInstanceMigration>>> {
        if !self.may_delete {
            return Ok(None);
        }
        let api = Api::<VirtualMachineInstanceMigration>::all(self.client.clone());
        // KubeVirt keeps several that have ended for each virtual machine.
        let mut page = ListParams::default().limit(PAGE_SIZE);
        let mut evacuations = Vec::new();
        loop {
            match within(api.list(&page)).await {
                Ok(found) => {
                    let next = found.metadata.continue_.filter(|next| !next.is_empty());
                    let is_meant = |migration: &VirtualMachineInstanceMigration| {
                        migration.is_active() && migration.evacuates(self.node)
                    };
                    evacuations.extend(found.items.into_iter().filter(is_meant));
                    match next {
                        Some(next) => page.continue_token = Some(next),
                        None => return Ok(Some(evacuations)),
                    }
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                    self.may_delete = false;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether KubeVirt has the subresource.
    async fn can_cancel(&mut self) -> kube::Result<bool> {
        if let Some(known) = self.cancels {
            return Ok(known);
        }
        let found = cancels_evacuations(self.client).await?;
        self.cancels = Some(found);
        Ok(found)
    }

    async fn cancel_all(&mut self) -> kube::Result<()> {
        let (client, node) = (self.client, self.node);
        let answers = futures::stream::iter(self.last.marked.clone()).map(|machine| async move {
            let answer = within(cancel(client, &machine, node)).await;
            (machine, answer)
        });
        let answers: Vec<_> = answers.buffer_unordered(MAX_CONCURRENT_REQUESTS).collect().await;
        let mut failure = None;
        for (machine, answer) in answers {
            match answer {
                Ok(()) => {
                    info!(node, virtual_machine = %machine, "evacuation cancelled");
                    // KubeVirt creates no migration for the others.
                    if !self.last.left_to_others.contains(&machine) {
                        self.undeleted.insert(machine);
                    }
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    warn!(node, virtual_machine = %machine, %error, "cannot cancel the evacuation; retrying");
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn delete_all(&mut self) -> kube::Result<()> {
        let (client, node) = (self.client, self.node);
        let answers = futures::stream::iter(self.last.deletable.clone()).map(|migration| async move {
            let answer = within(delete(client, &migration)).await;
            (migration, answer)
        });
        let answers: Vec<_> = answers.buffer_unordered(MAX_CONCURRENT_REQUESTS).collect().await;
        let mut failure = None;
        for (migration, answer) in answers {
            let (machine, name) = (migration.machine(), migration.name_any());
            match answer {
                Ok(()) => {
                    info!(node, virtual_machine = %machine, migration = name, "migration deleted before it started");
                    self.undeleted.remove(&machine);
                }
                // It has changed, and may have begun.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    self.may_delete = false;
                    self.undeleted.insert(machine);
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// What a step has done.
enum Progress {
    /// Nothing is left.
    Nothing,
    /// Nothing can be done: there are no virtual machines, access is missing, or KubeVirt is too old.
    Impossible,
    /// Marks were removed.
    Cancelled,
    /// Migrations were deleted.
    Deleted,
}

async fn cancel(client: &Client, machine: &MachineKey, node: &str) -> kube::Result<()> {
    let MachineKey { namespace, name } = machine;
    let path = format!(
        "{KUBEVIRT_SUBRESOURCES}/namespaces/{namespace}/virtualmachineinstances/{name}/evacuate/cancel"
    );
    let body = json!({"evacuationNodeName": node}).to_string().into_bytes();
    let request = http::Request::put(path).header(http::header::CONTENT_TYPE, "application/json").body(body);
    client.request_text(request.map_err(kube::Error::HttpError)?).await.map(|_| ())
}

async fn delete(client: &Client, migration: &VirtualMachineInstanceMigration) -> kube::Result<()> {
    let unchanged = Preconditions { uid: migration.uid(), resource_version: migration.resource_version() };
    let parameters = DeleteParams::default().preconditions(unchanged);
    let api =
        Api::<VirtualMachineInstanceMigration>::namespaced(client.clone(), &migration.machine().namespace);
    api.delete(&migration.name_any(), &parameters).await.map(|_| ())
}

/// The answer to a request, or an error if it takes too long.
async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    crate::client::with_timeout(REQUEST_TIMEOUT, request).await
}
