//! Control-plane nodes: what the webhook says before etcd would lose its quorum. On OpenShift its guards are asked,
//! elsewhere a majority of the nodes must stay.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, Resource, ResourceExt};
use kube_sandbox::controllers::kubelet::annotations::NEVER_READY;
use kube_sandbox::faults::{Action, Rule, Target};
use nm_shared::api::names::OVERRIDE_QUORUM_ANNOTATION;
use nm_shared::gate::quorum::ETCD_NAMESPACE;
use nm_shared::{Group, NodeMaintenance, NodeMaintenanceSpec, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::events_until;
use nm_tests::older_groups::{OLDER, install};
use nm_tests::programs::{has_kubectl, kubectl, plugin};
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{until, until_all};
use nm_tests::webhook::{serving, serving_also};
use nm_tests::workload::{parse, pod_spec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::older_groups::{start_of, stop_of};
use crate::{only_sandbox, stop};

fn refusal(node: &str) -> String {
    format!(
        "admission webhook \"validate.nodemaintenance.medik8s.io\" denied the request: can not put master/control-plane \
         node into maintenance at this moment, disrupting node {node} will violate etcd quorum"
    )
}

/// Labels the nodes as those of a control plane, or takes the label away.
async fn control_plane(cluster: &Cluster, nodes: &[String], value: Option<&str>) {
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

/// What tells OpenShift from other clusters, and guard pods on the first nodes.
async fn openshift(cluster: &Cluster, guarded: &[String]) {
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
    until_all(&guards(cluster), Config::default(), "guards are Ready", |pods: &[Pod]| {
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

/// The guards' only budget, once it allows so many disruptions.
async fn budget(cluster: &Cluster, min_available: usize, allowed: i32) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), ETCD_NAMESPACE);
    let _ = budgets.delete("etcd-guard-pdb", &DeleteParams::default()).await;
    let spec = json!({"minAvailable": min_available, "selector": {"matchLabels": {"app": "guard"}}});
    create(&budgets, json!({"metadata": {"name": "etcd-guard-pdb"}, "spec": spec})).await;
    until(&budgets, "etcd-guard-pdb", "counted", |budget| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| {
            status.observed_generation.is_some() && status.disruptions_allowed == allowed
        })
    })
    .await;
}

/// Why a maintenance of the node is refused, if it is. Nothing is stored.
async fn refused(cluster: &Cluster, node: &str) -> Option<String> {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match cluster.maintenances().create(&params, &NodeMaintenance::new("e2e-asked", spec)).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

// Cases 19 to 23.
#[tokio::test(flavor = "multi_thread")]
async fn on_openshift_the_guards_of_etcd_are_asked() {
    let Some(cluster) = only_sandbox(5, "the cluster is made to look like OpenShift").await else { return };
    let nodes = cluster.nodes().await;
    control_plane(&cluster, &nodes[..4], Some("")).await;
    openshift(&cluster, &nodes[..3]).await;
    let _reconciler = serving(&cluster, &[]).await;
    assert_eq!(refused(&cluster, &nodes[0]).await, Some(refusal(&nodes[0])), "23: there is no budget");
    budget(&cluster, 3, 0).await;
    assert_eq!(refused(&cluster, &nodes[0]).await, Some(refusal(&nodes[0])), "19: its guard is Ready");
    assert_eq!(refused(&cluster, &nodes[3]).await, None, "21: there is no guard on it");
    assert_eq!(refused(&cluster, &nodes[4]).await, None, "it is no control-plane node");
    budget(&cluster, 2, 1).await;
    assert_eq!(refused(&cluster, &nodes[0]).await, None, "22: the budget allows one");

    // A status that others write is the kubelet's to put right.
    let unready = Patch::Merge(json!({"metadata": {"annotations": {NEVER_READY: ""}}}));
    let guard = format!("etcd-guard-{}", nodes[1]);
    guards(&cluster).patch(&guard, &PatchParams::default(), &unready).await.unwrap();
    until(&guards(&cluster), &guard, "not Ready", |pod| pod.and_then(ready) == Some("False")).await;
    budget(&cluster, 2, 0).await;
    assert_eq!(refused(&cluster, &nodes[0]).await, Some(refusal(&nodes[0])), "another's guard is not Ready");
    assert_eq!(refused(&cluster, &nodes[1]).await, None, "20: its own guard is not Ready");
}

// What the webhook would refuse, were it asked: those who do not ask it go by the same.
#[tokio::test(flavor = "multi_thread")]
async fn on_openshift_the_reconciler_and_a_plan_ask_the_guards_too() {
    let Some(cluster) = only_sandbox(4, "the cluster is made to look like OpenShift").await else { return };
    let nodes = cluster.nodes().await;
    control_plane(&cluster, &nodes[..3], Some("")).await;
    openshift(&cluster, &nodes[..3]).await;
    let sentence = format!(
        "can not put master/control-plane node into maintenance at this moment, disrupting node {} will violate etcd \
         quorum",
        nodes[0]
    );
    let plan = plugin(&cluster, &["plan", &nodes[0]]).await;
    assert_eq!(plan.code, Some(3), "23: there is no budget: {plan:?}");
    assert!(plan.stdout.contains(&sentence), "{plan:?}");
    let _reconciler = Reconciler::start(&cluster);
    crate::start(&cluster, "e2e-guarded", &nodes[0]).await;
    let waits = |found: Option<&NodeMaintenance>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| status.last_error.starts_with(&sentence))
    };
    until(&cluster.maintenances(), "e2e-guarded", "waits", waits).await;
    assert!(cluster.node(&nodes[0]).await.spec.unwrap().unschedulable.is_none(), "not touched");

    // Its guard does not let it go, so the drain does not end: the event is about its beginning.
    budget(&cluster, 3, 0).await;
    let insist = Patch::Merge(json!({"metadata": {"annotations": {OVERRIDE_QUORUM_ANNOTATION: "true"}}}));
    let maintenances = cluster.maintenances();
    let begun = maintenances.patch("e2e-guarded", &PatchParams::default(), &insist).await.unwrap();
    let events = events_until(&cluster, &begun, "QuorumOverridden").await;
    assert_eq!(events.iter().filter(|reason| *reason == "QuorumOverridden").count(), 1, "{events:?}");
    assert_eq!(cluster.node(&nodes[0]).await.spec.unwrap().unschedulable, Some(true));
    stop(&cluster, "e2e-guarded").await;
}

