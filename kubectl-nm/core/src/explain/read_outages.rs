//! Reads which workloads have no ready pod since pods of theirs left nodes in maintenance, or were preempted by replacements, and
//! why that is not known of all of them: what may not be read, what a limit cuts off, and pods whose events have expired.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use nm_shared::NodeMaintenance;

use crate::client::cluster::Cluster;
use crate::explain::bounded_requests::{MAX_CONCURRENT, MAX_PODS, list, metadata, page};
use crate::explain::cluster_facts::{
    ClusterFacts, FailedJob, Outage, OutageGap, PreemptedPod, StoppedPod, Unseen, Workload,
};
use crate::explain::obstacle::PodWarning;
use crate::explain::outage::Unready;
use crate::explain::preemption;
use crate::explain::read_facts::{depends_on_nodes, read_late_nodes, read_nodes};
use crate::explain::read_warnings::{MAX_DETAILS, add_volumes, some_events, warnings_about};
use crate::maintenance::departures::Departures;
use crate::maintenance::{State, cordoned_since, kept_by_roll, node, pods_gone, status};

/// How many events are read at most, of the whole cluster.
const MAX_EVENTS: u32 = 5000;

/// In how many namespaces workloads are read at most.
const MAX_NAMESPACES: usize = 20;

/// How many workloads of a kind are read at most, to see whether any is down at all.
const MAX_WORKLOADS: u32 = 5000;

/// How many pods of a namespace are read at most, to find those that others were preempted for.
const MAX_PREEMPTORS: u32 = 5000;

/// How many Jobs of a namespace are read at most.
const MAX_JOBS: u32 = 500;

/// How many workloads without a ready pod are named.
const MAX_NAMES: usize = 10;

/// The warnings about a pod that was started and is not Ready.
const FAILS: [&str; 2] = ["Unhealthy", "BackOff"];

/// A pod without such a warning for this long is taken to be Ready again: the kubelet repeats a warning at least
/// every five minutes or so.
const RECENTLY: SignedDuration = SignedDuration::from_mins(10);

/// The kubelet counts the repetitions of a warning in one event, even if the pod was Ready for hours in between. Without such a break,
/// it repeats the warning at least this often on average.
const MAX_REPEAT: SignedDuration = SignedDuration::from_mins(6);

/// For how long API servers keep events by default.
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);

/// Adds the outages of the workloads whose pods left the nodes of these maintenances, those that lack some pods since such a drain
/// has ended, and why they may not be all.
pub async fn add<'a>(
    facts: &mut ClusterFacts,
    explained: impl IntoIterator<Item = &'a NodeMaintenance>,
    cluster: &Cluster,
    now: Timestamp,
) {
    let Seen { drained, stopped, is_complete } = add_lacking(facts, explained, true, cluster).await;
    add_warnings(facts, cluster).await;
    add_volumes(cluster, facts, now).await;
    let depends = |outage: &Outage| outage.pods.iter().any(|read| depends_on_nodes(&read.pod, now));
    let are_nodes_needed = facts.outages_and_lacking().any(depends);
    if are_nodes_needed {
        read_nodes(cluster, facts).await;
    }
    read_late_nodes(cluster, facts, now).await;
    add_failed_jobs(facts, &drained, &stopped, cluster).await;
    if is_complete {
        add_expired(facts, &drained, &stopped, cluster, now).await;
    }
    facts.outage_gaps.retain(|_, gaps| !gaps.is_empty());
}

/// Adds the warnings about the first replacements of each workload. The same pods replace those of several nodes.
async fn add_warnings(facts: &mut ClusterFacts, cluster: &Cluster) {
    let replacements = facts.outages_and_lacking().flat_map(|outage| outage.pods.iter().take(MAX_DETAILS));
    let pods: BTreeMap<Option<String>, Pod> =
        replacements.map(|read| (read.pod.metadata.uid.clone(), read.pod.clone())).collect();
    let read = async |(uid, pod): (Option<String>, Pod)| (uid, warnings_about(cluster, &pod).await);
    let read = stream::iter(pods).map(read).buffer_unordered(MAX_CONCURRENT);
    let known: BTreeMap<Option<String>, Vec<PodWarning>> = read.collect().await;
    let all = facts.outages.values_mut().chain(facts.lacking.values_mut()).flatten();
    for replacement in all.flat_map(|outage| &mut outage.pods) {
        if let Some(warnings) = known.get(&replacement.pod.metadata.uid) {
            replacement.warnings.clone_from(warnings);
        }
    }
}

