//! A roll in lines of text, and in lines of JSON for programs.

use std::collections::BTreeMap;
use std::future::pending;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use jiff::{SignedDuration, Timestamp};
use nm_core::args::duration;
use nm_core::error::Error;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted};
use nm_core::watch::wait_reporter::timestamp;
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::absence::LeftNode;
use crate::command::NodeOutputLine;
use crate::decide::{NodeProgress, RollState};
use crate::in_cluster::history::HistoryKeeper;
use crate::record::Step;
use crate::view::{Estimate, RollInput, RollReporter, RollView};

const ROLL_RECORD_VERSION: u8 = 1;

/// How long a node has to be in a step until a line of text says what it waits for: most waits are shorter.
const DETAIL_DELAY: SignedDuration = SignedDuration::from_secs(3);

/// How lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Prints a line for each change.
pub struct LineReporter<'a> {
    out: &'a mut Output,
    format: LineFormat,
    /// What notes the history of a roll in the cluster.
    keeper: Option<&'a mut HistoryKeeper>,
    /// The nodes as they were printed last.
    before: BTreeMap<String, NodeProgress>,
    /// The most pods that were gone so far.
    pods: i64,
    waiting: Option<String>,
    is_asking: bool,
    answers: Lines<BufReader<Stdin>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum ProgressRecord<'a> {
    Node {
        node: &'a str,
        wave: usize,
        step: &'a str,
        since: Timestamp,
        #[serde(skip_serializing_if = "str::is_empty")]
        detail: &'a str,
    },
    Roll {
        state: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        message: &'a str,
        done: usize,
        nodes: usize,
        pods: i64,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        skipped: &'a [String],
        #[serde(skip_serializing_if = "<[LeftNode]>::is_empty")]
        left: &'a [LeftNode],
        #[serde(skip_serializing_if = "Option::is_none")]
        estimated_end: Option<Timestamp>,
    },
    Output {
        node: &'a str,
        text: &'a str,
    },
}

impl<'a> LineReporter<'a> {
    /// Prints to `out`. Answers to questions come from standard input.
    pub fn new(out: &'a mut Output, format: LineFormat) -> Self {
        Self {
            out,
            format,
            keeper: None,
            before: BTreeMap::new(),
            pods: 0,
            waiting: None,
            is_asking: false,
            answers: BufReader::new(tokio::io::stdin()).lines(),
        }
    }

    /// Also notes the history of the roll.
    #[must_use]
    pub fn with_history(self, keeper: &'a mut HistoryKeeper) -> Self {
        Self { keeper: Some(keeper), ..self }
    }

    fn record(&mut self, record: &ProgressRecord, now: Timestamp) -> Result<(), Error> {
        let mut line = json!(record);
        line["version"] = json!(ROLL_RECORD_VERSION);
        line["time"] = json!(now);
        Ok(self.out.data(&Line::new(line.to_string()))?)
    }

    fn node(&mut self, progress: &NodeProgress, view: &RollView) -> Result<(), Error> {
        let NodeProgress { node, wave, step, since, detail, .. } = progress;
        if self.format == LineFormat::Json {
            let record = ProgressRecord::Node {
                node,
                wave: wave.saturating_add(1),
                step: step.word(),
                since: *since,
                detail,
            };
            return self.record(&record, view.now);
        }
        let style = if *step == Step::Planned { Style::Plain } else { Style::Busy };
        let line = timestamp(view.now).and(" ").and(format!("node/{node} ")).with(style, step.word());
        let line = if detail.is_empty() { line } else { line.and(format!(": {detail}")) };
        Ok(self.out.data(&line)?)
    }

    /// A node that is no longer part of the roll.
    fn left(&mut self, last: &NodeProgress, view: &RollView) -> Result<(), Error> {
        let is_done = view.record.released.contains(&last.node);
        if self.format == LineFormat::Json {
            let step = if is_done { "Done" } else { "Removed" };
            let NodeProgress { node, wave, .. } = last;
            let record = ProgressRecord::Node {
                node,
                wave: wave.saturating_add(1),
                step,
                since: view.now,
                detail: "",
            };
            self.record(&record, view.now)?;
            return self.summary(view, "working", "");
        }
        let line = timestamp(view.now).and(" ").and(format!("node/{} ", last.node));
        let (done, all) = (view.record.done.nodes, view.roll.settings.nodes());
        Ok(self.out.data(&if is_done {
            let estimate =
                view.estimate().filter(|_| done < all).map(|estimate| estimate_text(&estimate, view.now));
            line.with(Style::Good, "Done")
                .and(format!(" ({done} of {})", counted(all, "node")))
                .and(estimate.map(|text| format!(", {text}")).unwrap_or_default())
        } else {
            line.and(format!("is not part of the roll any more: {}", view.departure(&last.node)))
        })?)
    }

    fn summary(&mut self, view: &RollView, state: &str, message: &str) -> Result<(), Error> {
        let record = ProgressRecord::Roll {
            state,
            message,
            done: view.record.done.nodes,
            nodes: view.roll.settings.nodes(),
            pods: self.pods,
            skipped: &view.record.skipped,
            left: &view.record.left,
            estimated_end: view.estimate().and_then(|estimate| estimate.end),
        };
        self.record(&record, view.now)
    }
}

