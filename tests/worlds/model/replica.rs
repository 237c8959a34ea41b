//! The leading replica: it observes its caches, decides, and performs the steps of the decision, with the functions of
//! `nm-shared` that the reconciler runs.
//!
//! What the reconciler crate adds is modelled here, in the same words: which of two copies of an object is used, what the
//! steps do in memory, and what the evictor remembers of an eviction. Time is always long enough: a backoff is over, a lease
//! does not expire, and events have nothing to wait for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use nm_shared::NodeMaintenance;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::node_lease::LeaseWrite;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::decide::cluster_state::{ClusterState, StartBatch};
use nm_shared::decide::decision::LeaseRelease;
use nm_shared::decide::hold;
use nm_shared::decide::steps::DecisionStep;
use nm_shared::decide::{decide, needs_pods};
use nm_shared::drain::budget_allowance::{Budgets, RemainingBudget};
use nm_shared::drain::eviction_attempts::Attempt;
use nm_shared::drain::node_patch;
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::gate::ownership;
use serde_json::{Value, json};

use crate::api_server::patch;
use crate::objects::Object;
use crate::state::{Cached, Late, Pod, Pods, Run, SpecVersion, State, Step, Term, Write, pod_uid, uid};
use crate::waits::time;

/// Everything that a decision depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct View {
    node: Option<Object>,
    maintenance: Object,
    other: Option<Object>,
    lease: Option<Object>,
    pods: Pods,
    evictions: BTreeMap<String, SpecVersion>,
    clock: u8,
}

/// The steps of each decision so far: most states differ in something that no decision sees.
static DECISIONS: LazyLock<Mutex<HashMap<View, Vec<Step>>>> = LazyLock::new(Mutex::default);

impl State {
    /// Begins to reconcile the maintenance of a slot. Returns whether there is anything to do.
    pub(crate) fn reconcile(&mut self, slot: usize) -> bool {
        let term = &mut self.term;
        let Some(maintenance) = term.maintenances[slot].object else { return false };
        if term.runs[slot].is_some() || term.released.contains(&uid(maintenance)) {
            return false;
        }
        let view = View {
            node: term.node.object,
            maintenance,
            other: term.maintenances[1 - slot].object,
            lease: term.lease.object,
            pods: term.pods.clone(),
            evictions: term.evictions.clone(),
            clock: self.clock,
        };
        let steps = view.steps();
        let before = term.clone();
        term.runs[slot] = Some(Run {
            steps,
            decided_by: SpecVersion {
                uid: uid(maintenance),
                generation: maintenance.at("/metadata/generation").as_i64().unwrap_or_default(),
            },
            node: term.node,
            maintenance_is_current: term.maintenances[slot].is_current,
            lease_is_current: term.lease.is_current,
        });
        term.run_in_memory(slot);
        *term != before
    }

    /// The write that is next in a slot.
    pub(crate) fn next_write(&self, slot: usize) -> Option<Late> {
        let run = self.term.runs[slot].as_ref()?;
        let late =
            |write: Write, is_current| Late { write, slot, uid: run.decided_by.uid.clone(), is_current };
        match run.steps.last()? {
            Step::Write(write) => {
                let is_current = match write {
                    Write::Metadata(_) | Write::RemoveFinalizer(_) | Write::Status(_) => {
                        run.maintenance_is_current
                    }
                    Write::CreateLease(_) | Write::DeleteUnobservedLease => true,
                    Write::PatchLease(_) | Write::DeleteLease => run.lease_is_current,
                    Write::PatchNode(_) => run.node.is_current,
                };
                Some(late(write.clone(), is_current))
            }
            Step::RemoveRecord => {
                let write = Write::PatchNode(patch(record_removal(run)?));
                Some(late(write, run.node.is_current))
            }
            _ => None,
        }
    }

    /// Performs the next write of a slot, and the steps in memory after it.
    pub(crate) fn perform(&mut self, slot: usize) {
        let Some(request) = self.next_write(slot) else { return };
        let answer = self.write(&request);
        let Some(run) = &mut self.term.runs[slot] else { return };
        let removes_record = run.steps.last() == Some(&Step::RemoveRecord);
        let Ok(answer) = answer else {
            if removes_record {
                // It reads the node and tries again.
                run.node = Cached::current(Some(self.api.node));
            } else {
                self.term.runs[slot] = None;
            }
            return;
        };
        run.steps.pop();
        match request.write {
            Write::Metadata(_) | Write::Status(_) => {
                run.maintenance_is_current = true;
                self.term.maintenances[slot] = Cached::current(answer);
            }
            Write::RemoveFinalizer(_) => {
                let is_current = answer == self.api.maintenances[slot];
                self.term.maintenances[slot] = Cached { object: answer, is_current };
                self.term.released.insert(request.uid);
            }
            Write::CreateLease(_) | Write::PatchLease(_) => self.term.lease = Cached::current(answer),
            Write::DeleteLease => self.term.lease = Cached::current(None),
            // None was known before.
            Write::DeleteUnobservedLease => {}
            Write::PatchNode(_) => {
                run.node = Cached::current(answer);
                self.term.node = Cached::current(answer);
            }
        }
        self.term.run_in_memory(slot);
    }

