//! What can happen next in the small world.

use std::fmt;

use crate::api_server::Watched;
use crate::state::{NodeChange, Pod, SLOTS, State, Term, Write, is_deleted};
use crate::waits::{HookKind, Interest};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// The leader reconciles the maintenance of a slot.
    Reconcile(usize),
    /// It performs its next write for that slot.
    Write(usize),
    /// Its evictor sends the queued eviction of the pod of this name.
    Evict(usize),
    /// One of its watches delivers.
    Deliver(Watched),
    /// A terminating pod ends.
    PodEnds(usize),
    /// The request on its way arrives.
    LateArrives,
    /// Who has set a hook removes it.
    RemoveHook(usize, HookKind),
    TimePasses,
    /// Harm.
    Harm(Harmful),
}

/// What stops when harm stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Harmful {
    /// The next write of a slot never arrives.
    LoseWrite(usize),
    /// It takes effect, but its answer is lost.
    LoseAnswer(usize),
    /// Nobody waits for it any more, but it may still arrive.
    Delay(usize),
    /// The queued eviction of the pod of this name never arrives.
    LoseEviction(usize),
    /// The leader is killed, and another replica leads.
    Crash,
    /// The same while the next write of a slot is on its way.
    CrashInFlight(usize),
    Create(usize),
    /// Creates a maintenance in the second in which the other one was created.
    CreateInSameSecond(usize),
    Delete(usize),
    Change(NodeChange),
    SetHook(usize, HookKind),
    /// A person asks for something of the neighbours, or no longer.
    ChangeDrain(usize),
    /// A replacement of a pod arrives on the node under the same name.
    PodReturns(usize),
}

impl Harmful {
    fn is_by_person(self) -> bool {
        matches!(
            self,
            Self::Create(_)
                | Self::CreateInSameSecond(_)
                | Self::Delete(_)
                | Self::Change(_)
                | Self::SetHook(..)
                | Self::ChangeDrain(_)
                | Self::PodReturns(_)
        )
    }
}

/// `reconcile m0`, `lose-answer m0`: one word or two, so that a printed history can be replayed.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconcile(slot) => write!(f, "reconcile m{slot}"),
            Self::Write(slot) => write!(f, "write m{slot}"),
            Self::Evict(pod) => write!(f, "evict p{pod}"),
            Self::Deliver(Watched::Maintenance(slot)) => write!(f, "deliver m{slot}"),
            Self::Deliver(Watched::Node) => write!(f, "deliver node"),
            Self::Deliver(Watched::Lease) => write!(f, "deliver lease"),
            Self::Deliver(Watched::Pods) => write!(f, "deliver pods"),
            Self::PodEnds(pod) => write!(f, "pod-ends p{pod}"),
            Self::LateArrives => write!(f, "late-write-arrives"),
            Self::RemoveHook(slot, kind) => write!(f, "remove-{kind:?} m{slot}"),
            Self::TimePasses => write!(f, "time-passes"),
            Self::Harm(harm) => write!(f, "{harm}"),
        }
    }
}

impl fmt::Display for Harmful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoseWrite(slot) => write!(f, "lose-write m{slot}"),
            Self::LoseAnswer(slot) => write!(f, "lose-answer m{slot}"),
            Self::Delay(slot) => write!(f, "delay-write m{slot}"),
            Self::LoseEviction(pod) => write!(f, "lose-eviction p{pod}"),
            Self::Crash => write!(f, "crash"),
            Self::CrashInFlight(slot) => write!(f, "crash-while-writing m{slot}"),
            Self::Create(slot) => write!(f, "create m{slot}"),
            Self::CreateInSameSecond(slot) => write!(f, "create-in-same-second m{slot}"),
            Self::Delete(slot) => write!(f, "delete m{slot}"),
            Self::Change(change) => write!(f, "person {change:?}"),
            Self::SetHook(slot, kind) => write!(f, "set-{kind:?} m{slot}"),
            Self::ChangeDrain(slot) => write!(f, "change-drain m{slot}"),
            Self::PodReturns(pod) => write!(f, "pod-returns p{pod}"),
        }
    }
}

impl State {
    /// What can happen without harm, in the order in which a fair world does it.
    pub(crate) fn harmless(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.late.is_some() {
            actions.push(Action::LateArrives);
        }
        let ends = |pod: &usize| matches!(self.api.pods.pods[*pod], Pod::Terminating(_));
        actions.extend(SLOTS.into_iter().filter(ends).map(Action::PodEnds));
        actions.extend(SLOTS.into_iter().filter(|slot| self.term.runs[*slot].is_some()).map(Action::Write));
        actions.extend(SLOTS.into_iter().filter(|pod| self.queued(*pod).is_some()).map(Action::Evict));
        let watches =
            [Watched::Node, Watched::Maintenance(0), Watched::Maintenance(1), Watched::Lease, Watched::Pods];
        actions.extend(watches.into_iter().filter(|watched| self.is_behind(*watched)).map(Action::Deliver));
        let idle =
            |slot: &usize| self.term.maintenances[*slot].object.is_some() && self.term.runs[*slot].is_none();
        actions.extend(SLOTS.into_iter().filter(idle).map(Action::Reconcile));
        actions.extend(self.time_passes().then_some(Action::TimePasses));
        actions.extend(self.hooks(true).map(|(slot, kind)| Action::RemoveHook(slot, kind)));
        actions
    }

