//! A plan for programs: one JSON object. Within a version its fields keep their meaning; new ones may be added.

use nm_shared::WaitReason;
use nm_shared::cluster::pod;
use nm_shared::drain::plan::Warning;
use nm_shared::forecast::budget_forecast::BudgetForecast;
use nm_shared::forecast::capacity::{CapacityEstimate, UnplacedPods};
use nm_shared::forecast::preemption::Preemption;
use nm_shared::forecast::{PodForecast, PodOutcome};
use serde_json::{Value, json};

use crate::plan::harm::{Harm, harms};
use crate::plan::max_unavailable::MaxUnavailableLimit;
use crate::plan::report::{NodeReport, PlanReport};
use crate::plan::slow_pods::SlowPods;
use crate::plan::text;
use crate::plan::volume_detach::DetachReport;

const PLAN_VERSION: u8 = 1;

/// The whole plan. What is unknown is null.
pub fn document(report: &PlanReport) -> Value {
    let forecast = report.forecast.as_ref();
    let pods = forecast.map(|forecast| forecast.pods.iter().map(|one| pod(one, report)).collect::<Vec<_>>());
    let budgets = forecast.map(|forecast| forecast.budgets.iter().map(budget).collect::<Vec<_>>());
    let (limit, from, unknown_limit) = match &report.limit {
        MaxUnavailableLimit::Set(limit, from) => (Some(limit.to_string()), Some(from), None),
        MaxUnavailableLimit::None(from) => (None, Some(from), None),
        MaxUnavailableLimit::Unknown(why) => (None, None, Some(format!("--max-unavailable: {why}"))),
    };
    json!({
        "kind": "Plan",
        "version": PLAN_VERSION,
        "blocked": report.blocks(),
        "nodes": report.nodes.iter().map(node).collect::<Vec<_>>(),
        "pods": pods,
        "budgets": budgets,
        "capacity": report.capacity.as_ref().map(capacity),
        "harms": harms(report, None).iter().map(Harm::document).collect::<Vec<_>>(),
        "slowToTerminate": report.slow.iter().map(SlowPods::document).collect::<Vec<_>>(),
        "lacksCapacity": report.capacity.as_ref().map(|_| report.lacks_capacity()),
        "maxUnavailable": {"limit": limit, "from": from},
        "warnings": report.warnings,
        "unknown": report.unknown.iter().map(ToString::to_string).chain(unknown_limit).collect::<Vec<_>>(),
    })
}

fn node(report: &NodeReport) -> Value {
    let NodeReport { node, state, refusal, quorum: _, queue, hooks, load_balancer_delay, detach } = report;
    let state = state.map(|state| state.word().to_lowercase());
    json!({"node": node, "inMaintenance": state.is_some(), "state": state, "refusal": refusal, "queue": queue, "hooks": hooks,
        "loadBalancerDelaySeconds": load_balancer_delay.map(|delay| delay.as_secs()),
        "waitsForVolumes": detach.as_ref().map(DetachReport::document)})
}

fn pod(forecast: &PodForecast, report: &PlanReport) -> Value {
    let pod::PodNames { namespace, name, uid } = pod::names(&forecast.pod);
    let reason = match &forecast.fate {
        PodOutcome::Deleted(blocker) | PodOutcome::Blocked(blocker) => Some(blocker.reason.as_str()),
        PodOutcome::Completes(_) => Some(WaitReason::Completing.as_str()),
        _ => None,
    };
    let completion_timeout = match &forecast.fate {
        PodOutcome::Completes(limit) => *limit,
        _ => None,
    };
    let budget = match &forecast.fate {
        PodOutcome::WaitsForBudget(budget) => Some(budget.to_string()),
        _ => None,
    };
    json!({
        "node": forecast.node,
        "namespace": namespace,
        "name": name,
        "outcome": text::outcome(forecast, report).0,
        "details": text::details(forecast, report),
        "reason": reason,
        "waitsForBudget": budget,
        "deletedAfterSeconds": forecast.deleted_after,
        "completionTimeoutSeconds": completion_timeout,
        "losesEmptyDirData": forecast.leaves && forecast.warnings.contains(&Warning::LocalStorage),
        "localVolumes": report.local_volumes.get(uid).cloned().unwrap_or_default(),
        "isReplaced": forecast.is_replaced(),
        "mayComeBack": forecast.returning.is_some(),
    })
}

fn budget(forecast: &BudgetForecast) -> Value {
    let BudgetForecast { budget, pods, now, at_most, rounds, short_of, lacks } = forecast;
    // Pods that are on no way to become Ready end no round.
    let rounds = rounds.filter(|_| lacks.is_none());
    json!({"namespace": budget.namespace, "name": budget.name, "pods": pods, "allowedNow": now,
        "allowedAtOnce": at_most, "rounds": rounds, "neverForLackOfCapacity": short_of})
}

fn capacity(estimate: &CapacityEstimate) -> Value {
    let CapacityEstimate { fit, nodes, schedulable, unplaced, preempting, left_out } = estimate;
    let preempting: Vec<Value> = preempting
        .iter()
        .map(|Preemption { pod, node, preempted, displaced }| {
            json!({"pod": pod, "node": node, "preempted": preempted, "displaced": displaced})
        })
        .collect();
    let unplaced: Vec<Value> = unplaced
        .iter()
        .map(|UnplacedPods { pods, reasons }| {
            let reasons: Vec<Value> = reasons
                .iter()
                .map(|(reason, nodes)| json!({"reason": reason.to_string(), "nodes": nodes}))
                .collect();
            json!({"pods": pods, "reasons": reasons})
        })
        .collect();
    json!({"isEstimate": true, "fit": fit, "otherNodes": nodes, "schedulableNodes": schedulable,
        "unplaced": unplaced, "preempting": preempting, "notConsidered": left_out})
}
