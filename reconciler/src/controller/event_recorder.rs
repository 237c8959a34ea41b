//! Publishes Kubernetes events on the maintenance and on its node.

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use nm_shared::api::names::FIELD_MANAGER;
use nm_shared::decide::decision::{EventSubject, PendingEvent};
use nm_shared::{Grouped, NodeMaintenance};
use tracing::{info, warn};

pub(crate) struct EventRecorder {
    recorder: Recorder,
}

impl EventRecorder {
    pub(crate) fn new(client: Client) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Logs and publishes one event. A failure is logged and not retried.
    pub(crate) async fn publish(&self, maintenance: &Grouped, node: Option<&Node>, pending: &PendingEvent) {
        let name = maintenance.metadata.name.as_deref().unwrap_or_default();
        let reason = pending.reason.as_str();
        info!(maintenance = name, node = maintenance.spec.node_name, reason, "{}", pending.note);
        let regarding = match pending.subject {
            EventSubject::Maintenance => maintenance.object_ref(&maintenance.group),
            EventSubject::Node => node_reference(maintenance, node),
        };
        let event = Event {
            type_: if pending.reason.is_warning() { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(pending.event_note()),
            action: reason.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &regarding).await {
            warn!(maintenance = name, reason, %error, "event not published");
        }
    }
}

fn node_reference(maintenance: &NodeMaintenance, node: Option<&Node>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        uid: node.and_then(|node| node.metadata.uid.clone()),
        name: Some(maintenance.spec.node_name.clone()),
        ..ObjectReference::default()
    }
}
