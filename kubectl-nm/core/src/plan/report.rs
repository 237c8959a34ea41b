//! The result of a plan: snapshot, dry runs and the decisions of `nm-shared` combined.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use nm_shared::api::status::BlockReason;
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::node::{self, Readiness};
use nm_shared::cluster::node_fit;
use nm_shared::cluster::pod::{self, DrainPod, PodPhase};
use nm_shared::drain::budget_allowance::Budgets;
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::plan::InvalidSelector;
use nm_shared::drain::returning::{is_assigned_by_template, tolerates_cordon};
use nm_shared::forecast::budget_forecast::BudgetForecast;
use nm_shared::forecast::capacity::{self, CapacityEstimate, PodToPlace};
use nm_shared::forecast::gate_preview;
use nm_shared::forecast::outage::{self, WorkloadOutage};
use nm_shared::forecast::preemption::{Preemption, UsedCapacity};
use nm_shared::forecast::schedulable::{self, NodeGroup};
use nm_shared::forecast::{DrainPreview, Forecast, PlannedNode, PodForecast, PodOutcome};
use nm_shared::gate::{Gate, overrides_quorum, ownership};
use nm_shared::{DrainSpec, Grant, Group, Hook, NodeMaintenance, PodReference};

use crate::client::unread::Unread;
use crate::maintenance::roll::RollRunners;
use crate::maintenance::start::Existing;
use crate::maintenance::{State, hooks_before_eviction};
use crate::plan::cluster_snapshot::ClusterSnapshot;
use crate::plan::deleted_claims::DeletedClaim;
use crate::plan::denied;
use crate::plan::endless_pods::EndlessPods;
use crate::plan::failing_jobs::FailingJobs;
use crate::plan::growing_budgets;
use crate::plan::max_unavailable::MaxUnavailableLimit;
use crate::plan::pods_elsewhere::ready_pod;
use crate::plan::pods_of_budgets::failing_because;
use crate::plan::returning_pods::{block_assigned, block_returning};
use crate::plan::slow_pods::SlowPods;
use crate::plan::volume_detach::DetachReport;
use crate::terminal::text::counted;

/// Outcome of a plan.
#[derive(Debug)]
pub struct PlanReport {
    pub(crate) nodes: Vec<NodeReport>,
    /// The outcome for each pod; none without access to pods.
    pub forecast: Option<Forecast>,
    /// The local volumes of pods that leave, by the pods' uids.
    pub(crate) local_volumes: HashMap<String, Vec<String>>,
    /// The volume claims of pods that leave which are being deleted.
    pub(crate) deleted_claims: Vec<DeletedClaim>,
    /// Whether the replacements of pods fit on other nodes; none if nodes or their pods are not known.
    pub(crate) capacity: Option<CapacityEstimate>,
    pub(crate) limit: MaxUnavailableLimit,
    pub(crate) warnings: Vec<&'static str>,
    pub(crate) unknown: Vec<Unread>,
    /// The groups of nodes of which no schedulable one is left; empty without access to nodes.
    pub(crate) emptied: Vec<NodeGroup>,
    /// The nodes that are not Ready and have pods that should leave.
    pub(crate) unready: Vec<String>,
    /// The workloads of which no pod is Ready for a while; empty without access to pods.
    pub(crate) outages: Vec<WorkloadOutage>,
    /// The Jobs that fail for good; empty without access to Jobs or pods.
    pub(crate) failing_jobs: Vec<FailingJobs>,
    /// How many more of its pods have to be Ready before a budget allows an eviction; only of budgets that lack some.
    pub(crate) lacking: BTreeMap<BudgetKey, i32>,
    /// The budgets whose status is older than their pods, and that would allow an eviction once these are counted.
    pub(crate) outdated: BTreeSet<BudgetKey>,
    /// The pods that may take long to terminate; empty without access to pods.
    pub(crate) slow: Vec<SlowPods>,
    /// The pods that the drain waits for without a limit, and that may never terminate on their own; empty without access to pods.
    pub(crate) endless: Vec<EndlessPods>,
    /// The budgets that may count more pods in a moment, so that what they allow at most is not known.
    pub(crate) growing: BTreeSet<BudgetKey>,
    pub(crate) are_budgets_known: bool,
    /// What nm-reconciler may not do although the settings of the drains need it.
    pub(crate) denied: BTreeSet<Grant>,
}

