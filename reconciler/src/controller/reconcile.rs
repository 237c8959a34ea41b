//! One reconcile of one maintenance: observe, decide, apply.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use nm_shared::GroupedMaintenance;
use nm_shared::api::latency_budget::RECONCILE_INTERVAL;
use nm_shared::decide::cluster_state::ClusterState;
use nm_shared::decide::decide;
use nm_shared::decide::failed_write::WriteFailure;
use nm_shared::decide::failure_report::report_failure;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::controller::apply::{ApplyError, apply};
use crate::controller::context::Context;
use crate::controller::observe::{may_take_etcd_member, node, observe};
use crate::runtime::backoff::Backoff;

/// So many failures of the API server in a row are not reported, because the next attempt often succeeds. A refusal is
/// reported at once.
const UNREPORTED_FAILURES: usize = 2;

/// Reconciles one maintenance. Never waits for a pod.
pub(crate) async fn reconcile(
    maintenance: Arc<GroupedMaintenance>,
    context: Arc<Context>,
) -> Result<Action, ApplyError> {
    if let Some(wait) = context.state.initial_list_wait() {
        return Ok(Action::requeue(wait));
    }
    let uid = maintenance.uid().unwrap_or_default();
    let began = Instant::now();
    context.state.note_seen(&uid);
    let early = context.state.maintenance(&uid, |state| {
        if state.released {
            return Some(Action::await_change());
        }
        if let Some(not_before) = state.not_before.filter(|not_before| *not_before > began) {
            return Some(Action::requeue(not_before - began));
        }
        state.not_before = Some(began + RECONCILE_INTERVAL);
        None
    });
    if let Some(action) = early {
        return Ok(action);
    }
    let maintenance = context.latest(maintenance);
    let result = observe_and_apply(&context, &maintenance).await;
    context.metrics.reconciled(began.elapsed(), result.is_err());
    if let Err(error) = &result {
        report(&context, &maintenance, error).await;
    }
    let requeue = result?;
    context.state.maintenance(&uid, |state| {
        state.backoff = Backoff::default();
        // A reconcile that is due earlier than the interval is not delayed.
        let wait = requeue.filter(|wait| !wait.is_zero());
        let due = wait.and_then(|wait| Instant::now().checked_add(wait));
        state.not_before = state.not_before.into_iter().chain(due).min();
    });
    Ok(requeue.map_or_else(Action::await_change, Action::requeue))
}

/// Observes, decides, applies, and returns when to reconcile again if nothing triggers that earlier.
async fn observe_and_apply(
    context: &Context,
    maintenance: &GroupedMaintenance,
) -> Result<Option<Duration>, ApplyError> {
    let is_openshift = may_take_etcd_member(context, maintenance)
        && context.openshift.is_openshift().await.map_err(ApplyError::Discovery)?;
    // It may have been deleted during the discovery.
    if !context.state.is_received(maintenance) {
        return Ok(None);
    }
    let (now, decided) = (context.clock.now(), Instant::now());
    let (observed, decision) = {
        let alone = context.state.gate.begin_decision();
        let Some(observed) = observe(&alone, context, maintenance, is_openshift, now) else {
            return Ok(None);
        };
        let decision = decide(maintenance, &observed, now);
        // A maintenance that no longer has its node takes none.
        context.state.set_at_work(&alone, maintenance, decision.at_work);
        (observed, decision)
    };
    let requeue = decision.requeue_after;
    apply(context, maintenance, &observed, decision, now).await?;
    // The wait counts from the decision, and the writes have taken a part of it.
    Ok(requeue.map(|wait| wait.saturating_sub(decided.elapsed())))
}

/// Shows in the status why the maintenance does not advance; if the status cannot be written either, in an event.
async fn report(context: &Context, maintenance: &GroupedMaintenance, error: &ApplyError) {
    let Some(failed) = error.failed_write() else { return };
    let uid = maintenance.uid().unwrap_or_default();
    let failures = context.state.maintenance(&uid, |state| state.backoff.failures());
    if matches!(failed.cause, WriteFailure::Failed(_)) && failures < UNREPORTED_FAILURES {
        return;
    }
    let node = node(context, &maintenance.spec.node_name);
    let observed = ClusterState { group: maintenance.group, node, ..ClusterState::default() };
    let now = context.clock.now();
    let report = report_failure(maintenance, &observed, failed.clone(), now);
    match apply(context, maintenance, &observed, report, now).await {
        Err(unwritten) if !unwritten.is_conflict() => {
            context.events.publish(maintenance, None, &failed.event());
        }
        _ => {}
    }
}

/// When to retry after a failure. The first of consecutive failures is logged as a warning.
#[expect(clippy::needless_pass_by_value, reason = "the controller passes both by value")]
pub(crate) fn after_failure(
    maintenance: Arc<GroupedMaintenance>,
    error: &ApplyError,
    context: Arc<Context>,
) -> Action {
    let uid = maintenance.uid().unwrap_or_default();
    let (warns, delay) = context.state.maintenance(&uid, |state| {
        (state.backoff.record_failure(error.is_conflict()), state.backoff.delay())
    });
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let (name, node) = (maintenance.name_any(), &maintenance.spec.node_name);
    if warns {
        warn!(maintenance = name, node, cause, "{error}; retrying");
    } else {
        debug!(maintenance = name, node, cause, "{error}");
    }
    Action::requeue(delay)
}
