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

use crate::cache::term_state::TermState;
use crate::controller::apply::{ApplyError, apply};
use crate::controller::context::Context;
use crate::controller::observe::{may_take_etcd_member, observe};
use crate::runtime::backoff::Backoff;

/// So many failures of the API server in a row are not reported, because the next attempt often succeeds. A refusal is
/// reported at once.
const UNREPORTED_FAILURES: usize = 2;

/// Reconciles one maintenance. Never waits for a pod.
pub(crate) async fn reconcile(
    maintenance: Arc<GroupedMaintenance>,
    context: Arc<Context>,
) -> Result<Action, ApplyError> {
    let uid = maintenance.uid().unwrap_or_default();
    let began = Instant::now();
    let maintenance = match begin(&mut context.state.lock(), maintenance, &uid, began) {
        Ok(maintenance) => maintenance,
        Err(action) => return Ok(action),
    };
    let result = observe_and_apply(&context, &maintenance).await;
    context.metrics.reconciled(began.elapsed(), result.is_err());
    if let Err(error) = &result {
        report(&context, &maintenance, error).await;
    }
    let requeue = result?;
    context.state.lock().maintenances.memory(&uid, |state| {
        state.backoff = Backoff::default();
        // A reconcile that is due earlier than the interval is not delayed.
        let wait = requeue.filter(|wait| !wait.is_zero());
        let due = wait.and_then(|wait| Instant::now().checked_add(wait));
        state.not_before = state.not_before.into_iter().chain(due).min();
    });
    Ok(requeue.map_or_else(Action::await_change, Action::requeue))
}

/// The maintenance to reconcile, as it was last written, or why it is not reconciled now.
fn begin(
    state: &mut TermState,
    maintenance: Arc<GroupedMaintenance>,
    uid: &str,
    now: Instant,
) -> Result<Arc<GroupedMaintenance>, Action> {
    if let Some(wait) = state.maintenances.initial_list_wait() {
        return Err(Action::requeue(wait));
    }
    state.maintenances.note_seen(uid);
    state.maintenances.memory(uid, |known| {
        if known.released {
            return Err(Action::await_change());
        }
        if let Some(not_before) = known.not_before.filter(|not_before| *not_before > now) {
            return Err(Action::requeue(not_before - now));
        }
        known.not_before = Some(now + RECONCILE_INTERVAL);
        Ok(())
    })?;
    Ok(state.restored(maintenance))
}

/// Observes, decides, applies, and returns when to reconcile again if nothing triggers that earlier.
async fn observe_and_apply(
    context: &Context,
    maintenance: &GroupedMaintenance,
) -> Result<Option<Duration>, ApplyError> {
    let is_openshift = may_take_etcd_member(&mut context.state.lock(), context, maintenance)
        && context.openshift.is_openshift(&context.client).await.map_err(ApplyError::Discovery)?;
    let (now, decided) = (context.clock.now(), Instant::now());
    let (observed, decision) = {
        // Nothing changes, and nothing else is decided, before the gate knows of this decision.
        let mut state = context.state.lock();
        // It may have been deleted, or its node changed, during the discovery.
        let is_of_node = |found: &GroupedMaintenance| found.spec.node_name == maintenance.spec.node_name;
        if !state.maintenances.get(maintenance).is_some_and(|found| is_of_node(found)) {
            return Ok(None);
        }
        let Some(observed) = observe(&mut state, context, maintenance, is_openshift, now) else {
            return Ok(None);
        };
        let decision = decide(maintenance, &observed, now);
        // A maintenance that no longer has its node takes none.
        state.set_at_work(maintenance, decision.at_work);
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
    let failures = context.state.lock().maintenances.memory(&uid, |state| state.backoff.failures());
    if matches!(failed.cause, WriteFailure::Failed(_)) && failures < UNREPORTED_FAILURES {
        return;
    }
    let node = context.state.lock().nodes.latest(&maintenance.spec.node_name);
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
    let (warns, delay) = context
        .state
        .lock()
        .maintenances
        .memory(&uid, |state| (state.backoff.record_failure(error.is_conflict()), state.backoff.delay()));
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let (name, node) = (maintenance.name_any(), &maintenance.spec.node_name);
    if warns {
        warn!(maintenance = name, node, cause, "{error}; retrying");
    } else {
        debug!(maintenance = name, node, cause, "{error}");
    }
    Action::requeue(delay)
}