#[derive(Debug, Default)]
pub(crate) struct NodeReport {
    pub(crate) node: String,
    /// The state of its maintenance, if it is already in maintenance.
    pub(crate) state: Option<State>,
    pub(crate) refusal: Option<String>,
    /// Why etcd would lose its quorum, which is a refusal too.
    pub(crate) quorum: Option<String>,
    /// Why it would be queued.
    pub(crate) queue: Option<String>,
    /// The hooks that delay the first eviction.
    pub(crate) hooks: Vec<Hook>,
    /// How long load balancers have to stop using the node; none if they are not asked to.
    pub(crate) load_balancer_delay: Option<Duration>,
    /// The volumes that the drain would wait for; none if it waits for none, or without access to pods.
    pub(crate) detach: Option<DetachReport>,
}

/// Judges the pods of each node. A node that is already in maintenance keeps its drain settings, unless others are
/// requested.
///
/// # Errors
///
/// If a selector in `spec.drain` is not valid.
pub(crate) fn preview(
    planned: &[String],
    requested: Option<&DrainSpec>,
    snapshot: &ClusterSnapshot,
    now: Timestamp,
) -> Result<Option<DrainPreview>, InvalidSelector> {
    let Some(pods) = &snapshot.pods else { return Ok(None) };
    let planned_node = |name: &String| {
        let known = snapshot.nodes.iter().flatten().find(|known| node::name(known) == name);
        let on_node = || pods.planned.get(name).into_iter().flatten();
        // Without access to nodes, every node is taken to be selected.
        let tolerates = |pod: &Pod| match known {
            Some(known) => node_fit::tolerates_maintenance(pod, known, Group::Medik8s.drain_taint()),
            None => tolerates_cordon(&DrainPod::from(pod), Group::Medik8s.drain_taint()),
        };
        let tolerant = on_node().filter(|pod| tolerates(pod));
        let failing = |pod: &Arc<Pod>| Some((pod.metadata.uid.clone()?, failing_because(pod, now)?));
        PlannedNode {
            cordon_tolerated: tolerant.filter_map(|pod| pod.metadata.uid.clone()).collect(),
            node: name.clone(),
            drain: drain_of(name, requested, snapshot),
            pods: on_node().map(|pod| Arc::new(DrainPod::from(&**pod))).collect(),
            readiness: known.map_or(Readiness::Ready(None), node::readiness),
            failing: on_node().filter_map(failing).collect(),
        }
    };
    DrainPreview::new(planned.iter().map(planned_node).collect(), &snapshot.daemon_sets, now).map(Some)
}

/// What the settings of the drains of these nodes need that is not installed by default.
pub(crate) fn needed_grants(
    nodes: &[String],
    requested: Option<&DrainSpec>,
    snapshot: &ClusterSnapshot,
) -> BTreeSet<Grant> {
    let drains = nodes.iter().map(|node| requested_drain(node, requested, snapshot));
    drains.flat_map(|drain| denied::needed(&drain)).collect()
}

/// What the drain of a node does, as far as nm-reconciler may do it.
fn drain_of(node: &str, requested: Option<&DrainSpec>, snapshot: &ClusterSnapshot) -> DrainSpec {
    let mut drain = requested_drain(node, requested, snapshot);
    if snapshot.denied.contains(&Grant::PodDeletion) {
        drain.delete_after_seconds = 0;
    }
    drain
}

fn requested_drain(node: &str, requested: Option<&DrainSpec>, snapshot: &ClusterSnapshot) -> DrainSpec {
    let mut all = snapshot.maintenances.iter().chain(&snapshot.older);
    let existing = all.find(|other| other.spec.node_name == node);
    let own = existing.and_then(|existing| existing.spec.drain.as_ref());
    requested.or(own).cloned().unwrap_or_default()
}

