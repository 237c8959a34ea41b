//! `kubectl nm stop`: ends the maintenance of nodes, whatever the names of the objects are.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{ArgGroup, Args};
use nm_core::args::duration;
use nm_core::args::names::distinct;
use nm_core::client::all_groups;
use nm_core::client::cluster::{Cluster, Deletion};
use nm_core::client::nodes::{NodeSelection, check_exist, unchecked};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::interaction::progress;
use nm_core::maintenance::ending::{NodeEnding, endings, keep_cordon};
use nm_core::maintenance::{name_unless_node, node, roll_name, status};
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted, first_names};
use nm_core::watch::goal_tracker::{Goal, GoalTracker, WaitTarget};
use nm_shared::gate::ownership;
use nm_shared::{BlockReason, Grant, Group, GroupedMaintenance, MigratingPod, NodeMaintenance};

use crate::commands::watch;

const EXAMPLES: &str = "\
Examples:
  # Return a node to service
  kubectl nm stop node-1

  # Return the nodes of a pool to service, and wait until this is done
  kubectl nm stop -l pool=blue --wait --timeout 1m

  # End the maintenance, and leave the node cordoned
  kubectl nm stop node-1 --keep-cordon --wait

  # Stop every maintenance without confirmation
  kubectl nm stop --all --yes";

const EXIT_CODES: &str = "\
Exit codes: 0 stopped or not in maintenance, 1 some are not stopped, 2 usage error, or more than one node \
and not confirmed. With --wait: 124 timed out, 130 interrupted.";

/// Stop the maintenance of nodes and return them to service
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename", "all"]).required(true).multiple(true))]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// All nodes in maintenance
    #[arg(long, conflicts_with_all = ["nodes", "selector", "filename"])]
    all: bool,

    /// Do not ask for confirmation before more than one node returns to service
    #[arg(long, short = 'y')]
    yes: bool,

    /// Leave the nodes cordoned, as after `kubectl cordon`; the other taints and the label of the maintenance are removed
    #[arg(long)]
    keep_cordon: bool,

    /// Wait until the nodes are back in service and the objects are gone
    #[arg(long)]
    wait: bool,

    /// How long to wait, such as 30s or 1h30m; 0 means forever
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(args: StopArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let message = || format!("asking {} about nodes and maintenances", cluster.server());
    let Found { maintenances, idle, hidden, warnings } =
        progress::during(out, message, Box::pin(find(&args, cluster))).await?;
    for warning in &warnings {
        out.message(warning);
    }
    for node in &idle {
        out.data(&Line::new(format!("node/{node} is not in maintenance")))?;
    }
    for node in hidden {
        out.message(&unchecked(&node));
    }
    if maintenances.is_empty() {
        if idle.is_empty() {
            out.message(&Line::new("No maintenances found."));
        }
        return Ok(Exit::Done);
    }
    let nodes: Vec<String> = maintenances.iter().map(|object| node(object).to_owned()).collect();
    let nodes = distinct(&nodes);
    let what = match (args.keep_cordon, nodes.len()) {
        (true, 1) => "End the maintenance of {} and leave it cordoned",
        (true, _) => "End the maintenance of {} and leave them cordoned",
        (false, _) => "Return {} to service",
    };
    let question = Question { what, cluster: cluster.context(), nodes: &nodes, ..Question::default() };
    question.ask_if_needed(args.yes, out)?;

    let endings = progress::during(
        out,
        || String::from("reading the nodes"),
        endings(cluster, &maintenances, args.keep_cordon),
    )
    .await;
    let stop = async |object: &GroupedMaintenance| match object.metadata.deletion_timestamp {
        // The node may be back in service already.
        Some(_) if args.keep_cordon && !ownership::keeps_cordon(object) => {
            Err(Error::AlreadyStopping(node(object).to_owned()))
        }
        Some(_) => Ok(Deletion::UnderWay),
        None => {
            if args.keep_cordon {
                keep_cordon(cluster, object).await?;
            }
            all_groups::delete(cluster, object).await
        }
    };
    let stop = async |object| (object, stop(object).await);
    let (mut targets, mut failures) = (Vec::new(), Vec::new());
    for (object, stopped) in progress::for_each(out, maintenances.iter(), "maintenances", stop).await {
        match stopped {
            Ok(deletion) => {
                out.data(&line(object, deletion, endings.get(node(object)).copied()))?;
                if args.keep_cordon && !status(object).has_begun() {
                    out.message(&Line::new(format!(
                        "warning: node/{} was not cordoned by its maintenance, which had not begun",
                        node(object)
                    )));
                }
                if deletion == Deletion::UnderWay {
                    let warnings =
                        of_roll(&object.maintenance).into_iter().chain(machines(&object.maintenance));
                    warnings.for_each(|warning| out.message(&warning));
                }
                targets
                    .extend((deletion == Deletion::UnderWay).then(|| WaitTarget::from(&object.maintenance)));
            }
            Err(error) => failures.push((node(object).to_owned(), error)),
        }
    }
    Error::print_all(&failures, out);
    let exit = if args.wait && !targets.is_empty() {
        let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
        let is_older = |group: &Group| maintenances.iter().any(|object| object.group == *group);
        let older: Vec<Group> =
            Group::ALL.into_iter().filter(|group| *group != Group::Medik8s && is_older(group)).collect();
        let cluster = cluster.with_older_groups(&older);
        let words = endings.into_iter().map(|(node, ending)| (node, ending.words().to_owned())).collect();
        let tracker = GoalTracker::for_targets(Goal::Stopped, targets);
        watch::wait(tracker, timeout, words, &cluster, out).await?
    } else {
        Exit::Done
    };
    Ok(if !failures.is_empty() && exit == Exit::Done { Exit::Error } else { exit })
}

