//! The first writes of a maintenance that the API server does not accept: how they are shown, and what goes on without them.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube_sandbox::faults::{Action, Failure, Moment, Rule};
use kube_sandbox::sandbox::Sandbox;
use nm_shared::api::condition::{ConditionReason, ConditionType, find};
use nm_shared::api::names::{FINALIZER, NODE_UID_ANNOTATION};
use nm_shared::{NodeMaintenanceStatus, Phase};
use nm_tests::cluster::{Cluster, SUITE_LABEL, client, has_sandbox};
use nm_tests::events::until_event;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::by_reconciler;
use nm_tests::wait::in_time;
use nm_tests::workload::parse;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_may_have_no_owner_goes_on_with_the_finalizer_alone() {
    if !has_sandbox("it needs the admission plugin OwnerReferencesPermissionEnforcement") {
        return;
    }
    let cluster = Cluster::of_sandbox(2, 0, Sandbox::enforcing_owner_references).await;
    let reconciler = Reconciler::start(&cluster);
    let nodes = cluster.nodes().await;
    for node in &nodes {
        start(&cluster, node, node).await;
        let drained = until_drained(&cluster, node).await;
        assert_eq!(
            (drained.owner_references(), drained.finalizers()),
            (&[][..], &[FINALIZER.to_owned()][..])
        );
        let uid = cluster.node(node).await.uid();
        assert_eq!(drained.annotations().get(NODE_UID_ANNOTATION), uid.as_ref());
    }
    let forbidden = cluster.sandbox().unwrap().requests().count(|entry| {
        entry.code == 403 && entry.resource == "nodemaintenances" && entry.subresource.is_empty()
    });
    assert_eq!(forbidden, 1, "the first refusal is remembered");
    let logged = reconciler.log();
    let warnings = logged.iter().filter(|line| line.contains("OwnerReferencesPermissionEnforcement")).count();
    assert_eq!(warnings, 1, "{logged:#?}");
    let doctor = plugin(&cluster, &["doctor"]).await.stdout;
    assert!(
        doctor.contains("2 outlive their nodes, because the API server forbids owner references"),
        "{doctor}"
    );
    for node in &nodes {
        stop(&cluster, node).await;
        assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None);
    }
}

/// A policy that denies nm-reconciler writes of some resources, given by group and name.
struct Freeze(Vec<DynamicObject>);

