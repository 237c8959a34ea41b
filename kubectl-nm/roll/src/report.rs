//! A roll in lines of text, and in lines of JSON for programs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::pending;
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use futures::stream::LocalBoxStream;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use nm_core::args::duration;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::leader::changes::{LeaderChange, LeaderNeed, leader_changes};
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
    /// What finds that nobody leads, and that somebody does again.
    leader: Option<LeaderCheck>,
    /// The nodes as they were printed last.
    before: BTreeMap<String, NodeProgress>,
    /// The most pods that were gone so far.
    pods: i64,
    waiting: Option<String>,
    is_asking: bool,
    answers: Lines<BufReader<Stdin>>,
}

/// Reports when nodes of the roll stand still because no reconciler leads, and when one leads again.
struct LeaderCheck {
    need: Rc<Cell<LeaderNeed>>,
    changes: LocalBoxStream<'static, LeaderChange>,
}

impl LeaderCheck {
    fn new(cluster: Cluster) -> Self {
        let need = Rc::<Cell<LeaderNeed>>::default();
        let changes = leader_changes(cluster, Rc::clone(&need)).boxed_local();
        Self { need, changes }
    }

    async fn next(check: &mut Option<Self>) -> LeaderChange {
        if let Some(check) = check
            && let Some(change) = check.changes.next().await
        {
            return change;
        }
        pending().await
    }
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
            leader: None,
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

    /// Also warns if nobody leads while a node of the roll needs that, as far as the user may see it.
    #[must_use]
    pub fn with_leader_check(self, cluster: &Cluster) -> Self {
        Self { leader: Some(LeaderCheck::new(cluster.clone())), ..self }
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
        Ok(self.out.data_with_commands(&line)?)
    }

