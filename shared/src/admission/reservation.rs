//! Reservations of nodes for maintenances that were allowed and are not listed yet.
//!
//! An allowed maintenance is stored only after the review, so that of two concurrent requests neither would see the other
//! in a list. So each allowed request reserves its node until the maintenance is listed, or until a timeout if something
//! else refuses it.

use jiff::{SignedDuration, Timestamp};

use crate::api::maintenance::NodeMaintenance;

/// An allowed maintenance is stored within this time, or never.
const RESERVATION_TIMEOUT: SignedDuration = SignedDuration::from_secs(3);

/// The reserved nodes.
#[derive(Debug, Default)]
pub struct Reservations(Vec<Reservation>);

#[derive(Debug)]
struct Reservation {
    node: String,
    by: String,
    until: Timestamp,
}

impl Reservations {
    /// Drops reservations whose maintenance is `stored`, by a list that was requested after the reservation, or that timed
    /// out.
    pub fn settle(&mut self, stored: &[NodeMaintenance], now: Timestamp) {
        let is_stored =
            |name: &str| stored.iter().any(|maintenance| maintenance.metadata.name.as_deref() == Some(name));
        self.0.retain(|reservation| reservation.until > now && !is_stored(&reservation.by));
    }

    /// The nodes that are reserved for maintenances of another name.
    pub fn of_others<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |reserved| Some(reserved.by.as_str()) != name)
            .map(|reserved| reserved.node.as_str())
    }

    /// Reserves the node of an allowed maintenance. A retry under the same name renews the reservation.
    pub fn reserve(&mut self, maintenance: &NodeMaintenance, now: Timestamp) {
        let by = maintenance.metadata.name.clone().unwrap_or_default();
        let node = maintenance.spec.node_name.clone();
        self.0.retain(|reserved| reserved.by != by || reserved.node != node);
        self.0.push(Reservation {
            node,
            by,
            until: now.saturating_add(RESERVATION_TIMEOUT).unwrap_or(Timestamp::MAX),
        });
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
    fn a_node_is_reserved_until_its_maintenance_is_stored_or_the_timeout() {
        let reserved = |second: i64, stored: &[NodeMaintenance], name: &str| {
            let mut reservations = Reservations::default();
            reservations.reserve(&maintenance("a", "n1"), at(0));
            reservations.settle(stored, at(second));
            reservations.of_others(Some(name)).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(reserved(0, &[], "b"), ["n1"]);
        assert_eq!(reserved(2, &[maintenance("c", "n1")], "b"), ["n1"]);
        assert!(reserved(0, &[], "a").is_empty(), "its own name does not conflict");
        assert!(reserved(0, &[maintenance("a", "n1")], "b").is_empty(), "the list has it");
        assert!(reserved(3, &[], "b").is_empty(), "it was never stored");
    }

    #[test]
    fn a_retry_reserves_once() {
        let mut reservations = Reservations::default();
        for second in 0..3 {
            reservations.reserve(&maintenance("a", "n1"), at(second));
        }
        assert_eq!(reservations.of_others(None).count(), 1);
        reservations.settle(&[], at(4));
        assert_eq!(reservations.of_others(None).count(), 1, "since the last retry");
    }
}
