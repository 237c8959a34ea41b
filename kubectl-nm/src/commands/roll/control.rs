//! `kubectl nm roll pause` and `abort`.

use std::time::Duration;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::maintenance::purposes;
use nm_core::maintenance::roll::RollRunners;
use nm_core::maintenance::roll_job::RollJob;
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::error::RollError;
use nm_roll::finisher::{Finisher, RunnerSign, finisher, is_seen};
use nm_roll::in_cluster::starting::starting;
use nm_roll::record::{ActionRecord, ActionState, Roll, RollNode, RollRecord, Step};
use nm_roll::skip::is_untouched;
use nm_roll::stopped_rolls::ended_action;
use nm_roll::store;
use nm_roll::unfinished::return_hint;

use super::args::AbortArgs;
use super::run::this_runner;

/// How long the program that runs a roll may take to answer that it finishes its nodes. It usually answers within a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a node that has not had its turn stays in maintenance.
const STARTED_EARLY: &str = "somebody has started its drain before its turn";

pub(super) async fn pause(name: &str, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let (roll, record) = store::pause(cluster, name, true, &this_runner().who).await?;
    out.data(&Line::new(format!("roll {name} ")).with(Style::Good, "paused"))?;
    if let Some(continuing) = continuing(&roll, &record, Timestamp::now()) {
        out.message(&Line::new(continuing));
    }
    Ok(Exit::Done)
}

/// What a pause does not interrupt: commands and Jobs that have started. Without a program that runs the roll, only Jobs run on.
fn continuing(roll: &Roll, record: &RollRecord, now: Timestamp) -> Option<String> {
    let is_run = is_seen(record, now);
    let continues = |node: &&RollNode| {
        let is_running = node.record.current_action().is_some_and(ActionRecord::is_running);
        is_running && (is_run || !roll.settings.runs_command(node.record.step))
    };
    match roll.nodes.iter().filter(continues).count() {
        0 => None,
        acting if is_run => Some(format!("The action of {} is not interrupted.", counted(acting, "node"))),
        acting => Some(format!(
            "The Job of {} is not interrupted, and its result is read when the roll continues.",
            counted(acting, "node")
        )),
    }
}

pub(super) async fn abort(args: &AbortArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    let loaded = store::load(cluster, name).await;
    let broken =
        loaded.as_ref().err().and_then(Error::above).filter(|error: &&RollError| error.is_about_records());
    if let (true, Some(broken)) = (args.return_all, broken) {
        return abort_unread(args, broken, cluster, out).await;
    }
    let roll = loaded?;
    // Whoever has started a drain before its turn may work on the node.
    let is_left = |node: &RollNode| (node.is_worked_on() || node.is_started_early()) && !args.return_all;
    let nodes: Vec<String> =
        roll.nodes.iter().filter(|node| !is_left(node)).map(|node| node.node().to_owned()).collect();
    let what = match nodes.len() {
        // What has started stays, as the end of this command reports.
        0 => format!("End roll {name}"),
        ended => format!("End roll {name}, and the maintenance of {}", counted(ended, "node")),
    };
    let harms = match (args.return_all, args.yes) {
        (true, _) => ended_actions(&roll, cluster.kubectl(), Timestamp::now()),
        (false, false) => {
            roll.nodes.iter().filter(|node| is_left(node)).map(|node| stays(node, &roll)).collect()
        }
        // The end of this command says it.
        (false, true) => Vec::new(),
    };
    let context = cluster.context();
    let reasons = purposes(roll.nodes.iter().map(|node| &*node.object));
    let reason = reasons.as_deref();
    let question = Question {
        what: &what,
        cluster: context,
        nodes: &nodes,
        reason,
        harms: &harms,
        ..Question::default()
    };
    question.ask(args.yes, out)?;
    let record = match roll.complete_record() {
        Ok(_) => {
            // So that nothing begins meanwhile.
            let aborted = Some(this_runner().who);
            let abort =
                |_: &Roll, record| Ok(RollRecord { paused: true, aborted: aborted.clone(), ..record });
            store::update(cluster, name, abort).await?.1
        }
        Err(_) => RollRecord::default(),
    };
    for node in store::remove(cluster, name, |node| !is_left(node)).await? {
        out.data(&Line::new(format!("node/{} ", node.node())).with(Style::Good, removal(&node)))?;
    }
    let early = if args.return_all { Vec::new() } else { store::hand_over(cluster, name).await? };
    let rest = match store::load(cluster, name).await {
        Ok(roll) => Some(roll),
        Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => None,
        Err(error) => return Err(error),
    };
    let left: Vec<&RollNode> =
        rest.iter().flat_map(|roll| &roll.nodes).filter(|node| is_left(node)).collect();
    let finisher =
        if left.is_empty() { Finisher::Nobody } else { find_finisher(&roll, &record, cluster).await };
    report_left(&roll, &finisher, &left, &early, out)?;
    Ok(Exit::Done)
}