    /// The write of a slot is lost or on its way: the reconcile ends with an error.
    pub(crate) fn give_up(&mut self, slot: usize) {
        self.term.runs[slot] = None;
    }

    /// The queued eviction of a pod of this name.
    pub(crate) fn queued(&self, index: usize) -> Option<String> {
        let name = format!("p{index}-");
        self.term.evictions.keys().find(|uid| uid.starts_with(&name)).cloned()
    }

    /// Sends a queued eviction.
    pub(crate) fn send(&mut self, index: usize) {
        if let Some(uid) = self.queued(index) {
            let decided_by = self.term.evictions.remove(&uid).map(|decided_by| decided_by.uid);
            self.evict(index, &uid, &decided_by.unwrap_or_default());
        }
    }
}

impl Term {
    /// Performs the steps that are no writes. Nothing can happen between them that matters.
    fn run_in_memory(&mut self, slot: usize) {
        let Some(mut run) = self.runs[slot].take() else { return };
        while let Some(step) = run.steps.pop() {
            match step {
                Step::LeaveNode => self.evictions.clear(),
                Step::WithdrawUnwanted(wanted) => self.evictions.retain(|uid, _| wanted.contains(uid)),
                Step::WithdrawOutdated { has_node } => self.evictions.retain(|_, decided_by| {
                    let is_own = decided_by.uid == run.decided_by.uid;
                    let is_outdated = *decided_by != run.decided_by;
                    !(is_outdated && (has_node || is_own))
                }),
                Step::Evict(uids) => {
                    for uid in uids {
                        self.evictions.entry(uid).or_insert_with(|| run.decided_by.clone());
                    }
                }
                Step::RemoveRecord if record_removal(&run).is_none() => {}
                step @ (Step::Write(_) | Step::RemoveRecord) => {
                    run.steps.push(step);
                    self.runs[slot] = Some(run);
                    return;
                }
            }
        }
    }
}

fn record_removal(run: &Run) -> Option<Value> {
    let node = run.node.object?;
    node_patch::remove_record(&node.parse::<Node>(), &run.decided_by.uid).map(|patch| patch.0)
}

fn present(pods: &Pods) -> impl Iterator<Item = (usize, u8, bool)> {
    pods.pods.iter().enumerate().filter_map(|(index, pod)| match pod {
        Pod::Running(number) => Some((index, *number, false)),
        Pod::Terminating(number) => Some((index, *number, true)),
        Pod::Gone(_) => None,
    })
}

impl View {
    /// The steps of the decision; the first one is the last here.
    fn steps(&self) -> Vec<Step> {
        if let Some(steps) = DECISIONS.lock().unwrap_or_else(PoisonError::into_inner).get(self) {
            return steps.clone();
        }
        let (maintenance, observed) = self.observe();
        let steps = decide(&maintenance, &observed, time(self.clock)).into_steps();
        let steps: Vec<Step> = steps.into_iter().rev().filter_map(|step| data(step, &maintenance)).collect();
        DECISIONS.lock().unwrap_or_else(PoisonError::into_inner).insert(self.clone(), steps.clone());
        steps
    }

    fn observe(&self) -> (NodeMaintenance, ClusterState) {
        let mut maintenance = NodeMaintenance::clone(&self.maintenance.parse());
        let node: Option<Arc<Node>> = self.node.map(Object::parse);
        if let Some(status) = node.as_ref().and_then(|node| ownership::recovered(&maintenance, node)) {
            maintenance.status = Some(status);
        }
        let other: Option<Arc<NodeMaintenance>> = self.other.map(Object::parse);
        let other_hooks =
            |node: &Arc<Node>| other.iter().flat_map(|other| hold::hooks_of_return(other, node)).collect();
        let return_hooks = node.as_ref().map(other_hooks).unwrap_or_default();
        let observed = ClusterState {
            node,
            lease: self.lease.map(Object::parse::<Lease>),
            competing: other
                .iter()
                .filter(|other| other.metadata.deletion_timestamp.is_none())
                .cloned()
                .collect(),
            other_uids: other.iter().map(|other| ownership::uid(other).to_owned()).collect(),
            other_was_planned: other.iter().any(|other| ownership::was_planned(other)),
            return_hooks,
            steady_now: SteadyTime::after_start(Duration::from_secs(60)),
            attempts: self.attempts(),
            batch: StartBatch { age: StartBatch::MAX_DELAY, ..StartBatch::default() },
            ..ClusterState::default()
        };
        if !needs_pods(&maintenance, &observed, time(self.clock)) {
            return (maintenance, observed);
        }
        let pods = present(&self.pods)
            .map(|(index, number, is_terminating)| drain_pod(index, number, is_terminating));
        (maintenance, ClusterState { pods: Some(pods.collect()), budgets: self.budgets(), ..observed })
    }

