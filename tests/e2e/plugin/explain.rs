//! `kubectl nm explain`: what blocks a node, and what to do about it.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::controllers::kubelet::annotations::IGNORE_TERMINATION;
use nm_shared::cluster::leader_lease;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::programs::{plugin, plugin_of};
use nm_tests::rbac::{MaintenanceAccess, service_account};
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::in_time;
use nm_tests::workload::{Workload, node_of, pod_spec};
use serde_json::json;

/// The output with a placeholder for durations and counts, which differ between runs.
fn timeless(said: &str) -> String {
    let line = |line: &str| match line.split_once(" for ") {
        Some((held, _)) if line.contains("since ") => format!("{held} for LONG"),
        _ => line.to_owned(),
    };
    said.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_shows_what_blocks_a_node_and_the_command_that_unblocks_it() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "explain").await;
    let pod = workload.pod_behind_budget("cart").await;
    let (node, namespace) = (node_of(&pod), workload.namespace());

    plugin(&cluster, &["explain", node]).await.expect(0, &format!("node/{node} is not in maintenance\n"), "");

    let reconciler = Reconciler::start(&cluster);
    start(&cluster, node, node).await;
    let is_blocked = |status: &nm_shared::NodeMaintenanceStatus| status.pod_counts.blocked == 1;
    until_status(&cluster, node, "blocked", is_blocked).await;
    let others =
        until_status(&cluster, node, "alone", |status| status.pending_pods.len() == 1).await.pod_counts.gone;
    let moved = match others {
        0 => String::new(),
        others => format!(", {others} gone"),
    };
    let blocked = plugin(&cluster, &["explain", node]).await;
    assert_eq!((blocked.code, blocked.stderr.as_str()), (Some(3), ""), "{blocked:?}");
    let said = timeless(&blocked.stdout);
    let (first, rest) = said.split_once('\n').unwrap();
    assert!(
        first.starts_with(&format!("node/{node}: Blocked "))
            && first.ends_with(&format!("1 pod remaining (1 blocked){moved}")),
        "{said}"
    );
    let pod = pod.name_any();
    assert_eq!(
        rest,
        format!(
            "\nPDB {namespace}/cart needs 1, has 1.\n\
             The budget can never allow an eviction: minAvailable is 1, and it has 1 pod.\n  \
             Blocks {namespace}/{pod} for LONG\n  \
             Let the Deployment replace its only pod before the pod leaves, if other nodes have room (`kubectl nm plan {node} \
             --surge` shows that); unless it is granted already, this needs \
             `kubectl nm install --grant surge`:\n    \
             kubectl patch nm {node} --type=merge -p '{{\"spec\":{{\"drain\":{{\"surge\":\"WhenBlocked\"}}}}}}'"
        )
    );

    // A user who can read only maintenances learns what could not be read.
    let account = service_account("default", namespace);
    let access = MaintenanceAccess::grant(&cluster, &account).await;
    let limited = plugin_of(&cluster.kubeconfig_of(&account).await, &["explain", node]).await;
    let unseen = format!(
        "\nPDB {namespace}/cart needs 1, has 1.\n  Blocks {namespace}/{pod} for LONG\n  \
         Not known, because you have no permission to get poddisruptionbudgets.policy.\n  \
         A user with permission to read the budget and its pods can find out why the budget allows no eviction:\n    \
         kubectl nm explain {node}"
    );
    assert_eq!(
        (limited.code, timeless(&limited.stdout).split_once('\n').unwrap().1),
        (Some(3), unseen.as_str()),
        "{limited:?}"
    );
    access.revoke(&cluster).await;

    workload.delete_budget("cart").await;
    until_drained(&cluster, node).await;
    let free = plugin(&cluster, &["explain", node]).await;
    assert_eq!(free.code, Some(0), "{free:?}");
    assert!(free.stdout.ends_with("\nNothing is blocked.\n"), "{free:?}");

    stop(&cluster, node).await;
    drop(reconciler);
    start(&cluster, "e2e-explain", node).await;
    let new = plugin(&cluster, &["explain", node]).await;
    let expected = format!(
        "node/{node}: Requested: nm-reconciler has not started the maintenance yet (NodeMaintenance e2e-explain)\n\n\
         nm-reconciler has not started the maintenance yet.\n  Ongoing for LONG\n  \
         This usually takes a moment; if it takes longer, check whether nm-reconciler is running:\n    \
         kubectl get pods -A -l app.kubernetes.io/name=kubectl-nm,app.kubernetes.io/component=reconciler -o wide"
    );
    assert_eq!(timeless(&new.stdout), expected);
    // Whether that counts as blocked depends on how long ago the maintenance was created.
    assert!(matches!(new.code, Some(0 | 3)), "{new:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_a_drain_leaves_without_a_ready_pod_is_reported_and_blocks_nothing() {
    let cluster = Cluster::start(2).await;
    let node = cluster.nodes().await[0].clone();
    let _reconciler = Reconciler::start(&cluster);
    let workload = Workload::new(&cluster, "down").await;
    let mut spec = pod_spec();
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    workload.deployment_of("web", 1, &spec).await;
    workload.until_running("web", 1).await;
    start(&cluster, &node, &node).await;
    until_drained(&cluster, &node).await;
    // The event of the kubelet and the status of the Deployment follow.
    let reported = async {
        loop {
            let said = plugin(&cluster, &["explain", &node]).await.ok();
            if said.stdout.contains("No node is left for the replacement ") {
                return said.stdout;
            }
        }
    };
    let said = in_time("explain reports the workload", reported).await;
    let namespace = workload.namespace();
    let is_down = [
        format!("{namespace}/deploy/web is down: its 1 pod is not ready."),
        format!("1 pod of this workload left {node} during the drain."),
        format!("    kubectl nm stop {node}"),
    ];
    assert!(is_down.iter().all(|wanted| said.lines().any(|line| line == wanted)), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_a_drain_leaves_with_too_few_ready_pods_is_reported() {
    let why = "the pods have to be too large for one of its nodes together";
    let Some(cluster) = Cluster::sandbox_or_skip(2, why).await else { return };
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let all = nodes.list(&ListParams::default()).await.unwrap().items;
    let status = all[0].status.clone().unwrap();
    let cpu = &status.allocatable.unwrap()["cpu"].0;
    let _reconciler = Reconciler::start(&cluster);
    let workload = Workload::new(&cluster, "part").await;
    let mut spec = pod_spec();
    // As much as a node has, if nothing else requests any.
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    workload.deployment_of("web", 2, &spec).await;
    let node = all[0].name_any();
    start(&cluster, &node, &node).await;
    until_drained(&cluster, &node).await;
    // The event of the kubelet and the status of the Deployment follow.
    let reported = async {
        loop {
            let said = plugin(&cluster, &["explain"]).await.ok();
            if said.stdout.contains(" of 2 pods ready.") {
                return said.stdout;
            }
        }
    };
    let said = in_time("explain reports the workload", reported).await;
    let namespace = workload.namespace();
    let lacks = [
        format!("{namespace}/deploy/web has 1 of 2 pods ready."),
        format!("1 pod of this workload left {node} during the drain."),
        format!("    kubectl nm stop {node}"),
    ];
    assert!(lacks.iter().all(|wanted| said.lines().any(|line| line == wanted)), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_whose_reconciler_is_gone_is_blocked() {
    let why = "only a sandbox has pods that use all of their grace";
    let Some(cluster) = Cluster::sandbox_or_skip(1, why).await else { return };
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "explain").await;
    let slow = json!({"metadata": {"annotations": {IGNORE_TERMINATION: "true"}},
        "spec": {"terminationGracePeriodSeconds": 3600}});
    workload.pod_on(node, "slow", slow).await;
    let reconciler = Reconciler::start_with(&cluster, &["--leader-elect"]);
    start(&cluster, node, node).await;
    until_status(&cluster, node, "waits for its pod", |status| status.pod_counts.terminating == 1).await;
    let continuing = plugin(&cluster, &["explain", node]).await.ok();
    let namespace = workload.namespace();
    assert!(
        continuing.stdout.contains(&format!("\n{namespace}/slow is terminating, with ")),
        "{continuing:?}"
    );
    assert!(
        continuing.stdout.ends_with("\nNothing is blocked: the maintenance continues on its own.\n"),
        "{continuing:?}"
    );

    reconciler.crash().await;
    // The lease as it looks some time later.
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "node-maintenance");
    let past = json!({"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}});
    leases.patch(leader_lease::NAME, &PatchParams::default(), &Patch::Merge(past)).await.unwrap();
    let blocked = plugin(&cluster, &["explain", node]).await;
    // Detecting that no replica renews the lease takes some seconds, and is reported as progress.
    assert_eq!((blocked.code, blocked.stderr.as_str()), (Some(3), ""), "{blocked:?}");
    let (_, cause) = blocked.stdout.split_once('\n').unwrap();
    let expected = "\nNo nm-reconciler leads, so the maintenance makes no progress.\n  Ongoing for LONG\n  \
        Check why nm-reconciler is not running: without it, no maintenance starts, continues or ends:\n    \
        kubectl get pods -A -l app.kubernetes.io/name=kubectl-nm,app.kubernetes.io/component=reconciler -o wide";
    // What the drain waited for is another cause.
    assert!(timeless(cause).starts_with(expected), "{cause}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_reconciler_is_not_reported_as_missing_beside_a_lease_without_holder() {
    let why = "only a sandbox has pods that use all of their grace";
    let Some(cluster) = Cluster::sandbox_or_skip(1, why).await else { return };
    let node = &cluster.nodes().await[0];
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "node-maintenance");
    let left = serde_json::from_value(json!({"metadata": {"name": leader_lease::NAME}, "spec": {}})).unwrap();
    leases.create(&PostParams::default(), &left).await.unwrap();
    let workload = Workload::new(&cluster, "explain").await;
    let slow = json!({"metadata": {"annotations": {IGNORE_TERMINATION: "true"}},
        "spec": {"terminationGracePeriodSeconds": 3600}});
    workload.pod_on(node, "slow", slow).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, node, node).await;
    until_status(&cluster, node, "waits for its pod", |status| status.pod_counts.terminating == 1).await;
    let continuing = plugin(&cluster, &["explain", node]).await.ok();
    let expected = "\nNothing is blocked: the maintenance continues as long as nm-reconciler runs.\n";
    assert!(continuing.stdout.ends_with(expected), "{continuing:?}");
    let found = plugin(&cluster, &["doctor", "-o", "json"]).await;
    assert!(!found.stdout.contains("there is no leader: maintenances are neither started"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_node_is_not_blocked() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    start(&cluster, &nodes[0], &nodes[0]).await;
    until_drained(&cluster, &nodes[0]).await;
    start(&cluster, &nodes[1], &nodes[1]).await;
    until_status(&cluster, &nodes[1], "waits", |status| status.phase == Some(nm_shared::Phase::Pending))
        .await;
    let waits = plugin(&cluster, &["explain", &nodes[1]]).await;
    assert_eq!((waits.code, waits.stderr.as_str()), (Some(0), ""), "{waits:?}");
    let expected = format!(
        "node/{}: Queued\n\nPosition 1 of 1 in the queue: 1 of {} nodes are unavailable and the limit is 1.\n  Ongoing for LONG\n  \
         The maintenance starts when other nodes return to service or become Ready; this lists all maintenances:\n    \
         kubectl get nm -o wide",
        nodes[1],
        nodes.len()
    );
    assert_eq!(timeless(&waits.stdout), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_access_and_misspelt_nodes_are_errors() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let typo = format!("{node}x");
    let said = format!("Error from server (NotFound): nodes \"{typo}\" not found; did you mean {node}?\n");
    let watched = ["watch", &typo, "--until", "drained"];
    for args in
        [&["explain", typo.as_str()][..], &["status", &typo], &["status", &typo, "-o", "name"], &watched]
    {
        let wrong = plugin(&cluster, args).await;
        assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(1), ""), "{wrong:?}");
        assert!(wrong.stderr.starts_with(&said), "{wrong:?}");
    }

    let workload = Workload::new(&cluster, "explain").await;
    let nobody = cluster.kubeconfig_of(&service_account("default", workload.namespace())).await;
    let refused = plugin_of(&nobody, &["explain", node]).await;
    let resource = "nodemaintenances.nodemaintenance.medik8s.io";
    let expected = format!(
        "Error from server (Forbidden): {resource} is forbidden: User \"system:serviceaccount:{}:default\" cannot list \
         resource \"nodemaintenances\" in API group \"nodemaintenance.medik8s.io\" at the cluster scope\n\
         hint: you need permission to list {resource}; check it with `kubectl auth can-i list {resource}`\n",
        workload.namespace()
    );
    refused.expect(1, "", &expected);
}
