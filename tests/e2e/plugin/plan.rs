//! `kubectl nm plan`: what it reports for each pod, which data it could not read, and that it changes nothing.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::admission::Reviewer;
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::eviction_webhook;
use nm_tests::eviction_webhook::{REFUSAL, refusal};
use nm_tests::maintenance::start;
use nm_tests::nodes::configuration;
use nm_tests::programs::{Outcome, plugin, plugin_of};
use nm_tests::rbac::{MaintenanceAccess, service_account};
use nm_tests::requests::is_write;
use nm_tests::workload::{Workload, bound_to, node_of, parse, pinned_to, pods_on};
use serde_json::{Value, json};

const UNKNOWN_LIMIT: &str = "unknown: --max-unavailable: no deployment has the labels of nm-reconciler";

const WHY: &str = "a real cluster's nodes have other pods";

/// Compares the output, with columns separated by single blanks, and the exit code.
#[track_caller]
fn check(outcome: &Outcome, code: i32, lines: &[&str]) {
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Each zone of the cluster has few nodes; `start_cost` tests what is said about that.
    let about_zone = |line: &String| line.starts_with("no schedulable node is left in ");
    let said: Vec<String> = outcome.stdout.lines().map(squeezed).filter(|line| !about_zone(line)).collect();
    assert_eq!(
        (said.as_slice(), outcome.code),
        (lines.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice(), Some(code)),
        "{outcome:?}"
    );
    assert_eq!(outcome.stderr, "");
}

/// How many pods of the workload run on these nodes.
async fn workload_pods(cluster: &Cluster, nodes: &[&str], workload: &Workload) -> usize {
    let mut count = 0;
    for node in nodes {
        let pods = pods_on(&cluster.client, node).await;
        count += pods.iter().filter(|pod| pod.namespace().as_deref() == Some(workload.namespace())).count();
    }
    count
}

/// The line for the `DaemonSet` pod that a sandbox has on each node.
async fn agent_line(cluster: &Cluster, node: &str) -> String {
    let pods = pods_on(&cluster.client, node).await;
    let agent = pods.iter().find(|pod| pod.namespace().as_deref() == Some("kube-system")).unwrap();
    format!("{node} kube-system/{} staying managed by a DaemonSet", agent.name_any())
}

