//! `kubectl nm explain`: the first cause behind a budget, read with the user's permissions.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube_sandbox::controllers::kubelet::annotations::{EXIT_CODE, IMAGE_MISSING};
use nm_shared::BlockReason;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_blocked, until_drained};
use nm_tests::programs::{kubectl, plugin, plugin_of};
use nm_tests::rbac::{MaintenanceAccess, service_account};
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::{in_time, wait_until_all};
use nm_tests::workload::{Workload, bound_to, node_of, pod_spec, schedule_beside};
use serde_json::{Value, json};

const WHY: &str = "only a sandbox has nodes without other workloads, and containers that fail";

/// A reconciler whose pods count as blocked at once if nothing moves.
fn impatient(cluster: &Cluster) -> Reconciler {
    Reconciler::start_with(cluster, &["--blocked-after=1"])
}

/// Two pods of a ReplicaSet on one node, of which one has to be healthy.
async fn two_pods(cluster: &Cluster, name: &str) -> (Workload, String) {
    let workload = Workload::new(cluster, name).await;
    let node = cluster.nodes().await.remove(0);
    schedule_beside(cluster, &node, false).await;
    workload.replica_set_of("web", 2, &pod_spec()).await;
    workload.budget("web", 1).await;
    schedule_beside(cluster, &node, true).await;
    (workload, node)
}

/// Sets an annotation of the pods that replace the existing ones.
async fn annotate_replacements(cluster: &Cluster, workload: &Workload, annotations: Value) {
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client.clone(), workload.namespace());
    let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    sets.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn is_waiting(pod: &Pod, reason: &str) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let mut containers = status.container_statuses.into_iter().flatten();
    containers.any(|container| {
        let waiting = container.state.and_then(|state| state.waiting);
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(reason))
    })
}

async fn until_waiting(workload: &Workload, reason: &str) -> String {
    let waits = |pod: &Pod| is_waiting(pod, reason);
    let is_there = |pods: &[Pod]| pods.iter().any(waits);
    let pods = wait_until_all(&workload.pods(), watcher::Config::default(), reason, is_there).await;
    pods.iter().find(|pod| waits(pod)).and_then(|pod| pod.metadata.name.clone()).unwrap()
}

/// The words of the first command in the output, without `kubectl`.
fn command(said: &str) -> Vec<String> {
    commands(said).swap_remove(0)
}