// Case 24.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_three_control_plane_nodes_is_refused_unless_someone_insists() {
    if !has_kubectl() {
        return;
    }
    let Some(cluster) = only_sandbox(4, "the control plane has nodes of its own").await else { return };
    let nodes = cluster.nodes().await;
    control_plane(&cluster, &nodes[..3], Some("")).await;
    let _reconciler = serving(&cluster, &[]).await;
    crate::start(&cluster, "e2e-quorum-1", &nodes[0]).await;
    let detail = "1 of 3 control-plane nodes would be left, and 2 are a majority";
    let sentence = format!("{}: {detail}", refusal(&nodes[1]));
    assert_eq!(refused(&cluster, &nodes[1]).await.as_deref(), Some(sentence.as_str()));
    assert_eq!(refused(&cluster, &nodes[3]).await, None, "a worker is nobody's majority");

    let insisting = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "e2e-quorum-2", "annotations": {OVERRIDE_QUORUM_ANNOTATION: "true"}},
        "spec": {"nodeName": nodes[1]}});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), insisting.to_string()).unwrap();
    let outcome = kubectl(&cluster, &["create", "-f", file.path().to_str().unwrap()]).await.unwrap().ok();
    let warning = sentence.split_once("request: ").unwrap().1;
    assert_eq!(outcome.stderr, format!("Warning: {warning}\n"));
    for name in ["e2e-quorum-1", "e2e-quorum-2"] {
        stop(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_group_has_in_maintenance_counts_for_the_webhook_and_a_plan() {
    let Some(cluster) = only_sandbox(3, "the control plane has nodes of its own").await else { return };
    let nodes = cluster.nodes().await;
    control_plane(&cluster, &nodes, Some("")).await;
    let _reconciler = serving(&cluster, &[]).await;
    for (group, [first, second]) in OLDER.into_iter().zip([[0, 1], [1, 2]]) {
        let (first, second) = (&nodes[first], &nodes[second]);
        install(&cluster.client, group).await;
        // By the name of another node, which is none of its business.
        start_of(&cluster, group, second, first).await;
        let taken = format!("invalid nodeName, a NodeMaintenance for node {first} already exists");
        let refusals = [refused(&cluster, first).await.unwrap(), refused(&cluster, second).await.unwrap()];
        assert!(refusals[0].ends_with(&taken), "{group:?}: {}", refusals[0]);
        assert!(refusals[1].starts_with(&refusal(second)), "{group:?}: {}", refusals[1]);
        let plan = plugin(&cluster, &["plan", first, second]).await;
        assert!(plan.stdout.contains(&format!("node/{first}: already in maintenance: ")), "{plan:?}");
        let violates = format!("disrupting node {second} will violate etcd quorum");
        assert!(plan.code == Some(3) && plan.stdout.contains(&violates), "{plan:?}");
        stop_of(&cluster, group, second).await;
        assert_eq!(refused(&cluster, first).await, None, "{group:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_control_plane_nodes_at_once_that_two_replicas_review_only_one_goes_to_work() {
    let Some(cluster) = only_sandbox(3, "two replicas serve one service").await else { return };
    let nodes = cluster.nodes().await;
    control_plane(&cluster, &nodes, Some("")).await;
    let _one = serving(&cluster, &["--leader-elect"]).await;
    let _other = serving_also(&cluster, &["--leader-elect"]).await;
    // Both have listed our own group when they are told of an older one, and so neither knows of what the other allows.
    install(&cluster.client, Group::Kubevirt).await;
    let older = Target::any().user_agent("nm-reconciler/*").verb("list").group(Group::Kubevirt.name());
    cluster.sandbox().unwrap().faults().add(Rule::new(older, Action::Delay(Duration::from_secs(3))));
    let passed = created_at_once(&cluster, &nodes).await;
    assert_eq!(passed.len(), 2, "each replica lets one pass: {passed:?}");
    let phase = |it: &NodeMaintenance| it.status.as_ref().and_then(|status| status.phase);
    let what = "one is at work and the other waits";
    let mut all = until_all(&cluster.maintenances(), Config::default(), what, |all: &[NodeMaintenance]| {
        let count = |wanted| all.iter().filter(|it| phase(it) == Some(wanted)).count();
        (count(Phase::Succeeded), count(Phase::Pending)) == (1, 1)
    })
    .await;
    let mut cordoned = 0;
    for node in &nodes {
        cordoned += usize::from(cluster.node(node).await.spec.unwrap().unschedulable == Some(true));
    }
    assert_eq!(cordoned, 1);
    // The one that waits first, so that it does not begin meanwhile.
    all.sort_by_key(|it| phase(it) == Some(Phase::Succeeded));
    for maintenance in all {
        stop(&cluster, &maintenance.name_any()).await;
    }
}

/// Asks for maintenances of all these nodes in the same moment, and returns those that passed.
async fn created_at_once(cluster: &Cluster, nodes: &[String]) -> Vec<NodeMaintenance> {
    let created = join_all(nodes.iter().map(async |node| {
        let spec = NodeMaintenanceSpec { node_name: node.clone(), ..NodeMaintenanceSpec::default() };
        let maintenance = NodeMaintenance::new(&format!("e2e-{node}"), spec);
        cluster.maintenances().create(&PostParams::default(), &maintenance).await
    }))
    .await;
    created.into_iter().filter_map(Result::ok).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_control_plane_nodes_at_once_only_so_many_pass_that_a_majority_stays() {
    let Some(cluster) = only_sandbox(3, "the control plane has nodes of its own").await else { return };
    let nodes = cluster.nodes().await;
    control_plane(&cluster, &nodes, Some("")).await;
    let _reconciler = serving(&cluster, &[]).await;
    let passed = created_at_once(&cluster, &nodes).await;
    assert_eq!(passed.len(), 1, "two of three stay");
    stop(&cluster, &passed[0].name_any()).await;
}
