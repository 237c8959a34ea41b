//! `kubectl nm roll pause` and `abort`.

use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::error::RollError;
use nm_roll::record::{Roll, RollNode, RollRecord, Step};
use nm_roll::store;

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
    let left = match store::load(cluster, name).await {
        Ok(roll) => roll.nodes.into_iter().filter(is_left).collect(),
        Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => Vec::new(),
        Err(error) => return Err(error),
    };
    for node in &left {
        out.message(&Line::new(format!(
            "node/{} is {}: its maintenance stays",
            node.node(),
            node.record.step.word()
        )));
    }
    if !left.is_empty() {
        let resume = format!("`kubectl nm roll resume {name}` finishes these nodes");
        let finishes = match &record.runner {
            Some(runner) => {
                format!(
                    "the program of {} finishes these nodes; if that program no longer runs, {resume}",
                    runner.who
                )
            }
            None => resume,
        };
        out.hint(&format!("{finishes}; `kubectl nm roll abort {name} --return` returns them to service now"));
    }
    Ok(Exit::Done)
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
