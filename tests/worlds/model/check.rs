//! The search, its properties, and the report.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nm_shared::NodeMaintenance;
use nm_tests::invariants::{
    NodeMarks, Violation, maintenance_has_settled, node_is_as_before, others_are_untouched,
    undo_record_is_truthful,
};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::actions::Action;
use crate::objects::hash;
use crate::state::{Harm, Pod, SLOTS, State, is_deleted, node_cordoned_by_hand, node_in_service, parsed};
use crate::waits::{Asks, HookKind, Interest, with_neighbours};

/// A world that has not settled after so many steps never does.
const MAX_STEPS: usize = 1_000;

/// A world to explore.
struct SmallWorld {
    starts: Vec<State>,
}

impl SmallWorld {
    /// The worlds with these starts, by their numbers in [`starts`].
    fn new(numbers: &[usize], harm: Harm) -> Self {
        let all = starts(harm);
        Self { starts: numbers.iter().map(|number| all[*number].clone()).collect() }
    }
}

/// All ways to start: a node in service or cordoned by a person; two pods or none; one maintenance, or two, or two of the
/// same second.
fn starts(harm: Harm) -> Vec<State> {
    let mut starts = Vec::new();
    for node in [node_in_service(), node_cordoned_by_hand()] {
        for pods in [[Pod::Running(1); 2], [Pod::Gone(1); 2]] {
            let mut one = State::new(node, pods, harm);
            one.create(0, false);
            starts.push(one.clone());
            for same_second in [false, true] {
                let mut two = one.clone();
                two.create(1, same_second);
                starts.push(two);
            }
        }
    }
    starts.extend(waiting_starts(harm));
    starts
}

/// The same with maintenances that wait, and that ask something of neighbours. The numbers are those in [`starts`].
fn waiting_starts(harm: Harm) -> Vec<State> {
    let bare = node_in_service();
    let other = with_neighbours(bare, (Some("false"), [Some("false"), Some("true")]));
    let mixed = with_neighbours(bare, (Some(""), [None, Some("false")]));
    let (running, gone) = ([Pod::Running(1), Pod::Gone(1)], [Pod::Gone(1); 2]);
    let start = |(node, pods, asks, interest, count)| {
        let mut start = State { asks, interest, ..State::new(node, pods, harm) };
        (0..count).for_each(|slot| start.create(slot, false));
        start
    };
    let nothing = Asks::default();
    let hooked = Asks { hook: true, ..nothing };
    let asked = Asks { neighbours: true, ..nothing };
    let delayed = Asks { delay: true, ..asked };
    let worlds = [
        // 12: a maintenance with a hook, and a pod.
        (bare, running, [hooked, nothing], Interest::Hooks, 1),
        // 13 to 15: neighbours are asked, with and without values of others.
        (bare, gone, [asked, nothing], Interest::Neighbours, 1),
        (other, gone, [asked, nothing], Interest::Neighbours, 1),
        (mixed, gone, [asked, nothing], Interest::Neighbours, 1),
        // 16 and 17: the first or the second of two asks.
        (other, gone, [asked, nothing], Interest::Neighbours, 2),
        (other, gone, [nothing, asked], Interest::Neighbours, 2),
        // 18: load balancers have time before the pod is evicted.
        (mixed, running, [delayed, nothing], Interest::Neighbours, 1),
        // 19: the same with a hook, and the options may be set later.
        (bare, running, [Asks { hook: true, ..delayed }, nothing], Interest::Neighbours, 1),
    ];
    let mut starts: Vec<State> = worlds.into_iter().map(start).collect();
    // 20 and 21: a maintenance that is drained, and later deleted with a hook, alone or beside another one.
    for count in [1, 2] {
        let mut ending = start((bare, gone, [nothing; 2], Interest::Hooks, count));
        while let Some((_, following)) = next(&ending) {
            ending = following;
        }
        ending.set_hook(0, HookKind::PreReturn, true);
        ending.delete(0);
        starts.push(ending);
    }
    starts
}

impl Model for SmallWorld {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.starts.clone()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.harmless());
        actions.extend(state.harmful().into_iter().map(Action::Harm));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        state.after(action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("safety", |_, state: &State| is_safe(state).is_ok()),
            Property::always("liveness", |_, state| settles(state).is_ok()),
        ]
    }
}

