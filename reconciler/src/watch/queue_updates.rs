//! Triggers the maintenances that wait: at once when it is their turn or they wait for another reason, and from time to
//! time when only the numbers of the queue have changed.
//!
//! Nothing else triggers a maintenance in the queue, so that hundreds of them cost nothing while nothing changes. When a
//! node returns to service, the positions of all that wait change; their statuses are written one after another.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nm_shared::api::condition::{self, ConditionReason, ConditionType};
use nm_shared::decide::position_due;
use nm_shared::gate::max_unavailable_queue::{MaxUnavailable, Queue, ShownPosition, may_be_queued};
use nm_shared::gate::ownership;
use nm_shared::{GroupedMaintenance, NodeMaintenanceStatus, Phase};
use tokio::time::{sleep, timeout};

use crate::cache::leader_state::LeaderState;
use crate::cache::triggers::Triggers;
use crate::runtime::clock::Clock;

/// Changes within this time of each other lead to one round.
const COALESCING: Duration = Duration::from_millis(10);

/// After a round, the next one waits so long for each maintenance that the round looked at: rounds look at 40,000 maintenances a
/// second at most, however many there are and however often they change.
const REST_PER_MAINTENANCE: Duration = Duration::from_micros(25);

/// A round delays the next one no longer than this.
const MAX_REST: Duration = Duration::from_secs(2);

/// The interval of rounds while positions are outdated.
const WRITE_STEP: Duration = Duration::from_secs(1);

/// The interval of rounds without a change, which is the fallback. Outdated positions are spread over it.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);

/// Triggers waiting maintenances after every change from now on. The future never ends.
pub(crate) fn trigger_waiting(
    state: Arc<LeaderState>,
    triggers: Triggers,
    limit: Option<MaxUnavailable>,
    clock: Clock,
) -> impl Future<Output = ()> + Send + 'static {
    let mut changes = state.gate.changes();
    let (mut wait, mut rest) = (ROUND_INTERVAL, Duration::ZERO);
    async move {
        loop {
            sleep(rest).await;
            let is_changed = timeout(wait, changes.changed()).await.is_ok();
            if is_changed {
                sleep(COALESCING).await;
                changes.mark_unchanged();
            }
            let round = Round::new(&state, limit, is_changed, clock.now());
            rest = REST_PER_MAINTENANCE.saturating_mul(round.looked_at).min(MAX_REST);
            for maintenance in round.due {
                triggers.maintenance(&maintenance);
            }
            wait = round.next;
        }
    }
}

/// The maintenances to trigger now, and when the next round is due.
struct Round {
    due: Vec<Arc<GroupedMaintenance>>,
    next: Duration,
    /// How many maintenances there were, whether they wait or not.
    looked_at: u32,
}

impl Round {
    fn new(state: &LeaderState, limit: Option<MaxUnavailable>, is_changed: bool, now: Timestamp) -> Self {
        let queue = limit.map(|limit| state.gate.queue(limit)).unwrap_or_default();
        let (mut due, mut outdated) = (Vec::new(), Vec::new());
        let looked_at = Cell::new(0_u32);
        let is_pending = |maintenance: &GroupedMaintenance| {
            looked_at.set(looked_at.get().saturating_add(1));
            is_pending(maintenance)
        };
        for maintenance in state.filter(is_pending) {
            let uid = ownership::uid(&maintenance);
            let Some(status) = &maintenance.status else { continue };
            if !may_be_queued(&maintenance) {
                if is_changed && waits_for_quorum(status) {
                    due.push(maintenance);
                }
                continue;
            }
            let queued = queue.get(uid);
            match queued.map(|queued| (queued.shown_in(status), queued.position.position)) {
                Some((ShownPosition::Current, _)) => {}
                Some((ShownPosition::OldNumbers, position)) => {
                    let at = position_due(status, state.status_written(uid), now).unwrap_or(now);
                    outdated.push((at, position, maintenance));
                }
                Some((ShownPosition::Otherwise, _)) | None => due.push(maintenance),
            }
        }
        outdated.sort_by_key(|(at, position, _)| (*at, *position));
        let (ready, later): (Vec<_>, Vec<_>) = outdated.into_iter().partition(|(at, ..)| *at <= now);
        let at_once = per_step(&queue);
        let next = match later.first() {
            _ if ready.len() > at_once => WRITE_STEP,
            Some((at, ..)) => Duration::try_from(at.duration_since(now)).unwrap_or_default(),
            None => ROUND_INTERVAL,
        };
        due.extend(ready.into_iter().take(at_once).map(|(_, _, maintenance)| maintenance));
        Self { due, next: next.clamp(WRITE_STEP, ROUND_INTERVAL), looked_at: looked_at.get() }
    }
}