/// What the events show.
#[derive(Default)]
pub struct Seen<'a> {
    /// When the drain of each node began, and its maintenance.
    drained: BTreeMap<&'a str, (Timestamp, &'a NodeMaintenance)>,
    /// The pods that the kubelets of these nodes have ended.
    stopped: Vec<StoppedPod>,
    /// Whether all events were read.
    is_complete: bool,
}

/// A drain, as far as it matters to workloads.
struct Drain {
    began: Timestamp,
    /// Whether it is over, so that workloads with too few ready pods matter as well.
    is_over: bool,
    /// The pods that were preempted for those that replace pods of the node.
    preempted: Vec<PreemptedPod>,
}

/// Adds the outages of which there are still events.
pub async fn add_seen<'a>(
    facts: &mut ClusterFacts,
    explained: impl IntoIterator<Item = &'a NodeMaintenance>,
    cluster: &Cluster,
) {
    add_lacking(facts, explained, false, cluster).await;
}

/// Adds the outages, and with `with_lacking` workloads with too few ready pods since drains that are over.
async fn add_lacking<'a>(
    facts: &mut ClusterFacts,
    explained: impl IntoIterator<Item = &'a NodeMaintenance>,
    with_lacking: bool,
    cluster: &Cluster,
) -> Seen<'a> {
    let drained: BTreeMap<&str, (Timestamp, &NodeMaintenance)> = explained
        .into_iter()
        // A roll checks the workloads of a node that is back in service.
        .filter(|object| State::of(object) != State::Stopping || kept_by_roll(object).is_some())
        .filter_map(|object| Some((node(object), (cordoned_since(object)?, object))))
        .collect();
    if drained.is_empty() {
        return Seen::default();
    }
    let mut gaps = BTreeSet::new();
    let (stopping, preempting) = tokio::join!(events_of(cluster, "Killing"), events_of(cluster, "Preempted"));
    let is_complete = matches!(stopping, Ok((_, false)));
    let [stopping, preempting] = [stopping, preempting].map(|read| match read {
        Ok((events, is_cut)) => {
            gaps.extend(is_cut.then_some(OutageGap::MoreEvents(MAX_EVENTS)));
            events
        }
        Err(unseen) => {
            gaps.insert(OutageGap::Unseen(unseen));
            Vec::new()
        }
    });
    let everywhere: Vec<StoppedPod> = stopping.iter().filter_map(StoppedPod::of).collect();
    let is_of_drain =
        |pod: &StoppedPod| drained.get(pod.node.as_str()).is_some_and(|(began, _)| pod.at >= *began);
    let stopped: Vec<StoppedPod> = everywhere.iter().filter(|pod| is_of_drain(pod)).cloned().collect();
    let has_unseen = |(_, object): &&(Timestamp, &NodeMaintenance)| left_without_event(object, &stopped) > 0;
    let partly_seen = drained.values().filter(has_unseen).map(|(_, object)| node(object).to_owned());
    facts.partly_seen.extend(partly_seen);
    facts.preempted = preempting.iter().filter_map(PreemptedPod::of).collect();
    let unseen = read_preemptors(&mut facts.preempted, &everywhere, &stopped, cluster).await;
    gaps.extend(unseen.into_iter().map(OutageGap::Unseen));
    let drain = |(node, (began, object)): (&&'a str, &(Timestamp, &NodeMaintenance))| {
        let preempted = preemption::of_drain(node, *began, &stopped, &facts.preempted);
        // A roll halts if workloads do not recover after a node is back in service.
        let is_done = State::of(object) == State::Drained || kept_by_roll(object).is_some();
        let is_over = with_lacking && is_done;
        (*node, Drain { began: *began, is_over, preempted })
    };
    let drains: BTreeMap<&str, Drain> = drained.iter().map(drain).collect();
    let preempted = drains.values().flat_map(|drain| &drain.preempted).map(|pod| &pod.pod);
    let namespaces: BTreeSet<&str> =
        stopped.iter().map(|pod| &pod.pod).chain(preempted).map(|pod| pod.namespace.as_str()).collect();
    let more = namespaces.len().saturating_sub(MAX_NAMESPACES);
    gaps.extend((more > 0).then_some(OutageGap::MoreNamespaces(more)));
    let read = namespaces.into_iter().take(MAX_NAMESPACES).map(async |namespace| {
        let stopped: Vec<StoppedPod> =
            everywhere.iter().filter(|pod| pod.pod.namespace == namespace).cloned().collect();
        of_namespace(cluster, namespace, &stopped, &drains).await
    });
    for read in join_all(read).await {
        match read {
            Ok((outages, are_warnings_cut)) => {
                gaps.extend(are_warnings_cut);
                for (node, outage) in outages {
                    let kind =
                        if outage.workload.is_down() { &mut facts.outages } else { &mut facts.lacking };
                    kind.entry(node).or_default().push(outage);
                }
            }
            Err(unseen) => gaps.extend([OutageGap::Unseen(unseen)]),
        }
    }
    // Where no pod has left, nothing is missing.
    for (name, _) in drained.iter().filter(|(_, (_, object))| pods_gone(status(object)) > 0) {
        facts.outage_gaps.entry((*name).to_owned()).or_default().extend(gaps.iter().cloned());
    }
    Seen { drained, stopped, is_complete }
}

