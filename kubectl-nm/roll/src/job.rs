//! The Jobs that a roll runs on each node: before its drain, once it is drained, and before it returns.
//!
//! Its pod is bound to the node without the scheduler and tolerates every taint. The maintenances of the roll leave pods
//! with the roll's label alone, so the Job's pod is not evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use kube::api::{ListParams, LogParams};
use nm_core::args::duration;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::client::pod_problem::{has_run, pod_problem, rejection};
use nm_core::error::Error;
use nm_core::maintenance::roll_job::UnstartedJob;
use nm_shared::{DrainSpec, PodReference};
use serde_json::{Value, json};

use crate::decide::NodeProgress;
use crate::error::{JobProblem, RollError};
use crate::record::{ActionRecord, ActionState, LABEL, NodeRecord, Roll, RollNode, Step};
use crate::settings::{self, NodeAction};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// After how many checks of a Job its pods are looked at.
const CHECKS_PER_LOOK: u32 = 10;

const DEFAULT_NAMESPACE: &str = "default";

/// The label of a Job's pods with its name.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";

/// Seconds after which a finished Job is deleted, unless its file says otherwise.
const TTL: i64 = 7 * MIN_TTL;

/// For so many seconds a finished Job stays at least: whoever runs the roll has to see how it ended.
const MIN_TTL: i64 = 86_400;

/// The most lines of a Job's log that are shown.
const MAX_LOG_LINES: i64 = 100;

/// How many bytes of them are shown, of each pod. Its lines may be of any length.
const MAX_LOG_BYTES: i64 = 256 << 10;

/// Of how many pods the lines are shown. Those of others may have the label of the Job.
const MAX_LOG_PODS: usize = 10;

const MAX_BYTES: usize = 32 * 1024;

/// Reads the file with the Job of a roll.
///
/// # Errors
///
/// If the file cannot be read, or if it does not contain a usable Job: see [`JobProblem`].
pub fn read(file: &Path, namespace: Option<&str>) -> Result<Value, RollError> {
    let job = std::fs::read_to_string(file).map_err(Into::into).and_then(|text| parse(&text, namespace));
    job.map_err(|problem| RollError::Job { file: file.to_owned(), problem: Box::new(problem) })
}

/// Parses the file with the Job. It has no name of its own: each node gets a Job named after the roll.
fn parse(text: &str, namespace: Option<&str>) -> Result<Value, JobProblem> {
    // Editors on Windows write a byte order mark.
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    documents.retain(|document| !document.is_null());
    if documents.len() > 1 {
        return Err(JobProblem::SeveralDocuments(documents.len()));
    }
    let mut job = documents.pop().unwrap_or_default();
    if (job["apiVersion"].as_str(), job["kind"].as_str()) != (Some("batch/v1"), Some("Job")) {
        return Err(JobProblem::OtherKind);
    }
    settings::check_job(&job)?;
    if job.pointer("/spec/template/spec/containers").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err(JobProblem::NoContainers);
    }
    if job["metadata"]["namespace"].as_str().is_none_or(str::is_empty) {
        job["metadata"]["namespace"] = json!(namespace.unwrap_or(DEFAULT_NAMESPACE));
    }
    let length = job.to_string().len();
    if length > MAX_BYTES { Err(JobProblem::TooLarge { length, most: MAX_BYTES }) } else { Ok(job) }
}

/// The drain settings under which the pods of the roll's Jobs stay.
pub fn sparing_jobs(mut drain: DrainSpec) -> DrainSpec {
    let mut selector = drain.pod_selector.as_deref().cloned().unwrap_or_default();
    let expressions = selector.match_expressions.get_or_insert_default();
    expressions.push(LabelSelectorRequirement {
        key: LABEL.to_owned(),
        operator: String::from("DoesNotExist"),
        values: None,
    });
    drain.pod_selector = Some(selector.into());
    drain
}

