//! The proxy that injects faults, which other suites and the benchmarks put in front of the API server.

use std::time::Duration;

use http::{Request, StatusCode, header};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::request_log::Entry;
use nm_shared::Phase;
use nm_tests::cluster::Cluster;
use nm_tests::fault_proxy::FaultProxy;
use nm_tests::maintenance::{start, stop, until_phase};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::is_eviction;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

const DELAY: Duration = Duration::from_millis(20);

fn throttled() -> Action {
    Action::Fail(Failure::Throttled { retry_after: 1 }, Moment::BeforeEffect)
}

/// The reconciler speaks HTTP/2 with the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_succeeds_behind_a_proxy_that_delays_and_throttles() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "proxy").await;
    workload.deployment("front", 4).await;
    let proxy = FaultProxy::start(cluster.kubeconfig()).await.unwrap();
    let evictions = Target::any().subresource("eviction");
    proxy.faults().add(Rule::new(Target::any(), Action::Delay(DELAY)));
    proxy.faults().add(Rule::new(evictions, throttled()).when(When::First(1)));
    let path = cluster.reconciler_kubeconfig();
    std::fs::write(&path, proxy.kubeconfig_of(&path)).unwrap();
    let _reconciler = Reconciler::start(&cluster);
    let pods = workload.until_running("front", 4).await;
    start(&cluster, "e2e-proxy", node_of(&pods[0])).await;
    until_phase(&cluster, "e2e-proxy", Phase::Succeeded).await;
    stop(&cluster, "e2e-proxy").await;
    let evictions: Vec<Entry> = proxy.requests().all().into_iter().filter(is_eviction).collect();
    assert_eq!(evictions[0].code, 429);
    assert!(evictions[1..].iter().any(|entry| entry.code == 201), "{evictions:?}");
    assert!(evictions.iter().all(|entry| entry.took >= DELAY), "{evictions:?}");
}

/// kube's client speaks HTTP/1.1 with the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn answers_and_watches_pass_the_proxy_and_throttling_is_that_of_priority_and_fairness() {
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await.remove(0);
    let proxy = FaultProxy::start(cluster.kubeconfig()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&proxy.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let direct = cluster.node(&node).await;
    assert_eq!(nodes.get(&node).await.unwrap().metadata.uid, direct.metadata.uid);
    let missing = nodes.get("no-such-node").await.unwrap_err();
    assert!(matches!(missing, kube::Error::Api(status) if status.code == 404));

    let is_labelled = |node: Option<&Node>| {
        node.and_then(|node| node.metadata.labels.as_ref()).is_some_and(|labels| labels.contains_key("e2e"))
    };
    let label = |value| Patch::Merge(json!({"metadata": {"labels": {"e2e": value}}}));
    let (params, set, remove) = (PatchParams::default(), label(Some("proxy")), label(None));
    let watch = wait_until(&nodes, &node, "labelled", is_labelled);
    let (_, written) = tokio::join!(watch, nodes.patch(&node, &params, &set));
    written.unwrap();
    nodes.patch(&node, &params, &remove).await.unwrap();

    let gets = Target::any().verb("get").resource("nodes");
    proxy.faults().add(Rule::new(gets, throttled()));
    let request = Request::get(format!("/api/v1/nodes/{node}")).body(Body::empty()).unwrap();
    let (head, body) = client.send(request).await.unwrap().into_parts();
    assert_eq!(head.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(head.headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(head.headers[header::RETRY_AFTER], "1");
    assert_eq!(body.collect_bytes().await.unwrap(), "Too many requests, please try again later.\n");
}
