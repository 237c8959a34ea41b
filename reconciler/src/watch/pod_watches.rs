//! One watch on pods for every node in maintenance, for as long as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::cache::triggers::Triggers;
use crate::runtime::tasks::Tasks;
use crate::watch::watch_stream::{Known, News, follow, watched, without_managed_fields};

/// Pods come and go in bursts, and one look sees them all: what happens within this time is told at once. The first of
/// twenty that end together would else be told alone, and the others only with the next status.
const TOGETHER: Duration = Duration::from_millis(25);

/// The pods of the nodes in maintenance.
pub(crate) struct PodWatches {
    client: Client,
    triggers: Triggers,
    tasks: Tasks,
    watches: Mutex<HashMap<String, PodWatch>>,
}

/// What is known of a node's pods.
#[derive(Debug, Clone)]
pub(crate) enum Pods {
    /// They have not been listed yet.
    Unknown,
    /// All of them.
    Known(Vec<Arc<Pod>>),
    /// The API server refuses to list them, with this sentence.
    Forbidden(String),
}

struct PodWatch {
    pods: Store<Pod>,
    known: watch::Receiver<Known>,
    task: AbortHandle,
}

impl Drop for PodWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PodWatches {
    /// No watch yet. Each change of a pod wakes the maintenances of its node.
    pub(crate) fn new(client: Client, triggers: Triggers, tasks: Tasks) -> Self {
        Self { client, triggers, tasks, watches: Mutex::default() }
    }

    /// The pods on `node`, which is watched from the first call on.
    pub(crate) fn on_node(&self, node: &str) -> Pods {
        let mut watches = self.lock();
        let watch = watches.entry(node.to_owned()).or_insert_with(|| self.start(node));
        match &*watch.known.borrow() {
            Known::Unlisted => Pods::Unknown,
            Known::Listed => Pods::Known(watch.pods.state()),
            Known::Forbidden(sentence) => Pods::Forbidden(sentence.clone()),
        }
    }

    /// Stops watching all nodes but those in maintenance.
    pub(crate) fn retain(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.lock().retain(|node, _| in_maintenance(node));
    }

    fn start(&self, node: &str) -> PodWatch {
        let (pods, writer) = reflector::store();
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let stream = watched(Api::<Pod>::all(self.client.clone()), config)
            .modify(without_managed_fields)
            .reflect(writer);
        let (sender, known) = watch::channel(Known::Unlisted);
        let (triggers, node, mut heard) = (self.triggers.clone(), node.to_owned(), known.clone());
        let what = format!("pods on {node}");
        let task = self.tasks.spawn(format!("the watch on {what}"), async move {
            let hear = follow(&what, None, stream, |news| {
                sender.send_replace(match news {
                    News::Changed(_) | News::Listed => Known::Listed,
                    News::Interrupted => return,
                    News::Forbidden(sentence) => Known::Forbidden(sentence),
                });
            });
            let tell = async {
                while heard.changed().await.is_ok() {
                    sleep(TOGETHER).await;
                    heard.mark_unchanged();
                    triggers.wake_node(&node);
                }
            };
            tokio::join!(hear, tell);
        });
        PodWatch { pods, known, task }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PodWatch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use futures::{StreamExt, stream};
    use kube::runtime::reflector::store::Writer;
    use nm_shared::{Group, Grouped};
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::cache::maintenances::Maintenances;

    /// An API server with no pods at first, and then a new one after each of these pauses, in milliseconds.
    fn server(pauses: &'static [u64]) -> Client {
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
            if !request.uri().query().unwrap_or_default().contains("watch=true") {
                let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []});
                return Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string())));
            }
            let events = stream::iter(pauses.iter().enumerate()).then(|(number, pause)| async move {
                sleep(Duration::from_millis(*pause)).await;
                let pod = json!({"metadata": {"namespace": "ns", "name": format!("p-{number}"), "resourceVersion": "8"}});
                Ok::<_, Infallible>(format!("{}\n", json!({"type": "ADDED", "object": pod})))
            });
            Ok(http::Response::new(Body::from_stream(events.chain(stream::pending()))))
        });
        Client::new(server, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_come_together_are_told_at_once() {
        let mut writer = Writer::new(Group::Medik8s);
        let maintenance = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m"},
            "spec": {"nodeName": "n"}});
        let maintenance: Grouped = serde_json::from_value(maintenance).unwrap();
        let all = Maintenances::new([(Group::Medik8s, writer.as_reader())]);
        writer.apply_watcher_event(&watcher::Event::Apply(maintenance));
        let (triggers, [mut told, ..]) = Triggers::new(Arc::new(all));
        let began = Instant::now();
        let watches = PodWatches::new(server(&[1_000, 5, 5, 5, 1_000]), triggers, Tasks::new().0);
        assert!(matches!(watches.on_node("n"), Pods::Unknown));
        for (after, known) in [(0, 0), (1_000, 4), (2_015, 5)] {
            told.next().await.unwrap();
            let Pods::Known(pods) = watches.on_node("n") else { panic!("they were listed") };
            let told_after = began.elapsed().saturating_sub(TOGETHER).as_millis();
            // Timers of a paused clock go by whole milliseconds, and some are behind another.
            assert!((after..after + 5).contains(&told_after), "{told_after} ms for {known}");
            assert_eq!(pods.len(), known);
        }
    }
}