/// What becomes of a node that the abort takes out of the roll.
fn removal(node: &RollNode) -> &'static str {
    match () {
        () if is_untouched(node) => "planned maintenance deleted",
        () if node.is_in_service() => "in service, and no longer checked",
        () => "maintenance is stopping",
    }
}

/// The commands and the Jobs that end because all nodes of a roll return to service.
fn ended_actions(roll: &Roll, kubectl: &str, now: Timestamp) -> Vec<Line> {
    let runners = RollRunners::of(roll.nodes.iter().map(|node| &*node.object));
    let ended = |node: &RollNode| ended_action(roll, node.node(), &runners, kubectl, now);
    roll.nodes.iter().filter_map(ended).map(|text| Line::new(format!("warning: {text}"))).collect()
}

/// That the maintenance of a node does not end with its roll.
fn stays(node: &RollNode, roll: &Roll) -> Line {
    let (name, step) = (node.node(), node.record.step.word());
    Line::new(format!("node/{name} ({step}) does not return to service now: {}", begun(node, roll)))
}

/// Who finishes the nodes of an aborted roll: the program that runs it is asked, and the Job that is to run it is read.
async fn find_finisher(roll: &Roll, record: &RollRecord, cluster: &Cluster) -> Finisher {
    let runner = match &record.runner {
        Some(last) if record.halt.is_none() => {
            match store::find_runner(cluster, &roll.name, last, ANSWER_TIMEOUT).await {
                Ok(None) => RunnerSign::Silent,
                Ok(Some(runner)) => RunnerSign::Runs(runner.who),
                // Meanwhile, it has finished the last node.
                Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => {
                    RunnerSign::Runs(last.who.clone())
                }
                // The roll is aborted already, whatever can be read now.
                Err(_) => RunnerSign::Unread(last.who.clone()),
            }
        }
        _ => RunnerSign::Silent,
    };
    let job = if roll.settings.in_cluster && runner == RunnerSign::Silent {
        starting(cluster, &roll.name).await.unwrap_or_else(|error| Some(RollJob::Unread(error.to_string())))
    } else {
        None
    };
    finisher(roll, record, runner, job.as_ref(), Timestamp::now())
}

/// Reports that a roll is aborted, and what becomes of the nodes whose command or Job has started, and of those whose drain
/// somebody has started `early`, before their turn.
fn report_left(
    roll: &Roll,
    finisher: &Finisher,
    left: &[&RollNode],
    early: &[String],
    out: &mut Output,
) -> Result<(), Error> {
    let name = roll.name.as_str();
    let aborted = Line::new(format!("roll {name} ")).with(Style::Good, "aborted");
    let stay = |count: usize| {
        format!("{} {} in maintenance", counted(count, "node"), if count == 1 { "stays" } else { "stay" })
    };
    out.data(&aborted.and(match finisher {
        _ if left.is_empty() && early.is_empty() => String::new(),
        Finisher::Known(who) => {
            let it = if left.len() == 1 { "it" } else { "them" };
            format!(": {who} finishes {}, and returns {it} to service", counted(left.len(), "node"))
        }
        Finisher::Perhaps(who) => {
            format!(": {}, unless {who} still runs the roll", stay(left.len() + early.len()))
        }
        Finisher::Nobody => format!(": {}", stay(left.len() + early.len())),
    }))?;
    for node in early {
        out.message_with_commands(&Line::new(format!(
            "node/{node} stays in maintenance, and is no longer part of the roll: {STARTED_EARLY}; \
             `kubectl nm stop {}` returns it to service",
            shell_quoted(node)
        )));
    }
    if !left.is_empty() {
        report_begun(roll, finisher, left, out);
    }
    Ok(())
}

