//! `kubectl nm pause` and `kubectl nm resume`: set and clear `spec.suspend` of maintenances.

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use nm_core::args::names::distinct;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::{NodeSelection, check_exist};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::interaction::progress;
use nm_core::maintenance::start::Existing;
use nm_core::maintenance::suspend::suspend;
use nm_core::maintenance::{State, name_unless_node, node, purposes, roll_name, status};
use nm_core::plan::cost::{self, DrainCost};
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::record::roll_names;
use nm_shared::{Group, NodeMaintenance};

pub(crate) const PAUSE_EXAMPLES: &str = "\
Examples:
  # Evict no more pods of a node, and keep it cordoned
  kubectl nm pause node-1

  # Pause every maintenance without confirmation
  kubectl nm pause --all --yes";

pub(crate) const PAUSE_NOTES: &str = "\
A paused drain does not time out. Evictions that were already accepted, and migrations that were already requested from \
KubeVirt, continue. The medik8s node-maintenance-operator cannot pause a drain.

Exit codes: 0 paused, 1 some are not, 2 usage error, or more than one node and not confirmed.";

pub(crate) const RESUME_EXAMPLES: &str = "\
Examples:
  # Continue a maintenance that is paused, or start one that is planned
  kubectl nm resume node-1

  # Start the maintenances that are planned for a pool
  kubectl nm resume -l pool=blue --yes";

pub(crate) const RESUME_NOTES: &str = "\
--all and --selector leave out the nodes that a roll has planned: `kubectl nm roll resume NAME` continues a roll. Before a planned \
maintenance starts, what its drain would harm is reported as by `kubectl nm start`.

Exit codes: 0 resumed, 1 some are not, 2 usage error, or not confirmed.";

/// The arguments of `pause` and `resume`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename", "all"]).required(true).multiple(true))]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// All nodes in maintenance
    #[arg(long, conflicts_with_all = ["nodes", "selector", "filename"])]
    all: bool,

    /// Do not ask for confirmation before more than one maintenance is changed
    #[arg(long, short = 'y')]
    yes: bool,
}

/// Pauses the maintenances, or resumes them.
pub(crate) async fn run(
    args: PauseArgs,
    pause: bool,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let message = || format!("asking {} about nodes and maintenances", cluster.server());
    let found = progress::during(out, message, find(&args, cluster)).await?;
    if found.is_empty() {
        out.message(&Line::new("No maintenances found."));
    }
    // Nobody has named these nodes, and together they exceed the limit of their roll.
    let is_left_out = |object: &NodeMaintenance| {
        !pause && (args.all || args.nodes.are_known()) && is_planned_by_roll(object)
    };
    let (left_out, found): (Vec<_>, Vec<_>) = found.into_iter().partition(is_left_out);
    for roll in roll_names(&left_out) {
        let count = left_out.iter().filter(|object| roll_name(object) == Some(roll)).count();
        out.message_with_commands(&Line::new(format!(
            "{} {} planned by roll {roll}, and left out: `kubectl nm roll resume {roll}` continues the roll",
            counted(count, "node"),
            if count == 1 { "is" } else { "are" },
        )));
    }
    let (done, todo): (Vec<_>, Vec<_>) = found.into_iter().partition(|object| object.spec.suspend == pause);
    for object in &done {
        let words = if pause { "maintenance is already suspended" } else { "maintenance is not suspended" };
        out.data(&Line::new(format!("node/{} {words}{}", node(object), name_unless_node(object))))?;
    }
    for object in todo.iter().filter(|_| !pause) {
        if let Some(roll) = roll_name(object) {
            let until = if State::of(object) == State::Planned {
                ": it stays drained until its turn comes"
            } else {
                ""
            };
            out.message_with_commands(&Line::new(format!(
                "warning: node/{} is part of roll {roll}, whose windows, gates and limit do not apply to it now{until}; \
                 `kubectl nm roll resume {roll}` continues the roll",
                node(object)
            )));
        }
    }
    for object in todo.iter().filter(|object| pause && State::of(object) == State::Failed) {
        out.message(&Line::new(format!(
            "warning: node/{}: the drain has failed and evicts no pods; while the maintenance is paused, removing \
             the timeout does not continue the drain",
            node(object)
        )));
    }
    for roll in roll_names(&todo).into_iter().filter(|_| pause) {
        out.message_with_commands(&Line::new(format!(
            "Only the maintenance is paused: `kubectl nm roll pause {roll}` pauses roll {roll}, too"
        )));
    }
    let nodes: Vec<String> = todo.iter().map(|object| node(object).to_owned()).collect();
    let nodes = distinct(&nodes);
    let what = if pause { "Pause the maintenance of {}" } else { "Resume the maintenance of {}" };
    let is_refused = nodes.len() > 1 && !args.yes && !out.can_ask();
    let cost = if pause || is_refused { DrainCost::default() } else { cost_of(&todo, cluster).await };
    let (harms, slow, unknown) = (cost.harm_lines(), cost.slow_lines(), cost.unknown_line());
    let reasons = purposes(&todo);
    let question = Question {
        what,
        cluster: cluster.context(),
        nodes: &nodes,
        reason: reasons.as_deref(),
        harms: &harms,
        slow: &slow,
        unknown: unknown.as_ref(),
        is_late: cost.is_late(),
        ..Question::default()
    };
    question.ask_if_needed(args.yes, out)?;

    let change = async |object| (object, suspend(cluster, object, pause).await);
    let mut failures = Vec::new();
    for (object, changed) in progress::for_each(out, todo.iter(), "maintenances", change).await {
        match changed {
            Ok(changed) => out.data(&line(&changed, pause))?,
            Err(error) => failures.push((node(object).to_owned(), error)),
        }
    }
    Error::print_all(&failures, out);
    Ok(if failures.is_empty() { Exit::Done } else { Exit::Error })
}

