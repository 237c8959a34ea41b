//! The plan of a run: which harm is done when. It depends on the seed alone, so that a run can be repeated.

use std::time::Duration;

use kube_sandbox::faults::Moment;

/// How many replicas there are.
pub(crate) const REPLICAS: usize = 3;

/// How many nodes are put into maintenance.
pub(crate) const NODES: usize = 6;

/// How many maintenances there are at most, so that some have the same node.
pub(crate) const MAINTENANCES: usize = 8;

/// How many apps have pods on the nodes.
pub(crate) const APPS: usize = 3;

/// Time between two acts, in milliseconds.
const INTERVAL: (u64, u64) = (80, 650);

/// How many times more slowly the acts of a soak follow each other.
const SLOWNESS: u32 = 5;

/// Time between two reboots, in milliseconds.
const REBOOTS: (u64, u64) = (15_000, 45_000);

/// How long a replica is away or frozen, or the network is disturbed, in milliseconds.
const HARM: (u64, u64) = (200, 12_000);

/// How long the API server is paused, in milliseconds.
const SERVER_PAUSE: (u64, u64) = (500, 4_000);

/// The longest delay of a request. It is shorter than the last fifth of [`crate::replicas::LEASE_SECONDS`]: a request that
/// takes longer may be late.
const DELAY: (u64, u64) = (50, 1_000);

/// Something that disturbs a maintenance, or begins or ends one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    /// A replica is gone or frozen for a while.
    Replica { victim: Victim, harm: ReplicaHarm, lasts: Duration },
    /// The connections of one replica, or of all, are disturbed for a while.
    Network { victim: Option<Victim>, fault: NetworkFault, requests: Requests, percent: u64, lasts: Duration },
    /// The API server answers nothing for a while.
    PauseServer { lasts: Duration },
    /// The machine of a node is gone for a while.
    Reboot { node: usize },
    /// Somebody changes a node by hand.
    Hand { node: usize, hand: Hand },
    /// Somebody creates a maintenance.
    Start { name: usize, node: usize, suspend: bool, drain: Drain },
    /// Somebody deletes a maintenance.
    Stop { name: usize },
    /// Somebody deletes a maintenance and creates it again.
    Restart { name: usize, node: usize },
    /// Somebody sets or clears `spec.suspend`.
    Suspend { name: usize, suspend: bool },
    /// A disruption budget allows some disruptions, or none.
    Budget { app: usize, open: bool },
    /// An app gets a template whose pods fit nowhere, so that its rollout stalls, or one whose pods run.
    Rollout { app: usize, stalls: bool },
    /// A pod is bound to a node, whatever is going on there.
    LatePod { node: usize },
}

/// A replica to be harmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The one that leads at that time.
    Leader,
    /// The one in this slot.
    Slot(usize),
}

/// What happens to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaHarm {
    /// SIGKILL, and another one is started later.
    Kill,
    /// SIGTERM, and another one is started later.
    Terminate,
    /// SIGSTOP, and SIGCONT later.
    Freeze,
}

/// What happens to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkFault {
    Delay(Duration),
    DelayAnswer(Duration),
    Throttle,
    TooManyRequests,
    Conflict,
    Internal(Moment),
    Unavailable,
    Timeout(Moment),
    Disconnect(Moment),
    NeverAnswer(Moment),
    EndWatches,
    MuteWatches,
    LateEvents(Duration),
}

/// Which requests a fault meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    All,
    Reads,
    Writes,
    LeaderLease,
}

/// What somebody does to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hand {
    Cordon,
    Uncordon,
    StripTaints,
    StripLabel,
    StripRecord,
    /// The label of maintenances is set on a node in service.
    SetLabel,
    /// A label, a taint and an annotation that no maintenance knows.
    OwnMarks,
}

/// The `spec.drain` of a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drain {
    Default,
    ShortGrace,
    Ordered,
    Surge,
}

/// Random numbers that depend on the seed alone (`splitmix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn is(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn millis(&mut self, (from, to): (u64, u64)) -> Duration {
        Duration::from_millis(from + self.next() % (to - from))
    }

    /// Short ones are more frequent than long ones.
    fn harm(&mut self) -> Duration {
        self.millis(HARM).min(self.millis(HARM))
    }

    fn moment(&mut self) -> Moment {
        self.of(&[Moment::BeforeEffect, Moment::AfterEffect])
    }
}