impl RollReporter for LineReporter<'_> {
    fn show(&mut self, view: &RollView) -> Result<(), Error> {
        if let Some(keeper) = &mut self.keeper {
            keeper.note(view);
        }
        if let RollState::TakenOver(_) = view.state {
            return Ok(());
        }
        // A maintenance is seen to be gone before the record counts its pods.
        self.pods = self.pods.max(view.moved_pods());
        let mut before = std::mem::take(&mut self.before);
        for progress in view.progress {
            let mut printed = progress.clone();
            let is_early = view.now.duration_since(progress.since) < DETAIL_DELAY;
            // The question says what a node waits for that is Confirming.
            if self.format == LineFormat::Text && (is_early || progress.step == Step::Confirming) {
                printed.detail.clear();
            }
            let is_new = before.remove(&progress.node).is_none_or(|before| {
                before.step != printed.step || (before.detail != printed.detail && !printed.detail.is_empty())
            });
            // A planned node is in the plan that was printed before.
            if is_new && (printed.step != Step::Planned || !printed.detail.is_empty()) {
                self.node(&printed, view)?;
            }
            self.before.insert(printed.node.clone(), printed);
        }
        for last in before.values() {
            self.left(last, view)?;
        }
        let waiting = match view.state {
            RollState::Waiting(why) => Some(why.clone()),
            _ => None,
        };
        if waiting != self.waiting {
            if let Some(why) = &waiting {
                match self.format {
                    LineFormat::Json => self.summary(view, "waiting", why)?,
                    LineFormat::Text => {
                        self.out
                            .data(&timestamp(view.now).and(" ").and(format!("no node is started: {why}")))?;
                    }
                }
            }
            self.waiting = waiting;
        }
        if self.format == LineFormat::Json {
            match view.state {
                RollState::Done => self.summary(view, "done", "")?,
                RollState::Halted(halt) => self.summary(view, "halted", &halt.message)?,
                RollState::Aborted(who) => self.summary(view, "aborted", &format!("by {who}"))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn output(&mut self, line: &NodeOutputLine) -> Result<(), Error> {
        let NodeOutputLine { node, text } = line;
        match self.format {
            LineFormat::Json => self.record(&ProgressRecord::Output { node, text }, Timestamp::now()),
            LineFormat::Text => Ok(self.out.data(&Line::new(format!("  {node} | {text}")))?),
        }
    }

    fn ask(&mut self, node: &str) -> Result<(), Error> {
        self.out.question(&format!("node/{node} is drained. Continue with it? [y/N]"));
        self.is_asking = true;
        Ok(())
    }

    fn show_error(&mut self, error: &Error) {
        self.out.error(error);
    }

    fn next_input(&mut self) -> LocalBoxFuture<'_, Result<RollInput, Error>> {
        async {
            if !self.is_asking {
                // Nothing reads the terminal: the program may be in the background.
                return pending().await;
            }
            // An answer that cannot be read counts as no.
            let answer = self.answers.next_line().await.ok().flatten().unwrap_or_default();
            self.is_asking = false;
            Ok(RollInput::Answer(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
        }
        .boxed_local()
    }
}

/// About when the roll will be done, and what that is based on.
pub fn estimate_text(estimate: &Estimate, now: Timestamp) -> String {
    let left = estimate.end.map_or_else(
        || String::from("longer than before"),
        |end| format!("about {} left", duration::age(end.duration_since(now).as_secs())),
    );
    let average = duration::age(estimate.average.as_secs());
    match estimate.nodes {
        1 => format!("{left}: 1 node took {average}"),
        nodes => format!("{left}: {nodes} nodes took {average} each on average"),
    }
}

#[cfg(test)]
mod tests {
    use nm_core::terminal::output::captured::output;

    use super::*;
    use crate::record::{Roll, RollRecord};

    #[tokio::test]
    async fn a_node_that_leaves_an_aborted_roll_names_who_aborted_it() {
        let settings = json!({"waves": [3], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let settings = serde_json::from_value(settings).unwrap();
        let roll = Roll { name: "r".into(), settings, nodes: Vec::new(), record: None };
        let node = |node: &str, position| NodeProgress {
            node: node.to_owned(),
            wave: 0,
            position,
            step: Step::Planned,
            since: Timestamp::UNIX_EPOCH,
            detail: String::new(),
            ready_time: None,
            pods: (0, 0),
        };
        let all = [node("n1", 0), node("n2", 1), node("n3", 2)];
        let record = RollRecord { skipped: vec![String::from("n1")], ..RollRecord::default() };
        let (mut out, captured) = output();
        let mut reporter = LineReporter::new(&mut out, LineFormat::Text);
        for (left, aborted) in
            [(&all[..], None), (&all[1..], None), (&all[2..], None), (&[], Some("ada@laptop"))]
        {
            let (progress, state, now) = (left, &RollState::Working, Timestamp::UNIX_EPOCH);
            let (roll, record, is_current) = (&roll, &record, true);
            let view = RollView { roll, record, progress, state, aborted, is_current, now };
            reporter.show(&view).unwrap();
        }
        let lines = captured.data();
        let lines: Vec<&str> =
            lines.lines().filter_map(|line| line.strip_prefix("1970-01-01T00:00:00Z ")).collect();
        assert_eq!(
            lines,
            [
                "node/n1 is not part of the roll any more: skipped",
                "node/n2 is not part of the roll any more: its maintenance was deleted",
                "node/n3 is not part of the roll any more: ada@laptop aborted the roll",
            ]
        );
    }
}