/// What the drains would cost that begin: those of planned maintenances, as `start` reports it.
async fn cost_of(resumed: &[NodeMaintenance], cluster: &Cluster) -> DrainCost {
    let begins = resumed.iter().filter(|object| !status(object).has_begun());
    let nodes: Vec<String> = begins.map(|object| node(object).to_owned()).collect();
    if nodes.is_empty() {
        return DrainCost::default();
    }
    Box::pin(cost::assess(distinct(&nodes), None, cluster, Timestamp::now(), cost::TIME_LIMIT)).await
}

fn is_planned_by_roll(object: &NodeMaintenance) -> bool {
    let has_not_begun = matches!(State::of(object), State::Planned | State::Requested);
    roll_name(object).is_some() && object.spec.suspend && has_not_begun
}

/// The maintenances that have these nodes, or all that are not being deleted, ordered by node.
async fn find(args: &PauseArgs, cluster: &Cluster) -> Result<Vec<NodeMaintenance>, Error> {
    let mut all = cluster.maintenances().await?;
    if args.all {
        all.retain(|object| object.metadata.deletion_timestamp.is_none());
        all.sort_by_cached_key(|object| node(object).to_owned());
        return Ok(all);
    }
    let (mut found, mut idle) = (Vec::new(), Vec::new());
    for node in args.nodes.resolve(cluster).await? {
        match Existing::find(&node, &all) {
            Existing::Maintenance(object) => found.push(*object),
            // Most nodes that labels select are not in maintenance.
            _ if args.nodes.are_known() => {}
            Existing::Stopping(hold) => {
                return Err(match hold {
                    Some(hold) => Error::EndingHeld { node, hold },
                    None => Error::Ending(node),
                });
            }
            // The node of one that is kept is in service.
            Existing::Nothing | Existing::NameTaken(_) | Existing::Kept(_) => idle.push(node),
        }
    }
    if idle.is_empty() {
        return Ok(found);
    }
    check_exist(cluster, &idle).await?;
    let older = all_groups::maintenances(cluster).await.unwrap_or_default();
    let of_older = older.into_iter().find(|other| {
        other.group != Group::Medik8s && idle.iter().any(|idle| idle == node(&other.maintenance))
    });
    Err(match of_older {
        Some(other) => Error::OlderGroup {
            node: node(&other.maintenance).to_owned(),
            resource: other.group.definition(),
        },
        None => Error::NotInMaintenance(idle),
    })
}

fn line(object: &NodeMaintenance, pause: bool) -> Line {
    let words = match (pause, status(object).has_begun()) {
        (true, true) => "maintenance paused",
        // It may have begun at the same moment: the node is cordoned before the status shows it.
        (true, false) => "maintenance suspended",
        (false, true) => "maintenance resumed",
        (false, false) => "planned maintenance starts",
    };
    Line::new(format!("node/{} ", node(object))).with(Style::Good, words).and(name_unless_node(object))
}

#[cfg(test)]
mod tests {
    use nm_core::maintenance::ROLL_LABEL;
    use nm_core::terminal::output::captured::output;
    use nm_core::testing::fake_server::{cluster, failure, list, nodes};
    use nm_core::testing::objects::{requested, running, stopping, with_status};
    use serde_json::json;

    use super::*;

