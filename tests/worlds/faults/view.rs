//! Ways in which a replica sees the world late, for each watch that it has.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use serde::{Deserialize, Serialize};

use crate::world::World;

/// How late events are.
const DELAY: Duration = Duration::from_secs(5);

/// By how many revisions a list is stale.
const STALE_BY: u64 = 12;

/// For how many seconds of a step a view lasts. Then harm stops.
const HARM: u64 = 30;

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Watched {
    pub(crate) group: String,
    pub(crate) resource: String,
}

impl Watched {
    fn requests(&self, verb: &str) -> Target {
        World::by_reconciler().verb(verb).group(&self.group).resource(&self.resource)
    }
}

/// What is wrong with what a replica sees, or with its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum View {
    /// All events are late.
    Delayed,
    /// Events are lost without a sign, until the silence is noticed and everything is listed again.
    Dropped,
    /// The watch ends and its history is lost (410): states in between are never seen.
    Expired,
    /// The next list is older than what was seen before, and so is the watch that follows, for a while.
    StaleList,
    /// The same for the first list of another replica, which takes over.
    StaleTakeover,
    /// The replica that lags loses the leadership to one that does not.
    DelayedThenTakeover,
}

impl View {
    pub(crate) const ALL: [Self; 6] = [
        Self::Delayed,
        Self::Dropped,
        Self::Expired,
        Self::StaleList,
        Self::StaleTakeover,
        Self::DelayedThenTakeover,
    ];

    /// Begins the view, and ends it a while later.
    pub(crate) async fn play(self, world: Arc<World>, of: Watched) {
        let faults = world.sandbox.faults();
        let (watches, lists) = (of.requests("watch"), of.requests("list"));
        let delayed = || Rule::new(watches.clone(), Action::DelayEvents(DELAY));
        let stale =
            || Rule::new(lists.clone(), Action::StaleList { revisions: STALE_BY }).when(When::First(1));
        let mut rules = Vec::new();
        match self {
            Self::Delayed => {
                rules.push(faults.add(delayed()));
                faults.delay_watches(&watches, DELAY);
            }
            Self::Dropped => {
                faults.mute_watches(&watches);
            }
            Self::Expired => {
                rules.push(faults.add(Rule::new(watches.clone(), Action::Delay(DELAY)).when(When::First(1))));
                faults.end_watches(&watches, 0);
                world.pass(2).await;
                faults.forget_history();
            }
            Self::StaleList => {
                // What was done meanwhile is missing in the list.
                world.pass(1).await;
                let failed = Action::Fail(Failure::Internal, Moment::BeforeEffect);
                rules.push(faults.add(Rule::new(watches.clone(), failed).when(When::First(1))));
                rules.push(faults.add(stale()));
                rules.push(faults.add(delayed()));
                faults.end_watches(&watches, 0);
            }
            Self::StaleTakeover => {
                world.pass(1).await;
                rules.push(faults.add(stale()));
                rules.push(faults.add(delayed()));
                world.start_replica();
            }
            Self::DelayedThenTakeover => {
                let only = watches.clone().user_agent(&format!("nm-reconciler/*-{})", world.last_replica()));
                faults.delay_watches(&only, DELAY);
                world.pass(3).await;
                world.start_replica();
            }
        }
        world.met();
        world.pass(HARM).await;
        for rule in rules {
            faults.remove(rule);
        }
        faults.delay_watches(&watches, Duration::ZERO);
    }
}

/// Who is wrong about the time in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum ClockFault {
    /// All clocks of the reconciler are an hour ahead.
    Ahead,
    /// All are an hour behind.
    Behind,
    /// The clock is set forth and back every few seconds.
    SetBackAndForth,
    /// The replica that takes over in each step is an hour ahead of the one before.
    TakeoverAhead,
    /// The same an hour behind.
    TakeoverBehind,
}

const HOUR: i64 = 3600;