    /// What nothing checks after the drain of a node.
    fn unchecked(&mut self, node: &str, view: &RollView) -> Result<(), Error> {
        let baseline = view.roll.node(node).map(|node| &node.record.baseline);
        for unhealthy in baseline.into_iter().flat_map(|baseline| &baseline.unchecked) {
            let words = "was not healthy before the drain, so the roll does not check it";
            self.out.data(&timestamp(view.now).and(format!(" node/{node} {unhealthy} {words}")))?;
        }
        Ok(())
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
        if let Some(check) = &self.leader {
            check.need.set(LeaderNeed::of_all(view.roll.nodes.iter().map(|node| &*node.object)));
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
            let last = before.remove(&progress.node);
            let begins =
                printed.step != Step::Planned && last.as_ref().is_none_or(|last| last.step == Step::Planned);
            let is_new = last.is_none_or(|before| {
                before.step != printed.step || (before.detail != printed.detail && !printed.detail.is_empty())
            });
            // A planned node is in the plan that was printed before.
            if is_new && (printed.step != Step::Planned || !printed.detail.is_empty()) {
                self.node(&printed, view)?;
            }
            if begins && self.format == LineFormat::Text {
                self.unchecked(&printed.node, view)?;
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
            let change = match view.state {
                RollState::Waiting(why) => {
                    Some(("waiting", why.as_str(), format!("no node is started: {why}")))
                }
                RollState::Working if view.aborted.is_none() && view.record.halt.is_none() => {
                    Some(("working", "", format!("roll {} continues", view.roll.name)))
                }
                // The end is reported below, or by the command.
                _ => None,
            };
            match (change, self.format) {
                (Some((state, why, _)), LineFormat::Json) => self.summary(view, state, why)?,
                (Some((.., words)), LineFormat::Text) => {
                    self.out.data(&timestamp(view.now).and(" ").and(words))?;
                }
                (None, _) => {}
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
            loop {
                tokio::select! {
                    // Otherwise, nothing reads the terminal: the program may be in the background.
                    answer = self.answers.next_line(), if self.is_asking => {
                        // An answer that cannot be read counts as no.
                        let answer = answer.ok().flatten().unwrap_or_default();
                        self.is_asking = false;
                        let is_yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
                        return Ok(RollInput::Answer(is_yes));
                    }
                    change = LeaderCheck::next(&mut self.leader) => self.out.message(&change.line()),
                }
            }
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
    use std::sync::Arc;

    use nm_core::terminal::output::captured::output;
    use nm_core::testing::fake_server::cluster;
    use nm_core::testing::objects::{running, with_status};
    use serde_json::Value;

    use super::*;
    use crate::record::{NodeRecord, Roll, RollNode, RollRecord};

    #[tokio::test(start_paused = true)]
    async fn a_roll_of_which_a_node_needs_a_leader_warns_once_if_nobody_leads() {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let record = NodeRecord::planned(0, 0, Timestamp::UNIX_EPOCH);
        let spec = json!({"holderIdentity": "a", "renewTime": "2026-01-02T03:04:05.000000Z", "leaseDurationSeconds": 15});
        let lease = json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"}, "spec": spec});
        let leases = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [lease]});
        for (status, warnings) in [(running(40, &[]), 1), (json!({"phase": "Succeeded"}), 0)] {
            let leases = leases.clone();
            let (cluster, _) = cluster(move |_, _| (200, leases.clone()));
            let object = Arc::new(with_status("n1", status));
            let nodes = vec![RollNode { object, record: record.clone(), revision: None }];
            let settings = serde_json::from_value(settings.clone()).unwrap();
            let roll = Roll { name: "r".into(), settings, nodes, record: None };
            let (mut out, captured) = output();
            let mut reporter = LineReporter::new(&mut out, LineFormat::Text).with_leader_check(&cluster);
            let (state, now, record) = (&RollState::Working, Timestamp::UNIX_EPOCH, &RollRecord::default());
            let (roll, progress, aborted, is_current) = (&roll, &[][..], None, true);
            let view = RollView { roll, record, progress, state, aborted, is_current, now };
            reporter.show(&view).unwrap();
            for _ in 0..10 {
                let input = tokio::time::timeout(std::time::Duration::from_mins(1), reporter.next_input());
                assert!(input.await.is_err(), "there is no input");
            }
            let said = captured.messages();
            let expected = "warning: no nm-reconciler leads: by this computer's clock, its lease expired at 2026-01-02T03:04:20Z\n";
            assert_eq!((said.as_str(), said.lines().count()), (expected.repeat(warnings).as_str(), warnings));
        }
    }

    #[tokio::test]
    async fn what_a_roll_does_not_check_is_said_once_when_the_node_begins() {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let mut record = NodeRecord::planned(0, 0, Timestamp::UNIX_EPOCH);
        record.baseline.unchecked =
            serde_json::from_value(json!([{"kind": "Deployment", "namespace": "shop", "name": "web"}]))
                .unwrap();
        let node = RollNode { object: Arc::new(with_status("n1", json!({}))), record, revision: None };
        let settings = serde_json::from_value(settings).unwrap();
        let roll = Roll { name: "r".into(), settings, nodes: vec![node], record: None };
        let (mut out, captured) = output();
        let mut reporter = LineReporter::new(&mut out, LineFormat::Text);
        for step in [Step::Planned, Step::Draining, Step::Acting] {
            let progress = NodeProgress {
                node: "n1".into(),
                wave: 0,
                position: 0,
                step,
                since: Timestamp::UNIX_EPOCH,
                detail: String::new(),
                ready_time: None,
                pods: (0, 0),
                by_now: None,
            };
            let (state, now, record) = (&RollState::Working, Timestamp::UNIX_EPOCH, &RollRecord::default());
            let (roll, progress, aborted, is_current) = (&roll, &[progress][..], None, true);
            let view = RollView { roll, record, progress, state, aborted, is_current, now };
            reporter.show(&view).unwrap();
        }
        let lines = captured.data().replace("1970-01-01T00:00:00Z ", "");
        let words = "was not healthy before the drain, so the roll does not check it";
        assert_eq!(lines, format!("node/n1 Draining\nnode/n1 Deployment shop/web {words}\nnode/n1 Acting\n"));
    }

    #[tokio::test]
    async fn a_roll_that_continues_after_a_wait_shows_that_once() {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let settings = serde_json::from_value(settings).unwrap();
        let roll = Roll { name: "r".into(), settings, nodes: Vec::new(), record: None };
        let waits = |why: &str| RollState::Waiting(why.to_owned());
        let states = [waits("paused"), RollState::Working, RollState::Working, waits("off"), RollState::Done];
        let printed = |format| {
            let (mut out, captured) = output();
            let mut reporter = LineReporter::new(&mut out, format);
            for state in &states {
                let (record, now) = (&RollRecord::default(), Timestamp::UNIX_EPOCH);
                let (roll, progress, aborted, is_current) = (&roll, &[][..], None, true);
                let view = RollView { roll, record, progress, state, aborted, is_current, now };
                reporter.show(&view).unwrap();
            }
            captured.data()
        };
        let lines = printed(LineFormat::Text).replace("1970-01-01T00:00:00Z ", "");
        let expected = "no node is started: paused\nroll r continues\nno node is started: off\n";
        assert_eq!(lines, expected, "its end is reported elsewhere");
        let lines = printed(LineFormat::Json);
        let states: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let states: Vec<&str> = states.iter().filter_map(|line| line["state"].as_str()).collect();
        assert_eq!(states, ["waiting", "working", "waiting", "done"]);
    }

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
            by_now: None,
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
