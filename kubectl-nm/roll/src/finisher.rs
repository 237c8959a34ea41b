//! Who finishes the nodes of an aborted roll whose command or Job has started, and returns them to service.

use jiff::Timestamp;
use nm_core::maintenance::roll_job::RollJob;

use crate::in_cluster::runner_job;
use crate::record::{HEARTBEAT_TIMEOUT, Roll, RollRecord};

/// Who finishes the nodes of an aborted roll that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finisher {
    /// This program runs the roll, or this Job is about to.
    Known(String),
    /// This one may run it: it does not answer, but did a moment ago; or it cannot be read.
    Perhaps(String),
    /// The nodes stay in maintenance.
    Nobody,
}

/// What is known of the program that ran a roll last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerSign {
    /// It runs the roll.
    Runs(String),
    /// It cannot be found out whether it does.
    Unread(String),
    /// It gave no sign when it was asked for one, or there is none.
    Silent,
}

impl RunnerSign {
    /// What the record shows without asking the program: it runs the roll if its last heartbeat is recent, unless somebody has asked it
    /// since then.
    pub fn seen(record: &RollRecord, now: Timestamp) -> Self {
        match &record.runner {
            Some(runner) if is_seen(record, now) && !record.asked => Self::Runs(runner.who.clone()),
            _ => Self::Silent,
        }
    }
}

/// Whether the last heartbeat of the program that runs a roll is recent. It may be a moment ahead of the clock of this computer.
pub fn is_seen(record: &RollRecord, now: Timestamp) -> bool {
    record.runner.as_ref().is_some_and(|runner| now.duration_since(runner.at) < HEARTBEAT_TIMEOUT)
}

/// Who finishes the nodes of an aborted roll. `job`: what its Job shows; none if no Job is to run it.
pub fn finisher(
    roll: &Roll,
    record: &RollRecord,
    runner: RunnerSign,
    job: Option<&RollJob>,
    now: Timestamp,
) -> Finisher {
    // A program whose roll has halted finishes nothing.
    if record.halt.is_some() {
        return Finisher::Nobody;
    }
    match (runner, job) {
        (RunnerSign::Runs(who), _) => Finisher::Known(who),
        (RunnerSign::Unread(who), _) => Finisher::Perhaps(who),
        (RunnerSign::Silent, Some(RollJob::Starting(_))) => Finisher::Known(runner_job::title(&roll.name)),
        (RunnerSign::Silent, Some(RollJob::Stuck { .. } | RollJob::Unread(_))) => {
            Finisher::Perhaps(runner_job::title(&roll.name))
        }
        (RunnerSign::Silent, None) => {
            // Its Job would show that it runs it.
            let recent = record.runner.as_ref().filter(|runner| is_seen(record, now) && !runner.in_cluster);
            recent.map_or(Finisher::Nobody, |runner| Finisher::Perhaps(runner.who.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::record::{Halt, Runner};

    fn roll(in_cluster: bool) -> Roll {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "inCluster": in_cluster});
        let settings = serde_json::from_value(settings).unwrap();
        Roll { name: "r".into(), settings, nodes: Vec::new(), record: None }
    }

    /// The record of an aborted roll whose program gave a sign so many seconds ago.
    fn record(ago: i64, in_cluster: bool, asked: bool) -> RollRecord {
        let at = now() - SignedDuration::from_secs(ago);
        let runner = Some(Runner { id: "x".into(), who: "ada".into(), at, in_cluster, node: None });
        RollRecord { runner, asked, aborted: Some("bob".into()), ..RollRecord::default() }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(10_000).unwrap()
    }

    /// Who finishes the nodes, as far as is seen without asking.
    fn seen(record: &RollRecord, in_cluster: bool, job: Option<&RollJob>) -> Finisher {
        finisher(&roll(in_cluster), record, RunnerSign::seen(record, now()), job, now())
    }

    #[test]
    fn a_job_that_may_not_be_read_may_finish_the_nodes_whether_the_program_was_asked_or_only_seen() {
        let job = Some(RollJob::Unread("jobs is forbidden".into()));
        let title = runner_job::title("r");
        let lost = record(600, true, false);
        assert_eq!(seen(&lost, true, job.as_ref()), Finisher::Perhaps(title.clone()));
        let asked = finisher(&roll(true), &lost, RunnerSign::Silent, job.as_ref(), now());
        assert_eq!(asked, Finisher::Perhaps(title));
    }

    #[test]
    fn a_program_that_was_asked_and_does_not_answer_may_have_ended() {
        assert_eq!(seen(&record(7, false, false), false, None), Finisher::Known("ada".into()));
        assert_eq!(seen(&record(7, false, true), false, None), Finisher::Perhaps("ada".into()));
        assert_eq!(seen(&record(7, true, true), true, None), Finisher::Nobody, "its Job has ended");
        assert_eq!(seen(&record(60, false, false), false, None), Finisher::Nobody);
    }

    #[test]
    fn a_job_that_starts_finishes_the_nodes_unless_it_cannot_or_the_roll_has_halted() {
        let words = || String::from("Job a/b is starting");
        let (starting, stuck) =
            (RollJob::Starting(words()), RollJob::Stuck { words: words(), is_image: true });
        let title = runner_job::title("r");
        let mut record = record(600, true, false);
        assert_eq!(seen(&record, true, Some(&starting)), Finisher::Known(title.clone()));
        assert_eq!(seen(&record, true, Some(&stuck)), Finisher::Perhaps(title));
        record.halt = Some(Halt { node: "n1".into(), message: "m".into(), at: now(), cause: None });
        assert_eq!(seen(&record, true, Some(&starting)), Finisher::Nobody);
    }
}
