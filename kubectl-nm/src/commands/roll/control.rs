//! `kubectl nm roll resume`, `pause` and `abort`.

use super::args::{AbortArgs, ResumeArgs};
use super::run::{run as run_roll, this_runner};
use crate::args::duration;
use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::error::roll_error::RollError;
use crate::interaction::confirm::confirm_always;
use crate::interaction::progress;
use crate::roll::decide::HEARTBEAT_TIMEOUT;
use crate::roll::job;
use crate::roll::record::{Roll, RollNode, RollRecord, Runner, Step};
use crate::roll::settings::NodeAction;
use crate::roll::store;
use crate::terminal::output::Output;
use crate::terminal::text::{Line, Style, counted};

pub(super) async fn resume(
    args: ResumeArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    let roll = store::load(cluster, name).await?;
    let before = roll.complete_record()?;
    let is_left = |name: &String| roll.node(name).is_some() && !before.released.contains(name);
    if let Some(unknown) = args.skip.iter().find(|node| !is_left(node)) {
        return Err(RollError::NotInRoll { name: name.to_owned(), node: unknown.clone() }.into());
    }
    let runner = if args.take_over { None } else { find_runner(name, &before, cluster, out).await? };
    if let Some(Runner { id, who, .. }) = runner {
        if !before.paused {
            return Err(RollError::Running { name: name.to_owned(), who }.into());
        }
        skip(&args, &roll, cluster, out).await?;
        // The program that runs a paused roll waits, and then continues.
        let is_unchanged = |record: &RollRecord| record.runner.as_ref().is_some_and(|runner| runner.id == id);
        let (roll, _) = store::update(cluster, name, |_, record| {
            let record = RollRecord { paused: false, aborted: None, ..record };
            if is_unchanged(&record) { Ok(record) } else { Err(RollError::Contended.into()) }
        })
        .await?;
        continue_drains(roll, &args, cluster).await?;
        out.data(&Line::new(format!("{who} continues roll {name}")))?;
        return Ok(Exit::Done);
    }
    if roll.settings.confirm && !out.can_ask() {
        return Err(RollError::NoTerminal.into());
    }
    confirm_action(&args, namespace, &roll, out)?;
    if roll.is_record_lost() {
        warn_of_lost_record(&roll, out);
    }
    let confirmed = roll.settings.clone();
    let earlier = roll;

    let me = this_runner();
    let (roll, record) = store::update(cluster, name, |roll, record| {
        // Since it was found that nobody runs the roll, somebody else may have continued it.
        let is_unchanged = record.runner.is_none() || record.runner == before.runner;
        if roll.settings != confirmed || !(is_unchanged || args.take_over) {
            return Err(RollError::Contended.into());
        }
        let runner = Some(me.clone());
        Ok(RollRecord { paused: false, halt: None, aborted: None, asked: false, runner, ..record })
    })
    .await?;
    let continued = async {
        skip(&args, &earlier, cluster, out).await?;
        continue_drains(roll, &args, cluster).await
    };
    let roll = match continued.await {
        Ok(roll) => roll,
        Err(error) => {
            store::release_runner(cluster, name, &me.id).await;
            return Err(error);
        }
    };
    let retried = before.halt.map(|halt| halt.node);
    run_roll(&roll, record, retried, &args.output, cluster, out).await
}

