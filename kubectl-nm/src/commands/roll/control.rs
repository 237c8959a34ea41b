//! `kubectl nm roll resume`, `pause` and `abort`.

use jiff::Timestamp;

use super::args::{AbortArgs, ResumeArgs};
use super::run::{check_no_runner, live_runner, run as run_roll, this_runner};
use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::error::roll_error::RollError;
use crate::interaction::confirm::confirm_always;
use crate::roll::job;
use crate::roll::record::{Roll, RollNode, RollRecord, Step};
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
    let now = Timestamp::now();
    let is_in_roll =
        |node: &String| roll.node(node).is_some() || before.returned.iter().any(|one| one.node == *node);
    if let Some(unknown) = args.skip.iter().find(|node| !is_in_roll(node)) {
        return Err(RollError::NotInRoll { name: name.to_owned(), node: unknown.clone() }.into());
    }
    // The program that runs a paused roll waits, and then continues.
    if let Some(runner) = live_runner(&before, now).filter(|_| before.paused && !args.take_over) {
        let who = runner.who.clone();
        store::pause(cluster, name, false).await?;
        out.data(&Line::new(format!("{who} continues roll {name}")))?;
        return Ok(Exit::Done);
    }
    if !args.take_over {
        check_no_runner(&roll, &before, now)?;
    }
    if roll.settings.confirm && !out.can_ask() {
        return Err(RollError::NoTerminal.into());
    }
    confirm_action(&args, namespace, &roll, out)?;
    let confirmed = roll.settings;

    let me = this_runner();
    let (roll, record) = store::update(cluster, name, |roll, record| {
        if roll.settings != confirmed {
            return Err(RollError::Contended.into());
        }
        if !args.take_over {
            check_no_runner(roll, &record, Timestamp::now())?;
        }
        let mut record = RollRecord { paused: false, halt: None, runner: Some(me.clone()), ..record };
        record.returned.retain(|returned| !args.skip.contains(&returned.node));
        Ok(record)
    })
    .await?;
    let skipped = roll.nodes.iter().filter(|node| args.skip.iter().any(|name| name == node.node()));
    store::remove(cluster, &roll, &record, skipped).await?;
    store::suspend_drains(cluster, &roll, false).await?;
    run_roll(&roll, record, &args.output, cluster, out).await
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
            out.talk(&Line::new(format!("Roll {name}, for each drained node: {shown}")));
            confirm_always("Continue the roll", false, out)
        }
    }
}

pub(super) async fn pause(name: &str, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let (roll, record) = store::pause(cluster, name, true).await?;
    out.data(&Line::new(format!("roll {name} ")).with(Style::Good, "paused"))?;
    let acting = roll.nodes.iter().filter(|node| node.record.step >= Step::Acting).count();
    if acting > 0 && live_runner(&record, Timestamp::now()).is_some() {
        out.talk(&Line::new(format!("The action of {} has begun, and continues.", counted(acting, "node"))));
    }
    Ok(Exit::Done)
}

pub(super) async fn abort(args: &AbortArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    let roll = store::load(cluster, name).await?;
    let is_left = |node: &&RollNode| node.record.step >= Step::Acting && !args.return_all;
    let ended = roll.nodes.iter().filter(|node| !is_left(node)).count();
    confirm_always(
        &format!("End roll {name}, and the maintenance of {}", counted(ended, "node")),
        args.yes,
        out,
    )?;
    let (roll, record) = if roll.record.is_some() {
        // So that nothing begins meanwhile.
        store::update(cluster, name, |_, record| Ok(RollRecord { paused: true, ..record })).await?
    } else {
        (roll, RollRecord::default())
    };
    let (left, ended): (Vec<&RollNode>, Vec<&RollNode>) = roll.nodes.iter().partition(is_left);
    store::remove(cluster, &roll, &record, ended.iter().copied()).await?;
    for node in ended {
        let words = if node.record.step == Step::Planned {
            "planned maintenance deleted"
        } else {
            "maintenance stopped"
        };
        out.data(&Line::new(format!("node/{} ", node.node())).with(Style::Good, words))?;
    }
    for node in &left {
        out.talk(&Line::new(format!(
            "node/{} is {}: its maintenance stays",
            node.node(),
            node.record.step.word()
        )));
    }
    if !left.is_empty() {
        let finishes = match live_runner(&record, Timestamp::now()) {
            Some(runner) => format!("{} finishes these nodes", runner.who),
            None => format!("`kubectl nm roll resume {name}` finishes these nodes"),
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