impl PlanReport {
    /// Combines a snapshot with the answers to evictions, by pod uid.
    pub(crate) fn new(
        planned: &[String],
        requested: Option<&DrainSpec>,
        preview: Option<&DrainPreview>,
        snapshot: &ClusterSnapshot,
        answers: &HashMap<String, EvictionOutcome>,
        now: Timestamp,
    ) -> Self {
        let mut budgets = Budgets::from_objects(&snapshot.budgets);
        for (pod, why) in snapshot.pods_of_budgets.stuck_elsewhere(now) {
            budgets.note_stuck_elsewhere(&pod, why);
        }
        let mut forecast = preview.map(|preview| preview.forecast(budgets.clone(), answers, now));
        let mut nodes = node_reports(planned, snapshot, now);
        for node in &mut nodes {
            let drain = drain_of(&node.node, requested, snapshot);
            let delay = drain
                .load_balancers
                .filter(|balancers| balancers.exclude)
                .map(|balancers| balancers.delay_seconds);
            node.load_balancer_delay =
                delay.and_then(|seconds| Some(Duration::from_secs(seconds.try_into().ok()?)));
            let wait = drain.wait_for_volume_detach.zip(forecast.as_ref());
            node.detach = wait.map(|(wait, forecast)| DetachReport::new(&node.node, wait, forecast));
        }
        if let Some(forecast) = &mut forecast {
            block_assigned(forecast, snapshot);
        }
        let capacity = forecast.as_ref().and_then(|forecast| capacity(&nodes, forecast, snapshot));
        if let (Some(forecast), Some(capacity)) = (&mut forecast, &capacity) {
            forecast.hold_back(&unplaced(capacity), &budgets);
        }
        if let Some(forecast) = &mut forecast {
            forecast
                .judge_migrations(&snapshot.machines, &capacity.as_ref().map(unplaced).unwrap_or_default());
        }
        if let Some(forecast) = &mut forecast {
            block_returning(forecast, snapshot);
        }
        let leaving = || forecast.iter().flat_map(|forecast| &forecast.pods).filter(|pod| pod.leaves);
        let local_volumes = leaving().filter_map(|expected| local_volumes(expected, snapshot)).collect();
        let deleted_claims = forecast.as_ref().map(|forecast| DeletedClaim::of(forecast, snapshot));
        let mut unknown = snapshot.unknown.clone();
        let unanswered = forecast.iter().flat_map(|forecast| &forecast.unanswered);
        unknown.extend(unanswered.map(|(why, pods)| {
            let what = format!("the answer of the API server to the eviction of {}", counted(*pods, "pod"));
            Unread::other(what, why)
        }));
        let mut warnings: Vec<&str> =
            planned.iter().filter_map(|name| drain_of(name, requested, snapshot).warning()).collect();
        warnings.dedup();
        let emptied = emptied(&nodes, snapshot);
        let preemptions = capacity.as_ref().map(|capacity| capacity.preempting.as_slice());
        let outages = forecast
            .as_ref()
            .map(|forecast| outages(&nodes, forecast, snapshot, preemptions.unwrap_or_default()));
        let outages = outages.unwrap_or_default();
        let drain = |node: &str| drain_of(node, requested, snapshot);
        let failing_jobs = forecast.as_ref().map(|forecast| FailingJobs::of(forecast, snapshot, drain, now));
        let slow = forecast.as_ref().map(|forecast| SlowPods::of(forecast, drain)).unwrap_or_default();
        let endless = forecast.as_ref().map(|forecast| EndlessPods::of(forecast, snapshot, now));
        let limit = snapshot.limit.clone();
        let unready = forecast.iter().flat_map(|forecast| forecast.silent.iter().cloned()).collect();
        let lacking =
            snapshot.budgets.iter().filter_map(|budget| lacking(budget, forecast.as_ref())).collect();
        let growing = |budget| growing_budgets::growing(budget, &snapshot.growing);
        let growing = snapshot.budgets.iter().filter_map(growing).collect();
        let denied = &needed_grants(planned, requested, snapshot) & &snapshot.denied;
        Self {
            nodes,
            forecast,
            local_volumes,
            deleted_claims: deleted_claims.unwrap_or_default(),
            capacity,
            limit,
            warnings,
            unknown,
            emptied,
            unready,
            outages,
            failing_jobs: failing_jobs.unwrap_or_default(),
            lacking,
            outdated: snapshot.pods_of_budgets.outdated.clone(),
            slow,
            endless: endless.unwrap_or_default(),
            growing,
            are_budgets_known: snapshot.are_budgets_known,
            denied,
        }
    }

    /// Adds the hooks that are requested for new maintenances. Those that exist keep theirs.
    #[must_use]
    pub fn with_hooks(mut self, requested: &[Hook]) -> Self {
        for NodeReport { hooks, .. } in self.nodes.iter_mut().filter(|node| node.state.is_none()) {
            hooks.extend_from_slice(requested);
        }
        self
    }

    /// Whether a pod would be blocked, or a node cannot be put into maintenance. A position in the queue does not block.
    pub fn is_blocked(&self) -> bool {
        let mut pods = self.forecast.iter().flat_map(|forecast| &forecast.pods);
        self.nodes.iter().any(|node| node.refusal.is_some())
            || pods.any(|expected| matches!(expected.fate, PodOutcome::Blocked(_)))
    }

    /// Whether anything would block the drain; none if that is not known.
    pub fn blocks(&self) -> Option<bool> {
        if self.is_blocked() {
            return Some(true);
        }
        let pods = &self.forecast.as_ref()?.pods;
        (!pods.iter().any(|expected| self.is_unknown(expected))).then_some(false)
    }

