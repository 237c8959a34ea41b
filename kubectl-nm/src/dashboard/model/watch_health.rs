//! How fresh the picture is.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::dashboard::message::{Feed, Link};

/// The watches, and when they last said something.
#[derive(Debug, Default)]
pub(crate) struct Links {
    feeds: BTreeMap<Feed, Link>,
    /// Since when nobody knows whether what a watch told is so, where that is not known to be so.
    old: BTreeMap<Feed, Timestamp>,
    /// When anything changed last.
    heard: Option<Timestamp>,
}

/// How fresh what is on the screen is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Freshness<'a> {
    /// Nothing has been heard yet, or nothing since all watches began anew.
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
    pub(crate) fn set(&mut self, feed: Feed, link: Link, now: Timestamp) {
        match &link {
            Link::Live => {
                self.old.remove(&feed);
            }
            Link::Lost { since, .. } => self.grows_old(feed, *since),
            Link::Forbidden(_) => self.grows_old(feed, now),
        }
        self.feeds.insert(feed, link);
    }

    /// All watches begin anew: what they told is not known to be so since then.
    pub(crate) fn renew(&mut self, since: Timestamp) {
        for feed in std::mem::take(&mut self.feeds).into_keys() {
            self.grows_old(feed, since);
        }
    }

    /// What was known grows no younger by being lost once more.
    fn grows_old(&mut self, feed: Feed, since: Timestamp) {
        let old = self.old.entry(feed).or_insert(since);
        *old = since.min(*old);
    }

    /// Since when nobody knows whether what the watch told is so; none if it is so now, or nothing was told.
    pub(crate) fn old_since(&self, feed: Feed) -> Option<Timestamp> {
        self.old.get(&feed).copied()
    }

    /// The watches of a node that is closed are no more.
    pub(crate) fn close(&mut self) {
        for feed in [Feed::Pods, Feed::Events] {
            self.feeds.remove(&feed);
            self.old.remove(&feed);
        }
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
        match self.feeds.get(&feed) {
            None => Freshness::Connecting,
            Some(Link::Live) => Freshness::Live,
            Some(Link::Lost { since, error }) => {
                Freshness::Stale { since: self.old_since(feed).unwrap_or(*since), error }
            }
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
        links.set(Feed::Maintenances, Link::Live, at(20));
        assert_eq!(links.overall(fleet), Freshness::Live);
        assert_eq!(links.overall(complete), Freshness::Connecting);
        links.set(Feed::Pods, Link::Live, at(20));
        assert_eq!(links.overall(awaited), Freshness::Connecting);
        assert_eq!(links.overall(complete), Freshness::Live);
        links.set(Feed::Pods, lost(5), at(20));
        assert_eq!(links.overall(awaited), stale(5));
        assert_eq!(links.overall(complete), stale(5));
        assert_eq!(links.overall(fleet), Freshness::Live);
        links.set(Feed::Maintenances, lost(9), at(20));
        assert_eq!(links.overall(complete), stale(5));
        assert_eq!(links.overall(fleet), stale(9));
        links.set(Feed::Pods, Link::Forbidden("no".into()), at(20));
        assert_eq!(links.overall(awaited), stale(9));
        links.close();
        assert_eq!(links.of(Feed::Pods), Freshness::Connecting);
    }

    #[test]
    fn what_is_lost_is_old_since_it_was_known_last() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lost = |second| Link::Lost { since: at(second), error: String::from("e") };
        let mut links = Links::default();
        links.renew(at(1));
        assert_eq!(links.old_since(Feed::Nodes), None, "nothing was told");
        links.set(Feed::Nodes, Link::Live, at(2));
        assert_eq!(links.old_since(Feed::Nodes), None);
        links.renew(at(5));
        links.renew(at(7));
        assert_eq!(
            (links.of(Feed::Nodes), links.old_since(Feed::Nodes)),
            (Freshness::Connecting, Some(at(5)))
        );
        links.set(Feed::Nodes, lost(9), at(9));
        assert_eq!(links.of(Feed::Nodes), Freshness::Stale { since: at(5), error: "e" });
        links.set(Feed::Nodes, Link::Live, at(11));
        links.set(Feed::Nodes, Link::Forbidden("no".into()), at(13));
        assert_eq!(links.old_since(Feed::Nodes), Some(at(13)));
    }
}