/// Safety: what is true at every moment.
pub(crate) fn is_safe(state: &State) -> Result<(), String> {
    if let Some(violation) = &state.watcher.violation {
        return Err(violation.0.clone());
    }
    let (node, before) = (parsed(state.api.node), parsed(state.watcher.before));
    others_are_untouched(&node, &before).map_err(|violation| violation.to_string())?;
    if state.watcher.is_unknown {
        return Ok(());
    }
    undo_record_is_truthful(&node, &NodeMarks::of(&before)).map_err(|violation| violation.to_string())
}

/// States without harm from which everything is known to end well.
static GOOD: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Liveness: what is true once harm stops.
pub(crate) fn settles(state: &State) -> Result<(), String> {
    let mut state = state.clone();
    state.harm = harm(0, 0);
    let mut visited = HashSet::new();
    let mut history = Vec::new();
    for _ in 0..MAX_STEPS {
        let id = hash(&state);
        if GOOD.lock().unwrap_or_else(PoisonError::into_inner).contains(&id) || !visited.insert(id) {
            break;
        }
        is_safe(&state).map_err(|why| format!("{why}\nafter harm stopped: {}", history.join("; ")))?;
        if let Some((action, following)) = next(&state) {
            history.push(action.to_string());
            state = following;
            continue;
        }
        has_ended(&state).map_err(|why| format!("{why}\nafter harm stopped: {}", history.join("; ")))?;
        if state.api.maintenances == [None, None] {
            GOOD.lock().unwrap_or_else(PoisonError::into_inner).extend(visited);
            return Ok(());
        }
        history.push("everything is deleted".to_owned());
        for slot in SLOTS {
            state.delete(slot);
        }
    }
    if GOOD.lock().unwrap_or_else(PoisonError::into_inner).contains(&hash(&state)) {
        GOOD.lock().unwrap_or_else(PoisonError::into_inner).extend(visited);
        return Ok(());
    }
    history.truncate(60);
    Err(format!("violated: harm has stopped, and nothing settles: {}", history.join("; ")))
}

/// What a fair world does next; none if it has settled.
fn next(state: &State) -> Option<(Action, State)> {
    state.harmless().into_iter().find_map(|action| Some((action, state.after(action)?)))
}

fn has_ended(state: &State) -> Result<(), String> {
    let node = parsed(state.api.node);
    let maintenances: Vec<_> =
        state.api.maintenances.iter().flatten().map(|object| object.parse::<NodeMaintenance>()).collect();
    let all: Vec<&NodeMaintenance> = maintenances.iter().map(AsRef::as_ref).collect();
    let pending = state.api.pods.pods.iter().filter(|pod| !matches!(pod, Pod::Gone(_))).count();
    let ended = || {
        maintenance_has_settled(Some(&node), &all, pending)?;
        if all.is_empty() && !state.watcher.is_unknown {
            node_is_as_before(&node, &NodeMarks::of(&parsed(state.watcher.before)))?;
            if state.api.lease.is_some() && !state.watcher.lease_may_stay {
                let facts = "the lease on the node is left".to_owned();
                return Err(Violation { invariant: "a node without a maintenance is as it was", facts });
            }
        }
        Ok(())
    };
    ended().map_err(|violation: Violation| violation.to_string())
}

/// Explores all interleavings, prints how many there were, and panics at a violation.
fn explore(numbers: &[usize], harm: Harm) {
    let began = Instant::now();
    let world = SmallWorld::new(numbers, harm);
    let timeout =
        Duration::from_secs(std::env::var("NM_MODEL_SECONDS").map_or(3600, |text| text.parse().unwrap()));
    let checker = world
        .checker()
        .threads(2)
        .timeout(timeout)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let took = began.elapsed();
    let cut = if took < timeout { "" } else { "; stopped before all states were visited" };
    println!(
        "starts {numbers:?}, {} acts of people, {} faults: {} states, {} of them different, depth {}, {took:.1?}{cut}",
        harm.person,
        harm.faults,
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
    );
    for (property, path) in checker.discoveries() {
        let Some(failure) = ["safety", "liveness"].into_iter().find(|name| *name == property) else {
            continue;
        };
        let steps = path.into_vec();
        let last = &steps.last().unwrap().0;
        let start = starts(harm).iter().position(|start| *start == steps[0].0).unwrap();
        let history: Vec<String> =
            steps.iter().filter_map(|(_, action)| action.map(|action| action.to_string())).collect();
        let why = if failure == "safety" { is_safe(last) } else { settles(last) };
        panic!(
            "{failure}: {}\n\nNM_MODEL_HISTORY='{start}: {}' cargo test -p nm-worlds --test model history -- --nocapture",
            why.unwrap_err(),
            history.join("; ")
        );
    }
}