/// Reports what has begun on the nodes of an aborted roll, and what continues it or returns them.
fn report_begun(roll: &Roll, finisher: &Finisher, left: &[&RollNode], out: &mut Output) {
    let name = roll.name.as_str();
    let it = if left.len() == 1 { "it" } else { "them" };
    for node in left {
        let (name, step) = (node.node(), node.record.step.word());
        out.message(&Line::new(format!("node/{name} ({step}): {}", begun(node, roll))));
    }
    let nodes: Vec<&str> = left.iter().map(|node| node.node()).collect();
    let waits = left.iter().filter(|node| node.record.action_of(Step::Acting).is_none());
    let waits: Vec<&str> = waits.map(|node| node.node()).collect();
    let still = match waits.as_slice() {
        [] => String::new(),
        nodes => format!("the roll still drains {}, and runs its command or its Job; ", nodes.join(", ")),
    };
    let hint = match finisher {
        Finisher::Known(_) => format!(
            "{still}`kubectl nm roll watch {name}` shows the progress, and `kubectl nm roll abort {name} --return` returns \
             {it} to service at \
             once. A node whose command or Job fails stays in maintenance"
        ),
        Finisher::Perhaps(_) | Finisher::Nobody => {
            let resumes = if waits.is_empty() {
                "finishes the command or the Job first"
            } else {
                "continues the roll after all, and runs its command or its Job"
            };
            format!("{}; `kubectl nm roll resume {name}` {resumes}", return_hint(name, &nodes))
        }
    };
    out.hint(&hint);
}

/// Why an aborted roll does not just return a node to service.
fn begun(node: &RollNode, roll: &Roll) -> String {
    if node.is_started_early() {
        return STARTED_EARLY.to_owned();
    }
    let steps = [Step::Finishing, Step::Acting, Step::Preparing].into_iter();
    let mut actions = steps.filter_map(|step| Some((step, node.record.action_of(step)?)));
    let Some((step, action)) = actions.next() else { return String::from("its drain has ended") };
    let what = if roll.settings.runs_command(step) { "command" } else { "Job" };
    let flag = match step {
        Step::Preparing => "--before ",
        Step::Finishing => "--after ",
        _ => "",
    };
    let state = match action.state {
        ActionState::Running => "has started",
        ActionState::Succeeded | ActionState::Disconnected => "has run",
        ActionState::Failed(_) | ActionState::JobFailed(_) => "failed",
        ActionState::NotStarted(_) => "did not start",
    };
    format!("its {flag}{what} {state}")
}