    /// The requests that are queued. Those that were answered are as good as forgotten: their backoff is over.
    fn attempts(&self) -> HashMap<String, Attempt> {
        let mut queued = Attempt { in_flight: true, ..Attempt::default() };
        queued.begin(SteadyTime::MIN);
        self.evictions.keys().map(|uid| (uid.clone(), queued.clone())).collect()
    }

    fn budgets(&self) -> Budgets {
        let allowed = i32::from(self.pods.allows_disruption);
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "budget", "resourceVersion": "1"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {"currentHealthy": 1 + allowed, "desiredHealthy": 1, "disruptionsAllowed": allowed, "expectedPods": 2},
        }))
        .expect("a budget");
        let in_flight = i32::try_from(self.evictions.len()).unwrap_or(i32::MAX);
        std::iter::once(RemainingBudget::of(Arc::new(Budget::from(&budget)), None, in_flight, [])).collect()
    }
}

fn drain_pod(index: usize, number: u8, is_terminating: bool) -> Arc<DrainPod> {
    let mut pod = json!({
        "metadata": {
            "namespace": "ns", "name": format!("p{index}"), "uid": pod_uid(index, number), "labels": {"app": "a"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "p", "uid": "p", "controller": true}],
        },
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    if is_terminating {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:30Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }
    Object::new(pod).parse()
}

/// A step as data; none if nothing in this world depends on it.
fn data(step: DecisionStep, maintenance: &NodeMaintenance) -> Option<Step> {
    Some(match step {
        DecisionStep::LeaveNode => Step::LeaveNode,
        DecisionStep::WithdrawUnwanted(wanted) => Step::WithdrawUnwanted(wanted.into_iter().collect()),
        DecisionStep::WithdrawOutdated { has_node } => Step::WithdrawOutdated { has_node },
        DecisionStep::AddFinalizer(adoption) => Step::Write(Write::Metadata(patch(adoption.patch))),
        DecisionStep::WriteLease(LeaseWrite::Create(lease)) => {
            let mut lease = json!(lease);
            lease["metadata"]["uid"] = json!("lease-uid");
            Step::Write(Write::CreateLease(Object::new(lease)))
        }
        DecisionStep::WriteLease(LeaseWrite::Patch(lease)) => Step::Write(Write::PatchLease(patch(lease))),
        DecisionStep::PatchNode(node) => Step::Write(Write::PatchNode(patch(node.0))),
        DecisionStep::WriteStatus(status) => {
            let mut status = json!(status);
            // A long time ago by the time of the next decision.
            status["lastUpdate"] = json!("2026-01-01T00:45:00Z");
            let uid = &maintenance.metadata.uid;
            Step::Write(Write::Status(patch(json!({"metadata": {"uid": uid}, "status": status}))))
        }
        DecisionStep::Evict(evictions) => {
            Step::Evict(evictions.iter().map(|eviction| pod::uid(&eviction.pod).to_owned()).collect())
        }
        DecisionStep::DeleteLease(LeaseRelease::Observed(_)) => Step::Write(Write::DeleteLease),
        DecisionStep::DeleteLease(LeaseRelease::Unobserved) => Step::Write(Write::DeleteUnobservedLease),
        DecisionStep::RemoveFinalizer(metadata) => Step::Write(Write::RemoveFinalizer(patch(metadata))),
        DecisionStep::RemoveRecord => Step::RemoveRecord,
        // The searches are stricter without the reads that only prevent writes.
        DecisionStep::VerifyMaintenance
        | DecisionStep::VerifyNode
        | DecisionStep::VerifyReturned
        | DecisionStep::WithdrawRestarts(_)
        | DecisionStep::RecordReturn
        | DecisionStep::RecordRecordon(_)
        | DecisionStep::PublishConditions(_)
        | DecisionStep::Defer(_)
        | DecisionStep::WatchWorkloads(_)
        | DecisionStep::RestartDeployment(_)
        | DecisionStep::EndEvacuations
        | DecisionStep::PublishEvent(_) => return None,
    })
}