/// What it means that the node of a roll is stopped.
fn of_roll(object: &NodeMaintenance) -> Option<Line> {
    let (roll, node) = (roll_name(object)?, node(object));
    Some(Line::new(format!(
        "warning: node/{node} leaves roll {roll} before the node is done, so that the roll exits with code 3 even if its other \
         nodes are done. `kubectl nm roll abort {roll}` aborts the whole roll"
    )))
}

/// The virtual machines that leave although the maintenance ends, and how others could be kept.
fn machines(object: &NodeMaintenance) -> Vec<Line> {
    let node = node(object);
    let migrating = || status(object).migrating_pods.iter().flatten();
    let mut leaving: BTreeSet<String> = migrating()
        .filter(|pod| !pod.stays_on_stop)
        .map(|pod| {
            let target = pod.target.as_ref().map(|target| format!(" to {target}"));
            format!("{}/{}{}", pod.namespace, pod.machine, target.unwrap_or_default())
        })
        .collect();
    // What nm-reconciler may not read, it cannot keep either.
    let unseen = status(object).blocked_pods.iter().filter(|pod| {
        let is_of_machine =
            matches!(pod.reason, BlockReason::MigrationNotStarted | BlockReason::MigrationFailed);
        is_of_machine && pod.facts.migration.is_none()
    });
    let unseen: Vec<String> = unseen.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let has_unseen = !unseen.is_empty();
    leaving.extend(unseen);
    if leaving.is_empty() {
        return Vec::new();
    }
    let (count, names) = (counted(leaving.len(), "virtual machine"), leaving.into_iter().collect::<Vec<_>>());
    let leave = if names.len() == 1 { "leaves" } else { "leave" };
    let warning = format!("warning: {count} still {leave} node/{node}: {}", first_names(&names));
    let has_begun = |pod: &MigratingPod| pod.migration.is_some() || pod.target.is_some();
    let is_keepable = |pod: &MigratingPod| !pod.stays_on_stop && !has_begun(pod);
    let hint = (has_unseen || migrating().any(is_keepable)).then(|| {
        format!(
            "hint: after `kubectl nm install --grant {}`, virtual machines whose migration has not \
             started stay on the node",
            Grant::VirtualMachines
        )
    });
    [Some(warning), hint].into_iter().flatten().map(Line::new).collect()
}

