//! `kubectl nm roll serve`: the program of the Job that runs a roll in the cluster.
//!
//! It ends when the roll does. While the roll is halted it waits for `roll resume`, and while the control plane is away it
//! waits for that. If its pod is evicted, it releases the roll, so that the next pod continues it at once.

use std::env;
use std::time::Duration;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::output::Output;
use nm_core::terminal::signals::interrupted;
use nm_core::terminal::text::Line;
use nm_roll::decide::HEARTBEAT_TIMEOUT;
use nm_roll::error::RollError;
use nm_roll::in_cluster::history::HistoryKeeper;
use nm_roll::in_cluster::history_writer::history;
use nm_roll::in_cluster::runner_job::{self, JOB_VARIABLE, NODE_VARIABLE, POD_VARIABLE};
use nm_roll::in_cluster::standby;
use nm_roll::record::{Halt, Roll, RollRecord, Runner};
use nm_roll::report::{LineFormat, LineReporter};
use nm_roll::runner::{RollEnd, RollRunner};
use nm_roll::store;

use super::args::ServeArgs;
use super::run::summary;

/// How long it waits after a request that failed for a while.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How long an earlier pod of the Job may take to answer. Two of them do no harm: all that they write depends on the state that they
/// have read, and the Job of a node is created once.
const POD_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn serve(args: &ServeArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    let me = this_pod(name);
    let job = variable(JOB_VARIABLE);
    let (mut keeper, mut writer) = history(name, job.as_deref());
    let served = tokio::select! {
        () = interrupted() => Ok(Exit::Interrupted),
        served = until_over(args, &me, &mut keeper, cluster, out) => served,
        never = writer.run(cluster) => match never {},
    };
    if !matches!(served, Ok(Exit::Done)) {
        store::release_runner(cluster, name, &me.id).await;
    }
    if let Some(failure) = writer.flush(cluster).await {
        Error::from(failure).print(out);
    }
    served
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// This pod, as the runner of a roll.
fn this_pod(roll: &str) -> Runner {
    let pod = variable(POD_VARIABLE).unwrap_or_default();
    let who = runner_job::title(roll);
    let at = Timestamp::now();
    let id = format!("{pod}/{}", at.as_nanosecond());
    Runner { id, who, at, in_cluster: true, node: variable(NODE_VARIABLE) }
}

async fn until_over(
    args: &ServeArgs,
    me: &Runner,
    keeper: &mut HistoryKeeper,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let mut seen = Seen::default();
    loop {
        match step(args, me, &mut seen, keeper, cluster, out).await {
            Ok(Step::Over(exit)) => return Ok(exit),
            Ok(Step::Next) => seen.other = None,
            Ok(Step::RunBy(other)) => {
                if seen.other.replace(other.clone()).as_ref() != Some(&other) {
                    let name = &args.roll.name;
                    out.message(&Line::new(format!("Pod {other} runs roll {name} now, and this pod waits.")));
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => {
                keeper.note_over(seen.aborted.as_deref(), Timestamp::now());
                out.message(&Line::new(format!("Roll {} is over.", args.roll.name)));
                return Ok(Exit::Done);
            }
            Err(error) if is_waited_for(&error) => {
                error.print(out);
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What the earlier steps have seen.
#[derive(Default)]
struct Seen {
    /// Why the roll had halted before it was resumed.
    retried: Option<Halt>,
    /// The record with which it halted.
    halted: Option<RollRecord>,
    /// Who has aborted it.
    aborted: Option<String>,
    /// The pod that runs it, while this one waits.
    other: Option<String>,
}

impl Seen {
    /// The halt that this program has written, if the state was copied before that, and only the copy is left.
    fn lost_halt(&self, stored: Option<&RollRecord>) -> Option<Halt> {
        let halted = self.halted.as_ref()?;
        let is_older = stored.is_none_or(|stored| stored.revision <= halted.revision);
        halted.halt.clone().filter(|_| is_older)
    }
}

/// What follows a step.
#[derive(Debug, PartialEq)]
enum Step {
    /// The roll, or the part of this program in it, is over.
    Over(Exit),
    /// The roll has halted, or was resumed.
    Next,
    /// This pod of the Job runs it.
    RunBy(String),
}

/// Runs the roll until it ends or halts, or waits until it is resumed.
async fn step(
    args: &ServeArgs,
    me: &Runner,
    seen: &mut Seen,
    keeper: &mut HistoryKeeper,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Step, Error> {
    let name = args.roll.name.as_str();
    let roll = confirmed(store::load(cluster, name).await?, &args.settings)?;
    let before = roll.complete_record()?;
    // Whoever let the Job take over has written its name.
    let is_other = |runner: &&Runner| runner.id != me.id && runner.id != runner_job::name(name);
    if let Some(last) = before.runner.as_ref().filter(is_other) {
        let timeout = if last.in_cluster { POD_ANSWER_TIMEOUT } else { HEARTBEAT_TIMEOUT.unsigned_abs() };
        if let Some(other) = store::find_runner(cluster, name, last, timeout).await? {
            return Ok(taken_over(&other, name, out));
        }
    }
    let is_free = |record: &RollRecord| {
        let last = record.runner.as_ref().map(|runner| &runner.id);
        last.is_none() || last == Some(&me.id) || last == before.runner.as_ref().map(|runner| &runner.id)
    };
    let (roll, record) = store::update(cluster, name, |stored, record| {
        let runner = Some(Runner { at: Timestamp::now(), ..me.clone() });
        // It may have been paused, or have halted.
        let lost = stored.is_record_lost().then(|| Halt {
            node: String::new(),
            message: String::from(
                "the state of the roll was deleted together with the maintenance of a node",
            ),
            at: Timestamp::now(),
            cause: None,
        });
        if is_free(&record) {
            let halt = record.halt.clone().or_else(|| seen.lost_halt(stored.record.as_ref())).or(lost);
            Ok(RollRecord { asked: false, runner, health: Vec::new(), halt, ..record })
        } else {
            Err(RollError::Contended.into())
        }
    })
    .await?;
    keeper.know(&roll, &record, Timestamp::now());
    if let Some(halt) = record.halt.clone().filter(|_| record.aborted.is_none()) {
        out.message(&Line::new(format!(
            "Halted: {}. Waiting for `kubectl nm roll resume {name}`.",
            halt.message
        )));
        seen.retried = Some(halt);
        seen.aborted = standby::wait_until_resumed(cluster, roll, me, record, keeper).await?;
        return Ok(Step::Next);
    }
    let roll = confirmed(roll, &args.settings)?;
    let mut runner = RollRunner::new(cluster, &roll, record, seen.retried.take(), None);
    let ended = runner.run(&mut LineReporter::new(out, LineFormat::Text).with_history(keeper)).await?;
    seen.aborted = runner.aborted().map(str::to_owned);
    Ok(match ended {
        RollEnd::Done(record) => {
            for line in summary(&roll, &record) {
                out.message(&line);
            }
            Step::Over(Exit::Done)
        }
        RollEnd::Aborted(who, _) => {
            out.message(&Line::new(format!("{who} aborted roll {name}.")));
            Step::Over(Exit::Done)
        }
        RollEnd::TakenOver(other) => taken_over(&other, name, out),
        // What had begun stays as it is: nobody has to continue it.
        RollEnd::Halted(..) if let Some(who) = &seen.aborted => {
            runner.release().await;
            out.message(&Line::new(format!("{who} aborted roll {name}, which had halted.")));
            Step::Over(Exit::Done)
        }
        RollEnd::Halted(..) => {
            seen.halted = Some(runner.record().clone());
            Step::Next
        }
        RollEnd::Left => Step::Over(Exit::Interrupted),
    })
}

/// Another pod of the Job is waited for, as two may run while a node is lost. A person who runs the roll on a computer has taken
/// it over.
fn taken_over(other: &Runner, name: &str, out: &mut Output) -> Step {
    if !other.in_cluster {
        out.message(&Line::new(format!("{} runs roll {name} now.", other.who)));
        return Step::Over(Exit::Done);
    }
    // Whoever let the Job take over has written its name: any of its pods may.
    if other.id == runner_job::name(name) {
        return Step::Next;
    }
    Step::RunBy(other.id.split('/').next().unwrap_or_default().to_owned())
}

/// The roll, if its settings are the ones that were confirmed when the Job was created. Others may write those in the objects.
fn confirmed(roll: Roll, digest: &str) -> Result<Roll, RollError> {
    if roll.settings.digest() == digest && roll.has_only(&roll.settings) {
        return Ok(roll);
    }
    Err(RollError::UnconfirmedSettings(roll.name))
}

/// Whether a request may succeed later. The Job controller starts the program again after other errors.
fn is_waited_for(error: &Error) -> bool {
    error.is_waited_for() || matches!(error.above(), Some(RollError::Contended))
}

#[cfg(test)]
mod tests {
    use nm_roll::settings::RollSettings;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_waits_for_another_one_and_ends_for_a_person() {
        let other = |id: &str, in_cluster| {
            let (id, who) = (id.to_owned(), String::from("bob@desk"));
            Runner { id, who, at: Timestamp::now(), in_cluster, node: None }
        };
        let (mut out, captured) = nm_core::terminal::output::captured::output();
        let mut check = |id, in_cluster| taken_over(&other(id, in_cluster), "r", &mut out);
        assert_eq!(check("nm-roll-r-x/12", true), Step::RunBy("nm-roll-r-x".into()));
        assert_eq!(check("nm-roll-r", true), Step::Next, "the Job takes over");
        assert_eq!(check("bob@desk/1", false), Step::Over(Exit::Done));
        assert_eq!(captured.messages(), "bob@desk runs roll r now.\n");
    }

    #[test]
    fn a_halt_is_kept_if_only_a_copy_of_an_older_state_is_left() {
        let halt = Halt { node: "n1".into(), message: "failed".into(), at: Timestamp::now(), cause: None };
        let record = |revision, halt| RollRecord { revision, halt, ..RollRecord::default() };
        let seen = Seen { halted: Some(record(6, Some(halt.clone()))), ..Seen::default() };
        assert_eq!(seen.lost_halt(None).as_ref(), Some(&halt));
        assert_eq!(seen.lost_halt(Some(&record(6, None))), Some(halt));
        assert_eq!(seen.lost_halt(Some(&record(7, None))), None, "somebody has resumed it");
        assert_eq!(Seen::default().lost_halt(None), None);
    }

    #[test]
    fn only_confirmed_settings_are_run() {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let settings: RollSettings = serde_json::from_value(settings).unwrap();
        let digest = settings.digest();
        let roll = |settings| Roll { name: "r".into(), settings, nodes: Vec::new(), record: None };
        assert!(confirmed(roll(settings.clone()), &digest).is_ok());
        let other = RollSettings { max_unavailable: 9, ..settings };
        assert!(matches!(confirmed(roll(other), &digest), Err(RollError::UnconfirmedSettings(_))));
    }
}
