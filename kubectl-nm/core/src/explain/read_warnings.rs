//! Reads the warnings about objects, and why the claims of a pod that is not scheduled have no volume.

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_shared::PodReference;

use crate::client::cluster::Cluster;
use crate::client::list_pages::list_pages;
use crate::explain::bounded_requests::{get, page, within_timeout};
use crate::explain::cluster_facts::{ClusterFacts, Unseen};
use crate::explain::obstacle::{Obstacle, PodWarning};
use crate::explain::pending_claim::{ListedVolumes, NO_PROVISIONER, NoVolume, PendingClaim};

/// Of how many pods the events are read, and how many owners, of each budget.
pub(super) const MAX_DETAILS: usize = 3;

/// How many events about an object, or about the pods of a namespace, are read at most.
pub(super) const MAX_EVENTS: u32 = 100;

/// The warnings about a pod. One that is not scheduled may have claims without a volume.
pub(super) async fn warnings_about(cluster: &Cluster, pod: &Pod) -> Vec<PodWarning> {
    let namespace = pod.namespace().unwrap_or_default();
    let obstacle = Obstacle::of(pod, &[], Timestamp::UNIX_EPOCH);
    if !obstacle.as_ref().is_some_and(is_unscheduled) {
        return warnings(cluster, &namespace, &pod.uid().unwrap_or_default()).await;
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| {
        let named = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
        let of_template = || volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name));
        let is_ephemeral = named.is_none();
        let name = named.or_else(of_template)?;
        Some((PodReference { namespace: namespace.clone(), name }, is_ephemeral))
    });
    let claims = claims.take(MAX_DETAILS);
    let claims =
        join_all(claims.map(|(claim, is_ephemeral)| pending_claim(cluster, claim, is_ephemeral))).await;
    let warning = |claim| PodWarning { claim: Some(claim), ..PodWarning::default() };
    claims.into_iter().flatten().map(warning).collect()
}

/// Why a claim has no volume; none if it has one, or if that is not known.
async fn pending_claim(cluster: &Cluster, claim: PodReference, is_ephemeral: bool) -> Option<PendingClaim> {
    let found = get::<PersistentVolumeClaim>(cluster, "persistentvolumeclaims", &claim).await.ok()?;
    let Some(found) = found else {
        let why = NoVolume::NoClaim;
        return Some(PendingClaim { claim, class: None, why, is_ephemeral, retained: Vec::new() });
    };
    let is_deleted = found.metadata.deletion_timestamp.is_some();
    let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
    if !is_deleted && phase != Some("Pending") {
        return None;
    }
    let class = found.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    let class = class.filter(|name| !name.is_empty());
    let with = |why: NoVolume| {
        let (claim, class) = (claim.clone(), class.clone());
        Some(PendingClaim { claim, class, why, is_ephemeral, retained: Vec::new() })
    };
    if is_deleted {
        return with(NoVolume::Deleted);
    }
    if let Some(name) = &class {
        let classes: Api<StorageClass> = Api::all(cluster.client());
        let asked = "get storageclasses.storage.k8s.io";
        let request = cluster.request(asked, async || classes.get_opt(name).await);
        match within_timeout(asked, request).await {
            Ok(None) => return with(NoVolume::NoClass),
            Ok(Some(class)) if class.provisioner == NO_PROVISIONER => return with(NoVolume::NoProvisioner),
            _ => {}
        }
    }
    let about = format!("involvedObject.uid={}", found.uid().unwrap_or_default());
    let event = events(cluster, &claim.namespace, &about).await.pop()?;
    let message = event.message.unwrap_or_default();
    match event.reason.as_deref() {
        // The pod has to be scheduled first.
        Some("WaitForFirstConsumer" | "WaitForPodScheduled") => None,
        Some("Provisioning" | "ExternalProvisioning" | "ExternalProvisioner") => {
            // It may have waited for its pod before.
            let since = event.first_timestamp.as_ref().map(|at| at.0);
            with(NoVolume::Awaited(since.or_else(|| Some(found.creation_timestamp()?.0))?, message))
        }
        _ => with(NoVolume::Failed(message)),
    }
}

/// Adds what the volumes of the cluster show about claims that have waited for one for a while. They are listed once, and none is
/// noted without access.
pub(super) async fn add_volumes(cluster: &Cluster, facts: &mut ClusterFacts, now: Timestamp) {
    if !facts.pending_claims().any(|claim| claim.needs_volumes(now)) {
        return;
    }
    let known = match facts.listed_volumes.take() {
        Some(known) => known,
        None => listed_volumes(cluster).await,
    };
    facts.pending_claims().filter(|claim| claim.needs_volumes(now)).for_each(|claim| claim.note(&known));
    facts.listed_volumes = Some(known);
}

async fn listed_volumes(cluster: &Cluster) -> ListedVolumes {
    let (volumes, asked): (Api<PersistentVolume>, _) = (Api::all(cluster.client()), "list persistentvolumes");
    let listed = list_pages(&volumes, cluster, asked, ListParams::default(), ListedVolumes::add);
    within_timeout(asked, listed).await.unwrap_or_default()
}

/// The warnings about an object, the newest last. None without access, because they only add to what pods show.
pub(super) async fn warnings(cluster: &Cluster, namespace: &str, uid: &str) -> Vec<PodWarning> {
    let found = events(cluster, namespace, &format!("type=Warning,involvedObject.uid={uid}")).await;
    let warning = |event: Event| PodWarning {
        first: event.first_timestamp.as_ref().map(|at| at.0),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default().trim().to_owned(),
        claim: None,
    };
    found.into_iter().map(warning).collect()
}

/// The events that these fields select, the newest last. None without access.
async fn events(cluster: &Cluster, namespace: &str, fields: &str) -> Vec<Event> {
    let mut found = some_events(cluster, namespace, fields).await.unwrap_or_default().0;
    let at = |event: &Event| {
        let seen = event.last_timestamp.as_ref().map(|at| at.0);
        seen.or_else(|| event.event_time.as_ref().map(|at| at.0))
    };
    found.sort_by_key(at);
    found
}

/// Up to [`MAX_EVENTS`] events that these fields select, and whether there are more.
pub(super) async fn some_events(
    cluster: &Cluster,
    namespace: &str,
    fields: &str,
) -> Result<(Vec<Event>, bool), Unseen> {
    let events: Api<Event> = Api::namespaced(cluster.client(), namespace);
    let which = ListParams::default().fields(fields).limit(MAX_EVENTS);
    page(cluster, &events, "list events", which).await
}

pub(super) fn is_unscheduled(obstacle: &Obstacle) -> bool {
    matches!(obstacle, Obstacle::Unschedulable(_) | Obstacle::Unscheduled)
}
