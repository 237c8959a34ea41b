//! A Service, and for how long it has no ready endpoint, by its `EndpointSlice`s.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::wait::in_time;
use crate::workload::parse;

/// Creates a Service for the pods of an app.
pub async fn serve(client: &Client, namespace: &str, app: &str) {
    let service: Service = parse(json!({
        "metadata": {"name": app}, "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
    }));
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &service).await.unwrap();
}

/// Watches the endpoints of a Service.
pub struct EndpointProbe {
    seen: Arc<Mutex<Seen>>,
    ready: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    none_since: Option<Instant>,
    without: Duration,
    fewest: Option<usize>,
    /// Errors of the watch, after which endpoints may have changed unseen.
    interruptions: usize,
}

impl Seen {
    fn note(&mut self, ready: usize, now: Instant) {
        self.fewest = Some(self.fewest.map_or(ready, |fewest| fewest.min(ready)));
        match (ready, self.none_since) {
            (0, None) => self.none_since = Some(now),
            (1.., Some(since)) => {
                self.without += now - since;
                self.none_since = None;
            }
            _ => {}
        }
    }
}

impl EndpointProbe {
    /// Watches a Service from the moment when it has this many ready endpoints.
    pub async fn start(client: &Client, namespace: &str, service: &str, count: usize) -> Self {
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let selection = watcher::Config::default().labels(&format!("kubernetes.io/service-name={service}"));
        let (sender, ready) = watch::channel(0);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = seen.clone();
        let task = tokio::spawn(async move {
            let (store, writer) = reflector::store();
            let mut events = watcher(slices, selection).default_backoff().reflect(writer).boxed();
            let mut begun = false;
            while let Some(event) = events.next().await {
                if event.is_err() {
                    noted.lock().unwrap().interruptions += 1;
                    continue;
                }
                let ready: usize = store.state().iter().map(|slice| ready_in(slice)).sum();
                begun |= ready == count;
                if begun {
                    noted.lock().unwrap().note(ready, Instant::now());
                }
                sender.send_replace(ready);
            }
        });
        let mut until = ready.clone();
        in_time("the service has its endpoints", until.wait_for(|ready| *ready == count)).await.unwrap();
        Self { seen, ready, task }
    }

    /// Waits until the Service has this many ready endpoints.
    pub async fn until_ready(&self, count: usize) {
        let mut ready = self.ready.clone();
        in_time("the service has its endpoints", ready.wait_for(|ready| *ready == count)).await.unwrap();
    }

    /// For how long there was no ready endpoint, and the smallest number of them.
    ///
    /// # Panics
    /// If the watch was interrupted: nobody knows then.
    pub fn without(&self) -> (Duration, usize) {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.interruptions, 0, "the watch on the endpoints was interrupted");
        let now = seen.none_since.map_or(Duration::ZERO, |since| since.elapsed());
        (seen.without + now, seen.fewest.unwrap_or(0))
    }
}

impl Drop for EndpointProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn ready_in(slice: &EndpointSlice) -> usize {
    let ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    slice.endpoints.iter().filter(ready).count()
}
