//! The webhook protects etcd's quorum: by the guard pods and their budget on OpenShift, elsewhere by a majority of the
//! control-plane nodes.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, Resource, ResourceExt};
use kube_sandbox::faults::{Action, Rule};
use nm_shared::api::names::OVERRIDE_QUORUM_ANNOTATION;
use nm_shared::gate::etcd_guard::ETCD_NAMESPACE;
use nm_shared::{Group, NodeMaintenance, Phase, Suspension};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::files::temp_file;
use nm_tests::kubelet_reports::set_ready;
use nm_tests::maintenance::{
    create_dry_run, maintenance, plan, start, stop, suspend, until_drained, until_status, until_suspension,
};
use nm_tests::older_groups::{OLDER, install, start_in_group, stop_in_group};
use nm_tests::programs::{kubectl, plugin};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::by_reconciler;
use nm_tests::skip::has_kubectl;
use nm_tests::wait::{wait_until, wait_until_all};
use nm_tests::webhook::serve_webhook;
use nm_tests::workload::{parse, pod_spec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn refusal(node: &str) -> String {
    format!(
        "admission webhook \"validate.nodemaintenance.medik8s.io\" denied the request: can not put master/control-plane \
         node into maintenance at this moment, disrupting node {node} will violate etcd quorum"
    )
}

/// Sets or removes the control-plane label of these nodes.
async fn label_control_plane(cluster: &Cluster, nodes: &[String], value: Option<&str>) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/master": value}}});
    for node in nodes {
        api.patch(node, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    }
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    api.create(&PostParams::default(), &parse(object)).await.unwrap()
}

/// Makes the cluster look like OpenShift, with guard pods on these nodes.
async fn simulate_openshift(cluster: &Cluster, guarded: &[String]) {
    let client = || cluster.client.clone();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definitions: Api<CustomResourceDefinition> = Api::all(client());
    create(&definitions, json!({"metadata": {"name": "clusterversions.config.openshift.io"}, "spec": {
        "group": "config.openshift.io", "scope": "Cluster",
        "names": {"plural": "clusterversions", "kind": "ClusterVersion"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    }}))
    .await;
    create(&Api::<Namespace>::all(client()), json!({"metadata": {"name": ETCD_NAMESPACE}})).await;
    for node in guarded {
        let mut spec = pod_spec();
        spec["nodeName"] = json!(node);
        let metadata = json!({"name": format!("etcd-guard-{node}"), "labels": {"app": "guard"}});
        create(&guards(cluster), json!({"metadata": metadata, "spec": spec})).await;
    }
    wait_until_all(&guards(cluster), Config::default(), "guards are Ready", |pods: &[Pod]| {
        pods.len() == guarded.len() && pods.iter().all(|pod| ready(pod) == Some("True"))
    })
    .await;
}

fn guards(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client.clone(), ETCD_NAMESPACE)
}

fn ready(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status.as_str())
}

/// Replaces the budget of the guards, and waits until it allows this number of disruptions.
async fn guard_budget(cluster: &Cluster, min_available: usize, allowed: i32) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), ETCD_NAMESPACE);
    let _ = budgets.delete("etcd-guard-pdb", &DeleteParams::default()).await;
    let spec = json!({"minAvailable": min_available, "selector": {"matchLabels": {"app": "guard"}}});
    create(&budgets, json!({"metadata": {"name": "etcd-guard-pdb"}, "spec": spec})).await;
    wait_until(&budgets, "etcd-guard-pdb", "counted", |guard_budget| {
        let status = guard_budget.and_then(|guard_budget| guard_budget.status.as_ref());
        status.is_some_and(|status| {
            status.observed_generation.is_some() && status.disruptions_allowed == allowed
        })
    })
    .await;
}