/// Adds the Jobs that have failed for good since pods of theirs left nodes whose drains evicted pods of Jobs, and why they may not
/// be all.
async fn add_failed_jobs(
    facts: &mut ClusterFacts,
    drained: &BTreeMap<&str, (Timestamp, &NodeMaintenance)>,
    stopped: &[StoppedPod],
    cluster: &Cluster,
) {
    let evicted_jobs =
        |object: &NodeMaintenance| status(object).departed_pods.is_some_and(|departed| departed.of_jobs > 0);
    let drained: BTreeMap<&str, Timestamp> = drained
        .iter()
        .filter(|(_, (_, object))| evicted_jobs(object))
        .map(|(node, (began, _))| (*node, *began))
        .collect();
    let of_drain = stopped.iter().filter(|pod| drained.contains_key(pod.node.as_str()));
    let namespaces: BTreeSet<&str> = of_drain.map(|pod| pod.pod.namespace.as_str()).collect();
    let mut gaps = BTreeSet::new();
    let read = namespaces.into_iter().take(MAX_NAMESPACES).map(async |namespace| {
        let jobs: Api<Job> = Api::namespaced(cluster.client(), namespace);
        let limit = ListParams::default().limit(MAX_JOBS);
        (namespace, page(cluster, &jobs, "list jobs.batch", limit).await)
    });
    for (namespace, read) in join_all(read).await {
        let (jobs, is_cut) = match read {
            Ok(read) => read,
            Err(unseen) => {
                gaps.insert(OutageGap::Unseen(unseen));
                continue;
            }
        };
        gaps.extend(is_cut.then(|| OutageGap::MoreJobs { namespace: namespace.to_owned(), limit: MAX_JOBS }));
        for job in jobs {
            for (node, began) in &drained {
                let failed = FailedJob::of(&job, node, *began, stopped);
                facts.failed_jobs.entry((*node).to_owned()).or_default().extend(failed);
            }
        }
    }
    for node in drained.into_keys() {
        facts.outage_gaps.entry(node.to_owned()).or_default().extend(gaps.iter().cloned());
    }
}

