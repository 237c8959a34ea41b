//! The `CronJob` of `docs/how-to/roll-on-a-schedule.md`: its command, with the account and the permissions that the page grants.

use std::path::Path;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube_sandbox::controllers::kubelet::annotations::{REBOOT, RUN_FOR};
use nm_shared::NodeMaintenance;
use nm_tests::cluster::Cluster;
use nm_tests::files::{repository, temp_file};
use nm_tests::in_pod;
use nm_tests::maintenance::{plan, until_gone};
use nm_tests::programs::{Outcome, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::runner_pods::{NAMESPACE, RunnerPods, account};
use nm_tests::wait::in_time;
use nm_tests::workload::{node_of, pod_spec};
use serde_json::{Value, json};

use super::in_cluster::{action_pod, end_action, until_complete};

/// The documents of the page's block with this text.
fn documents(marker: &str) -> Vec<Value> {
    let page = std::fs::read_to_string(repository().join("docs/how-to/roll-on-a-schedule.md")).unwrap();
    let mut blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = blocks.find(|block| block.contains(marker)).unwrap();
    block.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Applies what comes before the `CronJob` of the page, and returns the `CronJob`.
async fn grant(cluster: &Cluster) -> Value {
    let mut granted = documents("kind: CronJob");
    let schedule = granted.pop().unwrap();
    for object in granted {
        cluster.apply(&serde_json::from_value::<DynamicObject>(object).unwrap()).await;
    }
    assert_eq!(schedule["kind"], "CronJob");
    schedule
}

/// Runs the container of a pod of the schedule, in which `job` is mounted, as a program without a kubeconfig.
async fn run(cluster: &Cluster, pod: &Value, job: &Path) -> Outcome {
    let container = &pod["containers"][0];
    let words = ["command", "args"].iter().flat_map(|field| container[field].as_array().unwrap());
    let words: Vec<String> = words.map(|word| word.as_str().unwrap().to_owned()).collect();
    assert_eq!(words[0], "/kubectl-nm");
    let mounted = format!("{}/reboot.yaml", container["volumeMounts"][0]["mountPath"].as_str().unwrap());
    assert_eq!(pod["volumes"][0]["name"], container["volumeMounts"][0]["name"]);
    assert!(words.contains(&mounted), "{words:?}");
    let args =
        words[1..].iter().map(|word| if *word == mounted { job.to_str().unwrap() } else { word.as_str() });
    let account = account(pod["serviceAccountName"].as_str().unwrap());
    in_pod::run(cluster, &account, &program("kubectl-nm"), &args.collect::<Vec<_>>()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cron_job_of_the_guide_starts_a_roll_with_the_permissions_that_the_guide_grants() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "only the nodes of a sandbox reboot on demand").await
    else {
        return;
    };
    if !in_pod::is_possible() {
        return;
    }
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let _pods = RunnerPods::start(&cluster).await;
    let schedule = grant(&cluster).await;
    // The pod of the CronJob is valid.
    let mut job = schedule["spec"]["jobTemplate"].clone();
    job["metadata"] = json!({"name": "reboot-where-needed-1"});
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    jobs.create(&params, &serde_json::from_value(job.clone()).unwrap()).await.unwrap();
    let pod = &job["spec"]["template"]["spec"];

    let reboot = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": {
        "metadata": {"annotations": {RUN_FOR: "1h"}}, "spec": pod_spec(),
    }}});
    let reboot = temp_file(reboot.to_string());
    for node in &nodes {
        cluster.patch_node(node, json!({"metadata": {"labels": {"pool": "blue"}}})).await;
    }
    let nothing = run(&cluster, pod, reboot.path()).await.ok();
    assert_eq!(
        cluster.maintenances().list(&ListParams::default()).await.unwrap().items.len(),
        0,
        "{nothing:?}"
    );

    let mark = |value: Value| json!({"metadata": {"annotations": {"example.com/reboot-required": value}}});
    cluster.patch_node(&nodes[0], mark(json!("true"))).await;
    let begun = run(&cluster, pod, reboot.path()).await.ok();
    let text = begun.stdout;
    let (_, name) = text.rsplit_once("/nm-roll-").unwrap();
    let name = name.trim_end_matches(".\n");
    let action = action_pod(&cluster, &[]).await;

    // The next night: nothing changes.
    let before = state(&cluster, &jobs).await;
    let refused = run(&cluster, pod, reboot.path()).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(name), "{refused:?}");
    assert_eq!(state(&cluster, &jobs).await, before);

    assert_eq!(node_of(&action), nodes[0]);
    cluster.patch_node(&nodes[0], json!({"metadata": {"annotations": {REBOOT: "500ms"}}})).await;
    end_action(&cluster, &action, true).await;
    until_complete(&cluster, name).await;
    until_gone(&cluster, &nodes[0]).await;
    cluster.patch_node(&nodes[0], mark(Value::Null)).await;
    let before = state(&cluster, &jobs).await;
    let _ = run(&cluster, pod, reboot.path()).await.ok();
    assert_eq!(state(&cluster, &jobs).await, before, "no node needs it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_of_the_guide_cannot_stop_a_maintenance_that_is_of_no_roll() {
    let cluster = Cluster::start(1).await;
    cluster.grant("roll").await;
    let _ = grant(&cluster).await;
    plan(&cluster, "theirs", &cluster.nodes().await[0]).await;
    let account = account("nm-roll-schedule");
    let client = nm_tests::cluster::client(&cluster.kubeconfig_of(&account).await).await;
    let maintenances: Api<NodeMaintenance> = Api::all(client);
    // A policy takes effect some time after it was created.
    let refused = async {
        let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
        loop {
            let refused = maintenances.delete("theirs", &dry).await.err().map(|error| error.to_string());
            // Before that, the permissions may not have taken effect either.
            if refused
                .is_some_and(|why| why.contains("may write only the maintenances and the Jobs of rolls"))
            {
                return;
            }
        }
    };
    in_time("the policy takes effect", refused).await;
}

/// The maintenances and the Jobs, without what changes as a roll goes on.
async fn state(cluster: &Cluster, jobs: &Api<Job>) -> (Vec<String>, Vec<String>) {
    let uids = |all: Vec<Option<String>>| all.into_iter().flatten().collect::<Vec<_>>();
    let maintenances = cluster.maintenances().list(&ListParams::default()).await.unwrap();
    let jobs = jobs.list(&ListParams::default()).await.unwrap();
    (
        uids(maintenances.iter().map(ResourceExt::uid).collect()),
        uids(jobs.iter().map(ResourceExt::uid).collect()),
    )
}
