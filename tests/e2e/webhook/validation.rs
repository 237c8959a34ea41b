//! The webhook's refusals and warnings, as kubectl prints them.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Failure, Moment, Rule};
use nm_shared::api::names::WEBHOOK;
use nm_shared::{NodeMaintenance, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::maintenance::{maintenance, start, stop, until_drained, until_gone};
use nm_tests::programs::{Outcome, kubectl};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::by_reconciler;
use nm_tests::skip::has_kubectl;
use nm_tests::wait::{TEST_TIMEOUT, wait_until_all};
use nm_tests::webhook::{namespace, serve_webhook};
use nm_tests::workload::Workload;
use serde_json::{Value, json};

/// The API server's prefix of the webhook's message.
const DENIED: &str = "admission webhook \"validate.nodemaintenance.medik8s.io\" denied the request: ";

/// A manifest of a maintenance.
fn manifest(name: &str, node: &str) -> Value {
    json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": node}})
}

/// `kubectl VERB -f FILE`, with more arguments.
async fn with_file(cluster: &Cluster, verb: &str, object: &Value, more: &[&str]) -> Outcome {
    let file = temp_file(object.to_string());
    let path = file.path().to_str().unwrap();
    let outcome = kubectl(cluster, &[&[verb, "-f", path], more].concat()).await.unwrap();
    // The messages contain the file's random name.
    Outcome { stderr: outcome.stderr.replace(path, "FILE"), ..outcome }
}

async fn create(cluster: &Cluster, name: &str, node: &str, more: &[&str]) -> Outcome {
    with_file(cluster, "create", &manifest(name, node), more).await
}

/// Creates a maintenance, and expects no warnings.
async fn create_without_warnings(cluster: &Cluster, name: &str, node: &str) {
    let outcome = create(cluster, name, node, &[]).await.ok();
    assert_eq!(outcome.stderr, "", "no warnings");
}

// Cases 7 and 8.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_must_exist_and_have_no_other_maintenance() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    let refused = |reason: &str, sentence: &str| {
        format!("Error from server ({reason}): error when creating \"FILE\": {DENIED}{sentence}\n")
    };
    for missing in ["no-such-node", "no/such", "..", "a\u{1b}[31m"] {
        let outcome = create(&cluster, "e2e-missing", missing, &[]).await;
        let shown = missing.replace('\u{1b}', "\\u{1b}");
        let sentence = format!("invalid nodeName, no node with name {shown} found");
        assert_eq!((outcome.code, outcome.stderr), (Some(1), refused("Forbidden", &sentence)));
    }
    for dry in ["e2e-dry-1", "e2e-dry-2"] {
        assert_eq!(create(&cluster, dry, &nodes[0], &["--dry-run=server"]).await.ok().stderr, "");
    }
    create_without_warnings(&cluster, "e2e-first", &nodes[0]).await;
    let taken = format!("invalid nodeName, a NodeMaintenance for node {} already exists", nodes[0]);
    let outcome = create(&cluster, "e2e-second", &nodes[0], &[]).await;
    assert_eq!((outcome.code, outcome.stderr), (Some(1), refused("Forbidden", &taken)));
    let outcome = create(&cluster, "e2e-first", &nodes[0], &[]).await;
    assert!(outcome.stderr.contains("(AlreadyExists)"), "the error that clients expect: {}", outcome.stderr);
    let again = with_file(&cluster, "apply", &manifest("e2e-first", &nodes[0]), &[]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    create_without_warnings(&cluster, "e2e-other", &nodes[1]).await;
    for name in ["e2e-first", "e2e-other"] {
        stop(&cluster, name).await;
    }
    // A dry run or a deleted maintenance does not block another.
    for name in ["e2e-second", "e2e-third"] {
        create_without_warnings(&cluster, name, &nodes[0]).await;
        stop(&cluster, name).await;
    }
}

