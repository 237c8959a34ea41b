//! The order of what happens, compared with what the controllers of KubeVirt did beside a real control plane. There, a
//! kubelet took 0.2 s to start a pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::registry::{DeleteOptions, Part};
use crate::cluster::store::{Key, Object};
use crate::controllers::engine::test_cluster::TestCluster;
use crate::http::Api;
use crate::kubevirt::{
    CONTROLLER_DOWN, KUBEVIRTS, MIGRATIONS, NAMESPACE, UNSCHEDULABLE_TIMEOUT, VMIS, Vmi, install,
};
use crate::model::pod;

const NODE: &str = "node-01";

/// The phases of a migration that succeeds.
const SUCCEEDS: [&str; 7] =
    ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"];

struct Timeline {
    test: TestCluster,
    api: Arc<Api>,
    began: Timestamp,
    names: Vec<String>,
}

impl Timeline {
    /// Three nodes, and running machines on the first.
    async fn with(vmis: Vec<Vmi>, migration: u64) -> Self {
        let mut test = TestCluster::new(3);
        install(&test.cluster.clone(), &mut test.controllers, Duration::from_secs(migration)).unwrap();
        for other in ["node-02", "node-03"] {
            test.edit(&NODES, &Key::cluster(other), Part::Main, |node| {
                node["spec"]["unschedulable"] = json!(true);
            });
        }
        let made: Vec<Object> = vmis.iter().map(|vmi| vmi.create(&test.cluster).unwrap()).collect();
        let names: Vec<String> = made.iter().map(|vmi| pod::name(vmi).to_owned()).collect();
        test.until("they run", |state| {
            let mut found =
                names.iter().map(|name| state.get(&VMIS, &Key::new("ns", name.as_str())).unwrap());
            found.all(|vmi| vmi["status"]["nodeName"] == NODE)
        })
        .await;
        let timeline =
            Self { api: Api::new(test.cluster.clone()), began: test.cluster.clock.now(), names, test };
        timeline.allow_others(true);
        timeline
    }

    fn allow_others(&self, allowed: bool) {
        for other in ["node-02", "node-03"] {
            self.test.edit(&NODES, &Key::cluster(other), Part::Main, |node| {
                node["spec"]["unschedulable"] = json!(!allowed);
            });
        }
    }

    fn set(&self, change: impl FnOnce(&mut Value)) {
        self.test.edit(&KUBEVIRTS, &Key::new(NAMESPACE, "kubevirt"), Part::Main, change);
    }

    fn vmi(&self, name: &str) -> Object {
        self.test.get(&VMIS, &Key::new("ns", name)).unwrap()
    }

