//! `kubectl nm roll pause` and `abort`.

use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::error::RollError;
use nm_roll::record::{Roll, RollNode, RollRecord, Runner, Step};
use nm_roll::settings::NodeAction;
use nm_roll::store;
use nm_roll::unfinished::return_hint;

use super::args::AbortArgs;
use super::run::this_runner;

pub(super) async fn pause(name: &str, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let (roll, record) = store::pause(cluster, name, true).await?;
    out.data(&Line::new(format!("roll {name} ")).with(Style::Good, "paused"))?;
    let acts = |node: &&RollNode| node.record.current_action().is_some();
    let acting = roll.nodes.iter().filter(acts).count();
    if acting > 0 && record.runner.is_some() {
        out.message(&Line::new(format!(
            "The action of {} has begun, and continues.",
            counted(acting, "node")
        )));
    }
    Ok(Exit::Done)
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
    let is_left = |node: &RollNode| node.is_worked_on() && !args.return_all;
    let nodes: Vec<String> =
        roll.nodes.iter().filter(|node| !is_left(node)).map(|node| node.node().to_owned()).collect();
    let what = format!("End roll {name}, and the maintenance of {}", counted(nodes.len(), "node"));
    let question = Question { what: &what, cluster: cluster.context(), nodes: &nodes, ..Question::default() };
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
        let words = match node.record.step {
            Step::Planned => "planned maintenance deleted",
            _ if node.is_in_service() => "in service, and no longer checked",
            _ => "maintenance is stopping",
        };
        out.data(&Line::new(format!("node/{} ", node.node())).with(Style::Good, words))?;
    }
    let rest = match store::load(cluster, name).await {
        Ok(roll) => Some(roll),
        Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => None,
        Err(error) => return Err(error),
    };
    let left: Vec<&RollNode> =
        rest.iter().flat_map(|roll| &roll.nodes).filter(|node| is_left(node)).collect();
    // A program whose roll has halted finishes nothing.
    let runner = record.runner.as_ref().filter(|_| record.halt.is_none());
    report_left(&roll, runner, &left, out)?;
    Ok(Exit::Done)
}

/// Reports that a roll is aborted, and which nodes it leaves in maintenance. `runner` may still finish them.
fn report_left(
    roll: &Roll,
    runner: Option<&Runner>,
    left: &[&RollNode],
    out: &mut Output,
) -> Result<(), Error> {
    let name = roll.name.as_str();
    let aborted = Line::new(format!("roll {name} ")).with(Style::Good, "aborted");
    if left.is_empty() {
        return Ok(out.data(&aborted)?);
    }
    let stay = if left.len() == 1 { "stays" } else { "stay" };
    out.data(&aborted.and(format!(": {} {stay} in maintenance", counted(left.len(), "node"))))?;
    for node in left {
        let begun = match (&node.record.action, &roll.settings.action) {
            (None, _) => String::from("its drain has ended"),
            (Some(_), Some(NodeAction::Job(_))) => String::from("its Job had begun"),
            (Some(_), _) => String::from("its command had begun"),
        };
        let step = node.record.step.word();
        out.message(&Line::new(format!("node/{} ({step}) stays in maintenance: {begun}", node.node())));
    }
    let nodes: Vec<&str> = left.iter().map(|node| node.node()).collect();
    let resume = format!("`kubectl nm roll resume {name}`");
    let finishes = match runner {
        Some(Runner { who, .. }) => format!(
            "the program of {who} finishes the command or the Job; if that program no longer runs, {resume} does"
        ),
        None => format!("{resume} finishes the command or the Job first"),
    };
    out.hint(&format!("{}; {finishes}", return_hint(name, &nodes)));
    Ok(())
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
    use nm_core::terminal::output::captured::output;
    use nm_core::testing::objects::requested;
    use serde_json::json;

    use super::*;

    /// What is reported of nodes that are at their action, which is a command, or past it.
    fn report(left: &[&str], runner: Option<&Runner>) -> (String, String) {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "action": {"run": "reboot"}, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let node = json!({"wave": 0, "position": 0, "step": "Acting", "since": "2026-01-02T03:04:05Z",
            "action": {"attempt": 1, "state": {"failed": "exit code 1"}}});
        let nodes = left.iter().map(|name| RollNode {
            object: requested(name).into(),
            record: serde_json::from_value(node.clone()).unwrap(),
            revision: None,
        });
        let settings = serde_json::from_value(settings).unwrap();
        let roll = Roll { name: "r".into(), settings, nodes: nodes.collect(), record: None };
        let (mut out, captured) = output();
        report_left(&roll, runner, &Vec::from_iter(&roll.nodes), &mut out).unwrap();
        (captured.data(), captured.messages())
    }

    #[test]
    fn an_abort_names_the_nodes_that_stay_in_maintenance_and_what_returns_them() {
        assert_eq!(report(&[], None), (String::from("roll r aborted\n"), String::new()));
        let (done, messages) = report(&["n1"], None);
        assert_eq!(done, "roll r aborted: 1 node stays in maintenance\n");
        assert_eq!(
            messages,
            "node/n1 (Acting) stays in maintenance: its command had begun\n\
             hint: `kubectl nm stop n1` or `kubectl nm roll abort r --return` returns the node to service; \
             `kubectl nm roll resume r` finishes the command or the Job first\n"
        );
        let (done, messages) = report(&["n1", "n2"], Some(&this_runner()));
        assert_eq!(done, "roll r aborted: 2 nodes stay in maintenance\n");
        assert!(messages.contains("`kubectl nm stop n1 n2` or ") && messages.contains("; the program of "));
    }
}
