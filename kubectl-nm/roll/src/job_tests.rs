use nm_core::testing::fake_server::{cluster, failure};

use super::*;
use crate::record::{ActionRecord, RollNode, Step};
use crate::settings::RollSettings;

const CONTAINER: &str = "{name: a, image: i, command: [upgrade], args: ['--node={}']}";

fn template(fields: &str) -> Result<Value, JobProblem> {
    parse(&format!("{{apiVersion: batch/v1, kind: Job, {fields}}}"), Some("ops"))
}

fn valid() -> Value {
    template(&format!("spec: {{template: {{spec: {{containers: [{CONTAINER}]}}}}}}")).unwrap()
}

fn record(attempt: Option<u32>) -> NodeRecord {
    NodeRecord {
        step: Step::Acting,
        began: Some("2026-01-02T03:00:00Z".parse().unwrap()),
        action: attempt.map(|attempt| ActionRecord { attempt, state: ActionState::Running }),
        ..NodeRecord::planned(0, 3, "2026-01-02T03:04:05Z".parse().unwrap())
    }
}

/// The Job as the server returns it, with this condition.
fn stored(condition: &str, message: &str) -> (u16, Value) {
    let mut job = of_node(&valid(), "r", "n1", &record(None));
    if !condition.is_empty() {
        job["status"]["conditions"] = json!([{"type": condition, "status": "True", "message": message}]);
    }
    (200, job)
}

#[test]
fn a_file_that_is_no_job_is_refused_when_it_is_read() {
    let pod = format!("spec: {{template: {{spec: {{containers: [{CONTAINER}]}}}}}}");
    assert!(template(&pod).is_ok());
    for malformed in [
        "spec: {}",
        "spec: {template: {spec: {containers: []}}}",
        "spec: {template: {spec: {containers: [a]}}}",
        "spec: {template: {spec: {containers: {name: a}}}}",
        &format!("spec: {{template: {{spec: {{initContainers: x, containers: [{CONTAINER}]}}}}}}"),
        &format!("spec: {{template: {{metadata: x, spec: {{containers: [{CONTAINER}]}}}}}}"),
        &format!("spec: {{template: {{metadata: {{labels: [a]}}, spec: {{containers: [{CONTAINER}]}}}}}}"),
        &format!("metadata: x, {pod}"),
        &format!("metadata: {{labels: [a]}}, {pod}"),
        &format!("metadata: {{labels: a}}, {pod}"),
        "spec: {template: {spec: {containers: [{name: a, command: x}]}}}",
        "spec: {template: {spec: {containers: [{name: a, env: {A: b}}]}}}",
        &format!(
            "spec: {{ttlSecondsAfterFinished: soon, template: {{spec: {{containers: [{CONTAINER}]}}}}}}"
        ),
    ] {
        assert!(template(malformed).is_err(), "{malformed}");
    }
}

#[test]
fn a_file_may_begin_with_a_byte_order_mark() {
    assert_eq!(parse(&format!("\u{feff}{}", valid()), None).unwrap(), valid());
}

#[test]
fn a_file_with_more_than_the_job_says_so() {
    let valid = valid();
    let several = parse(&format!("---\n{valid}\n---\n{valid}\n"), None).unwrap_err();
    assert_eq!(several.to_string(), "it contains 2 documents, and has to contain one Job");
    assert_eq!(parse(&format!("---\n{valid}\n---\n"), None).unwrap(), valid);
}

#[test]
fn settings_whose_job_is_malformed_are_not_read() {
    let settings = |job: &Value| {
        serde_json::from_value::<RollSettings>(json!({
            "waves": [1], "maxUnavailable": 1, "action": {"job": job}, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1,
        }))
    };
    assert!(settings(&valid()).is_ok());
    for path in ["/metadata", "/spec", "/spec/template/spec/containers/0"] {
        let mut job = valid();
        *job.pointer_mut(path).unwrap() = json!("x");
        assert!(settings(&job).is_err(), "{path}");
    }
}