/// The error of a dry run for a maintenance of the node, if it is refused.
async fn refusal_of(cluster: &Cluster, node: &str) -> Option<String> {
    match create_dry_run(cluster, node).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

// Cases 19 to 23.
#[tokio::test(flavor = "multi_thread")]
async fn on_openshift_the_webhook_respects_the_etcd_guards() {
    let Some(cluster) = Cluster::sandbox_or_skip(5, "the cluster is made to look like OpenShift").await
    else {
        return;
    };
    let nodes = cluster.nodes().await;
    label_control_plane(&cluster, &nodes[..4], Some("")).await;
    simulate_openshift(&cluster, &nodes[..3]).await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    assert_eq!(refusal_of(&cluster, &nodes[0]).await, Some(refusal(&nodes[0])), "23: there is no budget");
    guard_budget(&cluster, 3, 0).await;
    assert_eq!(refusal_of(&cluster, &nodes[0]).await, Some(refusal(&nodes[0])), "19: its guard is Ready");
    assert_eq!(refusal_of(&cluster, &nodes[3]).await, None, "21: there is no guard on it");
    assert_eq!(refusal_of(&cluster, &nodes[4]).await, None, "it is no control-plane node");
    guard_budget(&cluster, 2, 1).await;
    assert_eq!(refusal_of(&cluster, &nodes[0]).await, None, "22: the budget allows one");

    set_ready(&cluster, &guards(&cluster), &format!("etcd-guard-{}", nodes[1]), false).await;
    guard_budget(&cluster, 2, 0).await;
    assert_eq!(
        refusal_of(&cluster, &nodes[0]).await,
        Some(refusal(&nodes[0])),
        "another's guard is not Ready"
    );
    assert_eq!(refusal_of(&cluster, &nodes[1]).await, None, "20: its own guard is not Ready");
}

// Without the webhook, the reconciler and `plan` apply the same rules.
#[tokio::test(flavor = "multi_thread")]
async fn on_openshift_the_reconciler_and_plan_respect_the_etcd_guards() {
    let Some(cluster) = Cluster::sandbox_or_skip(4, "the cluster is made to look like OpenShift").await
    else {
        return;
    };
    let nodes = cluster.nodes().await;
    label_control_plane(&cluster, &nodes[..3], Some("")).await;
    simulate_openshift(&cluster, &nodes[..3]).await;
    let sentence = format!(
        "can not put master/control-plane node into maintenance at this moment, disrupting node {} will violate etcd \
         quorum",
        nodes[0]
    );
    let plan = plugin(&cluster, &["plan", &nodes[0]]).await;
    assert_eq!(plan.code, Some(3), "23: there is no budget: {plan:?}");
    assert!(plan.stdout.contains(&sentence), "{plan:?}");
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-guarded", &nodes[0]).await;
    until_status(&cluster, "e2e-guarded", "waits", |status| status.last_error.starts_with(&sentence)).await;
    assert!(cluster.node(&nodes[0]).await.spec.unwrap().unschedulable.is_none(), "not cordoned");

    // The budget blocks the guard, so the drain does not end. The event reports its beginning.
    guard_budget(&cluster, 3, 0).await;
    let with_override =
        Patch::Merge(json!({"metadata": {"annotations": {OVERRIDE_QUORUM_ANNOTATION: "true"}}}));
    let maintenances = cluster.maintenances();
    let begun = maintenances.patch("e2e-guarded", &PatchParams::default(), &with_override).await.unwrap();
    let events = until_event(&cluster, &begun, "QuorumOverridden").await;
    assert_eq!(events.iter().filter(|reason| *reason == "QuorumOverridden").count(), 1, "{events:?}");
    assert_eq!(cluster.node(&nodes[0]).await.spec.unwrap().unschedulable, Some(true));
    stop(&cluster, "e2e-guarded").await;
}

// Case 24.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_three_control_plane_nodes_is_refused_unless_overridden() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = Cluster::sandbox_or_skip(4, "the control plane has nodes of its own").await else {
        return;
    };
    let nodes = cluster.nodes().await;
    label_control_plane(&cluster, &nodes[..3], Some("")).await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    start(&cluster, "e2e-quorum-1", &nodes[0]).await;
    let detail = "only 1 of 3 etcd members would remain, and a majority is 2";
    let sentence = format!("{}: {detail}", refusal(&nodes[1]));
    assert_eq!(refusal_of(&cluster, &nodes[1]).await.as_deref(), Some(sentence.as_str()));
    assert_eq!(refusal_of(&cluster, &nodes[3]).await, None, "a worker does not affect the quorum");

    let overriding = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "e2e-quorum-2", "annotations": {OVERRIDE_QUORUM_ANNOTATION: "true"}},
        "spec": {"nodeName": nodes[1]}});
    let file = temp_file(overriding.to_string());
    let outcome = kubectl(&cluster, &["create", "-f", file.path().to_str().unwrap()]).await.unwrap().ok();
    let warning = sentence.split_once("request: ").unwrap().1;
    assert_eq!(outcome.stderr, format!("Warning: {warning}\n"));
    for name in ["e2e-quorum-1", "e2e-quorum-2"] {
        stop(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_etcd_outside_of_the_cluster_no_quorum_is_guarded() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, "the control plane has nodes of its own").await else {
        return;
    };
    let nodes = cluster.nodes().await;
    label_control_plane(&cluster, &nodes[..2], Some("")).await;
    let api: Api<Node> = Api::all(cluster.client.clone());
    let role = Patch::Merge(json!({"metadata": {"labels": {"node-role.kubernetes.io/etcd": ""}}}));
    api.patch(&nodes[2], &PatchParams::default(), &role).await.unwrap();
    let _reconciler = serve_webhook(&cluster, &["--external-etcd"]).await;
    for node in &nodes {
        start(&cluster, node, node).await;
    }
    for node in &nodes {
        until_drained(&cluster, node).await;
    }
    for node in &nodes {
        stop(&cluster, node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_maintenances_do_not_affect_the_quorum_and_are_judged_when_they_are_resumed() {
    let Some(cluster) = Cluster::sandbox_or_skip(4, "the control plane has nodes of its own").await else {
        return;
    };
    let nodes = cluster.nodes().await;
    label_control_plane(&cluster, &nodes[..3], Some("")).await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    plan(&cluster, "e2e-planned-1", &nodes[0]).await;
    until_suspension(&cluster, "e2e-planned-1", Some(Suspension::Planned)).await;
    let taken = format!("invalid nodeName, a NodeMaintenance for node {} already exists", nodes[0]);
    assert!(refusal_of(&cluster, &nodes[0]).await.unwrap().ends_with(&taken));
    start(&cluster, "e2e-planned-2", &nodes[1]).await;
    until_drained(&cluster, "e2e-planned-2").await;
    plan(&cluster, "e2e-planned-3", &nodes[2]).await;

    let resume = Patch::Merge(json!({"spec": {"suspend": false}}));
    let params = PatchParams::default();
    let refused = cluster.maintenances().patch("e2e-planned-1", &params, &resume).await.unwrap_err();
    assert!(refused.to_string().contains(&refusal(&nodes[0])), "{refused}");
    stop(&cluster, "e2e-planned-2").await;
    suspend(&cluster, "e2e-planned-1", false).await;
    until_drained(&cluster, "e2e-planned-1").await;
    // A pause changes nothing that the quorum depends on.
    suspend(&cluster, "e2e-planned-1", true).await;
    suspend(&cluster, "e2e-planned-1", false).await;
    for name in ["e2e-planned-1", "e2e-planned-3"] {
        stop(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenances_of_older_groups_count_for_the_webhook_and_plan() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, "the control plane has nodes of its own").await else {
        return;
    };
    let nodes = cluster.nodes().await;
    label_control_plane(&cluster, &nodes, Some("")).await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    for (group, [first, second]) in OLDER.into_iter().zip([[0, 1], [1, 2]]) {
        let (first, second) = (&nodes[first], &nodes[second]);
        install(&cluster.client, group).await;
        // The name of the maintenance is that of another node, which must not matter.
        start_in_group(&cluster.client, group, second, first).await;
        let taken = format!("invalid nodeName, a NodeMaintenance for node {first} already exists");
        let refusals =
            [refusal_of(&cluster, first).await.unwrap(), refusal_of(&cluster, second).await.unwrap()];
        assert!(refusals[0].ends_with(&taken), "{group:?}: {}", refusals[0]);
        assert!(refusals[1].starts_with(&refusal(second)), "{group:?}: {}", refusals[1]);
        let plan = plugin(&cluster, &["plan", first, second]).await;
        assert!(plan.stdout.contains(&format!("node/{first}: already in maintenance: ")), "{plan:?}");
        let violates = format!("disrupting node {second} will violate etcd quorum");
        assert!(plan.code == Some(3) && plan.stdout.contains(&violates), "{plan:?}");
        stop_in_group(&cluster.client, group, second).await;
        assert_eq!(refusal_of(&cluster, first).await, None, "{group:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_control_plane_maintenances_created_at_once_only_one_starts() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, "requests are delayed").await else { return };
    let nodes = cluster.nodes().await;
    label_control_plane(&cluster, &nodes, Some("")).await;
    let _reconciler = serve_webhook(&cluster, &[]).await;
    // Each review lists the medik8s group before the delayed older group, so none sees what another one accepts.
    install(&cluster.client, Group::Kubevirt).await;
    let older = by_reconciler().verb("list").group(Group::Kubevirt.name());
    cluster.sandbox().unwrap().faults().add(Rule::new(older, Action::Delay(Duration::from_secs(3))));
    let created = join_all(nodes.iter().map(async |node| {
        let maintenance = maintenance(&format!("e2e-{node}"), node);
        cluster.maintenances().create(&PostParams::default(), &maintenance).await
    }));
    assert!(created.await.iter().all(Result::is_ok), "each is accepted");
    let phase = |it: &NodeMaintenance| it.status.as_ref().and_then(|status| status.phase);
    let what = "one is drained and the others wait";
    let mut all =
        wait_until_all(&cluster.maintenances(), Config::default(), what, |all: &[NodeMaintenance]| {
            let count = |wanted| all.iter().filter(|it| phase(it) == Some(wanted)).count();
            (count(Phase::Succeeded), count(Phase::Pending)) == (1, 2)
        })
        .await;
    let mut cordoned = 0;
    for node in &nodes {
        cordoned += usize::from(cluster.node(node).await.spec.unwrap().unschedulable == Some(true));
    }
    assert_eq!(cordoned, 1);
    // The waiting ones first, so that they do not start.
    all.sort_by_key(|it| phase(it) == Some(Phase::Succeeded));
    for maintenance in all {
        stop(&cluster, &maintenance.name_any()).await;
    }
}
