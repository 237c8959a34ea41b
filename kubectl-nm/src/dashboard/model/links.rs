//! How fresh the picture is.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::dashboard::message::{Feed, Link};

/// The watches, and when they last said something.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<Feed, Link>,
    /// When anything changed last.
    heard: Option<Timestamp>,
}

/// How fresh what is on the screen is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Freshness<'a> {
    /// Nothing has been heard yet.
    Connecting,
    /// It is so now.
    Live,
    /// It was so.
    Stale {
        /// Since when nobody knows.
        since: Timestamp,
        /// Why.
        error: &'a str,
    },
    /// Nobody may know.
    Forbidden(&'a str),
}

impl Links {
    /// A watch is doing well or not.
    pub(crate) fn set(&mut self, feed: Feed, link: Link) {
        self.links.insert(feed, link);
    }

    /// The watches of a node that is closed are no more.
    pub(crate) fn close(&mut self) {
        self.links.remove(&Feed::Pods);
        self.links.remove(&Feed::Events);
    }

    /// Something changed.
    pub(crate) fn hear(&mut self, now: Timestamp) {
        self.heard = Some(now);
    }

    /// When anything changed last.
    pub(crate) fn heard(&self) -> Option<Timestamp> {
        self.heard
    }

    /// What one watch is doing.
    pub(crate) fn of(&self, feed: Feed) -> Freshness<'_> {
        match self.links.get(&feed) {
            None => Freshness::Connecting,
            Some(Link::Live) => Freshness::Live,
            Some(Link::Lost { since, error }) => Freshness::Stale { since: *since, error },
            Some(Link::Forbidden(why)) => Freshness::Forbidden(why),
        }
    }

    /// How fresh a view is that shows maintenances, and with a node open its pods: as fresh as the oldest of them.
    pub(crate) fn overall(&self, node_open: bool) -> Freshness<'_> {
        let maintenances = self.of(Feed::Maintenances);
        let pods = self.of(Feed::Pods);
        match (&maintenances, pods) {
            (Freshness::Live, Freshness::Stale { since, error }) if node_open => {
                Freshness::Stale { since, error }
            }
            (Freshness::Stale { since, .. }, Freshness::Stale { since: earlier, error })
                if node_open && earlier < *since =>
            {
                Freshness::Stale { since: earlier, error }
            }
            _ => maintenances,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_as_fresh_as_the_oldest_of_what_it_shows() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lost = |second| Link::Lost { since: at(second), error: String::from("e") };
        let stale = |second| Freshness::Stale { since: at(second), error: "e" };
        let mut links = Links::default();
        assert_eq!(links.overall(true), Freshness::Connecting);
        links.set(Feed::Maintenances, Link::Live);
        assert_eq!(links.overall(true), Freshness::Live);
        links.set(Feed::Pods, lost(5));
        assert_eq!(links.overall(true), stale(5));
        assert_eq!(links.overall(false), Freshness::Live);
        links.set(Feed::Maintenances, lost(9));
        assert_eq!(links.overall(true), stale(5));
        assert_eq!(links.overall(false), stale(9));
        links.set(Feed::Pods, Link::Forbidden("no".into()));
        assert_eq!(links.overall(true), stale(9));
        links.close();
        assert_eq!(links.of(Feed::Pods), Freshness::Connecting);
    }
}
