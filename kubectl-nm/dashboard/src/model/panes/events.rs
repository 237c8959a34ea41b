//! The events about the open node and its maintenance, the latest first. Those of earlier maintenances of the node are left out.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::uid;
use nm_shared::NodeMaintenance;

const SHOWN: usize = 500;

/// Among how many events before it another one is looked for that reports the same.
const NEAR: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeEvent {
    pub(crate) at: Option<Timestamp>,
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) note: String,
    pub(crate) count: i32,
    /// The uid of the maintenance that it is about; none if it is about the node.
    maintenance: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NodeEvents {
    by_uid: HashMap<String, NodeEvent>,
    latest: Vec<NodeEvent>,
    /// The uid of the maintenance that is shown, or was last, and when it was created.
    of: Option<(String, Option<Timestamp>)>,
    pub(crate) complete: bool,
}

impl NodeEvents {
    /// Applies a change that a watch reported. There may be several, one for each name that events refer to.
    pub(crate) fn apply(&mut self, change: &WatchChange<Event>) {
        match change {
            WatchChange::Listed(events) => {
                self.complete = true;
                for event in events {
                    self.insert(event);
                }
            }
            WatchChange::Applied(event) => self.insert(event),
            // API servers delete events after an hour. They are still worth showing.
            WatchChange::Deleted(_) => {}
        }
        self.select();
    }

    /// Shows the events of this maintenance from now on. Once it is gone, they stay until there is another one.
    pub(crate) fn show(&mut self, maintenance: Option<&NodeMaintenance>) {
        let Some(maintenance) = maintenance else { return };
        let created = maintenance.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let of = Some((uid(maintenance), created));
        if self.of != of {
            self.of = of;
            self.select();
        }
    }

    fn select(&mut self) {
        let mut latest: Vec<NodeEvent> =
            self.by_uid.values().filter(|event| self.concerns(event)).cloned().collect();
        latest.sort_by(|a, b| (b.at, &a.reason, &a.note).cmp(&(a.at, &b.reason, &b.note)));
        let mut distinct: Vec<NodeEvent> = Vec::with_capacity(latest.len());
        for event in latest {
            let mut near = distinct.iter().rev().take(NEAR);
            if !near.any(|known| event.is_about_same(known)) {
                distinct.push(event);
            }
        }
        let mut latest = distinct;
        latest.truncate(SHOWN);
        self.latest = latest;
    }

    /// Whether an event is about the maintenance that is shown, or about its node since then.
    fn concerns(&self, event: &NodeEvent) -> bool {
        let Some((uid, created)) = &self.of else { return true };
        match &event.maintenance {
            Some(other) => other == uid,
            None => event.at.zip(*created).is_none_or(|(at, created)| at >= created),
        }
    }

    pub(crate) fn latest(&self) -> &[NodeEvent] {
        &self.latest
    }

    fn insert(&mut self, event: &Arc<Event>) {
        let key = event.uid().unwrap_or_else(|| event.name_any());
        self.by_uid.insert(key, NodeEvent::from(event.as_ref()));
    }
}

impl NodeEvent {
    /// Whether one of two events is about the maintenance, and the other reports the same at the same time of its node.
    fn is_about_same(&self, other: &Self) -> bool {
        let second = |event: &Self| event.at.map(Timestamp::as_second);
        let apart = second(self).zip(second(other)).map_or(0, |(one, two)| (one - two).abs());
        self.maintenance.is_some() != other.maintenance.is_some()
            && (&self.reason, &self.note, self.count) == (&other.reason, &other.note, other.count)
            && apart <= 1
    }
}

