//! The proxy between the replicas and the API server, which disturbs their requests and watches.

use std::time::Duration;

use kube_sandbox::faults::{Action, Failure, Rule, Target, When};
use nm_shared::cluster::leader_lease;
use nm_tests::fault_proxy::FaultProxy;
use nm_tests::requests::{by_reconciler, user_agent};

use crate::plan::{NetworkFault, Requests};

/// Seconds, as priority and fairness answers.
const RETRY_AFTER: u32 = 1;

/// Disturbs requests, of one replica or of all, for a while. Returns what was disturbed.
pub(crate) async fn disturb(
    proxy: &FaultProxy,
    pid: Option<u32>,
    fault: NetworkFault,
    requests: Requests,
    percent: u64,
    lasts: Duration,
) -> String {
    let faults = proxy.faults();
    let replica = pid.map_or_else(by_reconciler, |pid| Target::any().user_agent(&user_agent(pid)));
    let watches = replica.clone().verb("watch");
    match fault {
        NetworkFault::EndWatches => return format!("{} watches ended", faults.end_watches(&watches, 0)),
        NetworkFault::MuteWatches => {
            let muted = faults.mute_watches(&watches);
            tokio::time::sleep(lasts).await;
            // A connection that was lost without a sign is found to be lost later.
            faults.end_watches(&watches, 0);
            return format!("{muted} watches were mute");
        }
        NetworkFault::LateEvents(delay) => {
            let late = faults.delay_watches(&watches, delay);
            let rule = faults.add(Rule::new(watches.clone(), Action::DelayEvents(delay)));
            tokio::time::sleep(lasts).await;
            faults.remove(rule);
            faults.end_watches(&watches, 0);
            return format!("{late} watches were late");
        }
        _ => {}
    }
    let Some(action) = action(fault) else { return "nothing".to_owned() };
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    let chance = When::Chance { probability: percent as f64 / 100.0, seed: lasts.as_secs() };
    let target =
        if fault == NetworkFault::Conflict { replica.verb("patch") } else { limit(replica, requests) };
    let rule = faults.add(Rule::new(target, action).when(chance));
    tokio::time::sleep(lasts).await;
    let played = faults.played(rule);
    faults.remove(rule);
    format!("{played} requests met it")
}

/// Those of the requests that a fault meets.
fn limit(target: Target, requests: Requests) -> Target {
    match requests {
        Requests::All => target,
        Requests::Reads => target.verb("get").verb("list").verb("watch"),
        Requests::Writes => target.verb("create").verb("update").verb("patch").verb("delete"),
        Requests::LeaderLease => target.resource("leases").name(leader_lease::NAME),
    }
}

/// What happens to requests; none for a fault of watches.
fn action(fault: NetworkFault) -> Option<Action> {
    use kube_sandbox::faults::Moment::BeforeEffect;
    Some(match fault {
        NetworkFault::Delay(delay) => Action::Delay(delay),
        NetworkFault::DelayAnswer(delay) => Action::DelayAnswer(delay),
        NetworkFault::Throttle => Action::Fail(Failure::Throttled { retry_after: RETRY_AFTER }, BeforeEffect),
        NetworkFault::TooManyRequests => {
            Action::Fail(Failure::TooManyRequests { retry_after: RETRY_AFTER }, BeforeEffect)
        }
        NetworkFault::Conflict => Action::Fail(Failure::Conflict, BeforeEffect),
        NetworkFault::Internal(moment) => Action::Fail(Failure::Internal, moment),
        NetworkFault::Unavailable => Action::Fail(Failure::Unavailable, BeforeEffect),
        NetworkFault::Timeout(moment) => Action::Fail(Failure::Timeout, moment),
        NetworkFault::Disconnect(moment) => Action::Disconnect(moment),
        NetworkFault::NeverAnswer(moment) => Action::NeverAnswer(moment),
        NetworkFault::EndWatches | NetworkFault::MuteWatches | NetworkFault::LateEvents(_) => return None,
    })
}