/// Adds the drains of which events have expired, if a workload without a ready pod may be one of theirs.
async fn add_expired(
    facts: &mut ClusterFacts,
    drained: &BTreeMap<&str, (Timestamp, &NodeMaintenance)>,
    stopped: &[StoppedPod],
    cluster: &Cluster,
    now: Timestamp,
) {
    let missing = |(node, (began, object)): (&&str, &(Timestamp, &NodeMaintenance))| {
        let pods = left_without_event(object, stopped);
        (pods > 0 && now.duration_since(*began) >= EVENT_TTL).then_some(((*node).to_owned(), *began, pods))
    };
    let missing: Vec<(String, Timestamp, i32)> = drained.iter().filter_map(missing).collect();
    if missing.is_empty() {
        return;
    }
    let down = workloads_down(cluster).await;
    for (node, began, pods) in missing {
        let gap = match &down {
            Ok(down) => {
                let is_known = |workload: &Workload| {
                    let outages = facts.outages.get(&node).into_iter().flatten();
                    outages
                        .map(|outage| &outage.workload)
                        .any(|known| known.namespace == workload.namespace && known.owner == workload.owner)
                };
                let was_up =
                    |workload: &&Workload| workload.unavailable_since.is_none_or(|since| since >= began);
                let new = down.iter().filter(was_up).filter(|workload| !is_known(workload));
                let down: Vec<String> = new.map(Workload::reference).take(MAX_NAMES).collect();
                if down.is_empty() {
                    continue;
                }
                OutageGap::Expired { pods, down }
            }
            Err(_) => OutageGap::Expired { pods, down: Vec::new() },
        };
        facts.outage_gaps.entry(node).or_default().insert(gap);
    }
}

/// How many pods have left the node of which no event is known: it has expired, or no container of the pod ran when it was deleted.
fn left_without_event(object: &NodeMaintenance, stopped: &[StoppedPod]) -> i32 {
    let of_node = stopped.iter().filter(|pod| pod.node == node(object));
    let uids: BTreeSet<&str> = of_node.map(|pod| pod.uid.as_str()).collect();
    replaced(object).saturating_sub(i32::try_from(uids.len()).unwrap_or(i32::MAX))
}

/// How many pods have left whose controllers replace them, as far as the status tells departures apart.
fn replaced(object: &NodeMaintenance) -> i32 {
    let gone = pods_gone(status(object));
    Departures::of(status(object), gone)
        .map_or(gone, |departures| i32::try_from(departures.moved).unwrap_or(i32::MAX))
}

/// The workloads of the cluster without a ready pod.
async fn workloads_down(cluster: &Cluster) -> Result<Vec<Workload>, Unseen> {
    let deployments: Api<Deployment> = Api::all(cluster.client());
    let sets: Api<StatefulSet> = Api::all(cluster.client());
    let limit = || ListParams::default().limit(MAX_WORKLOADS);
    let (deployments, sets) = tokio::join!(
        page(cluster, &deployments, "list deployments.apps", limit()),
        page(cluster, &sets, "list statefulsets.apps", limit()),
    );
    let ((deployments, has_more), (sets, has_more_sets)) = (deployments?, sets?);
    if has_more || has_more_sets {
        return Err(Unseen::Failed(
            String::from("list workloads"),
            format!("there are more than {MAX_WORKLOADS}"),
        ));
    }
    let workloads = deployments.iter().map(Workload::from).chain(sets.iter().map(Workload::from));
    Ok(workloads.filter(Workload::is_down).collect())
}