    /// The harm that can still be done.
    pub(crate) fn harmful(&self) -> Vec<Harmful> {
        let mut harm = Vec::new();
        if self.harm.faults > 0 {
            for slot in SLOTS.into_iter().filter(|slot| self.next_write(*slot).is_some()) {
                harm.extend([Harmful::LoseWrite(slot), Harmful::LoseAnswer(slot)]);
                if self.late.is_none() {
                    harm.extend([Harmful::Delay(slot), Harmful::CrashInFlight(slot)]);
                }
            }
            harm.extend(
                SLOTS.into_iter().filter(|pod| self.queued(*pod).is_some()).map(Harmful::LoseEviction),
            );
            harm.push(Harmful::Crash);
        }
        if self.harm.person > 0 {
            for slot in SLOTS {
                match self.api.maintenances[slot] {
                    // The starts with waits have the maintenances that they need.
                    None if self.interest != Interest::Node && self.api.created[slot] == 0 => {}
                    None => {
                        harm.push(Harmful::Create(slot));
                        if self.api.maintenances[1 - slot].is_some() {
                            harm.push(Harmful::CreateInSameSecond(slot));
                        }
                    }
                    Some(maintenance) if !is_deleted(maintenance) => harm.push(Harmful::Delete(slot)),
                    Some(_) => {}
                }
            }
            match self.interest {
                Interest::Node => {
                    harm.extend(NodeChange::ALL.map(Harmful::Change));
                    let is_elsewhere = |pod: &usize| matches!(self.api.pods.pods[*pod], Pod::Gone(_));
                    harm.extend(SLOTS.into_iter().filter(is_elsewhere).map(Harmful::PodReturns));
                }
                Interest::Hooks => {
                    harm.extend(self.hooks(false).map(|(slot, kind)| Harmful::SetHook(slot, kind)));
                }
                Interest::Neighbours => {
                    harm.extend(NodeChange::OF_NEIGHBOURS.map(Harmful::Change));
                    let exists = |slot: &usize| self.api.maintenances[*slot].is_some();
                    harm.extend(SLOTS.into_iter().filter(exists).map(Harmful::ChangeDrain));
                }
            }
        }
        harm
    }

    /// The hooks of maintenances that are set, or not.
    fn hooks(&self, is_set: bool) -> impl Iterator<Item = (usize, HookKind)> {
        let of = move |slot: usize| {
            let object = self.api.maintenances[slot];
            let is_so =
                move |kind: &HookKind| object.is_some_and(|object| kind.is_set(slot, object) == is_set);
            HookKind::ALL.into_iter().filter(is_so).map(move |kind| (slot, kind))
        };
        SLOTS.into_iter().flat_map(of)
    }

    /// The state after an action; none if it changes nothing.
    pub(crate) fn after(&self, action: Action) -> Option<Self> {
        let mut state = self.clone();
        match action {
            Action::Reconcile(slot) => {
                state.reconcile(slot);
            }
            Action::Write(slot) => state.perform(slot),
            Action::Evict(pod) => state.send(pod),
            Action::Deliver(watched) => state.deliver(watched),
            Action::PodEnds(pod) => state.end_pod(pod),
            Action::RemoveHook(slot, kind) => state.set_hook(slot, kind, false),
            Action::TimePasses => state.clock += 1,
            Action::LateArrives => {
                let late = state.late.take()?;
                state.watcher.lease_may_stay |= matches!(late.write, Write::CreateLease(_));
                // Nobody reads the answer.
                let _ = state.write(&late);
            }
            Action::Harm(harm) => {
                state.suffer(harm)?;
                if state == *self {
                    return None;
                }
                let left = if harm.is_by_person() { &mut state.harm.person } else { &mut state.harm.faults };
                *left = left.checked_sub(1)?;
            }
        }
        state.note_unknown();
        Some(state).filter(|state| state != self)
    }

    fn suffer(&mut self, harm: Harmful) -> Option<()> {
        match harm {
            Harmful::LoseWrite(slot) => self.give_up(slot),
            Harmful::LoseAnswer(slot) => {
                let write = self.next_write(slot)?;
                self.give_up(slot);
                // Without an effect it is a write that is lost.
                self.write(&write).ok()?;
            }
            Harmful::Delay(slot) => {
                self.late = Some(self.next_write(slot)?);
                self.give_up(slot);
            }
            Harmful::LoseEviction(pod) => {
                let uid = self.queued(pod)?;
                self.term.evictions.remove(&uid);
            }
            Harmful::Crash => self.term = Term::new(&self.api),
            Harmful::CrashInFlight(slot) => {
                self.late = Some(self.next_write(slot)?);
                self.term = Term::new(&self.api);
            }
            Harmful::Create(slot) => self.create(slot, false),
            Harmful::CreateInSameSecond(slot) => self.create(slot, true),
            Harmful::Delete(slot) => self.delete(slot),
            Harmful::Change(change) => self.person_wrote(change),
            Harmful::SetHook(slot, kind) => self.set_hook(slot, kind, true),
            Harmful::ChangeDrain(slot) => self.toggle_drain(slot),
            Harmful::PodReturns(pod) => {
                let number = self.api.pods.pods[pod].number();
                self.api.pods.pods[pod] = Pod::Running(number + 1);
            }
        }
        Some(())
    }
}
