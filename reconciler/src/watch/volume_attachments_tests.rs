//! The watch on volume attachments against an API server of its own.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use futures::channel::mpsc::UnboundedReceiver;
use futures::stream;
use http::{Response, StatusCode};
use kube::runtime::reflector::ObjectRef;
use nm_shared::GroupedMaintenance;
use nm_shared::cluster::volume_attachment::NodeVolumes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;

/// The volume is detached this long after it is listed, later than a refused read is repeated.
const DETACH_TIME: Duration = Duration::from_secs(20);

/// How many requests were answered.
#[derive(Default)]
struct Answered {
    lists: AtomicUsize,
    watches: AtomicUsize,
    reads: AtomicUsize,
}

fn attachment() -> Value {
    json!({"metadata": {"name": "csi-1", "uid": "u", "resourceVersion": "8"},
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv-1"}},
        "status": {"attached": true}})
}

fn refused(resource: &str) -> Response<Body> {
    let message = format!("User \"u\" cannot list resource \"{resource}\" in API group \"storage.k8s.io\"");
    let status = json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403});
    let mut answer = Response::new(Body::from(status.to_string()));
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer
}

/// An API server with one attached volume, which refuses the first `refusals` requests of each kind.
fn server(answered: &Arc<Answered>, refusals: usize) -> Client {
    let answered = answered.clone();
    Client::new(
        tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let answered = answered.clone();
            async move {
                let count = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::Relaxed);
                let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
                let answer = match request.uri().path() {
                    "/api/v1/persistentvolumes/pv-1" if count(&answered.reads) < refusals => {
                        refused("persistentvolumes")
                    }
                    "/api/v1/persistentvolumes/pv-1" => {
                        let claim = json!({"namespace": "shop", "name": "data"});
                        let volume = json!({"metadata": {"name": "pv-1"}, "spec": {"claimRef": claim}});
                        Response::new(Body::from(volume.to_string()))
                    }
                    _ if is_watch => {
                        count(&answered.watches);
                        let detached = stream::once(async {
                            sleep(DETACH_TIME).await;
                            Ok::<_, Infallible>(format!(
                                "{}\n",
                                json!({"type": "DELETED", "object": attachment()})
                            ))
                        });
                        Response::new(Body::from_stream(detached.chain(stream::pending())))
                    }
                    _ if count(&answered.lists) < refusals => refused("volumeattachments"),
                    _ => {
                        let list = json!({"metadata": {"resourceVersion": "7"}, "items": [attachment()]});
                        Response::new(Body::from(list.to_string()))
                    }
                };
                Ok::<_, Infallible>(answer)
            }
        }),
        "default",
    )
}

/// A watch that has not begun, and the triggers of the one maintenance.
struct Watch {
    volumes: VolumeAttachments,
    state: Arc<SharedState>,
    triggered: UnboundedReceiver<ObjectRef<GroupedMaintenance>>,
}

impl Watch {
    fn new(client: Client) -> Self {
        let maintenance = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m"},
            "spec": {"nodeName": "n"}});
        let maintenance: GroupedMaintenance = serde_json::from_value(maintenance).unwrap();
        let (state, [(_, triggered), ..]) = SharedState::new([], NonZeroUsize::MIN);
        state.lock().maintenance_applied(Arc::new(maintenance));
        let volumes = VolumeAttachments::new(client, state.clone(), TaskSpawner::new().0);
        Self { volumes, state, triggered }
    }

    fn on_node(&self, node: &str) -> (NodeVolumes, Option<AccessDenied>) {
        self.volumes.for_node(&mut self.state.lock(), node).on_node(node)
    }
}

#[tokio::test(start_paused = true)]
async fn the_watch_begins_with_its_first_use_and_each_change_triggers_a_reconcile() {
    let answered = Arc::default();
    let mut watch = Watch::new(server(&answered, 0));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(answered.lists.load(Ordering::Relaxed), 0, "nobody has asked yet");
    assert!(!watch.on_node("n").0.is_complete);
    watch.triggered.next().await.unwrap();
    let (found, forbidden) = watch.on_node("n");
    assert_eq!((found.attachments.len(), found.is_complete, forbidden), (1, true, None));
    assert!(found.claims.is_empty(), "its claim is being read");
    watch.triggered.next().await.unwrap();
    let claim = watch.on_node("n").0.claims["pv-1"].clone().unwrap();
    assert_eq!(claim.to_string(), "shop/data");
    assert!(watch.on_node("other").0.attachments.is_empty());
    let began = Instant::now();
    watch.triggered.next().await.unwrap();
    assert!(began.elapsed() >= DETACH_TIME / 2, "{:?}", began.elapsed());
    assert!(watch.on_node("n").0.attachments.is_empty());
    assert_eq!(answered.reads.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_watch_ends_when_nobody_needs_it() {
    let answered = Arc::default();
    let mut watch = Watch::new(server(&answered, 0));
    watch.on_node("n");
    watch.triggered.next().await.unwrap();
    watch.on_node("other");
    let leave = |node: &str| watch.state.lock().leave_node(node);
    leave("n");
    assert!(watch.on_node("n").0.is_complete, "the other node needs it");
    leave("other");
    leave("other");
    assert!(watch.on_node("n").0.is_complete, "this node needs it");
    leave("n");
    let watches = answered.watches.load(Ordering::Relaxed);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(answered.watches.load(Ordering::Relaxed), watches);
}

#[tokio::test(start_paused = true)]
async fn missing_permissions_are_reported_until_they_are_granted() {
    let answered = Arc::default();
    let mut watch = Watch::new(server(&answered, 1));
    watch.on_node("n");
    watch.triggered.next().await.unwrap();
    let denied = watch.on_node("n").1.unwrap();
    assert_eq!(denied.access.unwrap().resource, "volumeattachments");
    watch.triggered.next().await.unwrap();
    let (found, denied) = watch.on_node("n");
    assert_eq!((found.is_complete, denied), (true, None));
    watch.triggered.next().await.unwrap();
    assert_eq!(watch.on_node("n").1.unwrap().access.unwrap().resource, "persistentvolumes");
    while watch.on_node("n").0.claims.is_empty() {
        watch.triggered.next().await.unwrap();
    }
    assert_eq!(watch.on_node("n").1, None);
}