/// How many positions to write in a step, so that all are written within [`ROUND_INTERVAL`].
fn per_step(queue: &Queue) -> usize {
    let steps = ROUND_INTERVAL.as_secs() / WRITE_STEP.as_secs();
    queue.len().div_ceil(usize::try_from(steps).unwrap_or(1))
}

fn is_pending(maintenance: &GroupedMaintenance) -> bool {
    maintenance.metadata.deletion_timestamp.is_none()
        && maintenance.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Pending))
}

fn waits_for_quorum(status: &NodeMaintenanceStatus) -> bool {
    let drained = condition::find(&status.conditions, ConditionType::Drained);
    drained.is_some_and(|drained| ConditionReason::of(drained) == Some(ConditionReason::QuorumAtRisk))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use kube::ResourceExt;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use nm_shared::Group;
    use nm_shared::gate::max_unavailable_queue::GateNode;
    use serde_json::json;

    use super::*;

    const LIMIT: Option<MaxUnavailable> = Some(MaxUnavailable::Nodes(1));

    /// The state with these maintenances, each of the node of its name: its status and when that was last written.
    struct Cluster {
        state: LeaderState,
        writer: Writer<GroupedMaintenance>,
    }

    impl Cluster {
        fn new(nodes: usize) -> Self {
            let writer = Writer::new(Group::Medik8s);
            let state = LeaderState::new([(Group::Medik8s, writer.as_reader())]);
            let node = |at: usize| (name(at), GateNode::from(&k8s_openapi::api::core::v1::Node::default()));
            let nodes = (0..nodes).map(node).collect::<HashMap<_, _>>();
            state.gate.replace_nodes(&state.gate.begin_decision(), nodes);
            Self { state, writer }
        }

        /// A maintenance that has begun, or shows this position of 90 since that second.
        fn put(&mut self, at: usize, position: Option<usize>, since: i64) {
            let condition = |type_: &str, status: &str, reason: &str| {
                json!({"type": type_, "status": status, "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let status = match position {
                None => {
                    json!({"phase": "Running", "conditions": [condition("Cordoned", "True", "Cordoned")]})
                }
                Some(position) => json!({"phase": "Pending",
                    "conditions": [condition("Drained", "False", "MaxUnavailable")],
                    "queue": {"position": position, "length": 90, "limit": 1},
                    "lastError": format!(
                        "position {position} of 90 in the queue: 1 of 91 nodes are unavailable and the limit is 1"),
                    "lastUpdate": second(since).to_string()}),
            };
            let name = name(at);
            let maintenance: GroupedMaintenance = serde_json::from_value(json!({
                "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "spec": {"nodeName": name}, "status": status,
                "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            }))
            .unwrap();
            self.writer.apply_watcher_event(&Event::Apply(maintenance.clone()));
            self.state.index(Arc::new(maintenance));
        }

        /// The names of the maintenances that are triggered at this second, and the seconds until the next round.
        fn round(&self, at: i64) -> (Vec<String>, u64) {
            let round = Round::new(&self.state, LIMIT, true, second(at));
            let mut names: Vec<String> = round.due.iter().map(|maintenance| maintenance.name_any()).collect();
            names.sort();
            (names, round.next.as_secs())
        }
    }

    fn name(at: usize) -> String {
        format!("n{at:02}")
    }

    fn second(at: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + at).unwrap()
    }

    #[test]
    fn nobody_is_triggered_while_nothing_changes_and_whose_turn_it_is_at_once() {
        let mut cluster = Cluster::new(91);
        cluster.put(0, None, 0);
        for at in 1..91 {
            cluster.put(at, Some(at), 0);
        }
        assert_eq!(cluster.round(1), (vec![], 30));
        let first = cluster.state.filter_received(|found| found.name_any() == name(0)).next().unwrap();
        cluster.writer.apply_watcher_event(&Event::Delete(GroupedMaintenance::clone(&first)));
        cluster.state.remove_from_index(&first);
        let (due, next) = cluster.round(1);
        assert_eq!((due, next), (vec!["n01".to_owned()], 29), "all others have new positions, but not yet");
    }

    #[test]
    fn outdated_positions_are_written_after_30_seconds_the_oldest_first_and_spread() {
        let mut cluster = Cluster::new(91);
        cluster.put(0, None, 0);
        for at in 1..91 {
            // Everyone has moved up by one since.
            cluster.put(at, Some(at + 1), i64::try_from(at % 3).unwrap());
        }
        assert_eq!(cluster.round(20), (vec![], 10));
        let (due, next) = cluster.round(30);
        assert_eq!((due, next), (vec!["n03".into(), "n06".into(), "n09".into()], 1));
        assert_eq!(cluster.round(60).0.len(), 3);
        for at in 1..91 {
            cluster.put(at, Some(at), 60);
        }
        assert_eq!(cluster.round(60), (vec![], 30));
    }

    #[test]
    fn who_waits_for_a_reason_that_is_over_is_triggered_even_if_the_last_write_was_just_now() {
        let mut cluster = Cluster::new(2);
        cluster.put(0, None, 0);
        cluster.put(1, Some(1), 0);
        let alone = Round::new(&cluster.state, None, true, second(0));
        assert_eq!(alone.due.len(), 1, "there is no limit any more");
    }

    /// How many maintenances rounds look at in so many milliseconds, in each of which the gate changes.
    async fn looks(count: usize, milliseconds: usize) -> usize {
        let mut cluster = Cluster::new(count);
        for at in 0..count {
            cluster.put(at, Some(at + 1), 0);
        }
        let state = Arc::new(cluster.state);
        let (triggers, [mut triggered, ..]) = Triggers::new(state.clone());
        // Each round triggers all of them: there is no limit any more.
        let rounds = tokio::spawn(trigger_waiting(state.clone(), triggers, None, Clock::system()));
        for at in 0..milliseconds {
            let node = (at % 2 == 0).then(|| GateNode::from(&k8s_openapi::api::core::v1::Node::default()));
            state.gate.update_node(&state.gate.begin_decision(), "new", node);
            sleep(Duration::from_millis(1)).await;
        }
        rounds.abort();
        std::iter::from_fn(|| triggered.try_recv().ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn rounds_look_at_a_limited_number_of_maintenances_a_second_however_many_there_are() {
        for count in [1, 10, 100, 1_000] {
            let looks = looks(count, 2_000).await;
            assert!(looks <= 2 * 40_000, "{looks} looks for {count}");
            assert!(looks >= 20 * count, "{looks} looks for {count}: no change is missed for long");
        }
    }

    #[test]
    #[ignore = "it measures"]
    fn the_processor_time_of_rounds_is_measured() {
        const ROUNDS: u32 = 10;
        for count in [625, 1_250, 2_500, 5_000] {
            let mut cluster = Cluster::new(count);
            for at in 0..count {
                cluster.put(at, (at > 0).then_some(at), 0);
            }
            let rounds = || {
                for at in 0..ROUNDS {
                    let node =
                        (at % 2 == 0).then(|| GateNode::from(&k8s_openapi::api::core::v1::Node::default()));
                    cluster.state.gate.update_node(&cluster.state.gate.begin_decision(), "new", node);
                    Round::new(&cluster.state, LIMIT, true, second(0));
                }
            };
            let each = crate::runtime::thread_time::measured(rounds).1 / ROUNDS;
            let rest = REST_PER_MAINTENANCE.saturating_mul(u32::try_from(count).unwrap()).min(MAX_REST);
            let share = |cycle: Duration| 100.0 * each.as_secs_f64() / (cycle + each).as_secs_f64();
            let (now, before) = (share(COALESCING + rest), share(COALESCING));
            println!(
                "{count} waiting: a round {each:.3?}, {now:.0}% of a processor at most, {before:.0}% without a rest"
            );
        }
    }
}
