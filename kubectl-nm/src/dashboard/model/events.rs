//! The events about the open node and its maintenance, the latest first.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;

use crate::dashboard::message::Change;

/// How many are shown at most.
const SHOWN: usize = 500;

/// One event, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happening {
    /// When it happened last.
    pub(crate) at: Option<Timestamp>,
    /// Whether it is a warning.
    pub(crate) warns: bool,
    /// Why it was published, in a word.
    pub(crate) reason: String,
    /// What happened.
    pub(crate) note: String,
    /// How often it happened.
    pub(crate) times: i32,
}

/// The events that are known.
#[derive(Debug, Default)]
pub(crate) struct Happenings {
    known: HashMap<String, Happening>,
    latest: Vec<Happening>,
    /// Whether the watch has told of all events.
    pub(crate) complete: bool,
}

impl Happenings {
    /// Takes in what the watch said.
    pub(crate) fn see(&mut self, change: &Change<Event>) {
        match change {
            Change::All(events) => {
                self.complete = true;
                self.known = events.iter().map(|event| (key(event), happening(event))).collect();
            }
            Change::Applied(event) => {
                self.known.insert(key(event), happening(event));
            }
            // Servers forget events after an hour; what happened still happened.
            Change::Gone(_) => {}
        }
        let mut latest: Vec<Happening> = self.known.values().cloned().collect();
        latest.sort_by(|a, b| (b.at, &a.reason, &a.note).cmp(&(a.at, &b.reason, &b.note)));
        latest.truncate(SHOWN);
        self.latest = latest;
    }

    /// The latest first.
    pub(crate) fn latest(&self) -> &[Happening] {
        &self.latest
    }
}

fn key(event: &Event) -> String {
    event.uid().unwrap_or_else(|| event.name_any())
}

fn happening(event: &Event) -> Happening {
    let series = event.series.as_ref();
    let last = series.map(|series| series.last_observed_time.0);
    let at = last
        .or_else(|| event.deprecated_last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
    Happening {
        at,
        warns: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.clone().unwrap_or_default(),
        note: event.note.clone().unwrap_or_default(),
        times: series.map(|series| series.count).or(event.deprecated_count).unwrap_or(1).max(1),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn event(name: &str, value: serde_json::Value) -> Arc<Event> {
        let mut event: Event = serde_json::from_value(value).unwrap();
        event.metadata.name = Some(name.to_owned());
        Arc::new(event)
    }

    #[test]
    fn the_latest_comes_first_and_what_the_server_forgets_stays() {
        let mut happenings = Happenings::default();
        let old =
            event("a", json!({"reason": "Old", "metadata": {}, "eventTime": "2026-01-01T00:00:00.000000Z"}));
        let new =
            event("b", json!({"reason": "New", "metadata": {}, "eventTime": "2026-01-01T00:00:09.000000Z"}));
        happenings.see(&Change::All(vec![Arc::clone(&old), new]));
        happenings.see(&Change::Gone(old));
        let again = json!({"reason": "Old", "type": "Warning", "metadata": {}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
        happenings.see(&Change::Applied(event("a", again)));
        let told: Vec<(&str, i32, bool)> =
            happenings.latest().iter().map(|one| (one.reason.as_str(), one.times, one.warns)).collect();
        assert_eq!(told, [("Old", 3, true), ("New", 1, false)]);
    }
}
