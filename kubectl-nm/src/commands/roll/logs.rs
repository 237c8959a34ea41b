//! `kubectl nm roll logs`: what the pods print that run a roll in the cluster.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use kube::api::{ListParams, LogParams};
use kube::core::Status;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::output::Output;
use nm_core::terminal::signals::interrupted;
use nm_core::terminal::text::Line;
use nm_roll::error::RollError;
use nm_roll::in_cluster::runner_job::{self, CONTAINER, NAMESPACE, RUNNER_LABEL};
use serde_json::Value;

use super::args::LogsArgs;

/// How often the next pod is looked for.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &LogsArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    tokio::select! {
        () = interrupted() => Ok(Exit::Interrupted),
        printed = print(args, cluster, out) => printed.map(|()| Exit::Done),
    }
}

async fn print(args: &LogsArgs, cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let mut printed = Printed::default();
    loop {
        match print_new(args, &mut printed, cluster, out).await {
            Ok(has_ended) if has_ended || !args.follow => return Ok(()),
            Ok(_) => {}
            // Its lines are read again from the start.
            Err(error) if args.follow && !printed.lines.is_empty() && error.is_transient() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// What has been printed.
#[derive(Default)]
struct Printed {
    /// How many lines of each pod, by uid.
    lines: HashMap<String, usize>,
    /// Whether it was said how many pods were gone at first. Those that leave later have been printed.
    told_missing: bool,
    /// The pods of which it was said that their logs cannot be read, by uid.
    unreadable: HashSet<String>,
}

/// Prints what is not printed yet. Returns whether the Job has ended.
async fn print_new(
    args: &LogsArgs,
    printed: &mut Printed,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<bool, Error> {
    let name = args.roll.name.as_str();
    let job = runner_job::reference(name);
    let selection = ListParams::default().labels(&format!("{RUNNER_LABEL}={name}"));
    let params = LogParams { follow: args.follow, container: Some(CONTAINER.into()), ..LogParams::default() };
    // Before the pods: what they print until its end is in their logs.
    let found = objects::get(cluster, &job).await?;
    if found.is_none() && printed.lines.is_empty() {
        return Err(RollError::NoRunnerJob(name.to_owned()).into());
    }
    let has_ended = found.as_ref().is_none_or(runner_job::has_ended);
    let mut pods = objects::list(cluster, ("v1", "Pod"), Some(NAMESPACE), &selection).await?;
    if let Some(missing) = found.filter(|_| !printed.told_missing).and_then(|job| missing(&job, &pods)) {
        out.message(&Line::new(missing));
    }
    printed.told_missing = true;
    pods.retain(is_started);
    pods.sort_by(|one, other| text(one, "creationTimestamp").cmp(text(other, "creationTimestamp")));
    if pods.is_empty() && (has_ended || !args.follow) {
        out.message(&Line::new(format!("No pod of roll {name} has a log.")));
    }
    let is_readable = |pod: &&Value| pods.len() == 1 || !printed.unreadable.contains(text(pod, "uid"));
    // Whoever follows the log of a pod that runs does not wait again for one whose node is off.
    for pod in pods.iter().filter(is_readable).collect::<Vec<_>>() {
        let before = printed.lines.entry(text(pod, "uid").to_owned()).or_default();
        let mut line = 0;
        let read = objects::follow_log(cluster, pod, &params, |text| {
            line += 1;
            if line > *before {
                *before = line;
                out.data(&Line::new(text))?;
            }
            Ok(())
        });
        match read.await {
            // It is gone, or its container has not started.
            Err(error) if error.status().is_some_and(|status| matches!(status.code, 400 | 404)) => {}
            Err(error) if error.status().is_some_and(is_of_kubelet) && pods.len() > 1 => {
                if printed.unreadable.insert(text(pod, "uid").to_owned()) {
                    out.message(&Line::new(unreadable(pod, &error)));
                }
            }
            read => read?,
        }
    }
    Ok(has_ended)
}

/// That pods of the Job do not exist any more whose lines are therefore missing.
fn missing(job: &Value, pods: &[Value]) -> Option<String> {
    let failed = job["status"]["failed"].as_u64().and_then(|failed| usize::try_from(failed).ok())?;
    // The Job controller counts a pod as failed once somebody deletes it.
    let counts = |pod: &&Value| match pod["status"]["phase"].as_str() {
        Some("Failed") => true,
        Some("Succeeded") => false,
        _ => !pod["metadata"]["deletionTimestamp"].is_null(),
    };
    match failed.checked_sub(pods.iter().filter(counts).count())? {
        0 => None,
        1 => Some(String::from("The log of an earlier pod was deleted with the pod.")),
        more => Some(format!("The logs of {more} earlier pods were deleted with the pods.")),
    }
}

/// Whether the API server could not reach the kubelet of a pod.
fn is_of_kubelet(status: &Status) -> bool {
    status.code >= 500 && status.message.contains("/containerLogs/")
}

/// That the log of a pod cannot be read, whose node may be off.
fn unreadable(pod: &Value, error: &Error) -> String {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    format!("warning: the log of pod {} on node {node} cannot be read: {error}", text(pod, "name"))
}

/// Whether the containers of a pod have run.
fn is_started(pod: &Value) -> bool {
    pod["status"]["phase"].as_str().is_some_and(|phase| phase != "Pending")
}

fn text<'a>(pod: &'a Value, field: &str) -> &'a str {
    pod["metadata"][field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use nm_core::terminal::output::captured::output;
    use nm_core::testing::fake_server::{cluster, failure};
    use serde_json::json;

    use super::super::args::NameArgs;
    use super::*;

    #[tokio::test]
    async fn of_several_pods_one_whose_node_is_off_hides_no_log_of_another() {
        let pod = |name: &str, node: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "uid": name,
                "creationTimestamp": format!("2026-01-02T03:04:0{}Z", node.len())}, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
        };
        for (pods, is_read) in
            [(vec![pod("lost", "n2"), pod("next", "node3")], true), (vec![pod("lost", "n2")], false)]
        {
            let (cluster, _) = cluster(move |_, path| match path {
                _ if path.contains("/lost/log") => failure(
                    500,
                    "InternalError",
                    "Get \"https://172.30.0.12:10250/containerLogs/ns/lost/roll\": dial tcp: no route to host",
                ),
                _ if path.contains("/next/log") => (200, json!("a line")),
                _ if path.contains("/jobs/") => (200, json!({"metadata": {"name": "nm-roll-r"}})),
                _ => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": pods})),
            });
            let (mut out, captured) = output();
            let args = LogsArgs { roll: NameArgs { name: String::from("r") }, follow: false };
            let printed = print(&args, &cluster, &mut out).await;
            assert_eq!(printed.is_ok(), is_read, "{printed:?}");
            if is_read {
                let said = captured.messages();
                assert!(
                    said.starts_with("warning: the log of pod lost on node n2 cannot be read: "),
                    "{said}"
                );
                assert!(captured.data().contains("a line"), "{}", captured.data());
            }
        }
    }

    #[test]
    fn pods_that_were_deleted_with_their_logs_are_counted() {
        let pods = [("Failed", false), ("Running", true), ("Running", false)].map(|(phase, ends)| {
            json!({"metadata": {"deletionTimestamp": ends.then_some("2026-01-02T03:04:05Z")}, "status": {"phase": phase}})
        });
        for (failed, expected) in [
            (json!(null), None),
            (json!(1), None),
            (json!(2), None),
            (json!(3), Some("The log of an earlier pod was deleted with the pod.")),
            (json!(4), Some("The logs of 2 earlier pods were deleted with the pods.")),
        ] {
            assert_eq!(missing(&json!({"status": {"failed": failed}}), &pods).as_deref(), expected);
        }
    }
}