/// The acts of a soak: as many in all its length as in a fifth of it otherwise, and no replica is harmed.
pub(crate) fn acts_of_soak(seed: u64, length: Duration) -> Vec<(Duration, Act)> {
    let all =
        acts(seed, length / SLOWNESS).into_iter().filter(|(_, act)| !matches!(act, Act::Replica { .. }));
    all.map(|(at, act)| (at * SLOWNESS, act)).collect()
}

/// The reboots of a run on machines that can be rebooted.
pub(crate) fn reboots(seed: u64, length: Duration) -> Vec<(Duration, Act)> {
    let mut random = Random(!seed);
    let (mut acts, mut at) = (Vec::new(), random.millis(REBOOTS));
    while at < length {
        acts.push((at, Act::Reboot { node: random.below(NODES) }));
        at += random.millis(REBOOTS);
    }
    acts
}

/// All acts of a run of this length, each with its time.
pub(crate) fn acts(seed: u64, length: Duration) -> Vec<(Duration, Act)> {
    let mut random = Random(seed);
    let (mut acts, mut at) = (Vec::new(), Duration::ZERO);
    loop {
        at += random.millis(INTERVAL);
        if at >= length {
            return acts;
        }
        acts.push((at, act(&mut random)));
    }
}

fn act(random: &mut Random) -> Act {
    let (name, node) = (random.below(MAINTENANCES), random.below(NODES));
    match random.below(100) {
        0..11 => Act::Replica {
            victim: victim(random),
            harm: random.of(&[ReplicaHarm::Kill, ReplicaHarm::Terminate, ReplicaHarm::Freeze]),
            lasts: random.harm(),
        },
        11..25 => network(random),
        25..27 => Act::PauseServer { lasts: random.millis(SERVER_PAUSE) },
        27..44 => Act::Hand { node, hand: hand(random) },
        44..60 => Act::Start { name, node, suspend: random.is(20), drain: drain(random) },
        60..72 => Act::Stop { name },
        72..77 => Act::Restart { name, node },
        77..86 => Act::Suspend { name, suspend: random.is(40) },
        86..91 => Act::Budget { app: random.below(APPS), open: random.is(50) },
        91..95 => Act::Rollout { app: random.below(APPS), stalls: random.is(50) },
        _ => Act::LatePod { node },
    }
}

fn victim(random: &mut Random) -> Victim {
    if random.is(50) { Victim::Leader } else { Victim::Slot(random.below(REPLICAS)) }
}

fn drain(random: &mut Random) -> Drain {
    random.of(&[Drain::Default, Drain::ShortGrace, Drain::Ordered, Drain::Surge, Drain::Surge, Drain::Surge])
}

fn hand(random: &mut Random) -> Hand {
    random.of(&[
        Hand::Cordon,
        Hand::Cordon,
        Hand::Uncordon,
        Hand::Uncordon,
        Hand::StripTaints,
        Hand::StripLabel,
        Hand::StripRecord,
        Hand::SetLabel,
        Hand::OwnMarks,
    ])
}

fn network(random: &mut Random) -> Act {
    let victim = random.is(60).then(|| victim(random));
    let (moment, delay) = (random.moment(), random.millis(DELAY));
    let fault = random.of(&[
        NetworkFault::Delay(delay),
        NetworkFault::Delay(delay),
        NetworkFault::DelayAnswer(delay),
        NetworkFault::Throttle,
        NetworkFault::TooManyRequests,
        NetworkFault::Conflict,
        NetworkFault::Internal(moment),
        NetworkFault::Unavailable,
        NetworkFault::Timeout(moment),
        NetworkFault::Disconnect(moment),
        NetworkFault::Disconnect(moment),
        NetworkFault::NeverAnswer(moment),
        NetworkFault::EndWatches,
        NetworkFault::MuteWatches,
        NetworkFault::LateEvents(delay),
    ]);
    let requests =
        random.of(&[Requests::All, Requests::All, Requests::Reads, Requests::Writes, Requests::LeaderLease]);
    let percent = random.of(&[10, 30, 60, 100]);
    Act::Network { victim, fault, requests, percent, lasts: random.harm() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_plan_again_and_another_seed_another_one() {
        let minute = Duration::from_secs(60);
        assert_eq!(acts(1, minute), acts(1, minute));
        assert_ne!(acts(1, minute), acts(2, minute));
        let longer = acts(1, 3 * minute);
        assert_eq!(
            acts(1, minute),
            longer[..acts(1, minute).len()],
            "a longer run begins like a shorter one"
        );
    }
}
