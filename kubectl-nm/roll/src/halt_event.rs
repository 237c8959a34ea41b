//! The Kubernetes Event about a roll that has halted, on the maintenance of the node because of which it did. Nothing depends on it.

use std::time::Duration;

use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use nm_core::client::cluster::Cluster;
use nm_shared::NodeMaintenance;

use crate::record::Halt;

/// How long the end of a program waits for the request.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);

/// The API server refuses events with longer notes.
const MAX_NOTE_BYTES: usize = 1024;

/// Publishes the event, if the user or the service account has permission to create events.
pub(crate) async fn publish(
    cluster: &Cluster,
    roll: &str,
    halt: &Halt,
    maintenance: &NodeMaintenance,
    who: &str,
) {
    let reporter = Reporter { controller: String::from("kubectl-nm"), instance: Some(who.to_owned()) };
    let mut note = format!("roll {roll} halted: {}", halt.message);
    note.truncate((0..=MAX_NOTE_BYTES).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default());
    let event = Event {
        type_: EventType::Warning,
        reason: String::from("RollHalted"),
        note: Some(note),
        action: String::from("HaltRoll"),
        secondary: None,
    };
    let recorder = Recorder::new(cluster.client(), reporter);
    // Without it, the halt is still in the record of the roll.
    let _ =
        tokio::time::timeout(PUBLISH_TIMEOUT, recorder.publish(&event, &maintenance.object_ref(&()))).await;
}