/// Ends a roll whose records cannot be read: all of its nodes return to service.
async fn abort_unread(
    args: &AbortArgs,
    broken: &RollError,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    out.message(&Line::new(format!(
        "warning: {broken}. The nodes whose command or Job has started are unknown. Running Jobs continue."
    )));
    let what = format!("End roll {name}, and return all of its nodes to service");
    Question { what: &what, cluster: cluster.context(), ..Question::default() }.ask(args.yes, out)?;
    for object in store::remove_unread(cluster, name).await? {
        let node = Line::new(format!("node/{} ", object.spec.node_name));
        out.data(&node.with(Style::Good, "maintenance is stopping"))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use jiff::SignedDuration;
    use kube::ResourceExt;
    use nm_core::terminal::output::captured::output;
    use nm_core::testing::fake_server::{failure, list, reading_cluster};
    use nm_core::testing::objects::requested;
    use nm_roll::in_cluster::runner_job;
    use nm_roll::record::{Halt, LABEL, NODE, Runner, SETTINGS, STATE, annotation};
    use nm_shared::NodeMaintenance;
    use serde_json::{Value, json};

    use super::*;

    /// A roll of these nodes, which are at their action, a command, or a Job if the roll runs in the cluster.
    fn roll(nodes: &[&str], in_cluster: bool) -> Roll {
        let action = if in_cluster { json!({"job": {}}) } else { json!({"run": "reboot"}) };
        let settings = json!({"waves": [1], "maxUnavailable": 1, "action": action, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "inCluster": in_cluster});
        let node = json!({"wave": 0, "position": 0, "step": "Acting", "since": "2026-01-02T03:04:05Z",
            "action": {"attempt": 1, "state": "running"}});
        let nodes = nodes.iter().map(|name| {
            let mut object = requested(name);
            object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
            let annotations = [(SETTINGS, settings.to_string()), (NODE, node.to_string())];
            object.metadata.annotations = Some(annotations.map(|(key, text)| (key.to_owned(), text)).into());
            Arc::new(object)
        });
        Roll::find("r", &nodes.collect::<Vec<_>>()).unwrap().unwrap()
    }

    fn report(left: &[&str], in_cluster: bool, finisher: &Finisher) -> (String, String) {
        let roll = roll(&[&["n0"], left].concat(), in_cluster);
        let is_left = |node: &&RollNode| left.contains(&node.node());
        let (mut out, captured) = output();
        let left: Vec<&RollNode> = roll.nodes.iter().filter(is_left).collect();
        report_left(&roll, finisher, &left, &[], &mut out).unwrap();
        (captured.data(), captured.messages())
    }

    #[test]
    fn an_abort_reports_who_finishes_a_node_or_that_it_stays_in_maintenance_and_what_returns_it() {
        assert_eq!(report(&[], false, &Finisher::Nobody), (String::from("roll r aborted\n"), String::new()));
        let (done, messages) = report(&["n1"], false, &Finisher::Nobody);
        assert_eq!(done, "roll r aborted: 1 node stays in maintenance\n");
        assert_eq!(
            messages,
            "node/n1 (Acting): its command has started\n\
             hint: once the work is done, `kubectl nm roll abort r --return --yes` or `kubectl nm stop n1` returns the node to service; \
             `kubectl nm roll resume r` finishes the command or the Job first\n"
        );
        let job = String::from("Job node-maintenance-rolls/nm-roll-r");
        let (done, messages) = report(&["n1"], true, &Finisher::Known(job.clone()));
        assert_eq!(done, format!("roll r aborted: {job} finishes 1 node, and returns it to service\n"));
        assert_eq!(
            messages,
            "node/n1 (Acting): its Job has started\n\
             hint: `kubectl nm roll watch r` shows the progress, and `kubectl nm roll abort r --return --yes` returns it to service at once. \
             A node whose command or Job fails stays in maintenance\n"
        );
        let (done, messages) = report(&["n1", "n2"], true, &Finisher::Perhaps(job.clone()));
        assert_eq!(
            done,
            format!("roll r aborted: 2 nodes stay in maintenance, unless {job} still runs the roll\n")
        );
        assert!(messages.contains(" or `kubectl nm stop n1 n2 --yes` returns them"), "{messages}");
    }

    #[test]
    fn the_question_says_which_nodes_stay_and_which_commands_end() {
        let mut roll = roll(&["n1", "n2"], false);
        let words = |lines: Vec<Line>| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            words(roll.nodes.iter().map(|node| stays(node, &roll)).collect())[0],
            "node/n1 (Acting) does not return to service now: its command has started"
        );
        let now = Timestamp::now();
        assert_eq!(words(ended_actions(&roll, "kubectl", now)), [""; 0], "nobody runs the roll");
        let at = json!({"revision": 1, "runner": {"id": "x", "who": "ada@laptop", "at": now}}).to_string();
        let object = Arc::make_mut(&mut roll.nodes[0].object);
        object.annotations_mut().insert(STATE.to_owned(), at);
        let warning =
            "warning: the command of roll r runs for node/n2 now: the roll terminates it within seconds";
        assert_eq!(words(ended_actions(&roll, "kubectl", now))[1], warning);
        let node = &mut roll.nodes[1];
        (node.record.step, node.record.action) = (Step::Planned, None);
        assert_eq!(removal(node), "planned maintenance deleted");
        let status = json!({"conditions": [{"type": "Cordoned", "status": "True", "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
        Arc::make_mut(&mut node.object).status = Some(serde_json::from_value(status).unwrap());
        assert_eq!(
            stays(&roll.nodes[1], &roll).to_string(),
            "node/n2 (Planned) does not return to service now: somebody has started its drain before its turn"
        );
        assert_eq!(removal(&roll.nodes[1]), "maintenance is stopping", "with --return");
    }

    #[test]
    fn a_pause_names_what_continues_which_without_a_program_are_jobs_alone() {
        let now = Timestamp::from_second(10_000).unwrap();
        let all = Some("The action of 2 nodes is not interrupted.");
        let jobs =
            Some("The Job of 2 nodes is not interrupted, and its result is read when the roll continues.");
        for (in_cluster, last_sign, expected) in [
            (false, Some(7), all),
            (false, Some(600), None),
            (false, None, None),
            (true, Some(7), all),
            (true, Some(600), jobs),
            (true, None, jobs),
        ] {
            let runner = last_sign.map(|ago| Runner {
                id: "x".into(),
                who: "ada".into(),
                at: now - SignedDuration::from_secs(ago),
                in_cluster,
                node: None,
            });
            let record = RollRecord { runner, ..RollRecord::default() };
            let shown = continuing(&roll(&["n1", "n2"], in_cluster), &record, now);
            assert_eq!(shown.as_deref(), expected, "{in_cluster} {last_sign:?}");
        }
    }

    #[test]
    fn an_aborted_node_whose_action_has_not_begun_is_not_said_to_run_it() {
        let node = json!({"wave": 0, "position": 0, "step": "Draining", "since": "2026-01-02T03:04:05Z",
            "before": {"attempt": 1, "state": "succeeded"}});
        let mut object = requested("n1");
        let settings = roll(&["n0"], false).nodes[0].object.annotations()[SETTINGS].clone();
        let mut settings: Value = serde_json::from_str(&settings).unwrap();
        settings["before"] = json!({"run": "leave"});
        object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
        let annotations = [(SETTINGS, settings.to_string()), (NODE, node.to_string())];
        object.metadata.annotations = Some(annotations.map(|(key, text)| (key.to_owned(), text)).into());
        let roll = Roll::find("r", &[Arc::new(object)]).unwrap().unwrap();
        let (mut out, captured) = output();
        report_left(&roll, &Finisher::Nobody, &[&roll.nodes[0]], &[], &mut out).unwrap();
        let messages = captured.messages();
        let (mut out, known) = output();
        report_left(&roll, &Finisher::Known("ada".into()), &[&roll.nodes[0]], &[], &mut out).unwrap();
        let still =
            "hint: the roll still drains n1, and runs its command or its Job; `kubectl nm roll watch r`";
        assert!(known.messages().contains(still), "{}", known.messages());
        assert!(messages.starts_with("node/n1 (Draining): its --before command has run\n"), "{messages}");
        assert!(
            messages.ends_with(
                "`kubectl nm roll resume r` continues the roll after all, and runs its command or its Job\n"
            ),
            "{messages}"
        );
    }

    /// Who finishes the node of a roll in the cluster, or of one on a computer. `answers`: its program does. `job`: what the API
    /// server answers about the Job.
    async fn found(record: RollRecord, in_cluster: bool, answers: bool, job: (u16, Value)) -> Finisher {
        let roll = roll(&["n1"], in_cluster);
        let stored = Mutex::new(record.clone());
        let object = NodeMaintenance::clone(&roll.nodes[0].object);
        let cluster = reading_cluster(move |method, path, body| {
            let mut stored = stored.lock().unwrap();
            match (method, path.rsplit('/').next().unwrap()) {
                ("PATCH", _) => {
                    let state = body.pointer("/metadata/annotations").unwrap()[STATE].as_str().unwrap();
                    *stored = serde_json::from_str(state).unwrap();
                    (200, json!(object))
                }
                (_, "nodemaintenances") => {
                    let mut object = object.clone();
                    let mut shown = stored.clone();
                    if shown.asked && answers {
                        shown.runner.as_mut().unwrap().at = Timestamp::now();
                    }
                    object.annotations_mut().insert(STATE.to_owned(), annotation(&shown));
                    list(&[object])
                }
                (_, "pods") => list(&[]),
                _ => job.clone(),
            }
        });
        find_finisher(&roll, &record, &cluster).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_answers_and_a_job_that_has_not_ended_finish_the_nodes_of_an_aborted_roll() {
        let missing = || failure(404, "NotFound", "jobs.batch \"nm-roll-r\" not found");
        let job = |suspend: bool| {
            let spec = json!({"suspend": suspend});
            (
                200,
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nm-roll-r"}, "spec": spec}),
            )
        };
        let title = runner_job::title("r");
        let record = |ago: i64, in_cluster| {
            let at = Timestamp::now() - SignedDuration::from_secs(ago);
            let runner =
                Some(Runner { id: "x".into(), who: "ada@laptop".into(), at, in_cluster, node: None });
            RollRecord { runner, aborted: Some("bob".into()), paused: true, ..RollRecord::default() }
        };
        let program = Finisher::Known("ada@laptop".into());
        assert_eq!(found(record(7, false), false, true, missing()).await, program);
        assert_eq!(
            found(record(7, false), false, false, missing()).await,
            Finisher::Perhaps("ada@laptop".into())
        );
        assert_eq!(found(record(600, false), false, false, missing()).await, Finisher::Nobody);
        let released = RollRecord { runner: None, ..record(0, true) };
        assert_eq!(found(released.clone(), false, false, job(false)).await, Finisher::Nobody);
        // Its pod was evicted, and the next one has not started.
        assert_eq!(found(released.clone(), true, false, job(false)).await, Finisher::Known(title.clone()));
        assert_eq!(found(released.clone(), true, false, job(true)).await, Finisher::Nobody);
        assert_eq!(found(released.clone(), true, false, missing()).await, Finisher::Nobody);
        let forbidden = failure(403, "Forbidden", "jobs.batch is forbidden");
        assert_eq!(found(released, true, false, forbidden).await, Finisher::Perhaps(title));
        let halt = Halt { node: "n1".into(), message: "m".into(), at: Timestamp::now(), cause: None };
        let halted = RollRecord { halt: Some(halt), ..record(7, true) };
        assert_eq!(found(halted, true, true, job(false)).await, Finisher::Nobody);
    }
}