    async fn request(&self, method: &str, path: &str, body: &Value) -> u16 {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.api.admin_token()))
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()));
        self.api.answer(request.unwrap()).await.into_parts().0.status.as_u16()
    }

    /// Evicts the pods of all machines on the first node.
    async fn evict_all(&self) {
        self.evict_all_of(NODE).await;
    }

    /// Evicts the pods of all machines on a node, and returns the answers.
    async fn evict_all_of(&self, node: &str) -> Vec<u16> {
        let mut answers = Vec::new();
        for pod in self.launchers().iter().filter(|pod| pod::node(pod) == Some(node)) {
            answers.push(self.evict(pod::name(pod)).await);
        }
        answers
    }

    async fn evict(&self, pod: &str) -> u16 {
        let path = format!("/api/v1/namespaces/ns/pods/{pod}/eviction");
        self.request("POST", &path, &json!({"metadata": {"name": pod}})).await
    }

    async fn cancel(&self, name: &str) -> u16 {
        let group = "/apis/subresources.kubevirt.io/v1/namespaces/ns";
        let path = format!("{group}/virtualmachineinstances/{name}/evacuate/cancel");
        self.request("PUT", &path, &json!({"evacuationNodeName": NODE})).await
    }

    fn launchers(&self) -> Vec<Object> {
        self.test.read(|state| state.list(&PODS, Some("ns")).collect())
    }

    fn migrations(&self) -> Vec<Object> {
        self.test.read(|state| state.list(&MIGRATIONS, Some("ns")).collect())
    }

    fn migrations_in(&self, phase: &str) -> Vec<Object> {
        self.migrations().into_iter().filter(|job| job["status"]["phase"] == phase).collect()
    }

    /// The phases of the migrations of each machine, with the seconds since the beginning.
    fn phases(&self) -> BTreeMap<String, Vec<(String, i64)>> {
        let mut phases: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
        let mut jobs = self.migrations();
        jobs.sort_by_cached_key(|job| job["metadata"]["creationTimestamp"].to_string());
        for job in jobs {
            let of = phases.entry(job["spec"]["vmiName"].as_str().unwrap().to_owned()).or_default();
            for entry in job["status"]["phaseTransitionTimestamps"].as_array().unwrap() {
                let at: Timestamp = entry["phaseTransitionTimestamp"].as_str().unwrap().parse().unwrap();
                let after = at.duration_since(self.began).as_secs_f64().round();
                #[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
                of.push((entry["phase"].as_str().unwrap().to_owned(), after as i64));
            }
        }
        phases
    }

    fn nodes(&self) -> Vec<String> {
        self.names
            .iter()
            .map(|name| self.vmi(name)["status"]["nodeName"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn names(phases: &[(String, i64)]) -> Vec<&str> {
    phases.iter().map(|(phase, _)| phase.as_str()).collect()
}

fn lm(name: &str) -> Vmi {
    Vmi::new("ns", name)
}

#[tokio::test(start_paused = true)]
async fn t1_two_machines_leave_within_the_limit_of_their_node() {
    let timeline = Timeline::with(vec![lm("a"), lm("b")], 3).await;
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_millis(100)).await;
    assert_eq!(timeline.migrations().len(), 2, "within 0.3 s");
    for job in timeline.migrations() {
        assert_eq!(job["spec"]["priority"], "system-critical");
        assert_eq!(pod::annotation(&job, "kubevirt.io/evacuationMigration"), Some(NODE));
        assert_eq!(
            timeline.vmi(job["spec"]["vmiName"].as_str().unwrap())["status"]["migrationState"],
            json!(null)
        );
    }
    let handed_over = |vmi: &Value| vmi["status"]["migrationState"]["targetNode"].is_string();
    timeline.test.until("handed over", |state| state.list(&VMIS, None).any(|vmi| handed_over(&vmi))).await;
    let started = |vmi: &Value| vmi["status"]["migrationState"]["startTimestamp"].is_string();
    assert!(!timeline.names.iter().any(|name| started(&timeline.vmi(name))), "memory is copied later");
    timeline.test.pass(Duration::from_secs(6)).await;
    for phases in timeline.phases().values() {
        assert_eq!(names(phases), SUCCEEDS);
    }
    assert!(timeline.nodes().iter().all(|node| node != NODE));
    for name in &timeline.names {
        assert!(timeline.vmi(name)["status"]["evacuationNodeName"].is_null());
    }
    let ended = timeline.launchers().into_iter().filter(|pod| pod::phase(pod) == "Succeeded").count();
    assert_eq!(ended, 2, "the source pods");
}

#[tokio::test(start_paused = true)]
async fn t2_strategies_decide_who_migrates() {
    let vmis = vec![
        lm("external").strategy("External"),
        lm("possible").strategy("LiveMigrateIfPossible"),
        lm("impossible").strategy("LiveMigrateIfPossible").not_migratable(),
        lm("stays").not_migratable(),
        lm("plain").strategy("None"),
    ];
    let timeline = Timeline::with(vmis, 3).await;
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(30)).await;
    assert_eq!(timeline.phases().keys().collect::<Vec<_>>(), ["possible"]);
    let mark = |name: &str| timeline.vmi(name)["status"]["evacuationNodeName"].clone();
    assert_eq!((mark("external"), mark("stays"), mark("plain")), (json!(NODE), json!(null), json!(null)));
    let evicted: Vec<String> = timeline
        .launchers()
        .iter()
        .filter(|pod| pod::node(pod) == Some(NODE))
        .map(|pod| pod["metadata"]["annotations"]["kubevirt.io/domain"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        !evicted.contains(&"plain".to_owned()) && !evicted.contains(&"impossible".to_owned()),
        "{evicted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn t3_machines_in_the_queue_leave_although_their_marks_are_gone() {
    let timeline = Timeline::with(vec![lm("a"), lm("b"), lm("c")], 15).await;
    timeline.set(|it| it["spec"]["configuration"]["migrations"]["parallelMigrationsPerCluster"] = json!(1));
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(8)).await;
    assert_eq!(timeline.migrations_in("Pending").len(), 2);
    for name in &timeline.names {
        assert_eq!(timeline.cancel(name).await, 200);
    }
    timeline.test.pass(Duration::from_secs(50)).await;
    assert!(timeline.nodes().iter().all(|node| node != NODE));
    let mut begins: Vec<i64> = timeline.phases().values().map(|phases| phases[5].1).collect();
    begins.sort_unstable();
    assert!(begins[1] - begins[0] >= 15 && begins[2] - begins[1] >= 15, "one after the other: {begins:?}");
}

#[tokio::test(start_paused = true)]
async fn t4_a_failed_migration_is_retried_after_a_backoff_that_doubles() {
    let reason = "Live migration failed error encountered during MigrateToURI3 libvirt api call";
    let timeline = Timeline::with(vec![lm("a").migration_fails(reason)], 3).await;
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(40)).await;
    let state = timeline.vmi("a")["status"]["migrationState"].clone();
    assert_eq!(
        (&state["failed"], &state["completed"], &state["failureReason"]),
        (&json!(true), &json!(true), &json!(reason))
    );
    timeline
        .test
        .edit(&VMIS, &Key::new("ns", "a"), Part::Main, |vmi| vmi["metadata"]["annotations"] = json!({}));
    timeline.test.pass(Duration::from_secs(60)).await;
    let phases = timeline.phases().remove("a").unwrap();
    let fails = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Failed"];
    assert_eq!(names(&phases), [fails, fails, SUCCEEDS].concat());
    let at =
        |phase: &str| phases.iter().filter(|entry| entry.0 == phase).map(|entry| entry.1).collect::<Vec<_>>();
    let (failed, scheduled, pending) = (at("Failed"), at("Scheduling"), at("Pending"));
    assert!(
        pending[1] - failed[0] <= 1 && pending[2] - failed[1] <= 1,
        "the next one waits at once: {phases:?}"
    );
    assert!((20..=21).contains(&(scheduled[1] - failed[0])), "{phases:?}");
    assert!((40..=41).contains(&(scheduled[2] - failed[1])), "{phases:?}");
}

#[tokio::test(start_paused = true)]
async fn t5_without_a_place_to_go_migrations_fail_before_anything_is_in_the_instance() {
    let timeline = Timeline::with(vec![lm("a")], 3).await;
    timeline.set(|it| it["metadata"]["annotations"] = json!({UNSCHEDULABLE_TIMEOUT: "12"}));
    timeline.allow_others(false);
    timeline.test.cordon(NODE);
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(46)).await;
    let phases = timeline.phases().remove("a").unwrap();
    let fails = ["Pending", "Scheduling", "Failed"];
    assert_eq!(names(&phases), [&fails[..], &fails[..], &["Pending"]].concat());
    assert!((12..=13).contains(&(phases[2].1 - phases[1].1)), "{phases:?}");
    assert_eq!(timeline.vmi("a")["status"]["migrationState"], json!(null));
    assert_eq!(timeline.cancel("a").await, 200);
    timeline.allow_others(true);
    timeline.test.pass(Duration::from_secs(50)).await;
    assert_ne!(timeline.nodes(), [NODE], "it leaves although the mark is gone");
}

