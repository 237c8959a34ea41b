//! Pods that a drain leaves to terminate on their own, and that may never do that.

use super::*;
use crate::explain::cluster_facts::{FactsToRead, ReadPod};

/// The pod `name` of the Job `job`, with this restart policy.
fn of_job(mut pod: Value, policy: &str) -> Value {
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": true}]);
    pod["metadata"]["ownerReferences"] = owner;
    pod["spec"]["restartPolicy"] = json!(policy);
    pod
}

fn waits(name: &str, reason: &str, policy: &str) -> Value {
    of_job(
        unready(name, "n1", container(json!({"waiting": {"reason": reason, "message": "no"}}), json!({}))),
        policy,
    )
}

/// The causes of a drain that waits for these pods, of whose Job nothing is known.
fn awaiting(pods: &[Value], extra: &Value, edit: impl Fn(&mut NodeMaintenance)) -> Vec<Cause> {
    awaiting_of(pods, None, extra, edit)
}

/// The causes of a drain that waits for these pods of this Job.
fn awaiting_of(
    pods: &[Value],
    job: Option<Value>,
    extra: &Value,
    edit: impl Fn(&mut NodeMaintenance),
) -> Vec<Cause> {
    let of = |pod: &Value| {
        let mut waiting = json!({"namespace": "shop", "name": pod["metadata"]["name"], "reason": "Completing",
            "since": "2026-01-02T03:04:05Z"});
        waiting.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        waiting
    };
    let waiting: Vec<Value> = pods.iter().map(of).collect();
    let mut object = with_status("n1", json!({"phase": "Running", "waitingPods": waiting}));
    edit(&mut object);
    let read = |name: &PodReference| {
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == json!(name.name)).unwrap();
        (name.clone(), ReadPod { pod: parse(pod), warnings: Vec::new() })
    };
    let awaited = FactsToRead::of([&object]).awaited.iter().map(read).collect();
    let name = PodReference { namespace: "shop".into(), name: "job".into() };
    let awaited_jobs = job.iter().map(|job| (name.clone(), parse(job))).collect();
    explained(&object, &ClusterFacts { awaited, awaited_jobs, ..ClusterFacts::default() })
}

fn describe(name: &str) -> String {
    format!("kubectl -n shop describe pod {name}")
}

fn delete(name: &str) -> String {
    format!("kubectl -n shop delete pod {name}")
}

#[test]
fn awaited_pods_that_do_not_run_block_the_drain_and_nothing_is_lost_without_those_that_never_ran() {
    let pods = [
        waits("bad", "ErrImagePull", "Never"),
        waits("nocm", "CreateContainerConfigError", "OnFailure"),
        of_job(crashing("crash", "n1", 1, "Error"), "OnFailure"),
        of_job(unready("good", "n1", container(json!({"running": {}}), json!({}))), "Never"),
        waits("new", "ContainerCreating", "Never"),
    ];
    let found = awaiting(&pods, &json!({}), |_| ());
    let waits = "The drain waits for pods to terminate on their own (Completing), and these do not run.";
    let job = "the Job counts a deleted pod as failed, and creates another one elsewhere unless it has failed too often";
    let none = "None of its containers has ever started, so no work is lost without it: to continue the drain, delete the pod";
    let image = "Check the name of the image, its registry and the pull secret";
    assert_eq!(found.len(), 4, "{found:#?}");
    assert_eq!(
        found[0].what,
        [waits, "shop/bad on n1: the image shop/web:2 cannot be pulled (ErrImagePull): no."]
    );
    assert_eq!(found[0].advice, format!("{image}. {none}; {job}"));
    assert_eq!(found[0].commands, [describe("bad"), delete("bad")]);
    assert_eq!(found[0].pods, ["shop/bad"]);
    assert_eq!(found[1].commands, [describe("nocm"), delete("nocm")]);
    assert_eq!(
        found[2].advice,
        format!(
            "Find out from its log why the container exits. To continue the drain, delete the pod; {job}"
        )
    );
    assert_eq!(found[2].commands, ["kubectl -n shop logs crash -c app --previous", &delete("crash")]);
    assert!(found[..3].iter().all(|cause| !cause.passes() && cause.since.is_some()), "{found:#?}");
    assert_eq!(found[3].pods, ["shop/good", "shop/new"]);
    assert!(found[3].passes());
}

