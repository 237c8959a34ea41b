//! Nodes that a maintenance was just allowed for and that no list shows yet.
//!
//! The webhook reads live, and what it allowed is stored only afterwards: of two requests that come together neither
//! would see the other. So each that is allowed holds its node until a list shows it, or for a while if it never comes
//! to be, refused by something else.

use jiff::{SignedDuration, Timestamp};

use crate::api::maintenance::NodeMaintenance;

/// What was allowed is stored within this time, or never.
const HELD: SignedDuration = SignedDuration::from_secs(3);

/// The nodes that are held.
#[derive(Debug, Default)]
pub struct Reservations(Vec<Reservation>);

#[derive(Debug)]
struct Reservation {
    node: String,
    by: String,
    until: Timestamp,
}

impl Reservations {
    /// Lets go of what is stored, as a list that was asked for after the reservations shows, and of what never was.
    pub fn settle(&mut self, stored: &[NodeMaintenance], now: Timestamp) {
        let is_stored =
            |name: &str| stored.iter().any(|maintenance| maintenance.metadata.name.as_deref() == Some(name));
        self.0.retain(|reservation| reservation.until > now && !is_stored(&reservation.by));
    }

    /// The nodes that are held by maintenances of another name.
    pub fn against<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |held| Some(held.by.as_str()) != name).map(|held| held.node.as_str())
    }

    /// Holds the node of a maintenance that was allowed. Tried again under the same name it holds it anew.
    pub fn hold(&mut self, maintenance: &NodeMaintenance, now: Timestamp) {
        let by = maintenance.metadata.name.clone().unwrap_or_default();
        let node = maintenance.spec.node_name.clone();
        self.0.retain(|held| held.by != by || held.node != node);
        self.0.push(Reservation { node, by, until: now.saturating_add(HELD).unwrap_or(Timestamp::MAX) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::maintenance::NodeMaintenanceSpec;

    fn maintenance(name: &str, node: &str) -> NodeMaintenance {
        let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
        NodeMaintenance::new(name, spec)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn a_node_is_held_against_others_until_its_maintenance_is_stored_or_never_was() {
        let held = |second: i64, stored: &[NodeMaintenance], name: &str| {
            let mut reservations = Reservations::default();
            reservations.hold(&maintenance("a", "n1"), at(0));
            reservations.settle(stored, at(second));
            reservations.against(Some(name)).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(held(0, &[], "b"), ["n1"]);
        assert_eq!(held(2, &[maintenance("c", "n1")], "b"), ["n1"]);
        assert!(held(0, &[], "a").is_empty(), "its own name is no rival");
        assert!(held(0, &[maintenance("a", "n1")], "b").is_empty(), "the list tells from now on");
        assert!(held(3, &[], "b").is_empty(), "it was never stored");
    }

    #[test]
    fn trying_again_holds_once() {
        let mut reservations = Reservations::default();
        for second in 0..3 {
            reservations.hold(&maintenance("a", "n1"), at(second));
        }
        assert_eq!(reservations.against(None).count(), 1);
        reservations.settle(&[], at(4));
        assert_eq!(reservations.against(None).count(), 1, "since the last time");
    }
}
