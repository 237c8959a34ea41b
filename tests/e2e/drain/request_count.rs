//! How many requests a drain sends. Only a sandbox counts them.

use futures::future::join_all;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use kube_sandbox::request_log::Entry;
use nm_shared::cluster::pod::{DrainPod, daemon_set};
use nm_tests::cluster::{Cluster, has_sandbox};
use nm_tests::maintenance::{start, until_drained};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::pods_on;

// Defect aws/aws-node-termination-handler#537, kubernetes-sigs/kubespray#4747, gruntwork-io/kubergrunt#65: Pods move
// onto nodes that are drained next, and are evicted again.
#[tokio::test(flavor = "multi_thread")]
async fn ten_nodes_at_once_need_one_eviction_per_pod_and_at_most_fifteen_other_requests_per_node() {
    if !has_sandbox("only a sandbox counts requests") {
        return;
    }
    let cluster = Cluster::start_with(20, 800).await;
    delete_budgets(&cluster).await;
    let nodes: Vec<String> = cluster.nodes().await.into_iter().take(10).collect();
    let mut movable = 0;
    for node in &nodes {
        let pods = pods_on(&cluster.client, node).await;
        movable += pods.iter().filter(|pod| daemon_set(&DrainPod::from(*pod)).is_none()).count();
    }
    assert!(movable >= 300, "the nodes have a fair share of the pods: {movable}");

    let _reconciler = Reconciler::start(&cluster);
    join_all(nodes.iter().map(|node| start(&cluster, node, node))).await;
    let done = join_all(nodes.iter().map(|node| until_drained(&cluster, node))).await;
    let planned: i32 =
        done.iter().map(|maintenance| maintenance.status.as_ref().unwrap().eviction_pods).sum();
    assert_eq!(usize::try_from(planned).unwrap(), movable);

    let requests = cluster.sandbox().unwrap().requests().all();
    let ours: Vec<_> =
        requests.iter().filter(|request| request.user_agent.starts_with("nm-reconciler/")).collect();
    let first_eviction = ours.iter().position(|request| request.subresource == "eviction").unwrap();
    let cordons = |requests: &[&Entry]| requests.iter().filter(|request| is_cordon(request)).count();
    assert_eq!(
        (cordons(&ours), cordons(&ours[..first_eviction])),
        (nodes.len(), nodes.len()),
        "all are cordoned before the first eviction"
    );
    let is_node_status =
        |request: &&Entry| (&*request.resource, &*request.subresource) == ("nodes", "status");
    assert_eq!(ours.iter().copied().find(is_node_status), None, "node conditions are off by default");
    let (evictions, others): (Vec<_>, Vec<_>) =
        ours.into_iter().partition(|request| request.subresource == "eviction");
    assert_eq!(evictions.len(), movable, "one eviction for each pod");
    assert!(evictions.iter().all(|request| request.code == 201));
    assert!(others.len() <= 15 * nodes.len(), "{} other requests for {} nodes", others.len(), nodes.len());
}

fn is_cordon(request: &Entry) -> bool {
    (request.verb, request.resource.as_str(), request.subresource.as_str()) == ("patch", "nodes", "")
}

async fn delete_budgets(cluster: &Cluster) {
    let all = Api::<PodDisruptionBudget>::all(cluster.client.clone())
        .list_metadata(&ListParams::default())
        .await
        .unwrap();
    for budget in all {
        let budgets: Api<PodDisruptionBudget> =
            Api::namespaced(cluster.client.clone(), &budget.namespace().unwrap_or_default());
        budgets.delete(&budget.name_any(), &DeleteParams::default()).await.unwrap();
    }
}
