//! What the webhook refuses and warns of, as people see it who use kubectl.

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_shared::api::names::WEBHOOK;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{Outcome, has_kubectl, kubectl};
use nm_tests::until::{PATIENCE, until_all};
use nm_tests::webhook::{namespace, serving, serving_also};
use nm_tests::workload::Workload;
use serde_json::{Value, json};

use crate::{only_sandbox, stop};

/// What the API server says before the webhook's own sentence.
const DENIED: &str = "admission webhook \"validate.nodemaintenance.medik8s.io\" denied the request: ";

/// A maintenance of this node.
fn maintenance(name: &str, node: &str) -> Value {
    json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": node}})
}

/// `kubectl VERB -f` with an object, and more arguments.
async fn with_file(cluster: &Cluster, verb: &str, object: &Value, more: &[&str]) -> Outcome {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let outcome = kubectl(cluster, &[&[verb, "-f", path], more].concat()).await.unwrap();
    // What is said names the file, which has another name each time.
    Outcome { stderr: outcome.stderr.replace(path, "FILE"), ..outcome }
}

async fn create(cluster: &Cluster, name: &str, node: &str, more: &[&str]) -> Outcome {
    with_file(cluster, "create", &maintenance(name, node), more).await
}

/// The same where nothing is said against it.
async fn created(cluster: &Cluster, name: &str, node: &str) {
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
    let _reconciler = serving(&cluster, &[]).await;
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
    created(&cluster, "e2e-first", &nodes[0]).await;
    let taken = format!("invalid nodeName, a NodeMaintenance for node {} already exists", nodes[0]);
    let outcome = create(&cluster, "e2e-second", &nodes[0], &[]).await;
    assert_eq!((outcome.code, outcome.stderr), (Some(1), refused("Forbidden", &taken)));
    let outcome = create(&cluster, "e2e-first", &nodes[0], &[]).await;
    assert!(outcome.stderr.contains("(AlreadyExists)"), "what clients know: {}", outcome.stderr);
    let again = with_file(&cluster, "apply", &maintenance("e2e-first", &nodes[0]), &[]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    created(&cluster, "e2e-other", &nodes[1]).await;
    for name in ["e2e-first", "e2e-other"] {
        stop(&cluster, name).await;
    }
    // What was there for a moment only is in nobody's way.
    for name in ["e2e-second", "e2e-third"] {
        created(&cluster, name, &nodes[0]).await;
        stop(&cluster, name).await;
    }
}

// Case 9.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_a_maintenance_stays_where_the_definition_allows_another() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = only_sandbox(2, "the definition is changed").await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = serving(&cluster, &[]).await;
    created(&cluster, "e2e-fixed", &nodes[0]).await;
    let patch = json!({"spec": {"nodeName": nodes[1]}}).to_string();
    let change = ["patch", "nm", "e2e-fixed", "--type=merge", "-p", &patch];
    // Our own definition says no before anybody is asked.
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
async fn of_many_creations_for_one_node_at_once_one_passes() {
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await.remove(0);
    let _reconciler = serving(&cluster, &[]).await;
    for round in 0..3 {
        let created = join_all((0..10).map(async |number| {
            let spec = NodeMaintenanceSpec { node_name: node.clone(), ..NodeMaintenanceSpec::default() };
            let rival = NodeMaintenance::new(&format!("e2e-rival-{round}-{number}"), spec);
            cluster.maintenances().create(&PostParams::default(), &rival).await
        }))
        .await;
        let (passed, refused): (Vec<_>, Vec<_>) = created.into_iter().partition(Result::is_ok);
        assert_eq!(passed.len(), 1, "{refused:?}");
        for refusal in refused {
            let kube::Error::Api(status) = refusal.unwrap_err() else { panic!("no answer") };
            let sentence =
                format!("{DENIED}invalid nodeName, a NodeMaintenance for node {node} already exists");
            assert_eq!((status.code, status.message.as_str()), (403, sentence.as_str()));
        }
        stop(&cluster, &passed[0].as_ref().unwrap().name_any()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_warns_of_what_a_drain_would_lose_and_that_it_would_do_nothing() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await.remove(0);
    let workload = Workload::new(&cluster, "warned").await;
    workload.pod_on(&node, "alone", json!({})).await;
    let _reconciler = serving(&cluster, &[]).await;
    let nothing = json!({"podSelector": {"matchLabels": {"app": "no-such-app"}}, "gracePeriodSeconds": 0});
    let forces = "spec.drain.gracePeriodSeconds is 0: pods are force-deleted, and their containers may still run after the \
                  maintenance is drained";
    let selects =
        format!("spec.drain.podSelector selects none of the pods that node {node} would be drained of");
    let mut idle = maintenance("e2e-warned", &node);
    idle["spec"]["drain"] = nothing;
    let idle = with_file(&cluster, "create", &idle, &[]).await.ok();
    assert_eq!(idle.stderr, format!("Warning: {forces}\nWarning: {selects}\n"));
    // Told again only where something changed.
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
async fn what_cannot_be_read_is_refused_with_the_advice_to_try_again() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = only_sandbox(1, "requests are made to fail").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serving(&cluster, &[]).await;
    let faults = cluster.sandbox().unwrap().faults();
    let reads = |resource: &str| Target::any().user_agent("nm-reconciler/*").resource(resource);
    // kube's client would try again by itself.
    let create = async || create(&cluster, "e2e-unread", &node, &["--dry-run=server"]).await;
    let broken = || Action::Fail(Failure::Internal, Moment::BeforeEffect);
    for (rule, what) in [
        (reads("nodes").verb("get"), format!("cannot read node {node} now: ")),
        (reads("nodemaintenances").verb("list"), "cannot read nodemaintenances now: ".to_owned()),
    ] {
        let fault = faults.add(Rule::new(rule, broken()));
        let stderr = create().await.stderr;
        faults.remove(fault);
        let expected =
            format!("Error from server (ServiceUnavailable): error when creating \"FILE\": {DENIED}{what}");
        assert!(stderr.starts_with(&expected) && stderr.ends_with("; try again\n"), "{stderr}");
    }
    let told = reconciler.until_logged("it", |line| line.contains("was not reviewed")).await;
    for field in ["maintenance=\"e2e-unread\"", &format!("node=\"{node}\"")] {
        assert!(told.contains(field), "{field} in {told}");
    }
    // Nobody is refused for the want of a warning.
    faults.add(Rule::new(reads("pods").verb("list"), broken()));
    let warned = create().await.ok().stderr;
    let expected =
        format!("Warning: nobody checked what the drain would lose: cannot read the pods of node {node}");
    assert!(warned.starts_with(&expected), "{warned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_warnings_are_made_of_may_hang_and_nothing_is_refused_for_it() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = only_sandbox(2, "requests are made to hang").await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = serving(&cluster, &[]).await;
    created(&cluster, "e2e-begun", &nodes[0]).await;
    let patch = json!({"spec": {"drain": {"gracePeriodSeconds": 1}}}).to_string();
    let change = ["patch", "nm", "e2e-begun", "--type=merge", "--dry-run=server", "-p", &patch];
    let expected = |node: &str| {
        format!(
            "Warning: nobody checked what the drain would lose: cannot read the pods of node {node} now: no answer \
             within 2 s\n"
        )
    };
    let faults = cluster.sandbox().unwrap().faults();
    for resource in ["pods", "daemonsets"] {
        let reads = Target::any().user_agent("nm-reconciler/*").verb("list").resource(resource);
        // Longer than anybody waits for an answer.
        let fault = faults.add(Rule::new(reads, Action::Delay(PATIENCE)));
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
async fn while_nobody_answers_nothing_is_created_and_a_node_can_be_given_back() {
    let Some(cluster) = only_sandbox(2, "the webhook is made unreachable").await else { return };
    let nodes = cluster.nodes().await;
    let reconciler = serving(&cluster, &[]).await;
    crate::start(&cluster, "e2e-given-back", &nodes[0]).await;
    crate::drained(&cluster, "e2e-given-back").await;
    reconciler.crash().await;
    let maintenances = cluster.maintenances();
    let spec = NodeMaintenanceSpec { node_name: nodes[1].clone(), ..NodeMaintenanceSpec::default() };
    let other = NodeMaintenance::new("e2e-unanswered", spec);
    let kube::Error::Api(status) = maintenances.create(&PostParams::default(), &other).await.unwrap_err()
    else {
        panic!("no answer")
    };
    let sentence = "Internal error occurred: failed calling webhook \"validate.nodemaintenance.medik8s.io\"";
    assert!(status.code == 500 && status.message.starts_with(sentence), "{status:?}");
    let reason = Patch::Merge(json!({"spec": {"reason": "another"}}));
    assert!(maintenances.patch("e2e-given-back", &PatchParams::default(), &reason).await.is_err());

    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    maintenances.patch("e2e-given-back", &PatchParams::default(), &label).await.unwrap();
    maintenances.delete("e2e-given-back", &DeleteParams::default()).await.unwrap();
    // Its finalizer is written while nobody answers, since this one does not serve.
    cluster.sandbox().unwrap().cluster().admission.services.withdraw(&namespace(), WEBHOOK);
    let _other = nm_tests::reconciler::Reconciler::start(&cluster);
    nm_tests::until::until(&maintenances, "e2e-given-back", "gone", |found| found.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_creations_at_once_that_two_replicas_review_only_one_goes_to_work() {
    let Some(cluster) = only_sandbox(1, "two replicas serve one service").await else { return };
    let node = cluster.nodes().await.remove(0);
    let _one = serving(&cluster, &["--leader-elect"]).await;
    let _other = serving_also(&cluster, &["--leader-elect"]).await;
    let created = join_all((0..10).map(async |number| {
        let spec = NodeMaintenanceSpec { node_name: node.clone(), ..NodeMaintenanceSpec::default() };
        let maintenance = NodeMaintenance::new(&format!("e2e-at-once-{number}"), spec);
        cluster.maintenances().create(&PostParams::default(), &maintenance).await
    }))
    .await;
    // Each replica lets one pass at most.
    let passed: Vec<_> = created.iter().filter_map(|created| created.as_ref().ok()).collect();
    assert!((1..=2).contains(&passed.len()), "{passed:?}");
    for refused in created.iter().filter_map(|created| created.as_ref().err()) {
        assert!(refused.to_string().contains(&format!("a NodeMaintenance for node {node} already exists")));
    }
    let phase = |it: &NodeMaintenance| it.status.as_ref().and_then(|status| status.phase);
    let what = "one is at work and the others failed";
    let mut all = until_all(&cluster.maintenances(), Config::default(), what, |all: &[NodeMaintenance]| {
        let count = |wanted| all.iter().filter(|it| phase(it) == Some(wanted)).count();
        (count(Phase::Succeeded), count(Phase::Failed)) == (1, passed.len() - 1) && all.len() == passed.len()
    })
    .await;
    // Those that failed first, so that none inherits the node meanwhile.
    all.sort_by_key(|it| phase(it) == Some(Phase::Succeeded));
    for maintenance in all {
        stop(&cluster, &maintenance.name_any()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_told_to_stop_answers_until_others_are_asked() {
    let Some(cluster) = only_sandbox(1, "others' requests would be refused afterwards").await else { return };
    let node = cluster.nodes().await.remove(0);
    let mut reconciler = serving(&cluster, &[]).await;
    reconciler.signal("TERM");
    reconciler.until_logged("that it stops", |line| line.contains("stopping")).await;
    crate::start(&cluster, "e2e-late", &node).await;
    assert_eq!(reconciler.exit_code().await, Some(0));
}
