//! All that is known of a plan, put together.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nm_shared::cluster::node;
use nm_shared::cluster::pod;
use nm_shared::cluster::pod_requests::Resources;
use nm_shared::drain::budget_forecast::Budgets;
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::plan::InvalidSelector;
use nm_shared::forecast::capacity::{self, CapacityEstimate, PodToPlace};
use nm_shared::forecast::gate_preview;
use nm_shared::forecast::{DrainPreview, Forecast, PlannedNode, PodOutcome};
use nm_shared::gate::{Gate, overrides_quorum};
use nm_shared::{DrainSpec, NodeMaintenance};

use crate::maintenance::request::Step;
use crate::plan::cluster_snapshot::Readings;
use crate::plan::max_unavailable::Limit;

/// What would happen.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// The nodes, in the order given.
    pub(crate) nodes: Vec<Prospect>,
    /// What would become of the pods; none if they may not be listed.
    pub(crate) forecast: Option<Forecast>,
    /// The names of the local volumes of pods that go, by the pods' uids.
    pub(crate) local_volumes: HashMap<String, Vec<String>>,
    /// Whether those fit elsewhere that stand in for pods; none if nodes or pods may not be listed.
    pub(crate) room: Option<CapacityEstimate>,
    /// How many nodes may be unavailable at once.
    pub(crate) limit: Limit,
    /// What everybody should know who asks for such a drain.
    pub(crate) warnings: Vec<&'static str>,
    /// What is not known, and why.
    pub(crate) missing: Vec<String>,
}

/// What would become of a node's maintenance.
#[derive(Debug, Default)]
pub(crate) struct Prospect {
    /// The node.
    pub(crate) node: String,
    /// Whether it is in maintenance already.
    pub(crate) begun: bool,
    /// Why it cannot be put into maintenance.
    pub(crate) refusal: Option<String>,
    /// Its place in line.
    pub(crate) line: Option<String>,
}

/// Judges the pods of each node, as it would be drained. A maintenance that exists drains as it says itself, unless
/// something else is asked for.
///
/// # Errors
///
/// If a pod selector is none.
pub(crate) fn draft(
    planned: &[String],
    asked: Option<&DrainSpec>,
    readings: &Readings,
    now: Timestamp,
) -> Result<Option<DrainPreview>, InvalidSelector> {
    let Some(pods) = &readings.pods else { return Ok(None) };
    let station = |name: &String| {
        let known = readings.nodes.iter().flatten().find(|known| node::name(known) == name);
        PlannedNode {
            node: name.clone(),
            drain: drain_of(name, asked, readings),
            pods: pods.planned.get(name).cloned().unwrap_or_default(),
            ready: known.is_none_or(node::is_ready),
        }
    };
    DrainPreview::new(planned.iter().map(station).collect(), &readings.daemon_sets, now).map(Some)
}

/// How a node would be drained.
fn drain_of(node: &str, asked: Option<&DrainSpec>, readings: &Readings) -> DrainSpec {
    let mut all = readings.maintenances.iter().chain(&readings.older);
    let existing = all.find(|other| other.spec.node_name == node);
    let own = existing.and_then(|existing| existing.spec.drain.as_ref());
    asked.or(own).cloned().unwrap_or_default()
}

impl Outlook {
    /// What the plan comes to with these answers to evictions, by uid.
    pub(crate) fn of(
        planned: &[String],
        asked: Option<&DrainSpec>,
        draft: Option<&DrainPreview>,
        readings: Readings,
        answers: &HashMap<String, EvictionOutcome>,
        now: Timestamp,
    ) -> Self {
        let budgets = Budgets::from_objects(&readings.budgets);
        let mut forecast = draft.map(|draft| draft.forecast(budgets, answers, now));
        let nodes = prospects(planned, &readings, now);
        let room = forecast.as_ref().and_then(|forecast| room(&nodes, forecast, &readings));
        if let (Some(forecast), Some(room)) = (&mut forecast, &room) {
            forecast.hold_back(&room.misfits.iter().flat_map(|misfits| misfits.pods.clone()).collect());
        }
        let leaving = || forecast.iter().flat_map(|forecast| &forecast.pods).filter(|pod| pod.leaves);
        let local_volumes =
            leaving().filter_map(|expected| local_volumes(&expected.pod, &readings)).collect();
        let mut missing = readings.missing.clone();
        let unanswered = forecast.iter().flat_map(|forecast| &forecast.unanswered);
        missing.extend(unanswered.map(|(why, pods)| {
            format!("what the API server and its webhooks would say of {}: {why}", counted(*pods, "pod"))
        }));
        let mut warnings: Vec<&str> =
            planned.iter().filter_map(|name| drain_of(name, asked, &readings).warning()).collect();
        warnings.dedup();
        Self { warnings, nodes, room, local_volumes, limit: readings.limit, missing, forecast }
    }

