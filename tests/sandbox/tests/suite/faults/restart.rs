//! An API server that is killed and restarted.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use kube_sandbox::faults::{Action, Rule, Target};
use kube_sandbox::sandbox::Sandbox;
use kube_sandbox::workload::{App, Kind};
use serde_json::json;

use super::{TEST_TIMEOUT, cluster, is_lost, nodes, run, until};

/// A client that comes by the kubeconfig, over TLS and a socket.
async fn over_socket(sandbox: &Sandbox) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&sandbox.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn label(client: &Client, value: &str) -> kube::Result<()> {
    let patch = json!({"metadata": {"labels": {"step": value}}});
    nodes(client).patch("node-01", &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| ())
}

#[tokio::test]
async fn a_restarted_server_has_its_port_its_certificates_its_tokens_and_its_objects() {
    let (sandbox, _) = cluster(1).await;
    let client = over_socket(&sandbox).await;
    label(&client, "before").await.unwrap();
    let (url, kubeconfig) = (sandbox.url(), sandbox.kubeconfig());
    for _ in 0..2 {
        sandbox.server_down().await;
        sandbox.server_down().await;
        assert!(is_lost(&label(&client, "meanwhile").await), "nobody listens");
        sandbox.server_up().await.unwrap();
        sandbox.server_up().await.unwrap();
        assert_eq!((sandbox.url(), sandbox.kubeconfig()), (url.clone(), kubeconfig.clone()));
        let node = nodes(&client).get("node-01").await.unwrap();
        assert_eq!(node.labels()["step"], "before");
    }
    sandbox.stop().await;
}

#[tokio::test]
async fn open_connections_die_with_the_server_and_watches_go_on_where_they_were() {
    let (sandbox, _) = cluster(1).await;
    let client = over_socket(&sandbox).await;
    let api = nodes(&client);
    let mut watch = api.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap().boxed();
    let Some(Ok(WatchEvent::Added(node))) = watch.next().await else { panic!("the node is there") };
    sandbox.server_down().await;
    let end = tokio::time::timeout(TEST_TIMEOUT, watch.next()).await.unwrap();
    // kube takes a connection that breaks off for the end of the watch.
    assert!(!matches!(end, Some(Ok(_))), "nothing more is said: {end:?}");
    sandbox.server_up().await.unwrap();
    label(&client, "after").await.unwrap();
    let version = node.resource_version().unwrap();
    let mut again = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    let Some(Ok(WatchEvent::Modified(node))) = again.next().await else { panic!("only what came after") };
    assert_eq!(node.labels()["step"], "after");
}

#[tokio::test]
async fn a_dropped_connection_is_a_closed_one_over_a_socket_too() {
    use kube_sandbox::faults::Moment;

    let (sandbox, _) = cluster(1).await;
    let client = over_socket(&sandbox).await;
    for (moment, expected) in [(Moment::BeforeEffect, None), (Moment::AfterEffect, Some("now"))] {
        let rule = sandbox.faults().add(Rule::new(Target::any().verb("patch"), Action::Disconnect(moment)));
        assert!(is_lost(&label(&client, "now").await), "{moment:?}");
        sandbox.faults().remove(rule);
        let node = nodes(&client).get("node-01").await.unwrap();
        assert_eq!(node.labels().get("step").map(String::as_str), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_under_way_are_lost_with_the_server_and_controllers_go_on() {
    let (sandbox, client) = cluster(1).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let hour = std::time::Duration::from_secs(3_600);
    sandbox.faults().add(Rule::new(Target::any().verb("patch"), Action::Delay(hour)));
    let waiting = label(&client, "late");
    let (lost, ()) = tokio::join!(waiting, async {
        // Over once everything else waits, so that the request is there by now.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        sandbox.server_down().await;
    });
    assert!(is_lost(&lost));
    let recorded = sandbox.requests().count(|entry| (entry.verb, entry.code) == ("patch", 0));
    assert_eq!(recorded, 1, "what was asked is on record without an answer");
    assert!(is_lost(&pods.get("web").await));
    run(&sandbox, &App::new(Kind::Pod, "default", "web"));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    sandbox.server_up().await.unwrap();
    let running = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        phase == Some("Running")
    };
    assert!(running(pods.get_opt("web").await.unwrap().as_ref()), "kubelets need no API server here");
    until(&pods, "web", running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_its_port_again_that_another_one_had_for_a_moment() {
    let (sandbox, _client) = cluster(1).await;
    let port: u16 = sandbox.url().rsplit(':').next().unwrap().parse().unwrap();
    sandbox.server_down().await;
    let other = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let thief = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(other);
    });
    sandbox.server_up().await.unwrap();
    thief.join().unwrap();
}