/// The Job of a node. Its name stays the same when the roll is resumed, unless it has failed: then there is a new Job for the
/// next attempt.
pub fn of_node(template: &Value, roll: &str, node: &str, record: &NodeRecord) -> Value {
    let began = record.began.unwrap_or(record.since).as_second();
    let when = match record.step {
        Step::Preparing => "-pre",
        Step::Finishing => "-post",
        _ => "",
    };
    let attempt = match record.current_action().map_or(1, |action| action.attempt) {
        0 | 1 => String::new(),
        again => format!("-{again}"),
    };
    let mut job = template.clone();
    job["metadata"]["name"] = json!(format!("{roll}-{}-{began}{when}{attempt}", record.position));
    if let Some(metadata) = job["metadata"].as_object_mut() {
        metadata.remove("generateName");
    }
    job["metadata"]["labels"][LABEL] = json!(roll);
    let spec = &mut job["spec"];
    let ttl = spec["ttlSecondsAfterFinished"].as_i64().unwrap_or(TTL);
    spec["ttlSecondsAfterFinished"] = json!(ttl.max(MIN_TTL));
    spec["template"]["metadata"]["labels"][LABEL] = json!(roll);
    let pod = &mut spec["template"]["spec"];
    pod["nodeName"] = json!(node);
    if pod["restartPolicy"].is_null() {
        pod["restartPolicy"] = json!("Never");
    }
    pod["tolerations"] = json!([{"operator": "Exists"}]);
    for kind in ["initContainers", "containers"] {
        for container in pod[kind].as_array_mut().into_iter().flatten() {
            for field in ["command", "args"] {
                for word in container[field].as_array_mut().into_iter().flatten() {
                    if let Some(text) = word.as_str() {
                        *word = json!(text.replace("{}", node));
                    }
                }
            }
            let mut env = container["env"].as_array().cloned().unwrap_or_default();
            env.push(json!({"name": "NM_NODE", "value": node}));
            container["env"] = json!(env);
        }
    }
    job
}

/// The namespace and the name of the Job of a node that has failed, whose log may be read; none if the action of its step is a
/// command, or has not failed, or if nothing is left of its Job.
pub fn failed(roll: &Roll, node: &RollNode) -> Option<(String, String)> {
    let has_failed = |action: &&ActionRecord| matches!(action.state, ActionState::JobFailed(_));
    node.record.current_action().filter(has_failed)?;
    let NodeAction::Job(template) = roll.settings.action_of(node.record.step)? else { return None };
    let job = of_node(template, &roll.name, node.node(), &node.record);
    let field = |name: &str| job["metadata"][name].as_str().map(str::to_owned);
    field("namespace").zip(field("name"))
}

/// Creates the Job, unless it exists.
pub(crate) async fn create(cluster: &Cluster, job: &Value) -> Result<(), Error> {
    let refused = match objects::create(cluster, job, false).await {
        Err(error) if error.status().is_some_and(kube::core::Status::is_already_exists) => error,
        created => return created.map(drop),
    };
    let node = |job: &Value| job.pointer("/spec/template/spec/nodeName").cloned();
    match objects::get(cluster, job).await? {
        Some(found) if node(&found) == node(job) => Ok(()),
        // It runs on another node, or is gone by now.
        _ => Err(refused),
    }
}

/// Lets the API server check the Job of a node. Nothing is created.
///
/// # Errors
///
/// If the API server refuses the Job, or if the request fails.
pub async fn check_creation(cluster: &Cluster, job: &Value) -> Result<(), Error> {
    objects::create(cluster, job, true).await.map(drop)
}

/// Waits until the Job has ended, and returns how. Meanwhile, it says why its pods do not start, whenever that changes.
pub(crate) async fn finish(
    cluster: &Cluster,
    job: &Value,
    timeout: Duration,
    mut say: impl AsyncFnMut(String),
) -> ActionState {
    let ended = async {
        let (mut checks, mut said) = (0_u32, None);
        loop {
            match state(cluster, job).await {
                Ok(ActionState::Running) => {}
                Ok(ended) => return ended,
                Err(error) if error.is_waited_for() => {}
                Err(error) => return ActionState::Failed(error.to_string()),
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
            checks = checks.wrapping_add(1);
            if checks.is_multiple_of(CHECKS_PER_LOOK) {
                let problem = pods(cluster, job).await.iter().find_map(pod_problem);
                if let Some(problem) = problem.clone().filter(|_| problem != said) {
                    say(problem).await;
                }
                said = problem;
            }
        }
    };
    let failed = match tokio::time::timeout(timeout, ended).await {
        Ok(ActionState::JobFailed(why)) => Some(why),
        Ok(ended) => return ended,
        Err(_) => None,
    };
    // Without the Job, nothing shows any more that its pod did not start.
    let pods = pods(cluster, job).await;
    let has_started = pods.is_empty() || pods.iter().any(has_run);
    let problem = pods.iter().find_map(|pod| pod_problem(pod).or_else(|| rejection(pod)));
    let problem = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
    let name = name(job);
    match failed {
        Some(why) if has_started => return ActionState::JobFailed(why),
        Some(why) => return ActionState::NotStarted(format!("{why}{problem}")),
        None => {}
    }
    // If that fails, the message still names the Job.
    let _ = delete(cluster, job).await;
    let timeout = duration::show(timeout);
    if has_started {
        ActionState::Failed(format!("{name} did not finish within {timeout}{problem}"))
    } else {
        ActionState::NotStarted(format!("{name} did not start within {timeout}{problem}"))
    }
}

/// Deletes the Job and its pods.
pub(crate) async fn delete(cluster: &Cluster, job: &Value) -> Result<(), Error> {
    objects::delete(cluster, job).await.map(drop)
}

async fn state(cluster: &Cluster, job: &Value) -> Result<ActionState, Error> {
    let Some(found) = objects::get(cluster, job).await? else {
        return Ok(ActionState::Failed(format!("{} was deleted", name(job))));
    };
    let conditions = found.pointer("/status/conditions").and_then(Value::as_array);
    let is_true = |type_: &str| {
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == type_ && condition["status"] == "True")
    };
    if is_true("Complete").is_some() {
        return Ok(ActionState::Succeeded);
    }
    Ok(match is_true("Failed") {
        Some(failed) => {
            let why = failed["message"].as_str().unwrap_or("failed");
            ActionState::JobFailed(format!("{}: {why}", name(job)))
        }
        None => ActionState::Running,
    })
}