fn commands(said: &str) -> Vec<Vec<String>> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("    kubectl "));
    lines.map(|line| shlex::split(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_drained_cluster_of_one_node_no_node_is_left_and_stop_is_suggested() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let (workload, node) = two_pods(&cluster, "left").await;
    let namespace = workload.namespace();
    let _reconciler = impatient(&cluster);
    start(&cluster, &node, &node).await;
    until_blocked(&cluster, &node, BlockReason::DisruptionBudget).await;
    let blocked = plugin(&cluster, &["explain", &node]).await;
    assert_eq!(blocked.code, Some(3), "{blocked:?}");
    let said = &blocked.stdout;
    assert!(
        said.contains(&format!(
            "\nPDB {namespace}/web needs 1, has 1.\nNo node is left for the replacement "
        )),
        "{said}"
    );
    assert!(said.contains(&format!(": {node} is in maintenance.\n")), "{said}");
    assert!(
        said.ends_with(&format!("  Add a node, or return one to service:\n    kubectl nm stop {node}\n")),
        "{said}"
    );

    // Without a name, it explains what is blocked.
    let all = plugin(&cluster, &["explain"]).await;
    // It may be a second later.
    let undated = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("  Blocks ")).map(str::to_owned).collect()
    };
    assert_eq!((all.code, undated(&all.stdout)), (Some(3), undated(said)), "{all:?}");

    // A user who may read only maintenances learns what could not be seen, and no advice depends on it.
    let account = service_account("default", namespace);
    let access = MaintenanceAccess::grant(&cluster, &account).await;
    let limited = plugin_of(&cluster.kubeconfig_of(&account).await, &["explain", &node]).await;
    let unseen = "\n  Not known, because you have no permission to get poddisruptionbudgets.policy.\n  A user with \
        permission to read the budget and its pods can find out why the budget allows no eviction:\n";
    assert_eq!(limited.code, Some(3), "{limited:?}");
    assert!(limited.stdout.contains(unseen), "{limited:?}");
    assert!(limited.stdout.ends_with(&format!("    kubectl nm explain {node}\n")), "{limited:?}");
    access.revoke(&cluster).await;

    let _ = plugin(&cluster, &["stop", &node, "--wait=false"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cause_is_that_of_the_replacement_and_not_its_budget() {
    for (annotation, value, reason, sentence, command) in [
        (
            EXIT_CODE,
            "3",
            "CrashLoopBackOff",
            "container c keeps exiting with exit code 3, 1 restart so far.",
            "logs POD -c c --previous",
        ),
        (
            IMAGE_MISSING,
            "true",
            "ImagePullBackOff",
            "the image registry.k8s.io/pause:3.10 cannot be pulled (ImagePullBackOff): ",
            "describe pod POD",
        ),
    ] {
        let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
        let (workload, node) = two_pods(&cluster, "replacement").await;
        annotate_replacements(&cluster, &workload, json!({annotation: value})).await;
        let _reconciler = impatient(&cluster);
        start(&cluster, &node, &node).await;
        let pod = until_waiting(&workload, reason).await;
        // Between two restarts, the container runs, and the budget allows an eviction for a moment.
        let explained = async || loop {
            until_blocked(&cluster, &node, BlockReason::DisruptionBudget).await;
            let blocked = plugin(&cluster, &["explain", &node]).await;
            if blocked.code == Some(3) && blocked.stdout.contains(sentence) {
                return blocked;
            }
        };
        let blocked = in_time("the cause is explained", explained()).await;
        let (said, namespace) = (&blocked.stdout, workload.namespace());
        assert!(said.contains(&format!("\n{namespace}/{pod} on ")) && said.contains(sentence), "{said}");
        assert!(!said.contains("edit pdb") && !said.contains("patch pdb"), "{said}");
        let command = command.replace("POD", &pod);
        assert!(said.ends_with(&format!("    kubectl -n {namespace} {command}\n")), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suggested_change_of_a_budget_unblocks_the_drain() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "never").await;
    workload.deployment("web", 2).await;
    workload.budget("web", 2).await;
    let node = node_of(&workload.until_running("web", 2).await[0]).to_owned();
    let _reconciler = impatient(&cluster);
    start(&cluster, &node, &node).await;
    until_blocked(&cluster, &node, BlockReason::DisruptionBudget).await;
    let said = plugin(&cluster, &["explain", &node]).await.stdout;
    let what = "\nThe budget can never allow an eviction: minAvailable is 2, and it has 2 pods.\n";
    assert!(said.contains(what), "{said}");
    let cost = "  Set minAvailable to 1: one of its 2 pods at a time may then be unavailable; or ";
    assert!(said.contains(cost), "{said}");
    let command = command(&said);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    if kubectl(&cluster, &words).await.is_some() {
        until_drained(&cluster, &node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_not_ready_under_its_own_budget_may_leave_with_always_allow() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let (workload, node) = two_pods(&cluster, "own").await;
    for pod in workload.until_running("web", 2).await {
        let name = pod.metadata.name.unwrap();
        let crash = json!({"metadata": {"annotations": {EXIT_CODE: "1"}}});
        workload.pods().patch(&name, &PatchParams::default(), &Patch::Merge(crash)).await.unwrap();
    }
    let all_crash = |pods: &[Pod]| pods.iter().all(|pod| is_waiting(pod, "CrashLoopBackOff"));
    wait_until_all(&workload.pods(), watcher::Config::default(), "both crash", all_crash).await;
    let _reconciler = impatient(&cluster);
    start(&cluster, &node, &node).await;
    until_blocked(&cluster, &node, BlockReason::DisruptionBudget).await;
    let said = plugin(&cluster, &["explain", &node]).await.stdout;
    assert!(said.contains("The budget protects pods that are not Ready themselves: "), "{said}");
    // The first command shows why the pods are not Ready.
    let commands = commands(&said);
    let command = commands.last().unwrap();
    assert!(
        command.last().is_some_and(|patch| patch.contains("\"unhealthyPodEvictionPolicy\":\"AlwaysAllow\"")),
        "{said}"
    );
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    if kubectl(&cluster, &words).await.is_some() {
        until_drained(&cluster, &node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_their_template_assigns_to_the_node_would_return_to_it() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "assigned").await;
    let node = cluster.nodes().await.remove(0);
    workload.deployment_of("web", 2, &bound_to(&node)).await;
    workload.until_running("web", 2).await;
    let plan = async || -> Value {
        let planned = plugin(&cluster, &["plan", &node, "-o", "json"]).await;
        serde_json::from_str(&planned.stdout).unwrap()
    };
    let planned = plan().await;
    let returns = |harm: &&Value| harm["harm"] == "NeverLeaves" && harm["reason"] == "KeepsReturning";
    let returning = planned["harms"].as_array().unwrap().iter().find(returns).unwrap();
    assert_eq!(returning["count"], json!(2), "{planned:#}");

    workload.budget("web", 2).await;
    let guarded = plan().await;
    assert_eq!(
        guarded["capacity"]["fit"], planned["capacity"]["fit"],
        "they need no other node: {guarded:#}"
    );
    let _reconciler = impatient(&cluster);
    start(&cluster, &node, &node).await;
    until_blocked(&cluster, &node, BlockReason::DisruptionBudget).await;
    let said = plugin(&cluster, &["explain", &node]).await.stdout;
    assert!(said.contains("would return: ") && said.contains("to this node (nodeName)"), "{said}");
}
