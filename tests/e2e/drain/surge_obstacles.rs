//! What keeps a pod from being replaced first, and what changes that.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::request_log::Entry;
use nm_shared::{BlockedPod, SurgeObstacle};
use nm_tests::cluster::Cluster;
use nm_tests::endpoints::{EndpointProbe, serve};
use nm_tests::maintenance::{start_with_drain, stop, until_drained_without_errors, until_status};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, node_of, pod_spec, schedule_beside};
use serde_json::json;

use crate::drain::surge::{patch_web, surge, templates};

async fn until_obstacle(cluster: &Cluster, name: &str, obstacle: SurgeObstacle) -> BlockedPod {
    let is_it = |pod: &&BlockedPod| pod.facts.surge.as_ref().map(|surge| surge.reason) == Some(obstacle);
    let what = format!("no surge: {}", obstacle.as_str());
    let status =
        until_status(cluster, name, &what, |status| status.blocked_pods.iter().any(|pod| is_it(&pod))).await;
    status.blocked_pods.iter().find(is_it).unwrap().clone()
}

/// A deployment `web` of one pod behind a budget, and its node.
async fn web(workload: &Workload) -> String {
    node_of(&workload.pod_behind_budget("web").await).to_owned()
}

/// Watches the endpoints of a Service of `web`.
async fn probe(cluster: &Cluster, workload: &Workload) -> EndpointProbe {
    serve(&cluster.client, workload.namespace(), "web").await;
    EndpointProbe::start(&cluster.client, workload.namespace(), "web", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_access_to_deployments_is_reported_until_it_is_granted() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "no-surge").await;
    let node = web(&workload).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-no-surge", &node, surge()).await;
    let pod = until_obstacle(&cluster, "e2e-no-surge", SurgeObstacle::Forbidden).await;
    assert_eq!(pod.facts.forbidden.unwrap().resource, "replicasets");
    for part in ["cannot get resource \"replicasets\"", "components/surge", "--grant surge"] {
        assert!(pod.message.contains(part), "{part} in {}", pod.message);
    }
    let explained = plugin(&cluster, &["explain", &node]).await;
    assert!(explained.stdout.contains("kubectl nm install --grant surge"), "{explained:?}");
    cluster.grant("surge").await;
    until_drained_without_errors(&cluster, "e2e-no-surge").await;
    stop(&cluster, "e2e-no-surge").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn access_that_was_missing_does_not_hide_that_no_deployment_controls_the_pod() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "bare").await;
    workload.replica_set_of("bare", 1, &pod_spec()).await;
    workload.budget("bare", 1).await;
    let pod = workload.until_running("bare", 1).await.remove(0);
    let node = node_of(&pod).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-bare", &node, surge()).await;
    until_obstacle(&cluster, "e2e-bare", SurgeObstacle::Forbidden).await;
    cluster.grant("surge").await;
    let pod = until_obstacle(&cluster, "e2e-bare", SurgeObstacle::NoDeployment).await;
    assert!(pod.message.contains("ReplicaSet bare controls this pod"), "{}", pod.message);
    let explained = plugin(&cluster, &["explain", &node]).await;
    assert!(explained.stdout.contains("ReplicaSet bare controls this pod"), "{explained:?}");
    assert!(!explained.stdout.contains("--grant surge"), "it is granted: {explained:?}");
    workload.delete_budget("bare").await;
    until_drained_without_errors(&cluster, "e2e-bare").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_deployment_is_named_and_surges_once_it_is_resumed() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "paused").await;
    let node = web(&workload).await;
    let probe = probe(&cluster, &workload).await;
    patch_web(&workload, json!({"spec": {"paused": true}})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-paused", &node, surge()).await;
    let pod = until_obstacle(&cluster, "e2e-paused", SurgeObstacle::Paused).await;
    assert!(pod.message.contains("Deployment web is paused"), "{}", pod.message);
    let explained = plugin(&cluster, &["explain", &node]).await;
    assert!(explained.stdout.contains("rollout resume deployment/web"), "{explained:?}");
    patch_web(&workload, json!({"spec": {"paused": false}})).await;
    until_drained_without_errors(&cluster, "e2e-paused").await;
    assert_eq!(probe.without(), (Duration::ZERO, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_quota_is_named_and_the_pod_surges_once_it_is_raised() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "quota").await;
    let node = web(&workload).await;
    let probe = probe(&cluster, &workload).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client.clone(), workload.namespace());
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-quota", &node, surge()).await;
    let pod = until_obstacle(&cluster, "e2e-quota", SurgeObstacle::CreationFailed).await;
    assert!(pod.message.contains("exceeded quota: few"), "{}", pod.message);
    quotas.delete("few", &DeleteParams::default()).await.unwrap();
    // A ReplicaSet is tried again after minutes, or when it changes.
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client.clone(), workload.namespace());
    for set in sets.list_metadata(&ListParams::default()).await.unwrap() {
        let changed = Patch::Merge(json!({"metadata": {"annotations": {"e2e": "changed"}}}));
        sets.patch(&set.name_any(), &PatchParams::default(), &changed).await.unwrap();
    }
    until_drained_without_errors(&cluster, "e2e-quota").await;
    assert_eq!(probe.without(), (Duration::ZERO, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_exceeds_its_deadline_is_named_until_it_ends() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "stalled").await;
    let node = web(&workload).await;
    let probe = probe(&cluster, &workload).await;
    patch_web(&workload, json!({"spec": {"progressDeadlineSeconds": 1}})).await;
    schedule_beside(&cluster, &node, false).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-stalled", &node, surge()).await;
    let pod = until_obstacle(&cluster, "e2e-stalled", SurgeObstacle::Stalled).await;
    assert!(pod.message.contains("exceeded its deadline"), "{}", pod.message);
    let explained = plugin(&cluster, &["explain", &node]).await;
    assert!(explained.stdout.contains("describe deployment/web"), "{explained:?}");
    schedule_beside(&cluster, &node, true).await;
    until_drained_without_errors(&cluster, "e2e-stalled").await;
    assert_eq!(probe.without(), (Duration::ZERO, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_cannot_surge_stays_blocked_and_explain_says_what_would_change_that() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "strategy").await;
    let node = web(&workload).await;
    let recreate = json!({"type": "Recreate", "rollingUpdate": null});
    let rolling = |surge: i32, unavailable: i32| {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        json!({"type": "RollingUpdate", "rollingUpdate": rolling})
    };
    let cases = [
        (recreate, SurgeObstacle::Recreate, "use a rolling update with maxSurge 1 and maxUnavailable 0"),
        (rolling(0, 1), SurgeObstacle::NoSurge, "If the Deployment may run one pod more than its replicas"),
        (rolling(1, 1), SurgeObstacle::Unavailable, "terminates no pod before the replacement is Ready"),
    ];
    patch_web(&workload, json!({"spec": {"strategy": cases[0].0}})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-strategy", &node, surge()).await;
    for (strategy, obstacle, remedy) in cases {
        patch_web(&workload, json!({"spec": {"strategy": strategy}})).await;
        until_obstacle(&cluster, "e2e-strategy", obstacle).await;
        let explained = plugin(&cluster, &["explain", &node]).await;
        assert!(explained.stdout.contains(remedy), "{remedy} in {explained:?}");
        let command = explained.stdout.lines().find(|line| line.contains("kubectl -n")).unwrap().trim();
        assert!(command.contains("patch --type=merge") && command.ends_with("deployment/web"), "{command}");
    }
    patch_web(&workload, json!({"spec": {"strategy": rolling(1, 0)}})).await;
    until_drained_without_errors(&cluster, "e2e-strategy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_whose_pods_keep_each_replacement_off_all_nodes_is_not_restarted() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "apart").await;
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    let mut spec = pod_spec();
    spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    workload.deployment_of("web", 2, &spec).await;
    workload.budget("web", 2).await;
    let pods = workload.until_running("web", 2).await;
    let node = node_of(&pods[0]);
    assert_ne!(node, node_of(&pods[1]));
    let _reconciler = Reconciler::start(&cluster);
    let planned = plugin(&cluster, &["plan", node, "--surge"]).await;
    assert!(planned.stdout.contains("must be on different nodes"), "{planned:?}");
    start_with_drain(&cluster, "e2e-apart", node, surge()).await;
    let pod = until_obstacle(&cluster, "e2e-apart", SurgeObstacle::KeptApart).await;
    assert!(pod.message.contains("must be on different nodes"), "{}", pod.message);
    let explained = plugin(&cluster, &["explain", node]).await;
    for part in ["must be on different nodes", "Set minAvailable to 1"] {
        assert!(explained.stdout.contains(part), "{part} in {explained:?}");
    }
    assert_eq!(templates(&cluster, &workload).await, 1, "it was not restarted");
    workload.delete_budget("web").await;
    until_drained_without_errors(&cluster, "e2e-apart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_stateful_set_stays_blocked() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "stateful").await;
    workload.stateful_set_of("db", 1, &pod_spec()).await;
    workload.budget("db", 1).await;
    let drained = workload.until_running("db", 1).await.remove(0);
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-stateful", node_of(&drained), surge()).await;
    let pod = until_obstacle(&cluster, "e2e-stateful", SurgeObstacle::NoDeployment).await;
    assert!(pod.message.contains("StatefulSet db controls this pod"), "{}", pod.message);
    let explained = plugin(&cluster, &["explain", node_of(&drained)]).await;
    for part in ["StatefulSet db controls this pod", "Agree on a time with the owner", "edit pdb db"] {
        assert!(explained.stdout.contains(part), "{part} in {explained:?}");
    }
    workload.delete_budget("db").await;
    until_drained_without_errors(&cluster, "e2e-stateful").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_somebody_undoes_is_not_repeated() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "undone").await;
    let node = web(&workload).await;
    // So that there is time to undo the restart.
    schedule_beside(&cluster, &node, false).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-undone", &node, surge()).await;
    until_status(&cluster, "e2e-undone", "it is replaced", |status| {
        status.surging_pods.iter().flatten().any(|pod| pod.replacement.is_some())
    })
    .await;
    let undone = json!({"spec": {"template": {"metadata": {"annotations": null}}}});
    patch_web(&workload, undone).await;
    let pod = until_obstacle(&cluster, "e2e-undone", SurgeObstacle::RolledBack).await;
    assert!(pod.message.contains("was undone"), "{}", pod.message);
    let restarts = || {
        let log = cluster.sandbox()?.requests();
        let is_restart = |request: &Entry| {
            request.resource == "deployments"
                && request.verb == "patch"
                && request.user_agent.starts_with("nm-reconciler/")
        };
        Some(log.count(is_restart))
    };
    // Another restart would be of another time, and so of another template.
    assert_eq!(templates(&cluster, &workload).await, 2);
    assert!(restarts().is_none_or(|restarts| restarts == 1), "{:?}", restarts());
    schedule_beside(&cluster, &node, true).await;
    // By hand, it has the same effect.
    let by_hand = json!({"kubectl.kubernetes.io/restartedAt": "by hand"});
    patch_web(&workload, json!({"spec": {"template": {"metadata": {"annotations": by_hand}}}})).await;
    until_drained_without_errors(&cluster, "e2e-undone").await;
    assert_eq!(templates(&cluster, &workload).await, 3);
    assert!(restarts().is_none_or(|restarts| restarts == 1), "{:?}", restarts());
}
