//! A plan for programs: one JSON object. Within a version its fields keep their meaning; new ones may come.

use nm_shared::cluster::pod;
use nm_shared::drain::plan::Warning;
use nm_shared::forecast::capacity::{CapacityEstimate, UnplacedPods};
use nm_shared::forecast::{BudgetForecast, PodForecast, PodOutcome};
use serde_json::{Value, json};

use crate::plan::max_unavailable::Limit;
use crate::plan::outlook::{Outlook, Prospect};
use crate::plan::text;

/// The version of what is written.
const VERSION: u8 = 1;

/// All of it. What is not known is null.
pub(crate) fn document(outlook: &Outlook) -> Value {
    let forecast = outlook.forecast.as_ref();
    let pods =
        forecast.map(|forecast| forecast.pods.iter().map(|pod| expected(pod, outlook)).collect::<Vec<_>>());
    let budgets = forecast.map(|forecast| forecast.budgets.iter().map(guard).collect::<Vec<_>>());
    let (limit, from) = match &outlook.limit {
        Limit::Set(limit, from) => (Some(limit.to_string()), Some(from)),
        Limit::None(from) => (None, Some(from)),
        Limit::Unknown(_) => (None, None),
    };
    let unknown_limit = match &outlook.limit {
        Limit::Unknown(why) => Some(format!("--max-unavailable: {why}")),
        Limit::Set(..) | Limit::None(_) => None,
    };
    json!({
        "kind": "Plan",
        "version": VERSION,
        "blocked": forecast.map(|_| outlook.is_blocked()).or(outlook.is_blocked().then_some(true)),
        "nodes": outlook.nodes.iter().map(prospect).collect::<Vec<_>>(),
        "pods": pods,
        "budgets": budgets,
        "room": outlook.room.as_ref().map(room),
        "lacksRoom": outlook.room.as_ref().map(|_| outlook.lacks_room()),
        "maxUnavailable": {"limit": limit, "from": from},
        "warnings": outlook.warnings,
        "notKnown": outlook.missing.iter().cloned().chain(unknown_limit).collect::<Vec<_>>(),
    })
}

fn prospect(prospect: &Prospect) -> Value {
    let Prospect { node, begun, refusal, line } = prospect;
    json!({"node": node, "inMaintenance": begun, "refusal": refusal, "waitsInLine": line})
}

fn expected(expected: &PodForecast, outlook: &Outlook) -> Value {
    let pod::PodNames { namespace, name, uid } = pod::names(&expected.pod);
    let reason = match &expected.fate {
        PodOutcome::Deleted(obstacle) | PodOutcome::Blocked(obstacle) => Some(obstacle.reason.as_str()),
        _ => None,
    };
    let budget = match &expected.fate {
        PodOutcome::WaitsForBudget(budget) => Some(budget.to_string()),
        _ => None,
    };
    json!({
        "node": expected.node,
        "namespace": namespace,
        "name": name,
        "would": text::word(&expected.fate).0,
        "because": text::detail(expected, outlook),
        "reason": reason,
        "behind": budget,
        "deletedAfterSeconds": expected.deleted_after,
        "losesEmptyDirData": expected.leaves && expected.warnings.contains(&Warning::LocalStorage),
        "localVolumes": outlook.local_volumes.get(uid).cloned().unwrap_or_default(),
        "isReplaced": expected.is_replaced(),
    })
}

fn guard(guard: &BudgetForecast) -> Value {
    let BudgetForecast { budget, pods, now, at_most, rounds, short_of } = guard;
    json!({"namespace": budget.namespace, "name": budget.name, "pods": pods, "now": now, "atMost": at_most,
        "rounds": rounds, "neverForLackOfRoom": short_of})
}

fn room(estimate: &CapacityEstimate) -> Value {
    let CapacityEstimate { fit, nodes, misfits, left_out } = estimate;
    let misfits: Vec<Value> = misfits
        .iter()
        .map(|UnplacedPods { pods, reasons }| {
            let reasons: Vec<Value> =
                reasons.iter().map(|(why, nodes)| json!({"why": why.to_string(), "nodes": nodes})).collect();
            json!({"pods": pods, "reasons": reasons})
        })
        .collect();
    json!({"isEstimate": true, "fit": fit, "otherNodes": nodes, "misfits": misfits, "leftOut": left_out})
}