    fn args(line: &str) -> PauseArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: PauseArgs,
        }
        <Line as clap::Parser>::try_parse_from(std::iter::once("nm").chain(line.split(' '))).unwrap().args
    }

    fn draining(node: &str) -> NodeMaintenance {
        let mut status = running(40, &[]);
        status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned",
            "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        with_status(node, status)
    }

    fn suspended(node: &str) -> NodeMaintenance {
        let mut object = draining(node);
        object.spec.suspend = true;
        object
    }

    /// Changes a cluster with these objects, whose definition prunes `spec.suspend` for n3, and where n6 has not begun: the result, the printed text,
    /// and the names of the patched objects.
    async fn change(
        line: &str,
        pause: bool,
        existing: Vec<NodeMaintenance>,
    ) -> (Result<Exit, Error>, String, Vec<String>) {
        let (cluster, requests) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
            ("PATCH", Some("n3")) => (200, json!(draining("n3"))),
            ("PATCH", Some("n6")) => {
                let mut object = requested("n6");
                object.spec.suspend = pause;
                (200, json!(object))
            }
            ("PATCH", Some(name)) => {
                let mut object = draining(name);
                object.spec.suspend = pause;
                (200, json!(object))
            }
            (_, Some("nodes")) => nodes(&["n1", "n2", "n3", "n4"]),
            (_, Some("nodemaintenances")) if path.contains("medik8s") => list(&existing),
            (_, Some("n9")) => failure(404, "NotFound", "n9"),
            (_, Some("nodemaintenances" | "v1beta1" | "v1alpha1")) => failure(404, "NotFound", ""),
            (_, name) => (200, json!({"metadata": {"name": name}})),
        });
        let (mut out, captured) = output();
        let ended = run(args(line), pause, &cluster, &mut out).await;
        let log = requests.lock().unwrap();
        let patched = log.iter().filter_map(|line| line.strip_prefix("PATCH "));
        let name =
            |path: &str| path.rsplit('/').next().map(|name| name.split('?').next().unwrap().to_owned());
        let patched = patched.filter_map(name).collect();
        (ended, captured.data() + &captured.messages(), patched)
    }

    #[tokio::test]
    async fn pausing_and_resuming_twice_changes_nothing_the_second_time() {
        for (pause, object, printed, patched) in [
            (true, draining("n1"), "node/n1 maintenance paused\n", 1),
            // It has begun since it was listed.
            (true, requested("n1"), "node/n1 maintenance paused\n", 1),
            // Its status may not show yet that it has begun.
            (true, requested("n6"), "node/n6 maintenance suspended\n", 1),
            (true, suspended("n1"), "node/n1 maintenance is already suspended\n", 0),
            (false, suspended("n1"), "node/n1 maintenance resumed\n", 1),
            (false, draining("n1"), "node/n1 maintenance is not suspended\n", 0),
        ] {
            let name = object.spec.node_name.clone();
            let (ended, said, requests) = change(&name, pause, vec![object]).await;
            assert_eq!((ended.unwrap(), said.as_str(), requests.len()), (Exit::Done, printed, patched));
        }
    }

    #[tokio::test]
    async fn a_planned_maintenance_that_is_resumed_says_what_its_drain_costs() {
        let planned = || {
            let mut object = requested("n1");
            object.spec.suspend = true;
            object
        };
        let (ended, said, patched) = change("n1", false, vec![planned()]).await;
        assert_eq!((ended.unwrap(), patched.len()), (Exit::Done, 1));
        // The server answers little of what a plan reads.
        assert!(said.contains("no nm-reconciler was found") || said.contains("unknown: "), "{said}");
        let (_, said, _) = change("n1", false, vec![suspended("n1")]).await;
        assert_eq!(said, "node/n1 maintenance resumed\n", "its drain has begun before");
    }

    #[tokio::test]
    async fn labels_and_all_select_maintenances_that_are_not_stopping() {
        let existing = || vec![draining("n4"), draining("n2"), stopping(draining("n1")), draining("n5")];
        for (line, expected) in [("-l a=b -y", vec!["n2", "n4"]), ("--all -y", vec!["n2", "n4", "n5"])] {
            let (ended, _, patched) = change(line, true, existing()).await;
            assert_eq!(
                (ended.unwrap(), patched),
                (Exit::Done, expected.iter().map(ToString::to_string).collect())
            );
        }
        let (ended, printed, _) = change("-l a=b -y", true, vec![]).await;
        assert_eq!((ended.unwrap(), printed.as_str()), (Exit::Done, "No maintenances found.\n"));
    }

    #[tokio::test]
    async fn the_planned_nodes_of_a_roll_are_resumed_only_by_name() {
        let planned = |node: &str| {
            let mut object = requested(node);
            object.spec.suspend = true;
            object
        };
        let of_roll = |mut object: NodeMaintenance| {
            object.metadata.labels.get_or_insert_default().insert(ROLL_LABEL.into(), "kernel".into());
            object
        };
        let existing = || {
            let of_roll = [planned("n1"), planned("n5"), suspended("n4")].map(of_roll);
            of_roll.into_iter().chain([planned("n2")]).collect()
        };
        for (line, left_out, expected) in [
            ("--all -y", "2 nodes are", &["n2", "n4"][..]),
            ("-l a=b -y", "1 node is", &["n2", "n4"]),
            ("n1 -y", "", &["n1"]),
        ] {
            let (ended, printed, patched) = change(line, false, existing()).await;
            assert_eq!(
                (ended.unwrap(), patched),
                (Exit::Done, expected.iter().map(ToString::to_string).collect())
            );
            let notice = format!(
                "{left_out} planned by roll kernel, and left out: `kubectl nm roll resume kernel` continues the roll\n"
            );
            assert_eq!(printed.contains(&notice), !left_out.is_empty(), "{line}: {printed}");
            assert_eq!(printed.matches("left out").count(), usize::from(!left_out.is_empty()));
        }
        // A pause leaves nothing out.
        let (_, printed, _) = change("--all -y", true, existing()).await;
        assert_eq!(printed.matches("is already suspended").count(), 4, "{printed}");
        let unpaused =
            "Only the maintenance is paused: `kubectl nm roll pause kernel` pauses roll kernel, too\n";
        assert!(!printed.contains(unpaused), "{printed}");
        let draining = || [draining("n1"), draining("n2")].map(of_roll).into();
        let (_, printed, _) = change("--all -y", true, draining()).await;
        assert_eq!(printed.matches(unpaused).count(), 1, "{printed}");
    }

    #[tokio::test]
    async fn nothing_is_changed_if_a_named_node_has_no_maintenance_to_pause() {
        let existing = || vec![draining("n1"), stopping(draining("n2"))];
        let (ended, _, patched) = change("n1 n4 -y", true, existing()).await;
        assert!(matches!(ended, Err(Error::NotInMaintenance(nodes)) if nodes == ["n4"]));
        assert!(patched.is_empty());
        let (ended, _, patched) = change("n1 n2 -y", true, existing()).await;
        assert!(matches!(ended, Err(Error::Ending(node)) if node == "n2") && patched.is_empty());
        let (ended, _, _) = change("n9", true, existing()).await;
        assert!(matches!(ended, Err(Error::UnknownNodes { names, .. }) if names == ["n9"]));
    }

    #[tokio::test]
    async fn a_node_that_a_hook_holds_is_reported_with_the_hook_and_what_to_do() {
        let status = json!({"phase": "Succeeded", "hold": {"since": "2026-01-02T03:04:05Z",
            "hooks": [{"name": "heal", "owner": "ceph"}]}});
        let mut held = stopping(with_status("n1", status));
        let hook = (String::from("pre-return.hook.kubectl-nm.dev/heal"), String::from("ceph"));
        held.metadata.annotations = Some([hook].into());
        for pause in [true, false] {
            let (ended, _, patched) = change("n1", pause, vec![held.clone()]).await;
            let error = ended.unwrap_err();
            assert_eq!(
                error.to_string(),
                "the maintenance of node \"n1\" is being deleted, and the node stays cordoned, waiting for hook heal (owner: ceph)"
            );
            let hint = error.hint().unwrap();
            assert!(hint.contains("the owner removes") && hint.contains("`kubectl nm explain n1`"), "{hint}");
            assert!(patched.is_empty());
        }
    }

    #[tokio::test]
    async fn a_definition_and_an_operator_that_ignore_the_field_are_reported() {
        let (ended, printed, _) = change("n3", true, vec![draining("n3")]).await;
        assert_eq!(ended.unwrap(), Exit::Error);
        assert!(
            printed.contains("has no spec.suspend") && printed.contains("kubectl nm install"),
            "{printed}"
        );
        let theirs = with_status("n1", json!({"phase": "Running"}));
        let (ended, printed, patched) = change("n1", true, vec![theirs]).await;
        assert_eq!((ended.unwrap(), patched.len()), (Exit::Error, 1), "a dry run");
        assert!(printed.contains("medik8s") && printed.contains("kubectl nm stop n1"), "{printed}");
    }

    #[tokio::test]
    async fn more_than_one_maintenance_has_to_be_confirmed() {
        let (ended, _, patched) = change("n1 n2", true, vec![draining("n1"), draining("n2")]).await;
        assert!(matches!(ended, Err(Error::Unconfirmed)) && patched.is_empty());
    }

    #[tokio::test]
    async fn a_pause_of_a_failed_drain_says_that_nothing_is_evicted_anyway() {
        let mut failed = draining("n1");
        failed.status.as_mut().unwrap().phase = Some(nm_shared::Phase::Failed);
        let (ended, said, _) = change("n1", true, vec![failed]).await;
        assert_eq!(ended.unwrap(), Exit::Done);
        assert!(said.contains("warning: node/n1: the drain has failed"), "{said}");
    }
}
