//! Many nodes of a sandbox in maintenance, for the benchmarks `queue` and `scale`.

use std::collections::HashSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{DeleteParams, PostParams};
use kube_sandbox::resource::PODS;
use kube_sandbox::store::Collection;
use nm_shared::Phase;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::maintenance;
use serde_json::{Value, json};

/// How often progress is checked.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How many objects are created or deleted at once.
const CONCURRENT_WRITES: usize = 16;

/// A number from the environment.
pub(crate) fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Gives the pods on these nodes what makes those of real clusters large: managed fields and variables.
pub(crate) async fn grow_pods(cluster: &Cluster, nodes: &[String]) {
    let padding: Vec<_> =
        (0..20).map(|at| json!({"name": format!("SETTING_{at}"), "value": "x".repeat(40)})).collect();
    let fields: serde_json::Map<_, _> =
        (0..60).map(|at| (format!("f:setting-{at}"), json!({"f:name": {}, "f:value": {}}))).collect();
    let fields = json!([{"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": fields}]);
    for node in nodes {
        cluster.sandbox().unwrap().cluster().store.write(|state| {
            let pods: Vec<_> = state.on_node(&PODS, node).collect();
            for pod in pods {
                let mut pod = (*pod).clone();
                pod["spec"]["containers"][0]["env"] = json!(padding);
                pod["metadata"]["managedFields"] = fields.clone();
                state.put(&PODS, pod);
            }
        });
        // The sandbox must not seem to hang.
        tokio::task::yield_now().await;
    }
}

/// Puts nodes into maintenance. The maintenances have the names of the nodes.
pub(crate) async fn begin(cluster: &Cluster, nodes: &[String]) {
    let api = cluster.maintenances();
    let params = PostParams::default();
    stream::iter(nodes)
        .for_each_concurrent(CONCURRENT_WRITES, |node| {
            let (api, params) = (&api, &params);
            async move { drop(api.create(params, &maintenance(node, node)).await.unwrap()) }
        })
        .await;
}

/// Returns nodes to service.
pub(crate) async fn end(cluster: &Cluster, nodes: &[String]) {
    let api = cluster.maintenances();
    let params = DeleteParams::default();
    stream::iter(nodes)
        .for_each_concurrent(CONCURRENT_WRITES, |node| {
            let (api, params) = (&api, &params);
            async move { drop(api.delete(node, params).await.unwrap()) }
        })
        .await;
}

/// The maintenances as they are, read in the memory of the sandbox so that it costs no requests.
pub(crate) fn maintenances(cluster: &Cluster) -> Vec<Value> {
    let collection = Collection::named("nodemaintenance.medik8s.io", "nodemaintenances");
    let store = &cluster.sandbox().unwrap().cluster().store;
    store.read(|state| state.list(&collection, None).map(|object| (*object).clone()).collect())
}

/// The names of the maintenances that are not deleted and whose nodes are drained.
pub(crate) fn drained(cluster: &Cluster) -> HashSet<String> {
    let is_drained = |found: &&Value| {
        found["status"]["phase"] == Phase::Succeeded.as_str()
            && found["metadata"]["deletionTimestamp"].is_null()
    };
    let name = |found: &Value| found["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    maintenances(cluster).iter().filter(is_drained).map(name).collect()
}
