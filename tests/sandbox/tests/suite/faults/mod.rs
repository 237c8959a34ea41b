//! What goes wrong on demand, as a client sees it: kube's own client over the service, on tokio's paused time.

mod kubelets;
mod requests;
mod restart;
mod stale;
mod watches;

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::core::Status;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use kube_sandbox::sandbox::{Options, Sandbox};
use kube_sandbox::workload::App;
use serde::de::DeserializeOwned;

/// No event takes this long; where time is paused it costs none.
const TEST_TIMEOUT: Duration = Duration::from_secs(600);

/// A cluster of so many nodes without pods but the agents', with pods that start in 200 ms and end in 1 s, and a client
/// that uses no socket.
async fn cluster(nodes: usize) -> (Sandbox, Client) {
    let sandbox = Sandbox::start(Options { nodes, pods: 0, ..Options::default() }).await.unwrap();
    let client = Client::new(sandbox.service(), "default");
    (sandbox, client)
}

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

/// Writes an app into the namespace `default`.
fn run(sandbox: &Sandbox, app: &App) {
    app.create(sandbox.cluster()).unwrap();
}

/// The Status of a failed request.
fn status<T: Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("no Status: {other:?}"),
    }
}

/// Whether a request failed without an answer.
fn is_lost<T>(result: &kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Service(_) | kube::Error::HyperError(_)))
}

/// The first state of an object that `holds`, as a watch tells it.
async fn until<K>(api: &Api<K>, name: &str, holds: impl Fn(Option<&K>) -> bool) -> Option<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let search = async {
        let mut states = watcher::watch_object(api.clone(), name).default_backoff().boxed();
        loop {
            if let Ok(state) = states.next().await.unwrap()
                && holds(state.as_ref())
            {
                return state;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, search).await.unwrap()
}