/// The node and its pods, to compare before and after.
async fn state(cluster: &Cluster, node: &str) -> (Value, Vec<(Option<String>, bool)>, usize) {
    let pods = pods_on(&cluster.client, node).await;
    let pods = pods.iter().map(|pod| (pod.uid(), pod.metadata.deletion_timestamp.is_some())).collect();
    let maintenances =
        cluster.maintenances().list(&kube::api::ListParams::default()).await.unwrap().items.len();
    (configuration(&cluster.node(node).await), pods, maintenances)
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_names_a_quota_that_refuses_the_additional_pod_of_a_surge() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "quota").await;
    let cart = workload.pod_behind_budget("cart").await;
    let plan = async || plugin(&cluster, &["plan", node_of(&cart), "--surge", "-o", "json"]).await;
    let outcome = |planned: &Outcome| {
        let document: Value = serde_json::from_str(&planned.stdout).unwrap();
        let pods = document["pods"].as_array().unwrap();
        pods.iter().find(|pod| pod["name"] == json!(cart.name_any())).unwrap().clone()
    };
    let allowed = plan().await;
    assert_eq!((outcome(&allowed)["outcome"].clone(), allowed.code), (json!("surging"), Some(0)));

    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client.clone(), workload.namespace());
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}});
    quotas.create(&PostParams::default(), &parse(quota)).await.unwrap();
    let status = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}});
    quotas.patch_status("few", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let refused = plan().await;
    let pod = outcome(&refused);
    assert_eq!((pod["outcome"].clone(), refused.code), (json!("blocked"), Some(3)), "{refused:?}");
    let why = format!(
        "Deployment cart cannot create a pod: quota {}/few allows no additional pod (pods: 1 of 1 used)",
        workload.namespace()
    );
    assert!(pod.to_string().contains(&why), "{pod}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_reports_each_pod_and_changes_nothing() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "plan").await;
    let cart = workload.pod_behind_budget("cart").await;
    let (node, space) = (node_of(&cart).to_owned(), workload.namespace());
    let cart = cart.name_any();
    let volumes = json!({"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}});
    workload.pod_on(&node, "bare", volumes).await;
    let before = state(&cluster, &node).await;
    let agent = agent_line(&cluster, &node).await;

    let blocked = plugin(&cluster, &["plan", &node]).await;
    check(
        &blocked,
        3,
        &[
            "NODE POD OUTCOME DETAILS",
            &agent,
            &format!("{node} {space}/bare evicted its emptyDir data is lost; no controller replaces it"),
            &format!(
                "{node} {space}/{cart} blocked The disruption budget cart needs 1 healthy pods and has 1 currently"
            ),
            "",
            &format!("budget {space}/cart (1 pod) allows no evictions until it is changed"),
            &format!("1 pod loses its emptyDir data: {space}/bare"),
            &format!("no controller replaces 1 pod: {space}/bare"),
            "capacity for 1 of 1 pod on 1 other node, estimated from requests, taints, selectors and volumes",
            UNKNOWN_LIMIT,
            "1 node, 3 pods: 1 blocked, 1 evicted, 1 staying",
            "The drain would be blocked. Nothing was changed.",
        ],
    );

    let careful = plugin(&cluster, &["plan", &node, "--force=false", "--pod-selector", "app=bare"]).await;
    check(
        &careful,
        3,
        &[
            "NODE POD OUTCOME DETAILS",
            &format!("{node} {space}/{cart} staying not matched by podSelector"),
            &agent.replace("managed by a DaemonSet", "not matched by podSelector"),
            &format!(
                "{node} {space}/bare blocked has no controller that would replace it and spec.drain.force is false"
            ),
            "",
            UNKNOWN_LIMIT,
            "1 node, 3 pods: 1 blocked, 2 staying",
            "The drain would be blocked. Nothing was changed.",
        ],
    );

    workload.delete_budget("cart").await;
    let free = plugin(&cluster, &["plan", &node, "-o", "json"]).await;
    assert_eq!((free.code, free.stderr.as_str()), (Some(0), ""), "{free:?}");
    let document: Value = serde_json::from_str(&free.stdout).unwrap();
    assert_eq!(
        (&document["kind"], &document["version"], &document["blocked"]),
        (&json!("Plan"), &json!(1), &json!(false))
    );
    let bare = document["pods"].as_array().unwrap().iter().find(|pod| pod["name"] == "bare").unwrap();
    assert_eq!(
        *bare,
        json!({"node": node, "namespace": space, "name": "bare", "outcome": "evicted", "completionTimeoutSeconds": null,
            "details": "its emptyDir data is lost; no controller replaces it", "reason": null, "waitsForBudget": null, "deletedAfterSeconds": null,
            "losesEmptyDirData": true, "localVolumes": [], "isReplaced": false, "mayComeBack": false})
    );
    let outcomes: Vec<&str> =
        document["pods"].as_array().unwrap().iter().filter_map(|pod| pod["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["evicted", "evicted", "staying"]);

    assert_eq!(state(&cluster, &node).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn start_creates_a_maintenance_and_changes_nothing_else() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "started").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    workload.pod_on(&node, "bare", json!({})).await;
    let (marks, pods, maintenances) = state(&cluster, &node).await;
    let _ = plugin(&cluster, &["start", &node]).await.ok();
    assert_eq!(state(&cluster, &node).await, (marks, pods, maintenances + 1));
    // Its dry runs of evictions change nothing.
    let writes = |entry: &Entry| {
        entry.user_agent.starts_with("kubectl-nm/") && is_write(entry) && entry.subresource != "eviction"
    };
    let sent = cluster.sandbox().unwrap().requests().all();
    let sent: Vec<(&str, &str)> = sent
        .iter()
        .filter(|entry| writes(entry))
        .map(|entry| (entry.verb, entry.resource.as_str()))
        .collect();
    assert_eq!(sent, [("create", "nodemaintenances")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_plan_share_budgets_capacity_and_the_queue() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, WHY).await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "rounds").await;
    let spec = json!({"terminationGracePeriodSeconds": 5, "containers": [
        {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "3"}}}]});
    workload.deployment_of("cart", 6, &spec).await;
    workload.budget("cart", 5).await;
    let reconciler: Deployment = parse(json!({
        "metadata": {"name": "nm-reconciler", "labels": {
            "app.kubernetes.io/name": "kubectl-nm", "app.kubernetes.io/component": "reconciler"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "args": ["--max-unavailable=1"]}]}}},
    }));
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), workload.namespace());
    deployments.create(&PostParams::default(), &reconciler).await.unwrap();

    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let count = workload_pods(&cluster, &[a, b], &workload).await;
    let planned = plugin(&cluster, &["plan", a, b]).await;
    assert_eq!((planned.code, planned.stderr.as_str()), (Some(3), ""), "{planned:?}");
    let space = workload.namespace();
    // A node has 8 CPUs: two of these pods fit, and the other nodes already have two. So the first evicted pod gets no
    // running replacement, and its budget allows no further disruption.
    assert_eq!(count, 4);
    for line in [
        "2 nodes, 6 pods: 1 blocked, 2 waiting, 1 evicted, 2 staying".to_owned(),
        format!(
            "node/{b}: queued: position 1 of 1 in the queue: 1 of 3 nodes are unavailable and the limit is 1"
        ),
        format!(
            "budget {space}/cart (4 pods) allows 1 eviction now and 1 at once while all its pods are healthy: 1 never, \
             because the replacements of the others fit on no other node"
        ),
        "capacity for 0 of 2 pods on 2 other nodes, estimated from requests, taints, selectors and volumes"
            .to_owned(),
        format!("--max-unavailable is 1, set by deployment {space}/nm-reconciler"),
        "The drain would be blocked. Nothing was changed.".to_owned(),
    ] {
        assert!(planned.stdout.lines().any(|said| said == line), "{line}\n{}", planned.stdout);
    }
    assert!(planned.stdout.contains("(2 other nodes: 2 short of cpu)"), "{planned:?}");
    deployments.delete("nm-reconciler", &DeleteParams::default()).await.unwrap();
}