#[derive(Default)]
struct Found {
    /// The maintenances to stop, ordered by node.
    maintenances: Vec<GroupedMaintenance>,
    /// The named nodes that are not in maintenance.
    idle: Vec<String>,
    /// Those of them that the user may not read.
    hidden: Vec<String>,
    warnings: Vec<Line>,
}

async fn find(args: &StopArgs, cluster: &Cluster) -> Result<Found, Error> {
    if args.all {
        let (mut maintenances, older) = all_groups::shown(cluster).await?;
        maintenances.sort_by_cached_key(|object| node(object).to_owned());
        return Ok(Found { maintenances, warnings: older.warnings, ..Found::default() });
    }
    let nodes = args.nodes.resolve(cluster).await?;
    let (existing, older) = all_groups::shown(cluster).await?;
    let (maintenances, warnings) = (of_nodes(&nodes, &existing), older.warnings);
    // Most nodes that labels select are not in maintenance.
    if args.nodes.are_known() {
        return Ok(Found { maintenances, warnings, ..Found::default() });
    }
    let is_idle = |name: &String| !maintenances.iter().any(|object| node(object) == name);
    let idle: Vec<String> = nodes.into_iter().filter(is_idle).collect();
    let hidden = check_exist(cluster, &idle).await?;
    Ok(Found { maintenances, idle, hidden, warnings })
}

fn of_nodes(nodes: &[String], existing: &[GroupedMaintenance]) -> Vec<GroupedMaintenance> {
    let of_node = |name| existing.iter().filter(move |object| node(object) == name).cloned();
    nodes.iter().flat_map(of_node).collect()
}