/// The pods of a Job; none without permission.
async fn pods(cluster: &Cluster, job: &Value) -> Vec<Value> {
    let namespace = job["metadata"]["namespace"].as_str();
    let selector = format!("{JOB_NAME_LABEL}={}", job["metadata"]["name"].as_str().unwrap_or_default());
    let which = ListParams::default().labels(&selector);
    objects::list(cluster, ("v1", "Pod"), namespace, &which).await.unwrap_or_default()
}

/// The nodes of a roll for which Jobs run, with these.
fn running(roll: &Roll) -> impl Iterator<Item = (&str, Value)> {
    roll.nodes.iter().filter_map(|node| {
        let is_running = node.record.current_action().is_some_and(ActionRecord::is_running);
        let Some(NodeAction::Job(template)) =
            roll.settings.action_of(node.record.step).filter(|_| is_running)
        else {
            return None;
        };
        Some((node.node(), of_node(template, &roll.name, node.node(), &node.record)))
    })
}

/// Whether Jobs run for nodes of a roll.
pub(crate) fn has_running(roll: &Roll) -> bool {
    running(roll).next().is_some()
}

/// Shows why Jobs do not start where nothing else is shown of their nodes.
pub fn add_problems(progress: &mut [NodeProgress], problems: &BTreeMap<String, String>) {
    for node in progress.iter_mut().filter(|node| node.detail.is_empty()) {
        node.detail = problems.get(&node.node).cloned().unwrap_or_default();
    }
}

/// Why the pods of the Jobs that run for nodes of a roll do not start, by node, as far as they may be read: one request for each
/// namespace of its Jobs.
pub async fn problems(cluster: &Cluster, roll: &Roll) -> BTreeMap<String, UnstartedJob> {
    let running: Vec<(&str, Value)> = running(roll).collect();
    let field = |job: &Value, name: &str| job["metadata"][name].as_str().unwrap_or_default().to_owned();
    let namespaces: BTreeSet<String> = running.iter().map(|(_, job)| field(job, "namespace")).collect();
    let selection = ListParams::default().labels(&format!("{LABEL}={}", roll.name));
    let mut problems = BTreeMap::new();
    for namespace in namespaces {
        let pods = objects::list(cluster, ("v1", "Pod"), Some(&namespace), &selection).await;
        let pods = pods.unwrap_or_default();
        for (node, job) in running.iter().filter(|(_, job)| field(job, "namespace") == namespace) {
            let is_of_job = |pod: &&Value| pod["metadata"]["labels"][JOB_NAME_LABEL] == field(job, "name");
            let problem = pods.iter().filter(is_of_job).find_map(pod_problem);
            let job = || PodReference { namespace: namespace.clone(), name: field(job, "name") };
            let problem = problem.map(|words| UnstartedJob { job: job(), words });
            problems.extend(problem.map(|problem| ((*node).to_owned(), problem)));
        }
    }
    problems
}

/// The same in words alone.
pub async fn problem_words(cluster: &Cluster, roll: &Roll) -> BTreeMap<String, String> {
    let problems = problems(cluster, roll).await;
    problems.into_iter().map(|(node, problem)| (node, problem.words)).collect()
}

/// The last lines that the Job's pods printed; none without permission.
pub(crate) async fn log(cluster: &Cluster, job: &Value) -> Vec<String> {
    let pods = pods(cluster, job).await;
    let (tail_lines, limit_bytes) = (Some(MAX_LOG_LINES), Some(MAX_LOG_BYTES));
    let params = LogParams { tail_lines, limit_bytes, ..LogParams::default() };
    let mut lines = Vec::new();
    for pod in pods.into_iter().take(MAX_LOG_PODS) {
        let log = objects::log(cluster, &pod, &params).await.unwrap_or_default();
        lines.extend(log.lines().map(str::to_owned));
    }
    lines
}

fn name(job: &Value) -> String {
    let field = |name: &str| job["metadata"][name].as_str().unwrap_or_default();
    format!("Job {}/{}", field("namespace"), field("name"))
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
