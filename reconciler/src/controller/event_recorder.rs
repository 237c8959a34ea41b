//! Publishes Kubernetes events on the maintenance and on its node.

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use nm_shared::api::names::FIELD_MANAGER;
use nm_shared::decide::decision::{EventSubject, PendingEvent};
use nm_shared::{GroupedMaintenance, NodeMaintenance, PodReference};
use tokio::sync::mpsc::{Sender, channel};
use tracing::{info, warn};

use crate::client::with_timeout;

/// A [`Recorder`] remembers each event for six minutes, to count repetitions instead of publishing them. An event that is
/// repeated after this many others is published again, so that hundreds of maintenances do not cost a kilobyte and a half
/// for each of their events.
const MAX_REMEMBERED_EVENTS: usize = 64;

/// How many events may wait to be published. Those after them are dropped.
const MAX_WAITING_EVENTS: usize = 2000;

/// How many events are published at once.
const MAX_CONCURRENT_REQUESTS: usize = 8;

/// How long to wait for the answer to a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Passes events on to the task that publishes them.
pub(crate) struct EventRecorder(Sender<WaitingEvent>);

/// An event that waits to be published.
struct WaitingEvent {
    maintenance: String,
    event: Event,
    regarding: ObjectReference,
}

/// A recorder and how many events it has published.
struct CountedRecorder {
    client: Client,
    recorder: Recorder,
    published: usize,
}

impl CountedRecorder {
    fn new(client: Client) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
        Self { recorder: Recorder::new(client.clone(), reporter), client, published: 0 }
    }

    /// The recorder for the next event.
    fn next(&mut self) -> Recorder {
        if self.published == MAX_REMEMBERED_EVENTS {
            *self = Self::new(self.client.clone());
        }
        self.published += 1;
        self.recorder.clone()
    }
}

impl EventRecorder {
    /// A recorder, and the task that publishes its events until the recorder is dropped.
    pub(crate) fn start(client: Client) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, mut waiting) = channel(MAX_WAITING_EVENTS);
        let mut recorders = CountedRecorder::new(client);
        let waiting = stream::poll_fn(move |context| waiting.poll_recv(context));
        let publishing = waiting.map(move |event| publish(recorders.next(), event));
        (Self(sender), publishing.buffered(MAX_CONCURRENT_REQUESTS).for_each(|()| std::future::ready(())))
    }

    /// Logs an event, and has it published. A reconcile does not wait for that: events are for people, and a webhook in front
    /// of them may take long.
    pub(crate) fn publish(
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
            secondary: pending.pod.as_ref().map(pod_reference),
        };
        let waiting = WaitingEvent { maintenance: name.to_owned(), event, regarding };
        if self.0.try_send(waiting).is_err() {
            warn!(maintenance = name, reason, "event not published: too many events wait for the API server");
        }
    }
}

/// Publishes an event. A failure is logged and not retried.
async fn publish(recorder: Recorder, waiting: WaitingEvent) {
    let WaitingEvent { maintenance, event, regarding } = waiting;
    if let Err(error) = with_timeout(REQUEST_TIMEOUT, recorder.publish(&event, &regarding)).await {
        warn!(maintenance, reason = event.reason, %error, "event not published");
    }
}

fn pod_reference(pod: &PodReference) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        ..ObjectReference::default()
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
    use std::pin::pin;

    use futures::channel::mpsc::unbounded;
    use http::{Method, Request, Response};
    use kube::client::Body;
    use nm_shared::decide::decision::EventReason;
    use nm_shared::{Group, NodeMaintenanceSpec};

    use super::*;

    fn record(recorder: &EventRecorder, name: &str) {
        let maintenance = NodeMaintenance::new(name, NodeMaintenanceSpec::default());
        let (subject, reason) = (EventSubject::Maintenance, EventReason::RecordonNode);
        let event = PendingEvent { subject, reason, note: "cordoned again".to_owned(), pod: None };
        recorder.publish(&GroupedMaintenance { group: Group::default(), maintenance }, None, &event);
    }

    #[tokio::test]
    async fn a_repeated_event_is_counted_unless_many_others_came_in_between() {
        let (log, mut methods) = unbounded();
        let server = tower::service_fn(move |request: Request<Body>| {
            log.unbounded_send(request.method().clone()).unwrap();
            async { Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec()))) }
        });
        let (recorder, publishing) = EventRecorder::start(Client::new(server, "default"));
        let mut publishing = pin!(publishing);
        let mut publish = async |name: &str| {
            record(&recorder, name);
            tokio::select! {
                () = &mut publishing => unreachable!("the recorder exists"),
                method = methods.next() => method.unwrap(),
            }
        };
        assert_eq!([publish("m1").await, publish("m1").await], [Method::POST, Method::PATCH]);
        assert_eq!(publish("m1").await, Method::PATCH);
        for number in 0..MAX_REMEMBERED_EVENTS {
            assert_eq!(publish(&format!("other{number}")).await, Method::POST);
        }
        assert_eq!(publish("m1").await, Method::POST);
    }

    #[tokio::test(start_paused = true)]
    async fn events_wait_for_a_server_that_does_not_answer_and_the_others_are_dropped() {
        let (log, requests) = unbounded();
        let server = tower::service_fn(move |_: Request<Body>| {
            log.unbounded_send(()).unwrap();
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let (recorder, publishing) = EventRecorder::start(Client::new(server, "default"));
        for number in 0..2 * MAX_WAITING_EVENTS {
            record(&recorder, &format!("m{number}"));
        }
        drop(recorder);
        // Each ends after its timeout.
        publishing.await;
        assert_eq!(requests.count().await, MAX_WAITING_EVENTS);
    }
}