/// Refuses every eviction, all of which must be dry runs.
#[derive(Debug)]
struct RefuseDryRun;

impl Reviewer for RefuseDryRun {
    fn review(&self, request: &Value) -> Value {
        assert_eq!(request["dryRun"], true, "a plan must not evict");
        refusal(403)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_would_refuse_an_eviction_blocks_the_plan() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "heard").await;
    let (node, space) = (&cluster.nodes().await[0], workload.namespace());
    workload.pod_on(node, "cart", json!({})).await;
    eviction_webhook::install(&cluster, &workload, &["CREATE"], &["pods/eviction"], Arc::new(RefuseDryRun))
        .await;
    let refused = plugin(&cluster, &["plan", node]).await;
    check(
        &refused,
        3,
        &[
            "NODE POD OUTCOME DETAILS",
            &agent_line(&cluster, node).await,
            &format!("{node} {space}/cart blocked {REFUSAL}; no controller replaces it"),
            "",
            &format!("no controller replaces 1 pod: {space}/cart"),
            UNKNOWN_LIMIT,
            "1 node, 2 pods: 1 blocked, 1 staying",
            "The drain would be blocked. Nothing was changed.",
        ],
    );
    eviction_webhook::remove(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_without_read_access_is_named_and_left_out() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "access").await;
    let (node, space) = (&cluster.nodes().await[0], workload.namespace());
    workload.pod_on(node, "cart", json!({})).await;
    let account = service_account("default", space);
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let access = MaintenanceAccess::grant(&cluster, &account).await;
    check(
        &plugin_of(&kubeconfig, &["plan", node]).await,
        1,
        &[
            "unknown: --max-unavailable: you may not list deployments.apps",
            "unknown: the capacity of other nodes, the control plane and the queue: you may not list nodes",
            "unknown: the pods: you may not list pods",
            "unknown: which DaemonSets exist: you may not list daemonsets.apps",
            "unknown: the disruption budgets: you may not list poddisruptionbudgets.policy",
            "1 node",
            "It is unknown whether the drain would be blocked. Nothing was changed.",
        ],
    );
    access.revoke(&cluster).await;

    let lists = ["nodes", "pods", "daemonsets.apps", "poddisruptionbudgets.policy", "deployments.apps"];
    let access = MaintenanceAccess::grant_with(&cluster, &account, &lists).await;
    let user = format!("system:serviceaccount:{space}:default");
    check(
        &plugin_of(&kubeconfig, &["plan", node]).await,
        0,
        &[
            "NODE POD OUTCOME DETAILS",
            &agent_line(&cluster, node).await,
            &format!("{node} {space}/cart evicted no controller replaces it"),
            "",
            &format!("no controller replaces 1 pod: {space}/cart"),
            UNKNOWN_LIMIT,
            &format!(
                "unknown: the answer of the API server to the eviction of 1 pod: User \"{user}\" cannot create \
                 resource \"pods/eviction\" in API group \"\" in the namespace \"{space}\""
            ),
            "1 node, 2 pods: 1 evicted, 1 staying",
            "As far as is known, nothing would block the drain. Nothing was changed.",
        ],
    );
    access.revoke(&cluster).await;