#[tokio::test(start_paused = true)]
async fn t6_without_virt_controller_a_marked_machine_stays() {
    let timeline = Timeline::with(vec![lm("a")], 3).await;
    timeline.set(|it| it["metadata"]["annotations"] = json!({CONTROLLER_DOWN: "true"}));
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(600)).await;
    assert_eq!(timeline.vmi("a")["status"]["evacuationNodeName"], NODE);
    assert_eq!(timeline.migrations().len(), 0);
    timeline.set(|it| it["metadata"]["annotations"] = json!({}));
    timeline.test.pass(Duration::from_secs(10)).await;
    assert_ne!(timeline.nodes(), [NODE]);
}

#[tokio::test(start_paused = true)]
async fn t8_machines_that_arrive_at_a_second_node_leave_it_once_they_are_there() {
    let timeline = Timeline::with(vec![lm("a"), lm("b")], 15).await;
    timeline.test.cordon(NODE);
    timeline.test.cordon("node-03");
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(5)).await;
    timeline.test.cordon("node-02");
    assert_eq!(timeline.evict_all_of("node-02").await, [429, 429], "target pods");
    assert_eq!(timeline.migrations().len(), 2, "nobody evacuates them yet");
    timeline.test.pass(Duration::from_secs(20)).await;
    assert_eq!(timeline.nodes(), ["node-02", "node-02"]);
    timeline.test.edit(&NODES, &Key::cluster("node-03"), Part::Main, |node| {
        node["spec"]["unschedulable"] = json!(false);
    });
    assert_eq!(timeline.evict_all_of("node-02").await, [429, 429]);
    timeline.test.pass(Duration::from_secs(25)).await;
    assert_eq!(timeline.nodes(), ["node-03", "node-03"]);
    for phases in timeline.phases().values() {
        assert_eq!(names(phases), [SUCCEEDS, SUCCEEDS].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn t9_the_pod_of_a_disk_is_not_evicted_and_its_deletion_does_not_end_the_migration() {
    let timeline = Timeline::with(vec![lm("a")], 15).await;
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(3)).await;
    let launcher = timeline.launchers().into_iter().find(|pod| pod::node(pod) == Some(NODE)).unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod::name(&launcher),
        "uid": launcher["metadata"]["uid"], "controller": true});
    let disk = json!({
        "metadata": {"namespace": "ns", "name": "hp-volume-x", "labels": {"kubevirt.io": "hotplug-disk"},
            "ownerReferences": [owner]},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "x"}]},
    });
    timeline.test.create(&PODS, disk);
    let key = Key::new("ns", "hp-volume-x");
    assert_eq!(timeline.evict("hp-volume-x").await, 429);
    timeline.test.delete(&PODS, &key, &DeleteOptions::default());
    timeline.test.pass(Duration::from_secs(20)).await;
    assert_eq!(names(&timeline.phases()["a"]), SUCCEEDS);
    assert!(timeline.test.get(&PODS, &key).is_none());
}