    /// Whether something stands in the way that does not pass by itself: a pod that is blocked, or a node that cannot be
    /// put into maintenance. A place in line is none.
    pub(crate) fn is_blocked(&self) -> bool {
        let mut pods = self.forecast.iter().flat_map(|forecast| &forecast.pods);
        self.nodes.iter().any(|node| node.refusal.is_some())
            || pods.any(|expected| matches!(expected.fate, PodOutcome::Blocked(_)))
    }

    /// Whether something that is to start elsewhere fits nowhere, by the estimate.
    pub(crate) fn lacks_room(&self) -> bool {
        self.room.as_ref().is_some_and(|room| !room.misfits.is_empty())
    }
}

/// `1 pod`, `2 pods`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn prospects(planned: &[String], readings: &Readings, now: Timestamp) -> Vec<Prospect> {
    let existing = [readings.maintenances.as_slice(), readings.older.as_slice()].concat();
    let guard = readings.guard();
    let nodes = readings.nodes.as_deref().unwrap_or_default();
    let limit = readings.limit.value();
    let mut gates: HashMap<String, Gate> =
        gate_preview::gates(planned, nodes, &existing, guard.as_ref(), limit, now).into_iter().collect();
    // Names are each group's own: of older ones it is the node alone that counts.
    let older_of = |name: &str| -> Vec<NodeMaintenance> {
        readings.older.iter().filter(|other| other.spec.node_name == name).cloned().collect()
    };
    let prospect = |name: &String| {
        let step = match Step::towards(name, &readings.maintenances) {
            Step::Create => Step::towards(name, &older_of(name)),
            step => step,
        };
        let (quorum, line) = match (&step, gates.remove(name)) {
            (Step::Present(object), _) => waiting(object),
            (_, Some(gate)) => (gate.quorum, gate.queue.map(|queued| queued.to_string())),
            (_, None) => (None, None),
        };
        let refusal = step.refusal(name).map(|refusal| refusal.to_string()).or(quorum);
        Prospect { node: name.clone(), begun: matches!(step, Step::Present(_)), refusal, line }
    };
    planned.iter().map(prospect).collect()
}

/// What a maintenance that exists waits for, by its status: etcd's quorum, or its turn in the queue.
fn waiting(object: &NodeMaintenance) -> (Option<String>, Option<String>) {
    use nm_shared::api::condition::ConditionReason::{MaxUnavailable, QuorumAtRisk};
    let Some(drained) = crate::maintenance::condition(object, "Drained") else { return (None, None) };
    let error = |wanted: &str| (drained.reason == wanted).then(|| crate::maintenance::reason(object).to_owned());
    let quorum = error(QuorumAtRisk.as_str()).filter(|_| !overrides_quorum(object));
    (quorum, error(MaxUnavailable.as_str()))
}

/// Whether the pods of nodes that begin now fit on the others. Those that wait in line stay in use until others are given
/// back, and so count as others.
fn room(planned: &[Prospect], forecast: &Forecast, readings: &Readings) -> Option<CapacityEstimate> {
    let (nodes, pods) = (readings.nodes.as_ref()?, readings.pods.as_ref()?);
    let begins = |name: &str| planned.iter().any(|node| node.node == name && node.line.is_none());
    let replaced = forecast.pods.iter().filter(|expected| expected.is_replaced() && begins(&expected.node));
    let movers: Vec<PodToPlace<'_>> = replaced
        .map(|expected| PodToPlace { pod: &expected.pod, volumes: readings.volumes.reach(&expected.pod) })
        .collect();
    let mut used = pods.used.clone();
    for (name, there) in pods.planned.iter().filter(|(name, _)| !begins(name)) {
        let stay = there.iter().filter(|pod| !pod::is_finished(pod));
        for pod in stay {
            used.entry(name.clone()).or_default().add(&Resources::of_pod(pod));
        }
    }
    let others = nodes.iter().filter(|known| !begins(node::name(known)));
    Some(capacity::estimate(&movers, others, &used))
}

fn local_volumes(pod: &Arc<Pod>, readings: &Readings) -> Option<(String, Vec<String>)> {
    let local = readings.volumes.local(pod);
    let names = local.into_iter().map(str::to_owned).collect::<Vec<_>>();
    (!names.is_empty()).then(|| (pod.uid().unwrap_or_default(), names))
}

#[cfg(test)]
#[path = "outlook_tests.rs"]
mod tests;
