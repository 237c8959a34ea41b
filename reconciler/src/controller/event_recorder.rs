//! Publishes Kubernetes events on the maintenance and on its node.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use nm_shared::api::names::FIELD_MANAGER;
use nm_shared::decide::decision::{EventSubject, PendingEvent};
use nm_shared::{GroupedMaintenance, NodeMaintenance};
use tracing::{info, warn};

/// A [`Recorder`] remembers each event for six minutes, to count repetitions instead of publishing them. An event that is
/// repeated after this many others is published again, so that hundreds of maintenances do not cost a kilobyte and a half
/// for each of their events.
const MAX_REMEMBERED_EVENTS: usize = 64;

pub(crate) struct EventRecorder {
    client: Client,
    current: Mutex<CountedRecorder>,
}

/// A recorder and how many events it has published.
struct CountedRecorder {
    recorder: Recorder,
    published: usize,
}

impl CountedRecorder {
    fn new(client: Client) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
        Self { recorder: Recorder::new(client, reporter), published: 0 }
    }
}

impl EventRecorder {
    pub(crate) fn new(client: Client) -> Self {
        Self { current: Mutex::new(CountedRecorder::new(client.clone())), client }
    }

    /// The recorder for the next event.
    fn recorder(&self) -> Recorder {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.published == MAX_REMEMBERED_EVENTS {
            *current = CountedRecorder::new(self.client.clone());
        }
        current.published += 1;
        current.recorder.clone()
    }

    /// Logs and publishes one event. A failure is logged and not retried.
    pub(crate) async fn publish(
        &self,
        maintenance: &GroupedMaintenance,
        node: Option<&Node>,
        pending: &PendingEvent,
    ) {
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
        if let Err(error) = self.recorder().publish(&event, &regarding).await {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use nm_shared::decide::decision::EventReason;
    use nm_shared::{Group, NodeMaintenanceSpec};

    use super::*;

    #[tokio::test]
    async fn a_repeated_event_is_counted_unless_many_others_came_in_between() {
        let methods = Arc::<Mutex<Vec<Method>>>::default();
        let log = methods.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            log.lock().unwrap().push(request.method().clone());
            async { Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec()))) }
        });
        let recorder = EventRecorder::new(Client::new(server, "default"));
        let publish = async |name: &str| {
            let maintenance = NodeMaintenance::new(name, NodeMaintenanceSpec::default());
            let (subject, reason) = (EventSubject::Maintenance, EventReason::RecordonNode);
            let event = PendingEvent { subject, reason, note: "cordoned again".to_owned() };
            recorder
                .publish(&GroupedMaintenance { group: Group::default(), maintenance }, None, &event)
                .await;
        };
        for _ in 0..3 {
            publish("m1").await;
        }
        assert_eq!(
            std::mem::take(&mut *methods.lock().unwrap()),
            [Method::POST, Method::PATCH, Method::PATCH]
        );
        for number in 0..MAX_REMEMBERED_EVENTS {
            publish(&format!("other{number}")).await;
        }
        publish("m1").await;
        let methods = methods.lock().unwrap();
        assert!(methods.iter().all(|method| *method == Method::POST), "{methods:?}");
    }
}