    let lists = ["nodes", "pods", "daemonsets.apps", "deployments.apps"];
    let access = MaintenanceAccess::grant_with(&cluster, &account, &lists).await;
    let planned = plugin_of(&kubeconfig, &["plan", node]).await;
    assert_eq!(planned.code, Some(1), "a budget may block the pod: {planned:?}");
    assert!(planned.stdout.contains("1 node, 2 pods: 1 unknown, 1 staying\n"), "{planned:?}");
    access.revoke(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_exist_or_is_taken_is_reported() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let wrong = plugin(&cluster, &["plan", &format!("{node}x")]).await;
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(1), ""), "{wrong:?}");
    let said = format!("Error from server (NotFound): nodes \"{node}x\" not found; did you mean {node}?\n");
    assert!(wrong.stderr.starts_with(&said), "{wrong:?}");
    let name = plugin(&cluster, &["plan", node, "-o", "name"]).await;
    assert_eq!((name.code, name.stdout.as_str()), (Some(2), ""), "{name:?}");

    start(&cluster, node, "e2e-elsewhere").await;
    let taken = plugin(&cluster, &["plan", node]).await;
    assert_eq!(taken.code, Some(3), "{taken:?}");
    let line =
        format!("node/{node}: a NodeMaintenance \"{node}\" for node \"e2e-elsewhere\" already exists\n");
    assert!(taken.stdout.contains(&line), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_for_all_nodes_reports_that_no_capacity_is_left() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "everywhere").await;
    workload.deployment("web", 4).await;
    let nodes = cluster.nodes().await;
    let planned = plugin(&cluster, &["plan", &nodes[0], &nodes[1]]).await;
    assert_eq!(planned.code, Some(3), "{planned:?}");
    for said in [
        "capacity for 0 of 4 pods on 0 other nodes",
        "\nNothing would block the drain, but other nodes do not have the capacity for all pods. Nothing was changed.\n",
    ] {
        assert!(planned.stdout.contains(said), "{planned:?}");
    }
    let line = ["plan", &nodes[0], "--reason", "kernel", "--wait", "--watch", "-y", "--dry-run", "client"];
    let one = plugin(&cluster, &line).await;
    assert_eq!(one.code, Some(0), "{one:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_node_of_a_large_cluster_reads_the_pods_of_few_nodes() {
    let cluster = Cluster::of_sandbox(300, 4_500, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "large").await;
    let (first, last) = (nodes[0].as_str(), nodes[299].as_str());
    let mut spec = pinned_to(first);
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        [0]["matchFields"][0]["values"] = json!([first, last]);
    workload.deployment_of("picky", 1, &spec).await;
    let picky = workload.until_running("picky", 1).await.remove(0);
    let node = node_of(&picky);
    workload.deployment_of("alone", 1, &bound_to(node)).await;
    let sandbox = cluster.sandbox().unwrap();
    let lists = |entry: &Entry| {
        entry.user_agent.starts_with("kubectl-nm") && entry.verb == "list" && entry.resource == "pods"
    };
    let before = sandbox.requests().count(lists);

    let planned = plugin(&cluster, &["plan", node, "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&planned.stdout).unwrap();
    // A pod that its template assigns to the node needs no capacity of others.
    let moves = |pod: &&Value| {
        pod["isReplaced"] == true && pod["mayComeBack"] == false && pod["reason"] != "KeepsReturning"
    };
    let leaving = plan["pods"].as_array().unwrap().iter().filter(moves).count();
    assert_eq!(
        (&plan["capacity"]["fit"], &plan["capacity"]["otherNodes"], &plan["capacity"]["unplaced"]),
        (&json!(leaving), &json!(299), &json!([])),
        "{plan:#}"
    );
    assert_eq!(plan["unknown"], json!([UNKNOWN_LIMIT.strip_prefix("unknown: ").unwrap()]));
    let down = |name| json!({"kind": "Deployment", "name": name, "namespace": workload.namespace()});
    let harms = plan["harms"].as_array().unwrap();
    assert_eq!(
        harms[0],
        json!({"harm": "NoReadyPod", "workloads": [down("alone"), down("picky")], "budgetsKnown": true})
    );
    assert_eq!((harms.len(), &harms[1]["reason"]), (2, &json!("KeepsReturning")), "{harms:#?}");
    let lists: Vec<Entry> = sandbox.requests().all().into_iter().filter(lists).skip(before).collect();
    let all = lists.iter().filter(|entry| {
        entry.field_selector.is_empty() && entry.label_selector.is_empty() && entry.namespace.is_empty()
    });
    assert_eq!(all.count(), 1, "one to count the pods");
    assert!(lists.len() < 60, "{}", lists.len());
}
