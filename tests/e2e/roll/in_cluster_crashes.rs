//! Rolls in the cluster whose programs crash, whose control plane is away, and that are under way during an upgrade.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_tests::cluster::{Cluster, has_sandbox};
use nm_tests::maintenance::until_gone;
use nm_tests::pool_roll::{Builds, Crash, Pool, roll};
use nm_tests::programs::{plugin, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::runner_pods::{NAMESPACE, RunnerPods};
use nm_tests::webhook::serve_installed_webhook;

use super::in_cluster::{action, action_pod, begin, end_action, until_complete};

/// The image of the pods of a Job.
fn image_of(job: &Job) -> String {
    let spec = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    spec.containers[0].image.clone().unwrap()
}

fn builds() -> Builds {
    Builds { plugin: program("kubectl-nm"), reconciler: program("nm-reconciler") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_in_the_cluster_handles_no_node_twice_whatever_crashes() {
    if !has_sandbox("the API server is killed") {
        return;
    }
    let away = Duration::from_secs(2);
    let crashes = [Crash::Runner, Crash::Reconciler, Crash::ApiServer(away), Crash::All(away)];
    let pool = Pool { nodes: 40, pods_per_node: 4, wave: 10 };
    let cost = roll(&builds(), pool, &crashes).await;
    assert!(cost.runner_pods > 2, "{cost:?}");
}

/// Prints the rows of a table of `docs/performance.md`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of minutes: a pool of 500 nodes, or NM_POOL_NODES, is rolled twice"]
async fn the_cost_of_a_roll_in_the_cluster_undisturbed_and_with_crashes() {
    let number =
        |name: &str, default: usize| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let nodes = number("NM_POOL_NODES", 500);
    let pool = Pool { nodes, pods_per_node: number("NM_POOL_PODS", 10), wave: nodes.div_ceil(20) };
    let away = Duration::from_secs(5);
    let crashes =
        [Crash::Runner, Crash::Reconciler, Crash::ApiServer(away), Crash::All(away), Crash::All(away)];
    let mut moves = Vec::new();
    for (name, crashes) in [("undisturbed", &[][..]), ("with crashes", &crashes)] {
        let cost = roll(&builds(), pool, crashes).await;
        eprintln!("{}\n{:?}", cost.row(name, pool), cost.runner_requests);
        moves.push(cost.moves);
    }
    assert!(moves[1] * 50 <= moves[0] * 51, "{moves:?}: more than 2% more moves");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as the control plane is away: NM_AWAY_SECONDS, by default 90"]
async fn a_roll_in_the_cluster_waits_for_a_control_plane_that_is_away_for_long() {
    if !has_sandbox("the API server is killed") {
        return;
    }
    let away = std::env::var("NM_AWAY_SECONDS").map_or(90, |seconds| seconds.parse().unwrap());
    let pool = Pool { nodes: 9, pods_per_node: 4, wave: 3 };
    let cost = roll(&builds(), pool, &[Crash::ApiServer(Duration::from_secs(away))]).await;
    eprintln!("{cost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_during_a_roll_in_the_cluster_leaves_the_job_and_its_image_alone() {
    if !has_sandbox("the plugin installs an image that does not exist") {
        return;
    }
    let cluster = Cluster::bare_sandbox(3, 0, |sandbox| sandbox).await;
    let install = async |version: &str| {
        let image = format!("registry.example.com/you/nm-reconciler:{version}");
        let flags = ["install", "--image", &image, "--grant", "roll", "--wait=false"];
        let _ = plugin(&cluster, &flags).await.ok();
        image
    };
    let old = install("0.1.0").await;
    let reconciler = serve_installed_webhook(&cluster, &[]).await;
    let pods = RunnerPods::run(&cluster).await;
    let action = action(false);
    let nodes = cluster.nodes().await;
    let file = action.path().to_str().unwrap();
    let args = [
        "roll",
        &nodes[0],
        &nodes[1],
        "--name",
        "old",
        "--job",
        file,
        "--min-ready",
        "1s",
        "--in-cluster",
        "--yes",
    ];
    let _ = plugin(&cluster, &args).await.ok();
    let first = action_pod(&cluster, &[]).await;
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let before = jobs.get("nm-roll-old").await.unwrap();

    let new = install("0.2.0").await;
    reconciler.crash().await;
    let _reconciler = serve_installed_webhook(&cluster, &[]).await;
    let shown = plugin(&cluster, &["version"]).await.ok();
    assert!(shown.stdout.contains(&new), "{shown:?}");
    let after = jobs.get("nm-roll-old").await.unwrap();
    assert_eq!((after.uid(), image_of(&after)), (before.uid(), old.clone()));
    // The next pod of the Job has the old image too.
    let ran = pods.crash();
    end_action(&cluster, &first, true).await;
    let second = action_pod(&cluster, &[&first]).await;
    end_action(&cluster, &second, true).await;
    until_complete(&cluster, "old").await;
    let after = jobs.get("nm-roll-old").await.unwrap();
    assert_eq!((after.uid(), image_of(&after)), (before.uid(), old));
    assert!(pods.nodes().len() > ran, "another pod of the same Job has continued");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_roll_gets_the_image_that_the_user_names_and_keeps_its_jobs_on_nodes() {
    let cluster = Cluster::start(1).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let pods = RunnerPods::start(&cluster).await;
    let _ = begin(&cluster, "image", &nodes[..1], &action(false)).await.ok();
    let acting = action_pod(&cluster, &[]).await;
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let before = jobs.get("nm-roll-image").await.unwrap();
    for (image, is_replaced) in [("nm:test", false), ("nm:next", true)] {
        let _ = plugin(&cluster, &["roll", "pause", "image"]).await.ok();
        let flags = ["roll", "resume", "image", "--yes", "--runner-image", image];
        let _ = plugin(&cluster, &flags).await.ok();
        let after = jobs.get("nm-roll-image").await.unwrap();
        assert_eq!((image_of(&after).as_str(), after.uid() != before.uid()), (image, is_replaced));
    }
    end_action(&cluster, &acting, true).await;
    until_complete(&cluster, "image").await;
    until_gone(&cluster, &nodes[0]).await;
    assert!(pods.nodes().len() > 1);
    let of_roll = ListParams::default().labels("kubectl-nm.dev/roll=image");
    assert_eq!(jobs.list(&of_roll).await.unwrap().items.len(), 1, "the node was acted on once");
}