/// The program that runs the roll now; none if nobody does.
async fn find_runner(
    name: &str,
    record: &RollRecord,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Option<Runner>, Error> {
    let Some(last) = &record.runner else { return Ok(None) };
    let timeout = HEARTBEAT_TIMEOUT.unsigned_abs();
    let message = || {
        format!(
            "waiting for a heartbeat of {}, who ran roll {name} last: {} at most, and not with --take-over",
            last.who,
            duration::show(timeout)
        )
    };
    progress::during(out, message, store::find_runner(cluster, name, last, timeout)).await
}

/// Takes the skipped nodes out of the roll, which was like this when the user decided that. A node whose command or Job has
/// begun since then stays.
async fn skip(args: &ResumeArgs, roll: &Roll, cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    if args.skip.is_empty() {
        return Ok(());
    }
    let is_known =
        |node: &RollNode| !node.is_worked_on() || roll.node(node.node()).is_some_and(RollNode::is_worked_on);
    let is_skipped = |node: &RollNode| args.skip.iter().any(|name| name == node.node()) && is_known(node);
    let skipped = store::remove(cluster, &roll.name, is_skipped).await?;
    for node in &skipped {
        out.message(&Line::new(format!("node/{} is skipped, and returns to service", node.node())));
    }
    let stays = |name: &&String| !skipped.iter().any(|node| node.node() == name.as_str());
    args.skip.iter().find(stays).map_or(Ok(()), |node| Err(RollError::HasBegun(node.clone()).into()))
}

/// Lets the drains continue. Returns the roll without the nodes that were skipped.
async fn continue_drains(mut roll: Roll, args: &ResumeArgs, cluster: &Cluster) -> Result<Roll, Error> {
    roll.nodes.retain(|node| !args.skip.iter().any(|name| name == node.node()));
    if let Some(limit) = args.timeout {
        store::extend_drains(cluster, &roll, limit).await?;
    }
    store::suspend_drains(cluster, &roll, false).await?;
    Ok(roll)
}

fn warn_of_lost_record(roll: &Roll, out: &mut Output) {
    let left = roll.nodes.len();
    let gone = roll.settings.nodes().saturating_sub(left);
    out.message(&Line::new(format!(
        "warning: the record of roll {} was deleted with the maintenance of a node. It is not known how many of the other \
         nodes ({gone}) are done, how long they took and how many pods moved, who ran the roll, and whether it was paused or \
         halted. The steps of the remaining nodes ({left}), and the results of their actions, are known from their own \
         maintenances.",
        roll.name,
    )));
}

/// The action is in the objects, which others may write. So the user who resumes the roll confirms what is run on this
/// machine, or created with their permissions.
fn confirm_action(
    args: &ResumeArgs,
    namespace: Option<&str>,
    roll: &Roll,
    out: &mut Output,
) -> Result<(), Error> {
    let Some(action) = &roll.settings.action else { return Ok(()) };
    let given = match (&args.run, &args.job) {
        (Some(command), _) => Some(NodeAction::Run(command.clone())),
        (None, Some(file)) => Some(NodeAction::Job(job::read(file, namespace)?)),
        (None, None) => None,
    };
    let (name, shown) = (roll.name.clone(), action.to_string());
    match given {
        Some(given) if given == *action => Ok(()),
        Some(_) => Err(RollError::OtherAction { name, action: shown }.into()),
        None if !out.can_ask() => Err(RollError::UnconfirmedAction { name, action: shown }.into()),
        None => {
            out.message(&Line::new(format!("Roll {name}, for each drained node: {shown}")));
            confirm_always("Continue the roll", false, out)
        }
    }
}

pub(super) async fn pause(name: &str, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let (roll, record) = store::pause(cluster, name, true).await?;
    out.data(&Line::new(format!("roll {name} ")).with(Style::Good, "paused"))?;
    let acting = roll.nodes.iter().filter(|node| node.record.step == Step::Acting).count();
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
    let roll = store::load(cluster, name).await?;
    let is_left = |node: &RollNode| node.is_worked_on() && !args.return_all;
    let ended = roll.nodes.iter().filter(|node| !is_left(node)).count();
    confirm_always(
        &format!("End roll {name}, and the maintenance of {}", counted(ended, "node")),
        args.yes,
        out,
    )?;
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
            _ => "maintenance stopped",
        };
        out.data(&Line::new(format!("node/{} ", node.node())).with(Style::Good, words))?;
    }
    let left = match store::load(cluster, name).await {
        Ok(roll) => roll.nodes.into_iter().filter(is_left).collect(),
        Err(Error::Roll(RollError::Unknown(_))) => Vec::new(),
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
                format!("the program of {} finishes these nodes; if it has ended, {resume}", runner.who)
            }
            None => resume,
        };
        out.hint(&format!("{finishes}; `kubectl nm roll abort {name} --return` returns them to service now"));
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::roll::args::{NameArgs, OutputArgs, RollFormat};
    use crate::dashboard::AppearanceFlags;
    use crate::roll::settings::RollSettings;
    use crate::terminal::output::captured::output;

    const JOB: &str =
        "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: a}]}}}}";

    /// A roll as its objects describe it.
    fn roll(action: &Value) -> Roll {
        let settings: RollSettings = serde_json::from_value(json!({
            "waves": [1], "maxUnavailable": 1, "action": action, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1,
        }))
        .unwrap();
        Roll { name: String::from("r"), settings, nodes: Vec::new(), record: None }
    }

    /// How an action is confirmed without a terminal, by these flags.
    fn confirmed(action: &Value, run: Option<&str>, job: Option<&str>) -> Result<(), Error> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), job.unwrap_or_default()).unwrap();
        let args = ResumeArgs {
            roll: NameArgs { name: String::from("r") },
            skip: Vec::new(),
            run: run.map(str::to_owned),
            job: job.map(|_| file.path().to_owned()),
            timeout: None,
            take_over: false,
            output: OutputArgs { output: Some(RollFormat::Lines), appearance: AppearanceFlags::default() },
        };
        confirm_action(&args, None, &roll(action), &mut output().0)
    }

    #[test]
    fn an_action_from_the_objects_is_not_begun_unless_it_is_confirmed_word_for_word() {
        let command = json!({"run": "reboot {}"});
        let mut template = serde_saphyr::from_str::<Value>(JOB).unwrap();
        template["metadata"]["namespace"] = json!("default");
        let mut privileged = template.clone();
        privileged["spec"]["template"]["spec"]["hostPID"] = json!(true);
        for (action, run, job, is_confirmed) in [
            (&Value::Null, None, None, true),
            (&command, Some("reboot {}"), None, true),
            (&command, Some("reboot {} "), None, false),
            (&command, Some(""), None, false),
            (&command, None, Some(JOB), false),
            (&command, None, None, false),
            (&json!({"job": template}), None, Some(JOB), true),
            (&json!({"job": privileged}), None, Some(JOB), false),
            (&json!({"job": template}), Some("reboot {}"), None, false),
            (&json!({"job": template}), None, None, false),
        ] {
            let outcome = confirmed(action, run, job);
            assert_eq!(outcome.is_ok(), is_confirmed, "{action} by {run:?} and {job:?}: {outcome:?}");
        }
    }
}