const fn harm(person: u8, faults: u8) -> Harm {
    Harm { person, faults }
}

/// The short form: starts, by their numbers in [`starts`], and the harm that is done to them.
const SHORT: [(&[usize], Harm); 15] = [
    (&[3, 9], harm(1, 1)),
    (&[3], harm(2, 0)),
    (&[0], harm(0, 1)),
    (&[4, 5, 10, 11], harm(0, 1)),
    (&[4, 11], harm(1, 0)),
    (&[12], harm(1, 1)),
    (&[13, 14, 15], harm(1, 1)),
    (&[16, 17], harm(1, 0)),
    (&[16, 17], harm(0, 1)),
    (&[18], harm(1, 1)),
    (&[19], harm(0, 1)),
    (&[19], harm(2, 0)),
    (&[20], harm(2, 1)),
    (&[21], harm(1, 0)),
    (&[21], harm(0, 1)),
];

/// The long form.
const LONG: [(&[usize], Harm); 11] = [
    (&[0, 6], harm(1, 0)),
    (&[3, 9], harm(2, 1)),
    (&[3, 9], harm(1, 2)),
    (&[3], harm(3, 0)),
    (&[0, 6], harm(1, 1)),
    (&[4, 5, 10, 11], harm(1, 1)),
    (&[1, 2, 7, 8], harm(1, 0)),
    (&[12, 13, 14, 15, 18, 20], harm(2, 2)),
    (&[16, 17, 19], harm(1, 1)),
    (&[21], harm(1, 1)),
    (&[19, 21], harm(2, 1)),
];

#[test]
fn no_interleaving_of_a_small_world_violates_an_invariant() {
    match std::env::var("NM_MODEL") {
        Err(_) => SHORT.iter().for_each(|(numbers, harm)| explore(numbers, *harm)),
        Ok(form) if form == "long" => LONG.iter().for_each(|(numbers, harm)| explore(numbers, *harm)),
        Ok(world) => {
            let numbers: Vec<usize> = world.split(',').map(|number| number.parse().unwrap()).collect();
            let [person, faults] = [numbers[0], numbers[1]].map(|number| u8::try_from(number).unwrap());
            explore(&numbers[2..], harm(person, faults));
        }
    }
}

#[test]
fn without_harm_two_maintenances_drain_their_node_and_return_it_to_service() {
    let all_exist =
        |state: &State| !state.api.maintenances.iter().flatten().any(|object| is_deleted(*object));
    for mut state in starts(harm(0, 0)).into_iter().filter(all_exist) {
        while let Some((_, following)) = next(&state) {
            state = following;
        }
        assert_eq!(has_ended(&state), Ok(()));
        assert!(state.watcher.is_marked && state.api.pods.pods.iter().all(|pod| matches!(pod, Pod::Gone(_))));
        assert_eq!(settles(&state), Ok(()));
    }
}

/// Replays a history: the number of its start, and what happens.
pub(crate) fn replay(history: &str, mut show: impl FnMut(&str, &State)) -> Result<(), String> {
    let (start, actions) = history.split_once(':').unwrap();
    let start: usize = start.trim().parse().unwrap();
    let mut state = starts(harm(9, 9)).swap_remove(start);
    for wanted in actions.split(';').map(str::trim).filter(|wanted| !wanted.is_empty()) {
        let harmful = state.harmful().into_iter().map(Action::Harm);
        let action = state.harmless().into_iter().chain(harmful).find(|action| action.to_string() == wanted);
        let following = action.and_then(|action| state.after(action));
        // A fix may have made a step impossible, or unnecessary.
        let Some(following) = following else { continue };
        show(wanted, &following);
        state = following;
        is_safe(&state)?;
    }
    settles(&state)
}