impl Freeze {
    /// Creates the policy, and waits until it takes effect on nodes.
    async fn new(cluster: &Cluster, node: &str, resources: &[(&str, &str)]) -> Self {
        let rule = |(group, resource): &(&str, &str)| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resource]});
        let rules: Vec<Value> = resources.iter().map(rule).collect();
        let policy = json!({
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "!request.userInfo.username.endsWith(':nm-reconciler')",
                "message": "frozen until Monday"}],
        });
        let binding = json!({"policyName": "e2e-freeze", "validationActions": ["Deny"]});
        let objects = [("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)];
        let objects = objects.map(|(kind, spec)| {
            parse(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": "e2e-freeze"}, "spec": spec}))
        });
        for object in &objects {
            cluster.apply(object).await;
        }
        let nodes: Api<Node> = Api::all(client(&cluster.reconciler_kubeconfig()).await);
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        // The policies of the installation permit this one.
        let cordoned = Patch::Merge(json!({"spec": {"unschedulable": true}}));
        let denied = async { while nodes.patch(node, &params, &cordoned).await.is_ok() {} };
        in_time("the policy takes effect", denied).await;
        Self(objects.into())
    }

    async fn end(self, cluster: &Cluster) {
        for object in &self.0 {
            cluster.remove(object).await;
        }
    }
}

/// The status, once a write has failed and the status shows it.
async fn until_write_failed(cluster: &Cluster, name: &str) -> NodeMaintenanceStatus {
    until_degraded(cluster, name, ConditionReason::WriteFailed).await
}

/// The status, once it is degraded for this reason.
async fn until_degraded(cluster: &Cluster, name: &str, reason: ConditionReason) -> NodeMaintenanceStatus {
    until_status(cluster, name, reason.as_str(), |status| {
        let degraded = find(&status.conditions, ConditionType::Degraded);
        degraded.is_some_and(|degraded| {
            degraded.status == "True" && ConditionReason::of(degraded) == Some(reason)
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_that_a_policy_denies_is_shown_and_is_made_once_the_policy_is_gone() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let freeze = Freeze::new(&cluster, node, &[("", "nodes")]).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-frozen", node).await;
    let status = until_write_failed(&cluster, "e2e-frozen").await;
    assert_eq!(status.phase, Some(Phase::Failed));
    let (starts, ends) =
        (format!("cannot patch node {node}: nodes \"{node}\" is forbidden: "), "frozen until Monday");
    assert!(
        status.last_error.starts_with(&starts) && status.last_error.ends_with(ends),
        "{}",
        status.last_error
    );
    assert_eq!(status.forbidden, None, "no permission is missing");
    freeze.end(&cluster).await;
    let drained = until_drained(&cluster, "e2e-frozen").await;
    assert!(drained.status.unwrap().last_error.is_empty());
    stop(&cluster, "e2e-frozen").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_the_status_cannot_show_is_an_event() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let denied = [("", "nodes"), ("nodemaintenance.medik8s.io", "nodemaintenances/status")];
    let freeze = Freeze::new(&cluster, node, &denied).await;
    let _reconciler = Reconciler::start(&cluster);
    let maintenance = start(&cluster, "e2e-mute", node).await;
    let events = until_event(&cluster, &maintenance, "WriteFailed").await;
    assert_eq!(events, ["WriteFailed"]);
    freeze.end(&cluster).await;
    until_drained(&cluster, "e2e-mute").await;
    stop(&cluster, "e2e-mute").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_not_even_an_event_can_show_is_logged() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let events = ("events.k8s.io", "events");
    let denied = [("", "nodes"), ("nodemaintenance.medik8s.io", "nodemaintenances/status"), events];
    let freeze = Freeze::new(&cluster, node, &denied).await;
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-logged", node).await;
    let is_wanted = |line: &str| line.contains("cannot patch node") && line.contains("frozen until Monday");
    reconciler.until_logged("the answer of the API server", is_wanted).await;
    freeze.end(&cluster).await;
    until_drained(&cluster, "e2e-logged").await;
    stop(&cluster, "e2e-logged").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_name_is_too_long_for_a_lease_is_reported_in_the_words_of_the_api_server() {
    let cluster = Cluster::start(0).await;
    let node = format!("e2e-{}.example.com", ["a".repeat(58).as_str(); 4].join("."));
    assert_eq!(node.len(), 251, "three more with the prefix of a lease are too many");
    let object = json!({"metadata": {"name": node, "labels": {SUITE_LABEL: ""}}});
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.create(&PostParams::default(), &parse(object)).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-long", &node).await;
    let error = until_write_failed(&cluster, "e2e-long").await.last_error;
    assert!(error.starts_with(&format!("cannot write the lease on node {node}: Lease")), "{error}");
    assert!(error.contains("must be no more than 253"), "{error}");
    stop(&cluster, "e2e-long").await;
    nodes.delete(&node, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_any_first_write_is_shown() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "it needs faults of the API server").await else {
        return;
    };
    let sandbox = cluster.sandbox().unwrap();
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    let adoption = "cannot add the finalizer to NodeMaintenance";
    for (verb, resource, failure, reason, attempt) in [
        ("patch", "nodes", Failure::Internal, ConditionReason::WriteFailed, "cannot patch node"),
        (
            "create",
            "leases",
            Failure::DeniedByPolicy,
            ConditionReason::WriteFailed,
            "cannot write the lease on node",
        ),
        (
            "create",
            "leases",
            Failure::Timeout,
            ConditionReason::WriteFailed,
            "cannot write the lease on node",
        ),
        ("patch", "nodemaintenances", Failure::DeniedByPolicy, ConditionReason::WriteFailed, adoption),
        ("patch", "nodemaintenances", Failure::Internal, ConditionReason::WriteFailed, adoption),
        ("patch", "nodemaintenances", Failure::Forbidden, ConditionReason::MissingAccess, ""),
    ] {
        let first = by_reconciler().verb(verb).resource(resource).subresource("");
        let rule =
            sandbox.faults().add(Rule::new(first, Action::Fail(failure.clone(), Moment::BeforeEffect)));
        start(&cluster, "e2e-first", node).await;
        let error = until_degraded(&cluster, "e2e-first", reason).await.last_error;
        assert!(error.starts_with(attempt) && !error.is_empty(), "{verb} {resource} {failure:?}: {error}");
        sandbox.faults().remove(rule);
        let drained = until_drained(&cluster, "e2e-first").await.status.unwrap();
        assert!(drained.last_error.is_empty(), "{}", drained.last_error);
        stop(&cluster, "e2e-first").await;
    }
}