/// The workloads that lack ready pods, of which pods have been preempted for those that replace pods of these nodes since then, as
/// far as the user may see it.
pub async fn preempted_since<'a>(
    nodes: impl IntoIterator<Item = &'a str>,
    began: Timestamp,
    cluster: &Cluster,
) -> Vec<(Workload, Vec<PreemptedPod>)> {
    let read = tokio::join!(events_of(cluster, "Killing"), events_of(cluster, "Preempted"));
    let (Ok((stopped, _)), Ok((preempted, _))) = read else { return Vec::new() };
    let everywhere: Vec<StoppedPod> = stopped.iter().filter_map(StoppedPod::of).collect();
    let nodes: BTreeSet<&str> = nodes.into_iter().collect();
    let is_of_roll = |pod: &&StoppedPod| pod.at >= began && nodes.contains(pod.node.as_str());
    let left: Vec<StoppedPod> = everywhere.iter().filter(is_of_roll).cloned().collect();
    let mut preempted: Vec<PreemptedPod> = preempted.iter().filter_map(PreemptedPod::of).collect();
    // What is not seen is not named.
    let _ = read_preemptors(&mut preempted, &everywhere, &left, cluster).await;
    let of_node = |node| preemption::of_drain(node, began, &left, &preempted);
    let preempted: Vec<PreemptedPod> = nodes.iter().copied().flat_map(of_node).collect();
    let namespaces: BTreeSet<&str> = preempted.iter().map(|lost| lost.pod.namespace.as_str()).collect();
    let read = namespaces.into_iter().take(MAX_NAMESPACES).map(|namespace| lacking_in(cluster, namespace));
    let lacking = join_all(read).await.into_iter().filter_map(Result::ok).flatten();
    let with_preempted = |workload: Workload| {
        let lost: Vec<PreemptedPod> =
            preempted.iter().filter(|lost| workload.names(&lost.pod)).cloned().collect();
        (!lost.is_empty()).then_some((workload, lost))
    };
    lacking.filter_map(with_preempted).collect()
}

/// Names the pods that others were preempted for, as far as they are in the namespaces of the pods that have left nodes, as the
/// replacements of these are. Returns what is not seen of these namespaces.
async fn read_preemptors(
    preempted: &mut [PreemptedPod],
    stopped: &[StoppedPod],
    left: &[StoppedPod],
    cluster: &Cluster,
) -> Vec<Unseen> {
    if preempted.is_empty() {
        return Vec::new();
    }
    let namespaces: BTreeSet<&str> = left.iter().map(|pod| pod.pod.namespace.as_str()).collect();
    let read = namespaces.into_iter().take(MAX_NAMESPACES).map(|namespace| pods_of(cluster, namespace));
    let (mut pods, mut unseen) = (Vec::new(), Vec::new());
    for read in join_all(read).await {
        match read {
            Ok(read) => pods.extend(read),
            Err(why) => unseen.push(why),
        }
    }
    preemption::name_preemptors(preempted, stopped, &pods);
    unseen
}

/// The metadata of the pods of a namespace.
async fn pods_of(cluster: &Cluster, namespace: &str) -> Result<Vec<PartialObjectMeta<Pod>>, Unseen> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    metadata(cluster, &pods, "list pods", ListParams::default().limit(MAX_PREEMPTORS)).await
}

/// Up to [`MAX_EVENTS`] events of the cluster with this reason, and whether there are more.
async fn events_of(cluster: &Cluster, reason: &str) -> Result<(Vec<Event>, bool), Unseen> {
    let all: Api<Event> = Api::all(cluster.client());
    let which = ListParams::default().fields(&format!("reason={reason}")).limit(MAX_EVENTS);
    page(cluster, &all, "list events", which).await
}

/// The workloads of a namespace without a ready pod.
pub(super) async fn down_in(cluster: &Cluster, namespace: &str) -> Result<Vec<Workload>, Unseen> {
    let lacking = lacking_in(cluster, namespace).await?;
    Ok(lacking.into_iter().filter(Workload::is_down).collect())
}

/// The workloads of a namespace with too few ready pods.
async fn lacking_in(cluster: &Cluster, namespace: &str) -> Result<Vec<Workload>, Unseen> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace);
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), namespace);
    let (deployments, sets) = tokio::join!(
        list(cluster, &deployments, "list deployments.apps", ListParams::default()),
        list(cluster, &sets, "list statefulsets.apps", ListParams::default()),
    );
    let (deployments, sets) = (deployments?, sets?);
    let workloads = deployments.iter().map(Workload::from).chain(sets.iter().map(Workload::from));
    Ok(workloads.filter(Workload::lacks_pods).collect())
}

