//! The least number of moves with which a pool can be rolled, node after node.
//!
//! - Every pod that is on a node of the pool at the start moves at least once.
//! - While the first node is drained, no node is back yet. What the scheduler can place from it, it places at once, on nodes that
//!   are still to be rolled or on nodes outside of the pool; the former pods move again. If one of its pods stays
//!   Pending, the nodes that accept it are full, so at least as many pods were placed as these nodes had free. So of the P pods on
//!   the node, at least min(P, free capacity of the nodes that accept the choosiest of them) are placed, and all of
//!   these that do not fit outside of the pool move again.
//! - Pods that may not leave their zone cannot use the nodes of another zone that are back: the same is true for the first node of
//!   each zone.
//! - Afterwards the node that came back last is empty, and takes all pods of the next. Nothing forces a further move.
//!
//! All pods request the same, so that capacity is a number of pods. Pods that have to wait for a node to come back, because
//! no other has capacity or because of their constraints, do not move more often.

use std::collections::BTreeMap;

use crate::pool::Constraint;

/// A node of the pool or outside of it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) zone: &'static str,
    pub(crate) is_rolled: bool,
}

/// A pod at the start.
#[derive(Debug)]
pub(crate) struct PlacedPod {
    pub(crate) uid: String,
    pub(crate) app: String,
    pub(crate) node: String,
}

/// Where all pods are at the start.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) places: Vec<Place>,
    pub(crate) pods: Vec<PlacedPod>,
    /// How many pods fit on a node.
    pub(crate) capacity: usize,
    pub(crate) constraint: Constraint,
}

impl Start {
    /// The least number of moves.
    pub(crate) fn least_moves(&self) -> usize {
        let rolled = || self.places.iter().filter(|place| place.is_rolled);
        // The least of each group of nodes that pods do not leave.
        let mut forced: BTreeMap<&str, usize> = BTreeMap::new();
        for first in rolled() {
            let group = if self.constraint == Constraint::Spread { first.zone } else { "" };
            let moves = self.forced_moves(first);
            forced.entry(group).and_modify(|least| *least = moves.min(*least)).or_insert(moves);
        }
        let pods: usize = rolled().map(|place| self.pods_on(place).count()).sum();
        pods + forced.values().sum::<usize>()
    }

    /// How many pods have to move again if this node is the first one, or the first of its zone if pods may not leave it.
    fn forced_moves(&self, first: &Place) -> usize {
        let others = || self.places.iter().filter(|place| place.name != first.name);
        let free_for = |pod: &PlacedPod| {
            others().filter(|place| self.accepts(place, first, pod)).map(|place| self.free(place)).sum()
        };
        let free_for_all = self.pods_on(first).map(free_for).min().unwrap_or(0);
        let outside: usize = others()
            .filter(|place| {
                !place.is_rolled && self.pods_on(first).any(|pod| self.accepts(place, first, pod))
            })
            .map(|place| self.free(place))
            .sum();
        self.pods_on(first).count().min(free_for_all).saturating_sub(outside)
    }

    fn accepts(&self, place: &Place, first: &Place, pod: &PlacedPod) -> bool {
        match self.constraint {
            Constraint::Plain => true,
            Constraint::Spread => place.zone == first.zone,
            Constraint::AntiAffinity => self.pods_on(place).all(|other| other.app != pod.app),
        }
    }

    fn free(&self, place: &Place) -> usize {
        self.capacity - self.pods_on(place).count()
    }

    fn pods_on(&self, place: &Place) -> impl Iterator<Item = &PlacedPod> {
        self.pods.iter().filter(|pod| pod.node == place.name)
    }
}