fn line(object: &NodeMaintenance, deletion: Deletion, ending: Option<NodeEnding>) -> Line {
    let line = Line::new(format!("node/{} ", node(object)));
    let line = match deletion {
        Deletion::Gone => line.with(Style::Good, "maintenance stopped"),
        Deletion::Replaced => {
            line.with(Style::Good, "maintenance stopped").and(", and another one was started")
        }
        Deletion::UnderWay if object.metadata.deletion_timestamp.is_some() => {
            line.with(Style::Busy, "maintenance is already stopping")
        }
        Deletion::UnderWay => line.with(Style::Busy, "maintenance is stopping"),
    };
    let line = line.and(name_unless_node(object));
    match ending {
        Some(NodeEnding::CordonedBefore | NodeEnding::CordonKept) if deletion == Deletion::UnderWay => {
            let words = ending.map_or("", NodeEnding::words);
            line.and(": the node ").and(words)
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use nm_core::maintenance::uid;
    use nm_core::terminal::output::captured::output;
    use nm_core::testing::fake_server::{cluster, failure, list, nodes};
    use nm_core::testing::objects::{named, requested, stopping};
    use nm_shared::NodeMaintenanceStatus;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_object_of_a_node_is_found_whatever_its_name() {
        let existing =
            [requested("n2"), named("a", "n1", "u"), stopping(named("b", "n1", "v")), named("n1", "n3", "w")];
        let existing = existing.map(|maintenance| GroupedMaintenance { group: Group::Medik8s, maintenance });
        let nodes = ["n1".to_owned(), "n2".to_owned()];
        let found: Vec<String> = of_nodes(&nodes, &existing).iter().map(|object| uid(object)).collect();
        assert_eq!(found, ["u", "v", "uid-n2"]);
    }

    /// Stops in a cluster with these objects: the result, the printed text, and the deleted objects.
    async fn stop(
        args: StopArgs,
        existing: Vec<NodeMaintenance>,
    ) -> (Result<Exit, Error>, String, Vec<String>) {
        let (cluster, requests) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
            ("DELETE", Some("n3")) => failure(403, "Forbidden", "n3"),
            ("DELETE", Some("n6")) => failure(409, "Conflict", "n6"),
            ("DELETE", _) => {
                (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
            }
            (_, Some("nodes")) => nodes(&["n1", "n2", "n4"]),
            (_, Some("nodemaintenances")) => list(&existing),
            (_, Some("n9")) => failure(404, "NotFound", "n9"),
            (_, Some("n8")) => failure(403, "Forbidden", "n8"),
            (_, name) => (200, json!({"metadata": {"name": name}})),
        });
        let (mut out, captured) = output();
        let ended = run(args, &cluster, &mut out).await;
        let log = requests.lock().unwrap();
        let deleted = log.iter().filter_map(|line| line.strip_prefix("DELETE "));
        let deleted = deleted.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect();
        (ended, captured.data() + &captured.messages(), deleted)
    }

    fn args(line: &str) -> StopArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: StopArgs,
        }
        <Line as clap::Parser>::try_parse_from(std::iter::once("nm").chain(line.split(' '))).unwrap().args
    }

    #[tokio::test]
    async fn a_node_that_is_not_in_maintenance_is_not_an_error_if_it_exists() {
        let (ended, printed, deleted) = stop(args("n1 n8"), vec![]).await;
        assert_eq!((ended.unwrap(), deleted.len()), (Exit::Done, 0));
        assert_eq!(
            printed,
            "node/n1 is not in maintenance\n\
             node/n8 is not in maintenance\n\
             node/n8: cannot check that it exists, because you have no permission to read nodes\n"
        );
        let (ended, _, deleted) = stop(args("n1 n9 -y"), vec![requested("n1")]).await;
        assert!(matches!(ended, Err(Error::UnknownNodes { names, .. }) if names == ["n9"]));
        assert!(deleted.is_empty(), "{deleted:?}");
    }

    #[test]
    fn machines_that_leave_nevertheless_are_named_with_the_grant_that_would_keep_others() {
        let pod = |machine: &str| MigratingPod {
            namespace: "vms".to_owned(),
            name: format!("virt-launcher-{machine}"),
            machine: machine.to_owned(),
            ..MigratingPod::default()
        };
        let shown = |pods: Vec<MigratingPod>| {
            let status =
                NodeMaintenanceStatus { migrating_pods: Some(pods), ..NodeMaintenanceStatus::default() };
            let object = NodeMaintenance { status: Some(status), ..requested("n1") };
            machines(&object).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let stays = MigratingPod { stays_on_stop: true, ..pod("a") };
        let begun = MigratingPod { target: Some("n2".to_owned()), ..pod("b") };
        assert_eq!(shown(vec![stays.clone()]), [""; 0]);
        let warning = "warning: 1 virtual machine still leaves node/n1: vms/b to n2";
        assert_eq!(shown(vec![stays, begun]), [warning]);
        let unknown = shown(vec![pod("c")]);
        assert!(unknown.len() == 2 && unknown[1].contains("--grant virtual-machines"), "{unknown:?}");
    }

    #[test]
    fn machines_that_are_blocked_without_a_visible_migration_are_named_too() {
        let blocked = |migration: Value| {
            let mut pod = json!({"namespace": "vms", "name": "virt-launcher-u", "reason": "MigrationNotStarted",
                "message": "", "since": "2026-01-01T00:00:00Z", "attempts": 0});
            if !migration.is_null() {
                pod["migration"] = migration;
            }
            let status = serde_json::from_value(json!({"blockedPods": [pod]})).unwrap();
            let object = NodeMaintenance { status: Some(status), ..requested("n1") };
            machines(&object).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let unseen = blocked(Value::Null);
        assert_eq!(unseen[0], "warning: 1 virtual machine still leaves node/n1: vms/virt-launcher-u");
        assert!(unseen[1].contains("--grant virtual-machines"), "{unseen:?}");
        assert_eq!(blocked(json!({"name": "m", "phase": "Pending"})), [""; 0], "its migration is deleted");
    }

    #[tokio::test]
    async fn a_cordon_is_kept_by_an_annotation_that_is_written_before_the_maintenance_is_deleted() {
        let conditions = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let begun = |node: &str, conditions: &Value| NodeMaintenance {
            status: serde_json::from_value(json!({"phase": "Succeeded", "conditions": conditions})).unwrap(),
            ..requested(node)
        };
        let existing = [
            begun("n1", &conditions),
            begun("n2", &json!([])),
            stopping(begun("n3", &conditions)),
            begun("n4", &conditions),
        ];
        let (cluster, requests) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
            ("DELETE", name) => (
                200,
                json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1",
                "kind": "NodeMaintenance", "metadata": {"name": name, "uid": format!("uid-{}", name.unwrap()),
                "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["f"]}, "spec": {"nodeName": name}}),
            ),
            ("PATCH", Some(name)) => (200, json!(existing.iter().find(|object| node(object) == name))),
            (_, Some("nodemaintenances")) => list(&existing),
            (_, name) => {
                let record = json!({"madeUnschedulable": name != Some("n4")}).to_string();
                (
                    200,
                    json!({"metadata": {"name": name, "annotations": {"kubectl-nm.dev/undo": record},
                    "labels": {"remediation.medik8s.io/exclude-from-remediation": "true"}}}),
                )
            }
        });
        let (mut out, captured) = output();
        let ended = run(args("--all -y --keep-cordon"), &cluster, &mut out).await;
        assert_eq!(ended.unwrap(), Exit::Error);
        assert_eq!(
            captured.data(),
            "node/n1 maintenance is stopping: the node stays cordoned\n\
             node/n4 maintenance is stopping: the node stays cordoned, as before\n"
        );
        let messages = captured.messages();
        for expected in ["medik8s node-maintenance-operator, which uncordons", "is already stopping"] {
            assert!(messages.contains(expected), "{messages}");
        }
        let log = requests.lock().unwrap();
        let of_first: Vec<&str> = log
            .iter()
            .filter(|line| line.ends_with("nodemaintenances/n1"))
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(of_first, ["PATCH", "DELETE"]);
        assert!(!log.iter().any(|line| line.ends_with("nodemaintenances/n2")), "it is left alone: {log:?}");
    }

    #[tokio::test]
    async fn labels_and_all_select_nodes_in_maintenance() {
        let existing = || vec![requested("n4"), requested("n2"), requested("n5")];
        for (line, expected) in [("-l a=b -y", vec!["n2", "n4"]), ("--all -y", vec!["n2", "n4", "n5"])] {
            let (ended, printed, deleted) = stop(args(line), existing()).await;
            assert_eq!(
                (ended.unwrap(), deleted),
                (Exit::Done, expected.iter().map(ToString::to_string).collect())
            );
            let stopped = expected
                .iter()
                .fold(String::new(), |all, node| format!("{all}node/{node} maintenance stopped\n"));
            assert_eq!(printed, stopped, "{line}");
            let (ended, printed, _) = stop(args(line), vec![]).await;
            assert_eq!(
                (ended.unwrap(), printed.as_str()),
                (Exit::Done, "No maintenances found.\n"),
                "{line}"
            );
        }
    }

    #[tokio::test]
    async fn a_maintenance_that_was_started_meanwhile_is_not_stopped_and_reported() {
        let (ended, printed, _) = stop(args("n6"), vec![requested("n6")]).await;
        let said = "node/n6 maintenance stopped, and another one was started\n";
        assert_eq!((ended.unwrap(), printed.as_str()), (Exit::Done, said));
    }

    #[tokio::test]
    async fn more_than_one_node_has_to_be_confirmed() {
        for line in ["n1 n2", "--all", "-l a=b"] {
            let (ended, _, deleted) = stop(args(line), vec![requested("n1"), requested("n2")]).await;
            assert!(matches!(ended, Err(Error::Unconfirmed)), "{line}");
            assert!(deleted.is_empty(), "{line}");
        }
    }

    #[tokio::test]
    async fn a_refusal_for_one_node_does_not_affect_the_others() {
        let (ended, printed, _) = stop(args("--all -y"), vec![requested("n3"), requested("n4")]).await;
        assert_eq!(ended.unwrap(), Exit::Error);
        let expected =
            "node/n4 maintenance stopped\nError from server (Forbidden): n3 Forbidden (node/n3)\nhint: ";
        assert!(printed.starts_with(expected), "{printed}");
    }
}