    /// Whether neither the budgets nor the API server show what would happen to a pod that is to be evicted.
    pub(crate) fn is_unknown(&self, expected: &PodForecast) -> bool {
        !self.are_budgets_known
            && expected.is_unanswered
            && expected.fate == PodOutcome::Evicted
            && !pod::is_finished(&expected.pod)
    }

    /// Whether a budget may count more pods in a moment.
    pub(crate) fn is_growing(&self, budget: &BudgetForecast) -> bool {
        self.growing.contains(&budget.budget)
    }

    /// Whether some pods fit on no other node, or only by preemption; false if that is unknown.
    pub fn lacks_capacity(&self) -> bool {
        self.capacity.as_ref().is_some_and(|capacity| !capacity.is_enough())
    }
}

/// How many more pods of a budget have to be Ready before it allows an eviction. If enough of them are, it allows the eviction
/// of one that is not.
fn lacking(budget: &PodDisruptionBudget, forecast: Option<&Forecast>) -> Option<(BudgetKey, i32)> {
    let (name, namespace) = (budget.metadata.name.clone()?, budget.metadata.namespace.clone()?);
    let status = budget.status.as_ref()?;
    let key = BudgetKey { namespace, name };
    let mut guarded = forecast.iter().flat_map(|forecast| &forecast.pods);
    let is_unready = |pod: &&PodForecast| pod.guarded_by.as_ref() == Some(&key) && !pod::is_ready(&pod.pod);
    let spare = i32::from(!guarded.any(|pod| is_unready(&pod)));
    let lacking = status.desired_healthy.saturating_add(spare).saturating_sub(status.current_healthy);
    (lacking > 0).then_some((key, lacking))
}

fn unplaced(capacity: &CapacityEstimate) -> BTreeSet<PodReference> {
    capacity.unplaced.iter().flat_map(|group| group.pods.clone()).collect()
}

fn node_reports(planned: &[String], snapshot: &ClusterSnapshot, now: Timestamp) -> Vec<NodeReport> {
    let existing = [snapshot.maintenances.as_slice(), snapshot.older.as_slice()].concat();
    let etcd = snapshot.etcd();
    let nodes = snapshot.nodes.as_deref().unwrap_or_default();
    let limit = snapshot.limit.value();
    let mut gates: HashMap<String, Gate> =
        gate_preview::gates(planned, nodes, &existing, &etcd, limit, now).into_iter().collect();
    // Object names are unique per API group: in the older groups only the node matters.
    let older_of = |name: &str| -> Vec<NodeMaintenance> {
        snapshot.older.iter().filter(|other| other.spec.node_name == name).cloned().collect()
    };
    let rolls = RollRunners::of(&snapshot.maintenances);
    let report = |name: &String| {
        let existing = match Existing::find(name, &snapshot.maintenances) {
            Existing::Nothing => Existing::find(name, &older_of(name)),
            existing => existing,
        };
        let (quorum, queue) = match (&existing, gates.remove(name)) {
            (Existing::Maintenance(object), _) => current_gates(object),
            (_, Some(gate)) => (gate.quorum, gate.queue.map(|queued| queued.to_string())),
            (_, None) => (None, None),
        };
        let (state, hooks) = match &existing {
            Existing::Maintenance(object) => (Some(State::of(object)), hooks_before_eviction(object)),
            _ => (None, Vec::new()),
        };
        let refusal =
            existing.refusal(name, &rolls, now).map(|refusal| refusal.to_string()).or_else(|| quorum.clone());
        NodeReport {
            node: name.clone(),
            state,
            refusal,
            quorum,
            queue,
            hooks,
            load_balancer_delay: None,
            detach: None,
        }
    };
    planned.iter().map(report).collect()
}

/// The quorum or the queue that an existing maintenance waits for, from its status.
fn current_gates(object: &NodeMaintenance) -> (Option<String>, Option<String>) {
    use nm_shared::api::condition::ConditionReason::{MaxUnavailable, QuorumAtRisk};
    use nm_shared::api::condition::ConditionType;
    let Some(drained) = crate::maintenance::condition(object, ConditionType::Drained) else {
        return (None, None);
    };
    let error =
        |wanted: &str| (drained.reason == wanted).then(|| crate::maintenance::reason(object).to_owned());
    let quorum = error(QuorumAtRisk.as_str()).filter(|_| !overrides_quorum(object));
    (quorum, error(MaxUnavailable.as_str()))
}