#[tokio::test(start_paused = true)]
async fn t10_without_its_mark_a_machine_stays_that_is_left_to_others() {
    let timeline = Timeline::with(vec![lm("a"), lm("external").strategy("External")], 15).await;
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(6)).await;
    let mark = |name: &str| timeline.vmi(name)["status"]["evacuationNodeName"].clone();
    assert_eq!((mark("a"), mark("external")), (json!(NODE), json!(NODE)));
    for name in &timeline.names {
        assert_eq!(timeline.cancel(name).await, 200);
        assert_eq!(mark(name), json!(null));
    }
    timeline.test.pass(Duration::from_secs(30)).await;
    let nodes = timeline.nodes();
    assert!(nodes[0] != NODE && nodes[1] == NODE, "{nodes:?}");
}

#[tokio::test(start_paused = true)]
async fn t11_a_migration_that_is_deleted_before_it_begins_keeps_the_machine() {
    let timeline = Timeline::with(vec![lm("a"), lm("b"), lm("c")], 10).await;
    timeline.set(|it| it["spec"]["configuration"]["migrations"]["parallelMigrationsPerCluster"] = json!(1));
    timeline.evict_all().await;
    timeline.test.pass(Duration::from_secs(4)).await;
    for name in &timeline.names {
        assert_eq!(timeline.cancel(name).await, 200);
    }
    for job in timeline.migrations_in("Pending") {
        timeline.test.delete(&MIGRATIONS, &Key::of(&job), &DeleteOptions::default());
    }
    timeline.test.pass(Duration::from_secs(30)).await;
    assert_eq!(timeline.migrations().len(), 1, "the others are gone");
    assert_eq!(timeline.nodes().iter().filter(|node| **node == NODE).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn t11_the_taint_of_a_drain_evacuates_and_forbids_to_cancel() {
    let timeline = Timeline::with(vec![lm("a")], 3600).await;
    let taint = json!([{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]);
    timeline.test.edit(&NODES, &Key::cluster(NODE), Part::Main, |node| node["spec"]["taints"] = taint);
    timeline.test.pass(Duration::from_secs(2)).await;
    assert_eq!(timeline.migrations_in("Running").len(), 1);
    assert_eq!(timeline.cancel("a").await, 400);
}

#[tokio::test(start_paused = true)]
async fn t12_an_arriving_machine_is_refused_as_a_target() {
    let timeline = Timeline::with(vec![lm("a")], 20).await;
    let manual = json!({"metadata": {"namespace": "ns", "name": "manual"}, "spec": {"vmiName": "a"}});
    timeline.test.create(&MIGRATIONS, manual);
    timeline.test.pass(Duration::from_secs(3)).await;
    assert_eq!(timeline.migrations_in("Running").len(), 1);
    let target = timeline.launchers().into_iter().find(|pod| pod::node(pod) != Some(NODE)).unwrap();
    // t13: without its target pod the migration fails, and the machine stays.
    timeline.test.delete(&PODS, &Key::of(&target), &DeleteOptions::default());
    timeline.test.pass(Duration::from_secs(5)).await;
    let state = timeline.vmi("a")["status"]["migrationState"].clone();
    assert_eq!(state["failureReason"], "Target pod is down");
    assert_eq!(timeline.nodes(), [NODE]);
    assert_eq!(timeline.migrations().len(), 1, "nobody evacuates it");
}
