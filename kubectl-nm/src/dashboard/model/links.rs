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

/// Whether all pods of the open node have been told of: their watch may be up before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Not yet.
    Awaited,
    /// They are there.
    Complete,
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

    /// How fresh a view is that shows maintenances, and with a node open its pods: as fresh as the oldest of them, and
    /// not live before they are there.
    pub(crate) fn overall(&self, pods: Option<Arrival>) -> Freshness<'_> {
        let maintenances = self.of(Feed::Maintenances);
        let Some(arrival) = pods else { return maintenances };
        match (&maintenances, self.of(Feed::Pods)) {
            (Freshness::Live, pods @ (Freshness::Stale { .. } | Freshness::Connecting)) => pods,
            (Freshness::Live, Freshness::Live) if arrival == Arrival::Awaited => Freshness::Connecting,
            (Freshness::Stale { since, .. }, Freshness::Stale { since: earlier, error })
                if earlier < *since =>
            {
                Freshness::Stale { since: earlier, error }
            }
            // Without the right to see pods, maintenances are all there is.
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
        let (fleet, awaited, complete) = (None, Some(Arrival::Awaited), Some(Arrival::Complete));
        assert_eq!(links.overall(complete), Freshness::Connecting);
        links.set(Feed::Maintenances, Link::Live);
        assert_eq!(links.overall(fleet), Freshness::Live);
        assert_eq!(links.overall(complete), Freshness::Connecting);
        links.set(Feed::Pods, Link::Live);
        assert_eq!(links.overall(awaited), Freshness::Connecting);
        assert_eq!(links.overall(complete), Freshness::Live);
        links.set(Feed::Pods, lost(5));
        assert_eq!(links.overall(awaited), stale(5));
        assert_eq!(links.overall(complete), stale(5));
        assert_eq!(links.overall(fleet), Freshness::Live);
        links.set(Feed::Maintenances, lost(9));
        assert_eq!(links.overall(complete), stale(5));
        assert_eq!(links.overall(fleet), stale(9));
        links.set(Feed::Pods, Link::Forbidden("no".into()));
        assert_eq!(links.overall(awaited), stale(9));
        links.close();
        assert_eq!(links.of(Feed::Pods), Freshness::Connecting);
    }
}