impl From<&Event> for NodeEvent {
    fn from(event: &Event) -> Self {
        let series = event.series.as_ref();
        let at = series
            .map(|series| series.last_observed_time.0)
            .or_else(|| event.deprecated_last_timestamp.as_ref().map(|time| time.0))
            .or_else(|| event.event_time.as_ref().map(|time| time.0))
            .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
        let regarding = event.regarding.as_ref();
        let about = regarding.filter(|regarding| regarding.kind.as_deref() == Some("NodeMaintenance"));
        Self {
            at,
            maintenance: about.and_then(|regarding| regarding.uid.clone()),
            is_warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.clone().unwrap_or_default(),
            note: event.note.clone().unwrap_or_default(),
            count: series.map(|series| series.count).or(event.deprecated_count).unwrap_or(1).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, value: serde_json::Value) -> Arc<Event> {
        let mut event: Event = serde_json::from_value(value).unwrap();
        event.metadata.name = Some(name.to_owned());
        Arc::new(event)
    }

    #[test]
    fn events_of_an_earlier_maintenance_of_the_node_are_left_out() {
        let about = |name: &str, kind: &str, uid: &str, second: u32| {
            let at = format!("2026-01-01T00:00:{second:02}.000000Z");
            event(
                name,
                json!({"reason": name, "metadata": {}, "eventTime": at, "regarding": {"kind": kind, "uid": uid}}),
            )
        };
        let maintenance = |uid: &str, second: u32| -> NodeMaintenance {
            serde_json::from_value(json!({"metadata": {"name": "n1", "uid": uid,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}, "spec": {"nodeName": "n1"}}))
            .unwrap()
        };
        let shown = |events: &NodeEvents| -> Vec<String> {
            events.latest().iter().map(|event| event.reason.clone()).collect()
        };
        let mut events = NodeEvents::default();
        events.apply(&WatchChange::Listed(vec![
            about("OldDrained", "NodeMaintenance", "old", 3),
            about("OldUncordoned", "Node", "n1", 9),
            about("Recordoned", "Node", "n1", 10),
            about("Drained", "NodeMaintenance", "new", 12),
        ]));
        assert_eq!(shown(&events).len(), 4, "without a maintenance, everything about the node is shown");
        events.show(Some(&maintenance("new", 10)));
        assert_eq!(shown(&events), ["Drained", "Recordoned"]);
        // An event of the earlier one may arrive late.
        events.apply(&WatchChange::Applied(about("OldRemoved", "NodeMaintenance", "old", 11)));
        events.show(None);
        assert_eq!(shown(&events), ["Drained", "Recordoned"], "also once it is gone");
        events.show(Some(&maintenance("newest", 20)));
        assert!(shown(&events).is_empty());
    }

    #[test]
    fn an_event_about_both_the_node_and_its_maintenance_is_shown_once() {
        let about = |name: &str, kind: &str, note: &str, second: u32| {
            let at = format!("2026-01-01T00:00:{second:02}.000000Z");
            event(
                name,
                json!({"reason": "RecordonNode", "note": note, "metadata": {}, "eventTime": at,
                    "regarding": {"kind": kind, "uid": kind}}),
            )
        };
        let mut events = NodeEvents::default();
        events.apply(&WatchChange::Listed(vec![
            about("a", "NodeMaintenance", "cordoned again", 5),
            about("b", "Node", "cordoned again", 5),
            about("c", "NodeMaintenance", "cordoned again", 20),
            about("d", "Node", "cordoned again", 21),
            about("e", "Node", "later", 21),
            about("f", "Node", "cordoned again", 40),
        ]));
        let shown: Vec<&str> = events.latest().iter().map(|event| event.note.as_str()).collect();
        assert_eq!(shown, ["cordoned again", "cordoned again", "later", "cordoned again"]);
    }

    #[test]
    fn the_latest_comes_first_and_events_that_the_server_deletes_stay() {
        let mut events = NodeEvents::default();
        let old =
            event("a", json!({"reason": "Old", "metadata": {}, "eventTime": "2026-01-01T00:00:00.000000Z"}));
        let new =
            event("b", json!({"reason": "New", "metadata": {}, "eventTime": "2026-01-01T00:00:09.000000Z"}));
        events.apply(&WatchChange::Listed(vec![Arc::clone(&old), new]));
        events.apply(&WatchChange::Deleted(old));
        let again = json!({"reason": "Old", "type": "Warning", "metadata": {}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
        events.apply(&WatchChange::Applied(event("a", again)));
        let shown: Vec<(&str, i32, bool)> = events
            .latest()
            .iter()
            .map(|event| (event.reason.as_str(), event.count, event.is_warning))
            .collect();
        assert_eq!(shown, [("Old", 3, true), ("New", 1, false)]);
    }
}