/// Whether the pods of the nodes that drain now fit on the others. Queued nodes stay in use until others return to
/// service, and so count as others.
fn capacity(
    planned: &[NodeReport],
    forecast: &Forecast,
    snapshot: &ClusterSnapshot,
) -> Option<CapacityEstimate> {
    let (nodes, pods) = (snapshot.nodes.as_ref()?, snapshot.pods.as_ref()?);
    let drains_now = |name: &str| planned.iter().any(|node| node.node == name && node.queue.is_none());
    // A pod that returns always fits: where it is, even if something else keeps it from leaving.
    let returns = |expected: &PodForecast| {
        let blocker = match &expected.fate {
            PodOutcome::Blocked(blocker) => Some(blocker.reason),
            _ => None,
        };
        expected.returning.is_some() || blocker == Some(BlockReason::KeepsReturning)
    };
    let needs_node = |expected: &&PodForecast| expected.is_replaced() && !returns(expected);
    let replaced = forecast.pods.iter().filter(needs_node).filter(|expected| drains_now(&expected.node));
    let to_place: Vec<PodToPlace<'_>> = replaced
        .filter_map(|expected| pods.find(&expected.node, pod::uid(&expected.pod)))
        .filter(|pod| !is_assigned_by_template(pod))
        .map(|pod| PodToPlace { pod, volumes: snapshot.volumes.node_selectors(pod) })
        .collect();
    let elsewhere = &pods.elsewhere.as_ref()?.used;
    let mut queued: BTreeMap<&str, UsedCapacity> = BTreeMap::new();
    for (name, pods) in pods.planned.iter().filter(|(name, _)| !drains_now(name)) {
        let running = pods.iter().filter(|pod| PodPhase::of(pod) != PodPhase::Finished);
        for pod in running {
            queued.entry(name).or_default().add(pod);
        }
    }
    let others = nodes.iter().filter(|known| !drains_now(node::name(known)));
    let used = |node: &str| queued.get(node).or_else(|| elsewhere.get(node));
    Some(capacity::estimate(&to_place, others, used))
}

/// Whether a node of the plan is drained at once: queued nodes, and those that etcd needs, stay in service for now.
fn drains_at_once(planned: &[NodeReport], name: &str) -> bool {
    planned.iter().any(|node| node.node == name && node.queue.is_none() && node.quorum.is_none())
}

/// Those of these nodes that are drained at once.
pub(crate) fn drained_at_once(
    planned: &[String],
    snapshot: &ClusterSnapshot,
    now: Timestamp,
) -> BTreeSet<String> {
    let nodes = node_reports(planned, snapshot, now);
    let drained = planned.iter().filter(|name| drains_at_once(&nodes, name));
    drained.cloned().collect()
}

fn emptied(planned: &[NodeReport], snapshot: &ClusterSnapshot) -> Vec<NodeGroup> {
    let existing = || snapshot.maintenances.iter().chain(&snapshot.older);
    let is_taken = |name: &str| {
        let mut others = existing().filter(|other| other.metadata.deletion_timestamp.is_none());
        others.any(|other| other.spec.node_name == name && !ownership::is_planned(other))
    };
    let drains = |name: &str| drains_at_once(planned, name);
    let is_other = |name: &str| !drains(name) && is_taken(name);
    schedulable::emptied(snapshot.nodes.as_deref().unwrap_or_default(), drains, is_other)
}

fn outages(
    planned: &[NodeReport],
    forecast: &Forecast,
    snapshot: &ClusterSnapshot,
    preemptions: &[Preemption],
) -> Vec<WorkloadOutage> {
    let Some(pods) = &snapshot.pods else { return Vec::new() };
    let Some(elsewhere) = &pods.elsewhere else { return Vec::new() };
    let mut ready = elsewhere.ready.clone();
    let others = pods.planned.iter().filter(|(name, _)| !planned.iter().any(|node| node.node == **name));
    ready.extend(others.flat_map(|(_, pods)| pods).filter_map(|pod| ready_pod(pod)));
    outage::without_ready_pod(forecast, |name| drains_at_once(planned, name), &ready, preemptions)
}

fn local_volumes(expected: &PodForecast, snapshot: &ClusterSnapshot) -> Option<(String, Vec<String>)> {
    let uid = pod::uid(&expected.pod);
    let local = snapshot.volumes.local(snapshot.pods.as_ref()?.find(&expected.node, uid)?);
    let names = local.into_iter().map(str::to_owned).collect::<Vec<_>>();
    (!names.is_empty()).then(|| (uid.to_owned(), names))
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(in crate::plan) mod tests;