#[test]
fn the_job_of_a_node_runs_there_under_a_name_of_its_own() {
    let job = of_node(&valid(), "r", "n1", &record(None));
    let pod = &job["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!((&pod["nodeName"], &pod["restartPolicy"]), (&json!("n1"), &json!("Never")));
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!((&container["command"], &container["args"]), (&json!(["upgrade"]), &json!(["--node=n1"])));
    assert_eq!(container["env"], json!([{"name": "NM_NODE", "value": "n1"}]));
    assert_eq!(job["metadata"]["namespace"], "ops");
    for labels in [&job["metadata"]["labels"], &job["spec"]["template"]["metadata"]["labels"]] {
        assert_eq!(labels[LABEL], "r");
    }
    let name = |attempt: Option<u32>| {
        of_node(&valid(), "r", "n1", &record(attempt))["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(Some(1)), name(None), "a roll that is resumed follows its Job");
    assert_eq!(name(Some(2)), name(None) + "-2", "a Job that failed is replaced");
}

#[test]
fn a_finished_job_stays_for_a_day_or_longer() {
    let ttl = |said: Value| {
        let mut job = valid();
        job["spec"]["ttlSecondsAfterFinished"] = said;
        of_node(&job, "r", "n1", &record(None))["spec"]["ttlSecondsAfterFinished"].as_i64().unwrap()
    };
    let day = 86_400;
    assert_eq!((ttl(json!(0)), ttl(json!(100)), ttl(json!(2 * day))), (day, day, 2 * day));
    assert!(ttl(Value::Null) > 3 * day, "over a weekend");
}

#[tokio::test]
async fn a_job_that_exists_is_followed_only_if_it_is_for_the_node() {
    let (cluster, _) = cluster(|method, _| match method {
        "POST" => failure(409, "AlreadyExists", "r-3"),
        _ => stored("", ""),
    });
    let [own, other] = ["n1", "n2"].map(|node| of_node(&valid(), "r", node, &record(None)));
    create(&cluster, &own).await.unwrap();
    assert!(create(&cluster, &other).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn how_a_job_ended_is_what_its_conditions_say() {
    let minute = Duration::from_secs(60);
    let job = of_node(&valid(), "r", "n1", &record(None));
    let name = job["metadata"]["name"].as_str().unwrap();
    let failed = |why: String| ActionState::Failed(why);
    for (answer, ended) in [
        (stored("Complete", ""), ActionState::Succeeded),
        (stored("Failed", "too often"), ActionState::JobFailed(format!("Job ops/{name}: too often"))),
        (failure(404, "NotFound", "r-3"), failed(format!("Job ops/{name} was deleted"))),
    ] {
        let (cluster, _) = cluster(move |_, _| answer.clone());
        assert_eq!(finish(&cluster, &job, minute, async |_| ()).await, ended);
    }
    let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "r-3"));
    assert!(
        matches!(finish(&cluster, &job, minute, async |_| ()).await, ActionState::Failed(_)),
        "it cannot be followed"
    );
}

#[tokio::test(start_paused = true)]
async fn why_the_pods_of_a_job_do_not_start_is_said_once() {
    let job = of_node(&valid(), "r", "n1", &record(None));
    let waiting = json!({"reason": "ErrImagePull", "message": "not found"});
    let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": {"waiting": waiting}}]}});
    let (cluster, _) = cluster(move |_, path| {
        if path.contains("/pods") {
            return (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [pod]}));
        }
        stored("", "")
    });
    let mut said = Vec::new();
    let ended = finish(&cluster, &job, Duration::from_secs(60), async |line| said.push(line)).await;
    let ActionState::NotStarted(why) = ended else { panic!("{ended:?}") };
    assert!(why.ends_with("did not start within 1m: pod p: ErrImagePull: not found"), "{why}");
    assert_eq!(said, ["pod p: ErrImagePull: not found"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_of_which_nothing_has_run_is_told_from_one_that_has_failed() {
    let job = of_node(&valid(), "r", "n1", &record(None));
    let name = format!("Job ops/{}", job["metadata"]["name"].as_str().unwrap());
    let waiting = |reason: &str| json!([{"state": {"waiting": {"reason": reason}}}]);
    let ended = json!([{"state": {"terminated": {"exitCode": 1}}}]);
    let restarts = json!([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}]);
    let rejected =
        json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"});
    let not_started = |why: &str| ActionState::NotStarted(format!("{name}{why}"));
    let init = json!({"phase": "Pending", "initContainerStatuses": waiting("ErrImagePull"),
        "containerStatuses": waiting("PodInitializing")});
    for (condition, pod, expected) in [
        ("", Some(init), not_started(" did not start within 1m: pod p: ErrImagePull")),
        ("", Some(json!({"phase": "Pending"})), not_started(" did not start within 1m")),
        (
            "",
            Some(json!({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]})),
            ActionState::Failed(format!("{name} did not finish within 1m")),
        ),
        (
            "",
            Some(json!({"phase": "Running", "containerStatuses": restarts})),
            ActionState::Failed(format!(
                "{name} did not finish within 1m: pod p: CrashLoopBackOff (exit code 1)"
            )),
        ),
        ("", None, ActionState::Failed(format!("{name} did not finish within 1m"))),
        (
            "Failed",
            Some(rejected),
            not_started(": too often: pod p: OutOfcpu: Node didn't have enough resource: cpu"),
        ),
        (
            "Failed",
            Some(json!({"phase": "Failed", "containerStatuses": ended})),
            ActionState::JobFailed(format!("{name}: too often")),
        ),
        ("Failed", None, ActionState::JobFailed(format!("{name}: too often"))),
    ] {
        let shown = format!("{condition} {pod:?}");
        let pods = pod.map(|status| json!({"metadata": {"name": "p"}, "status": status}));
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": Vec::from_iter(pods)});
        let (cluster, _) = cluster(move |_, path| {
            if path.contains("/pods") { (200, list.clone()) } else { stored(condition, "too often") }
        });
        let minute = Duration::from_secs(60);
        assert_eq!(finish(&cluster, &job, minute, async |_| ()).await, expected, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_too_long_is_deleted_and_an_api_server_that_fails_is_asked_again() {
    let minute = Duration::from_secs(60);
    let job = of_node(&valid(), "r", "n1", &record(None));
    for answer in [stored("", ""), stored("SuccessCriteriaMet", ""), failure(503, "ServiceUnavailable", "")] {
        let (cluster, requests) = cluster(move |_, _| answer.clone());
        let ActionState::Failed(why) = finish(&cluster, &job, minute, async |_| ()).await else { panic!() };
        assert!(why.ends_with("did not finish within 1m"), "{why}");
        assert!(requests.lock().unwrap().iter().any(|request| request.starts_with("DELETE ")));
    }
}

#[tokio::test]
async fn no_more_of_what_a_job_prints_is_read_than_is_shown() {
    let pod = |at: usize| json!({"metadata": {"namespace": "ops", "name": format!("p{at}")}});
    let pods: Vec<Value> = (0..50).map(pod).collect();
    let (cluster, _) = cluster(move |_, path| match path {
        "/api/v1/namespaces/ops/pods" => (200, json!({"metadata": {}, "items": pods})),
        _ => (200, json!("a line")),
    });
    let lines = log(&cluster, &of_node(&valid(), "r", "n1", &record(None))).await;
    assert_eq!(lines.len(), MAX_LOG_PODS);
}

#[tokio::test]
async fn the_pods_of_all_jobs_of_a_roll_that_do_not_start_are_found_by_one_request() {
    let node = |name: &str, attempt: u32| {
        let object = nm_core::testing::objects::requested(name);
        RollNode { object: std::sync::Arc::new(object), record: record(Some(attempt)), revision: None }
    };
    let settings = json!({"waves": [2], "maxUnavailable": 2, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "action": {"job": valid()}});
    let settings: RollSettings = serde_json::from_value(settings).unwrap();
    let nodes = vec![node("n1", 1), node("n2", 2)];
    let roll = Roll { name: "r".into(), settings, nodes, record: None };
    let of = |attempt: u32| of_node(&valid(), "r", "n", &record(Some(attempt)))["metadata"]["name"].clone();
    let pod = |job: Value, reason: &str| {
        let waiting = json!({"state": {"waiting": {"reason": reason}}});
        json!({"metadata": {"name": "p", "labels": {JOB_NAME_LABEL: job}}, "status": {"containerStatuses": [waiting]}})
    };
    let pods =
        json!({"metadata": {}, "items": [pod(of(1), "ContainerCreating"), pod(of(2), "ErrImagePull")]});
    let (cluster, requests) = cluster(move |_, _| (200, pods.clone()));
    let problems = problems(&cluster, &roll).await;
    let words = problems.iter().map(|(node, problem)| (node.as_str(), problem.words.as_str()));
    assert_eq!(words.collect::<Vec<_>>(), [("n2", "pod p: ErrImagePull")]);
    assert_eq!(requests.lock().unwrap().len(), 1);
}
