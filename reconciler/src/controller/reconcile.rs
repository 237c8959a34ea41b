//! One turn for one maintenance: observe, decide, apply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use nm_shared::Grouped;
use nm_shared::decide::{decide, missing_access};
use tracing::{debug, warn};

use crate::controller::apply::{ApplyError, apply};
use crate::controller::backoff::Failures;
use crate::controller::context::Context;
use crate::controller::observe::{observe, takes_control_plane};

/// A maintenance is looked at no more often than this: a burst of news, as when many of its pods end, is one look.
const BREATH: Duration = Duration::from_millis(100);

/// Does what the maintenance needs now. It never waits for a pod.
pub(crate) async fn reconcile(
    maintenance: Arc<Grouped>,
    context: Arc<Context>,
) -> Result<Action, ApplyError> {
    if let Some(unsettled) = context.maintenances.unsettled_for() {
        return Ok(Action::requeue(unsettled));
    }
    let uid = maintenance.uid().unwrap_or_default();
    let memory = context.memories.update(&uid, |_| ());
    if memory.released {
        return Ok(Action::await_change());
    }
    let began = Instant::now();
    let rest = memory.rest_until.map(|until| until.saturating_duration_since(began));
    if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
        return Ok(Action::requeue(rest));
    }
    context.memories.update(&uid, |memory| memory.rest_until = Some(began + BREATH));
    let maintenance = context.complete(context.own_maintenances.freshest(maintenance));
    let result = look(&context, &maintenance).await;
    context.metrics.reconciled(began.elapsed(), result.is_err());
    let look_again = result?;
    context.memories.update(&uid, |memory| {
        memory.failures = Failures::default();
        // What is due is not kept waiting by what came shortly before.
        let wait = look_again.filter(|wait| !wait.is_zero());
        let due = wait.and_then(|wait| Instant::now().checked_add(wait));
        memory.rest_until = memory.rest_until.into_iter().chain(due).min();
    });
    Ok(look_again.map_or_else(Action::await_change, Action::requeue))
}

/// Observes, decides, applies, and returns when to look again if nothing happens before.
async fn look(context: &Context, maintenance: &Grouped) -> Result<Option<Duration>, ApplyError> {
    let is_openshift = takes_control_plane(context, maintenance)
        && context.platform.is_openshift().await.map_err(ApplyError::Platform)?;
    let observed = observe(context, maintenance, is_openshift);
    if is_openshift && observed.pods.is_none() && observed.pods_forbidden.is_none() {
        // Its guard may be among them, and whether that is Ready decides. Their list is a reason to look again.
        return Ok(None);
    }
    let (now, decided) = (Timestamp::now(), Instant::now());
    let decision = decide(maintenance, &observed, now);
    // Before anything is awaited: whoever is looked at meanwhile is to know. One that has its node no more takes no place.
    let uid = maintenance.uid().unwrap_or_default();
    context.memories.update(&uid, |memory| memory.at_work = decision.at_work);
    let look_again = decision.requeue_after;
    if let Err(error) = apply(context, maintenance, &observed, decision, now).await {
        if let Some(denied) = error.access_denied() {
            let report = missing_access(maintenance, denied, now);
            apply(context, maintenance, &observed, report, now).await?;
        }
        return Err(error);
    }
    // Waits were counted from then, and writing takes its time.
    Ok(look_again.map(|wait| wait.saturating_sub(decided.elapsed())))
}

#[expect(clippy::needless_pass_by_value, reason = "the controller passes both by value")]
/// When to try again after a failure. One of a row is worth a warning.
pub(crate) fn after_failure(maintenance: Arc<Grouped>, error: &ApplyError, context: Arc<Context>) -> Action {
    let uid = maintenance.uid().unwrap_or_default();
    let mut worth_a_warning = false;
    let memory = context.memories.update(&uid, |memory| {
        worth_a_warning = memory.failures.note(error.is_overtaken());
    });
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let (name, node) = (maintenance.name_any(), &maintenance.spec.node_name);
    if worth_a_warning {
        warn!(maintenance = name, node, cause, "{error}; it will be tried again");
    } else {
        debug!(maintenance = name, node, cause, "{error}");
    }
    Action::requeue(memory.failures.pause())
}
