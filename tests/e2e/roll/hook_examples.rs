//! The Jobs in `docs/how-to/hook-examples.md`, as far as a sandbox can try them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube_sandbox::controllers::kubelet::annotations::RUN_FOR;
use nm_tests::cluster::Cluster;
use nm_tests::files::{repository, temp_file};
use nm_tests::programs::plugin;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, pool};

/// The files of the page by name: the documents of each.
fn files() -> BTreeMap<String, Vec<Value>> {
    let page = std::fs::read_to_string(repository().join("docs/how-to/hook-examples.md")).unwrap();
    let blocks = page.split("<!-- file: ").skip(1).map(|rest| {
        let (name, rest) = rest.split_once(" -->\n```yaml\n").unwrap();
        let (text, _) = rest.split_once("\n```\n").unwrap();
        let documents = text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap());
        (name.to_owned(), documents.collect())
    });
    blocks.collect()
}

/// The files that contain a Job.
fn jobs() -> BTreeMap<String, Value> {
    let jobs = files().into_iter().filter_map(|(name, documents)| {
        let [job] = documents.try_into().ok()?;
        Some((name, job))
    });
    jobs.collect()
}

async fn create_namespaces(cluster: &Cluster, jobs: &BTreeMap<String, Value>) {
    let names: BTreeSet<&str> =
        jobs.values().filter_map(|job| job["metadata"]["namespace"].as_str()).collect();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    for name in names {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &object).await.unwrap();
    }
}

#[test]
fn every_job_of_the_examples_uses_a_service_account_of_the_page_that_has_permissions() {
    let files = files();
    let objects = &files["roll-hooks.yaml"];
    let kinds: Vec<&str> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"]);
    let account = &objects[1]["metadata"];
    let subject =
        json!({"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]});
    assert_eq!(objects[3]["subjects"], json!([subject]));
    assert_eq!(objects[3]["roleRef"]["name"], objects[2]["metadata"]["name"]);
    for (name, job) in jobs() {
        let pod = &job["spec"]["template"]["spec"];
        let text = pod.to_string();
        let script = pod["containers"][0]["args"].to_string();
        assert!(!script.contains("{}"), "{name}: a roll replaces {{}} by the name of the node");
        if text.contains("kubectl get") {
            let given = (&pod["serviceAccountName"], &job["metadata"]["namespace"]);
            assert_eq!(given, (&account["name"], &account["namespace"]), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_the_examples_are_accepted_before_a_drain_and_before_a_return() {
    let cluster = Cluster::start(1).await;
    if cluster.sandbox().is_none() {
        return;
    }
    let node = cluster.nodes().await.remove(0);
    let jobs = jobs();
    assert_eq!(jobs.len(), 7, "{:?}", jobs.keys());
    create_namespaces(&cluster, &jobs).await;
    for (name, job) in &jobs {
        let file = temp_file(job.to_string());
        let file = file.path().to_str().unwrap();
        let args = ["roll", &node, "--run", "true", "--before-job", file, "--after-job", file, "--dry-run"];
        let shown = plugin(&cluster, &args).await;
        assert_eq!(shown.code, Some(0), "{name}: {shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_an_example_run_before_the_drain_and_before_the_return() {
    let (cluster, nodes, _reconciler) = pool(1).await;
    if cluster.sandbox().is_none() {
        return;
    }
    let jobs = jobs();
    create_namespaces(&cluster, &jobs).await;
    let file = |name: &str| {
        let mut job = jobs[name].clone();
        // The simulated kubelets run no containers.
        job["spec"]["template"]["metadata"] = json!({"annotations": {RUN_FOR: "100ms"}});
        temp_file(job.to_string())
    };
    let (before, after) = (file("shards-leave.yaml"), file("shards-return.yaml"));
    let [before, after] = [&before, &after].map(|file| file.path().to_str().unwrap());
    let flags = ["--before-job", before, "--run", "true", "--after-job", after];
    let mut roll = RunningRoll::begin(&cluster, "example", &nodes, &flags);
    roll.is_done(1).await;
    let steps = roll.steps(&nodes[0]);
    assert!(steps.contains(&"Preparing") && steps.contains(&"Finishing"), "{steps:?}");
}