#[test]
fn awaited_pods_whose_containers_are_restarted_block_the_drain() {
    let web = || of_job(ready("web-0", "n1"), "Always");
    let alone = awaiting(&[web()], &json!({}), |_| ());
    assert_eq!(alone.len(), 1, "{alone:#?}");
    assert_eq!(
        alone[0].what,
        [
            "The drain waits for pods to terminate on their own (Completing) that never do: their containers are restarted \
          (restartPolicy Always)."
        ]
    );
    assert_eq!(alone[0].advice, "To evict the pods, remove the setting");
    let patch = r#"kubectl patch nm n1 --type=merge -p '{"spec":{"drain":{"waitForCompletion":null}}}'"#;
    assert_eq!(alone[0].commands, [patch]);
    assert!(!alone[0].passes());
    let others = awaiting(&[web(), of_job(ready("good", "n1"), "Never")], &json!({}), |_| ());
    assert_eq!(others[0].commands, ["kubectl edit nm n1"], "the others are to finish");
    assert_eq!((&others[1].pods[..], others[1].passes()), (&["shop/good".to_owned()][..], true));
}

#[test]
fn awaited_pods_end_at_the_limits_of_their_job() {
    let job = |spec: Value| {
        Some(json!({"metadata": {"namespace": "shop", "name": "job"}, "spec": spec,
            "status": {"startTime": "2026-01-02T03:00:00Z"}}))
    };
    let limited = || job(json!({"template": {}, "activeDeadlineSeconds": 3600}));
    let what = |pods: &[Value], job: Option<Value>| {
        let found = awaiting_of(pods, job, &json!({}), |_| ());
        assert!(found.len() == 1 && found[0].passes(), "{found:#?}");
        assert!(found[0].advice.starts_with("Wait until the pods terminate."), "{found:#?}");
        found[0].what[1..].to_vec()
    };
    let bad = || waits("bad", "ErrImagePull", "Never");
    let good = || of_job(unready("good", "n1", container(json!({"running": {}}), json!({}))), "Never");
    assert_eq!(
        what(&[bad()], limited()),
        ["shop/bad is terminated at 2026-01-02T04:00:00Z at the latest (activeDeadlineSeconds)."]
    );
    assert_eq!(
        what(&[bad(), good()], limited()),
        ["shop/bad, shop/good are terminated by 2026-01-02T04:00:00Z at the latest (activeDeadlineSeconds)."]
    );
    assert_eq!(what(&[good()], job(json!({"template": {}}))), [""; 0]);
    let over = job(json!({"template": {}, "activeDeadlineSeconds": 60}));
    assert_eq!(what(&[bad()], over), [""; 0], "the Job is about to end it");
    let crashing = of_job(crashing("crash", "n1", 1, "Error"), "OnFailure");
    assert_eq!(
        what(&[crashing], job(json!({"template": {}, "backoffLimit": 4}))),
        [
            "The containers of shop/crash keep failing: its Job fails after 4 restarts (backoffLimit), and terminates it."
        ]
    );
    let held = awaiting_of(&[bad()], job(json!({"template": {}})), &json!({}), |_| ());
    assert!(!held[0].passes(), "nothing limits its time: {held:#?}");
}

#[test]
fn awaited_pods_that_terminate_or_are_evicted_in_any_case_do_not_block() {
    let web = || of_job(ready("web-0", "n1"), "Always");
    let limited = |pod: Value| edited(pod, "/spec/activeDeadlineSeconds", json!(60));
    let bad = || waits("bad", "ErrImagePull", "Never");
    for pod in [
        limited(web()),
        limited(bad()),
        edited(web(), "/metadata/deletionTimestamp", json!(NOW)),
        edited(web(), "/status/phase", json!("Failed")),
    ] {
        let found = awaiting(&[pod], &json!({}), |_| ());
        assert!(found.len() == 1 && found[0].passes(), "{found:#?}");
    }
    let until = json!({"until": "2026-01-02T04:04:05Z"});
    let found = awaiting(&[web(), bad()], &until, |_| ());
    assert!(found.len() == 1 && found[0].passes(), "{found:#?}");
    let held = awaiting(&[web(), bad()], &json!({}), |object| {
        let hold = json!({"since": NOW, "hooks": [{"name": "backup", "owner": "ops"}]});
        object.status.as_mut().unwrap().hold = Some(parse(&hold));
    });
    assert!(held.iter().all(Cause::passes), "{held:#?}");
}