impl ClockFault {
    pub(crate) const ALL: [Self; 5] =
        [Self::Ahead, Self::Behind, Self::SetBackAndForth, Self::TakeoverAhead, Self::TakeoverBehind];

    /// Plays in one step of a life.
    pub(crate) async fn play(self, world: Arc<World>) {
        world.wrong_clocks.store(true, Ordering::Relaxed);
        let set = |replica: u64, skew: i64| world.skew(replica).store(skew, Ordering::Relaxed);
        // The replica that is started with the first step does not exist yet.
        let current = world.last_replica().max(1);
        match self {
            Self::Ahead => set(current, HOUR),
            Self::Behind => set(current, -HOUR),
            Self::SetBackAndForth => {
                for round in 0..20 {
                    set(world.last_replica().max(1), if round % 2 == 0 { HOUR } else { -HOUR });
                    world.pass(2).await;
                }
                set(world.last_replica(), 0);
            }
            Self::TakeoverAhead | Self::TakeoverBehind => {
                let direction = if self == Self::TakeoverAhead { HOUR } else { -HOUR };
                world.pass(2).await;
                // Every second replica is right.
                let next = world.last_replica() + 1;
                set(next, if next.is_multiple_of(2) { direction } else { 0 });
                world.start_replica();
            }
        }
        world.met();
    }
}

/// A backup of etcd is restored in a step, and people do again what that has undone: when it was made, and when it is restored, in milliseconds after the step began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Restore {
    pub(crate) made: u64,
    pub(crate) restored: u64,
}

impl Restore {
    pub(crate) const ALL: [Self; 6] = [
        Self { made: 20, restored: 1000 },
        Self { made: 60, restored: 3000 },
        Self { made: 150, restored: 700 },
        Self { made: 500, restored: 5000 },
        Self { made: 1500, restored: 4000 },
        Self { made: 3000, restored: 20_000 },
    ];

    pub(crate) async fn play(self, world: Arc<World>) {
        tokio::time::sleep(Duration::from_millis(self.made)).await;
        let revision = world.read(kube_sandbox::store::State::revision);
        tokio::time::sleep(Duration::from_millis(self.restored - self.made)).await;
        world.restore_begins();
        world.sandbox.server_down().await;
        assert!(world.sandbox.faults().restore(revision), "the history is long enough");
        world.pass(1).await;
        world.sandbox.server_up().await.unwrap();
        world.met();
        // Watches are open again, and what was restored is seen, before people have done it again.
        world.pass(5).await;
        world.restore_ends(revision).await;
    }
}

/// Something that makes the reconciler see the world as it is not, in one step of a life.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Illusion {
    Late(Watched, View),
    Clock(ClockFault),
    Restored(Restore),
}

impl fmt::Display for Illusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(Watched { group, resource }, view) if group.is_empty() => {
                write!(f, "{resource} / {view:?}")
            }
            Self::Late(Watched { group, resource }, view) => write!(f, "{resource}.{group} / {view:?}"),
            Self::Clock(fault) => write!(f, "clock / {fault:?}"),
            Self::Restored(Restore { made, restored }) => write!(f, "restore {made} at {restored}"),
        }
    }
}

impl Illusion {
    /// Every illusion for these watches.
    pub(crate) fn all(watches: &BTreeSet<Watched>) -> Vec<Self> {
        let late = watches.iter().flat_map(|watched| View::ALL.map(|view| Self::Late(watched.clone(), view)));
        let (clock, restored) = (ClockFault::ALL.map(Self::Clock), Restore::ALL.map(Self::Restored));
        late.chain(clock).chain(restored).collect()
    }

    pub(crate) async fn play(self, world: Arc<World>) {
        match self {
            Self::Late(watched, view) => view.play(world, watched).await,
            Self::Clock(fault) => fault.play(world).await,
            Self::Restored(restore) => restore.play(world).await,
        }
    }
}