/// Outages, each with its node, and the gap if not all warnings of the namespace were read.
type OfNamespace = (Vec<(String, Outage)>, Option<OutageGap>);

async fn of_namespace(
    cluster: &Cluster,
    namespace: &str,
    stopped: &[StoppedPod],
    drains: &BTreeMap<&str, Drain>,
) -> Result<OfNamespace, Unseen> {
    let mut lacking = lacking_in(cluster, namespace).await?;
    let is_one_over = drains.values().any(|drain| drain.is_over);
    lacking.retain(|workload| is_one_over || workload.is_down());
    if lacking.is_empty() {
        return Ok((Vec::new(), None));
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let pods = match list(cluster, &pods, "list pods", ListParams::default().limit(MAX_PODS)).await {
        Ok(pods) => pods,
        // One that has ready pods may only be rolling out or scaling up: without its pods, there is nothing to report.
        Err(_) if !lacking.iter().any(Workload::is_down) => return Ok((Vec::new(), None)),
        Err(unseen) => return Err(unseen),
    };
    let (warned, are_cut) = warned_before(cluster, namespace, stopped).await;
    let mut outages = Vec::new();
    for workload in lacking {
        for (node, Drain { began, preempted, .. }) in
            drains.iter().filter(|(_, drain)| drain.is_over || workload.is_down())
        {
            let warned = |pod: &StoppedPod| warned.get(&pod.uid).copied();
            let outage = workload.clone().outage(node, *began, stopped, preempted, &pods, warned);
            outages.extend(outage.map(|outage| ((*node).to_owned(), outage)));
        }
    }
    // Only where no condition shows since when, warnings matter.
    let is_doubtful = outages.iter().any(|(_, outage)| outage.workload.unavailable_since.is_none());
    let gap = (are_cut && is_doubtful).then(|| OutageGap::MoreWarnings(namespace.to_owned()));
    Ok((outages, gap))
}

/// The pods, by uid, of which there are warnings from shortly before they were stopped. And whether there are more warnings.
async fn warned_before(
    cluster: &Cluster,
    namespace: &str,
    stopped: &[StoppedPod],
) -> (HashMap<String, Unready>, bool) {
    let read = some_events(cluster, namespace, "type=Warning,involvedObject.kind=Pod").await;
    let (warnings, is_cut) = read.unwrap_or_default();
    let first = |event: &Event| event.first_timestamp.as_ref().map(|at| at.0);
    let last = |event: &Event| event.last_timestamp.as_ref().map(|at| at.0);
    let fails = |event: &&Event| event.reason.as_deref().is_some_and(|reason| FAILS.contains(&reason));
    let unready = |pod: &StoppedPod| {
        let before = warnings.iter().filter(fails).filter(|event| {
            event.involved_object.uid.as_ref() == Some(&pod.uid)
                && first(event).is_none_or(|at| at < pod.at)
                && last(event).is_none_or(|at| pod.at.duration_since(at) < RECENTLY)
        });
        let before: Vec<&Event> = before.collect();
        let crashes = before.iter().filter(|event| event.reason.as_deref() == Some("BackOff"));
        let crashes = crashes.filter(|event| may_be_unbroken(event)).filter_map(|event| first(event)).min();
        (!before.is_empty()).then(|| (pod.uid.clone(), Unready { crashes }))
    };
    (stopped.iter().filter_map(unready).collect(), is_cut)
}

/// Whether a warning that is repeated may have been so without a break since it was first given.
fn may_be_unbroken(event: &Event) -> bool {
    let (Some(first), Some(last)) = (&event.first_timestamp, &event.last_timestamp) else { return true };
    let repeated = event.count.unwrap_or(1).saturating_sub(1);
    last.0.duration_since(first.0) <= MAX_REPEAT.saturating_mul(repeated)
}

#[cfg(test)]
#[path = "read_outages_tests.rs"]
mod tests;