// Case 9.
#[tokio::test(flavor = "multi_thread")]
async fn node_name_is_immutable_even_where_the_definition_allows_a_change() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = Cluster::sandbox_or_skip(2, "the definition is changed").await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    create_without_warnings(&cluster, "e2e-fixed", &nodes[0]).await;
    let patch = json!({"spec": {"nodeName": nodes[1]}}).to_string();
    let change = ["patch", "nm", "e2e-fixed", "--type=merge", "-p", &patch];
    // The current definition refuses the change before the webhook is called.
    let outcome = kubectl(&cluster, &change).await.unwrap();
    assert!(outcome.stderr.contains("updating spec.nodeName isn't allowed"), "{}", outcome.stderr);

    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let name = nm_shared::api::crd::crd().name_any();
    let rule = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/nodeName/x-kubernetes-validations";
    let without = json!([{"op": "remove", "path": rule}]);
    let without = Patch::<()>::Json(serde_json::from_value(without).unwrap());
    definitions.patch(&name, &PatchParams::default(), &without).await.unwrap();
    let outcome = kubectl(&cluster, &change).await.unwrap();
    let expected = format!("Error from server (Forbidden): {DENIED}updating spec.NodeName isn't allowed\n");
    assert_eq!((outcome.code, outcome.stderr), (Some(1), expected));
    stop(&cluster, "e2e-fixed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_warns_of_data_loss_and_of_a_selector_that_selects_nothing() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await.remove(0);
    let workload = Workload::new(&cluster, "warned").await;
    workload.pod_on(&node, "alone", json!({})).await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    let nothing = json!({"podSelector": {"matchLabels": {"app": "no-such-app"}}, "gracePeriodSeconds": 0});
    let forces = "spec.drain.gracePeriodSeconds is 0: pods are force-deleted, and their containers may still run after the \
                  node is drained";
    let selects =
        format!("spec.drain.podSelector selects none of the pods that would be moved away from node {node}");
    let mut idle = manifest("e2e-warned", &node);
    idle["spec"]["drain"] = nothing;
    let idle = with_file(&cluster, "create", &idle, &[]).await.ok();
    assert_eq!(idle.stderr, format!("Warning: {forces}\nWarning: {selects}\n"));
    // Changes outside of the spec repeat no warnings.
    let label = kubectl(&cluster, &["label", "nm", "e2e-warned", "a=b"]).await.unwrap().ok();
    assert_eq!(label.stderr, "");
    let patch = json!({"spec": {"drain": {"podSelector": null, "gracePeriodSeconds": 1}}}).to_string();
    let all =
        kubectl(&cluster, &["patch", "nm", "e2e-warned", "--type=merge", "-p", &patch]).await.unwrap().ok();
    let loses = format!("deleting Pods that declare no controller: {}/alone", workload.namespace());
    assert_eq!(all.stderr, format!("Warning: {loses}\n"));
    stop(&cluster, "e2e-warned").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn creations_are_refused_while_the_webhook_cannot_read_the_cluster() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = Cluster::sandbox_or_skip(1, "requests are made to fail").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serve_webhook(&cluster, &[]).await;
    let faults = cluster.sandbox().unwrap().faults();
    let reads = |resource: &str| by_reconciler().resource(resource);
    // kubectl does not retry, unlike kube's client.
    let create = async || create(&cluster, "e2e-unread", &node, &["--dry-run=server"]).await;
    let broken = || Action::Fail(Failure::Internal, Moment::BeforeEffect);
    for (rule, what) in [
        (reads("nodes").verb("get"), format!("node {node}: ")),
        // Those of all nodes, or only those of this node, once the watch has delivered all.
        (reads("nodemaintenances").verb("list"), "nodemaintenances".to_owned()),
    ] {
        let fault = faults.add(Rule::new(rule, broken()));
        let stderr = create().await.stderr;
        faults.remove(fault);
        let expected = format!(
            "Error from server (ServiceUnavailable): error when creating \"FILE\": {DENIED}cannot read "
        );
        assert!(stderr.starts_with(&expected) && stderr.ends_with("; try again\n"), "{stderr}");
        assert!(stderr.contains(&what), "{stderr}");
    }
    let line = reconciler.until_logged("it", |line| line.contains("was not reviewed")).await;
    for field in ["maintenance=\"e2e-unread\"", &format!("node=\"{node}\"")] {
        assert!(line.contains(field), "{field} in {line}");
    }
    // Warnings are optional: a creation is accepted without them.
    faults.add(Rule::new(reads("pods").verb("list"), broken()));
    let warned = create().await.ok().stderr;
    let expected =
        format!("Warning: the drain was not checked for data loss: cannot read the pods of node {node}");
    assert!(warned.starts_with(&expected), "{warned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_reads_for_warnings_refuse_nothing() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = Cluster::sandbox_or_skip(2, "requests are made to hang").await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    create_without_warnings(&cluster, "e2e-begun", &nodes[0]).await;
    let patch = json!({"spec": {"drain": {"gracePeriodSeconds": 1}}}).to_string();
    let change = ["patch", "nm", "e2e-begun", "--type=merge", "--dry-run=server", "-p", &patch];
    let expected = |node: &str| {
        format!(
            "Warning: the drain was not checked for data loss: cannot read the pods of node {node}: no answer \
             within 2 s\n"
        )
    };
    let faults = cluster.sandbox().unwrap().faults();
    for resource in ["pods", "daemonsets"] {
        let reads = by_reconciler().verb("list").resource(resource);
        // Longer than any client waits.
        let fault = faults.add(Rule::new(reads, Action::Delay(TEST_TIMEOUT)));
        let (changed, allowed) = tokio::join!(
            kubectl(&cluster, &change),
            create(&cluster, "e2e-new", &nodes[1], &["--dry-run=server"])
        );
        assert_eq!(changed.unwrap().ok().stderr, expected(&nodes[0]), "{resource}");
        assert_eq!(allowed.ok().stderr, expected(&nodes[1]), "{resource}");
        faults.remove(fault);
    }
    stop(&cluster, "e2e-begun").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_webhook_nothing_is_created_and_nodes_can_be_returned_to_service() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "the webhook is made unreachable").await else { return };
    let nodes = cluster.nodes().await;
    let reconciler = serve_webhook(&cluster, &[]).await;
    start(&cluster, "e2e-returned", &nodes[0]).await;
    until_drained(&cluster, "e2e-returned").await;
    reconciler.crash().await;
    let maintenances = cluster.maintenances();
    let other = maintenance("e2e-unanswered", &nodes[1]);
    let kube::Error::Api(status) = maintenances.create(&PostParams::default(), &other).await.unwrap_err()
    else {
        panic!("no status")
    };
    let sentence = "Internal error occurred: failed calling webhook \"validate.nodemaintenance.medik8s.io\"";
    assert!(status.code == 500 && status.message.starts_with(sentence), "{status:?}");
    let reason = Patch::Merge(json!({"spec": {"reason": "another"}}));
    assert!(maintenances.patch("e2e-returned", &PatchParams::default(), &reason).await.is_err());

    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    maintenances.patch("e2e-returned", &PatchParams::default(), &label).await.unwrap();
    maintenances.delete("e2e-returned", &DeleteParams::default()).await.unwrap();
    let kept = maintenances.get("e2e-returned").await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_some(), "it can be deleted");
    assert!(is_unschedulable(&cluster.node(&nodes[0]).await), "while no reconciler runs");
    // This reconciler does not serve the webhook, so the finalizer is removed without it.
    cluster.sandbox().unwrap().cluster().admission.services.withdraw(&namespace(), WEBHOOK);
    let _other = Reconciler::start(&cluster);
    until_gone(&cluster, "e2e-returned").await;
    assert!(!is_unschedulable(&cluster.node(&nodes[0]).await));
}

fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_maintenances_created_for_one_node_at_once_only_one_starts() {
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await.remove(0);
    let _reconciler = serve_webhook(&cluster, &[]).await;
    let created = join_all((0..10).map(async |number| {
        let maintenance = maintenance(&format!("e2e-at-once-{number}"), &node);
        cluster.maintenances().create(&PostParams::default(), &maintenance).await
    }))
    .await;
    let accepted: Vec<_> = created.iter().filter_map(|created| created.as_ref().ok()).collect();
    assert!(!accepted.is_empty(), "{created:?}");
    for refused in created.iter().filter_map(|created| created.as_ref().err()) {
        assert!(refused.to_string().contains(&format!("a NodeMaintenance for node {node} already exists")));
    }
    let phase = |it: &NodeMaintenance| it.status.as_ref().and_then(|status| status.phase);
    let what = "one is drained and the others failed";
    let mut all =
        wait_until_all(&cluster.maintenances(), Config::default(), what, |all: &[NodeMaintenance]| {
            let count = |wanted| all.iter().filter(|it| phase(it) == Some(wanted)).count();
            (count(Phase::Succeeded), count(Phase::Failed)) == (1, accepted.len() - 1)
                && all.len() == accepted.len()
        })
        .await;
    // The failed ones first, so that none of them takes over the node.
    all.sort_by_key(|it| phase(it) == Some(Phase::Succeeded));
    for maintenance in all {
        stop(&cluster, &maintenance.name_any()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_replica_serves_the_webhook_until_requests_go_to_others() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "others' requests would be refused afterwards").await
    else {
        return;
    };
    let node = cluster.nodes().await.remove(0);
    let mut reconciler = serve_webhook(&cluster, &[]).await;
    reconciler.signal("TERM");
    reconciler.until_logged("that it stops", |line| line.contains("shutting down")).await;
    start(&cluster, "e2e-late", &node).await;
    assert_eq!(reconciler.exit_code().await, Some(0));
}
