//! The state of the dashboard of a roll: what is known of the roll, and what the user looks at. Nothing here does I/O or reads
//! a clock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use jiff::{SignedDuration, Timestamp};
use nm_core::args::duration::age;
use nm_core::leader::changes::LeaderNeed;
use nm_core::leader::gap::LeaderGap;
use nm_core::terminal::text::{Line, Style, plain};
use nm_roll::command::NodeOutputLine;
use nm_roll::decide::RollState;
use nm_roll::finisher::is_seen;
use nm_roll::record::{ActionState, RollNode, RollRecord, Step};
use nm_roll::settings::{NodeAction, RollSettings};
use nm_roll::view::{Estimate, RollInput, RollView};
use nm_shared::NodeMaintenance;

use crate::config::action_table::Action;
use crate::config::appearance::Appearance;
use crate::config::key_map::KeyMap;
use crate::model::NOTICE_STAYS;
use crate::roll::explained::{ExplainedNode, REREAD_AFTER};
use crate::roll::row::{RollRow, RowState};
use crate::update::navigation::Motion;

/// The most lines of output that are kept of a node.
const MAX_OUTPUT: usize = 200;

/// How many lines of output of the node that halted the roll stay on the terminal.
const LAST_OUTPUT: usize = 10;

/// A roll is shown each second. After this time without, the cluster does not respond to a request.
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// What a key leads to, outside of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RollEffect {
    Input(RollInput),
    /// Read what the causes of the opened node depend on.
    ReadCauses(String),
    /// Suspend as Ctrl-Z does, and take the screen again afterwards.
    Suspend,
}

/// The roll as a whole, as it was shown last.
#[derive(Debug, Clone)]
pub(crate) struct ShownRoll {
    pub(crate) record: RollRecord,
    pub(crate) state: RollState,
    /// How many nodes the roll has, done or not.
    pub(crate) nodes: usize,
    pub(crate) pods: i64,
    pub(crate) estimate: Option<Estimate>,
    /// When its maintenances were created; none if none of them is left.
    pub(crate) began: Option<Timestamp>,
    /// How many nodes may be under way at once.
    pub(crate) at_a_time: usize,
    /// What it does with a drained node.
    pub(crate) action: Option<String>,
    /// The nodes whose commands end when the program does.
    pub(crate) commands: Vec<String>,
    pub(crate) is_current: bool,
    /// When it was last known to be current.
    pub(crate) current_at: Timestamp,
    at: Timestamp,
}

/// What a roll does with its nodes, if it does anything: `runs reboot, before: creates a Job, after: runs check`.
pub(crate) fn action_words(settings: &RollSettings) -> Option<String> {
    let words = [Step::Acting, Step::Preparing, Step::Finishing].into_iter().filter_map(|step| {
        let what = match settings.action_of(step)? {
            NodeAction::Run(command) => format!("runs {command}"),
            NodeAction::Job(job) => {
                let name = ["name", "generateName"].iter().find_map(|field| job["metadata"][*field].as_str());
                name.map_or_else(|| String::from("creates a Job"), |name| format!("creates Job {name}"))
            }
        };
        Some(match step {
            Step::Preparing => format!("before: {what}"),
            Step::Finishing => format!("after: {what}"),
            _ => what,
        })
    });
    Some(words.collect::<Vec<_>>().join(", ")).filter(|words| !words.is_empty())
}

/// The nodes whose commands run on this computer, and end together with the program.
fn commands_under_way(view: &RollView) -> Vec<String> {
    let runs = |node: &&RollNode| {
        let action = node.record.current_action();
        view.roll.settings.runs_command(node.record.step)
            && action.is_some_and(|action| action.state == ActionState::Running)
    };
    view.roll.nodes.iter().filter(runs).map(|node| node.node().to_owned()).collect()
}

#[derive(Debug)]
pub(crate) struct RollModel {
    pub(crate) appearance: Appearance,
    pub(crate) keys: KeyMap,
    pub(crate) size: (u16, u16),
    pub(crate) now: Timestamp,
    pub(crate) name: String,
    pub(crate) reason: String,
    /// Where the output of the commands is kept.
    pub(crate) log_folder: Option<PathBuf>,
    /// Whether another program runs the roll, and this one only shows it.
    pub(crate) only_shows: bool,
    /// None before the roll is read.
    pub(crate) shown: Option<ShownRoll>,
    /// In the order of the roll. Nodes that were done before the dashboard opened are not known.
    pub(crate) rows: Vec<RollRow>,
    /// The maintenances that are left, by node.
    pub(crate) maintenances: HashMap<String, Arc<NodeMaintenance>>,
    /// kubectl with the flags for this cluster, for commands to paste.
    pub(crate) kubectl: String,
    /// The node whose causes are shown, and the first line of them.
    pub(crate) opened: Option<(String, usize)>,
    /// What the causes depend on of the opened node, or of the one that the line below the rows explains.
    pub(super) explained: ExplainedNode,
    /// Why no reconciler seems to lead; none if one leads, or if that is not known.
    pub(crate) leader_gap: Option<LeaderGap>,
    /// Whether the user wants to leave, and has to confirm that commands end or that the roll stops.
    pub(crate) is_leaving: bool,
    output: HashMap<String, VecDeque<String>>,
    /// The node that printed last.
    last_printed: Option<String>,
    /// The node that the user selected; none follows the nodes that are under way.
    selected: Option<String>,
    /// The drained node that has to be confirmed.
    pub(crate) asked: Option<String>,
    /// The pause that is requested, until it takes effect.
    pub(crate) requested_pause: Option<bool>,
    /// An error or a message of another program, and since when it is shown in place of the keys.
    pub(crate) notice: Option<(String, Timestamp)>,
    /// The first line of the help; none if it is closed.
    pub(crate) help: Option<usize>,
}

impl RollModel {
    pub(crate) fn new(
        name: &str,
        appearance: Appearance,
        keys: KeyMap,
        size: (u16, u16),
        now: Timestamp,
    ) -> Self {
        Self {
            appearance,
            keys,
            size,
            now,
            name: name.to_owned(),
            reason: String::new(),
            log_folder: None,
            only_shows: false,
            shown: None,
            rows: Vec::new(),
            maintenances: HashMap::new(),
            kubectl: String::from("kubectl"),
            opened: None,
            explained: ExplainedNode::default(),
            leader_gap: None,
            is_leaving: false,
            output: HashMap::new(),
            last_printed: None,
            selected: None,
            asked: None,
            requested_pause: None,
            notice: None,
            help: None,
        }
    }

    pub(crate) fn show(&mut self, view: &RollView) {
        if let RollState::TakenOver(_) = view.state {
            return;
        }
        let record = view.record;
        if let Some(reason) = view.roll.nodes.first().and_then(|node| node.object.spec.reason.as_deref()) {
            reason.clone_into(&mut self.reason);
        }
        let nodes: HashMap<&str, &RollNode> =
            view.roll.nodes.iter().map(|node| (node.node(), node)).collect();
        let key = |row: &RollRow| (row.progress.position, row.progress.node.clone());
        let mut rows: BTreeMap<_, _> = self.rows.drain(..).map(|row| (key(&row), row.left(view))).collect();
        for progress in view.progress {
            let row = RollRow::of(progress, nodes.get(progress.node.as_str()).copied(), record);
            rows.insert(key(&row), row);
        }
        self.rows = rows.into_values().collect();
        let left = view.roll.nodes.iter();
        self.maintenances = left.map(|node| (node.node().to_owned(), Arc::clone(&node.object))).collect();
        if let Some(facts) = &mut self.explained.facts {
            facts.note_maintenances(self.maintenances.values().map(AsRef::as_ref));
        }
        self.opened.take_if(|(node, _)| !self.maintenances.contains_key(node));
        self.requested_pause.take_if(|paused| *paused == record.paused);
        self.asked.take_if(|node| !view.progress.iter().any(|progress| progress.node == *node));
        self.now = view.now;
        let current_before = self.shown.as_ref().map(|shown| shown.current_at);
        let created =
            view.roll.nodes.iter().filter_map(|node| node.object.metadata.creation_timestamp.as_ref());
        let pods_before = self.shown.as_ref().map_or(0, |shown| shown.pods);
        let began_before = self.shown.as_ref().and_then(|shown| shown.began);
        let settings = &view.roll.settings;
        self.shown = Some(ShownRoll {
            record: record.clone(),
            state: view.state.clone(),
            nodes: view.roll.settings.nodes(),
            // A maintenance is seen to be gone before the record counts its pods.
            pods: view.moved_pods().max(pods_before),
            estimate: view.estimate(),
            began: created.map(|time| time.0).chain(began_before).min(),
            at_a_time: settings.at_once(),
            action: action_words(settings),
            commands: commands_under_way(view),
            is_current: view.is_current,
            current_at: current_before.filter(|_| !view.is_current).unwrap_or(view.now),
            at: view.now,
        });
    }

    pub(crate) fn output(&mut self, line: &NodeOutputLine) {
        let NodeOutputLine { node, text } = line;
        // Programs draw their progress with carriage returns.
        let text = text.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let lines = self.output.entry(node.clone()).or_default();
        if lines.len() == MAX_OUTPUT {
            lines.pop_front();
        }
        lines.push_back(plain(text));
        self.last_printed = Some(node.clone());
    }

    pub(crate) fn notify(&mut self, text: String) {
        self.notice = Some((text, self.now));
    }

    /// Takes the time. A notice ends after a while, because it hides the keys. Causes are read once the same node was explained a
    /// second ago, and again after a while.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Option<RollEffect> {
        self.now = now;
        self.notice.take_if(|(_, since)| now.duration_since(*since) >= NOTICE_STAYS);
        let node = self.explained_node().unwrap_or_default().to_owned();
        let rests = self.explained.turn_to(&node);
        let is_old = self.explained.requested.is_none_or(|at| now.duration_since(at) >= REREAD_AFTER);
        (rests && is_old && self.maintenances.contains_key(&node)).then(|| self.read_causes(node))
    }

    fn read_causes(&mut self, node: String) -> RollEffect {
        self.explained.turn_to(&node);
        self.explained.requested = Some(self.now);
        RollEffect::ReadCauses(node)
    }

    /// Shows that an input could not be carried out.
    pub(crate) fn fail(&mut self, error: String) {
        self.requested_pause = None;
        self.notify(error);
    }

    pub(crate) fn react(&mut self, event: &Event) -> Option<RollEffect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            Event::Resize(width, height) => {
                self.size = (*width, *height);
                None
            }
            _ => None,
        }
    }

    fn press(&mut self, key: KeyEvent) -> Option<RollEffect> {
        self.notice = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(RollEffect::Input(RollInput::Leave)),
                KeyCode::Char('z') => return Some(RollEffect::Suspend),
                _ => {}
            }
        }
        let action = self.keys.action(key);
        let motion = action.and_then(Motion::of);
        if let Some(top) = self.help.take() {
            self.help =
                motion.map(|motion| motion.target(top, usize::from(self.size.1)).min(usize::from(u8::MAX)));
            return None;
        }
        if std::mem::take(&mut self.is_leaving) {
            let is_yes = matches!(key.code, KeyCode::Char('y' | 'Y'));
            return is_yes.then_some(RollEffect::Input(RollInput::Leave));
        }
        // While there is a question, its answers go before the keys of the configuration.
        if self.asked.is_some()
            && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
            && let KeyCode::Char(c @ ('y' | 'Y' | 'n' | 'N')) = key.code
        {
            self.asked = None;
            return Some(RollEffect::Input(RollInput::Answer(c.eq_ignore_ascii_case(&'y'))));
        }
        if let Some((node, top)) = self.opened.take() {
            let height = usize::from(self.size.1);
            self.opened = match (motion, action) {
                (Some(motion), _) => Some((node, motion.target(top, height).min(usize::from(u8::MAX)))),
                (None, Some(Action::Back | Action::Quit | Action::Open)) => None,
                (None, _) => Some((node, top)),
            };
            return None;
        }
        if let Some(motion) = motion {
            self.select(motion);
            return None;
        }
        match action? {
            Action::Quit if self.ends_commands() || self.stops_by_leaving() => self.is_leaving = true,
            Action::Quit => return Some(RollEffect::Input(RollInput::Leave)),
            Action::Open => return self.open(),
            Action::Suspend => return Some(RollEffect::Suspend),
            Action::Pause => return self.toggle_pause(),
            Action::Help => self.help = Some(0),
            Action::Back => self.selected = None,
            // A roll has no use for the others.
            _ => {}
        }
        None
    }

    /// Whether commands end if the program does.
    fn ends_commands(&self) -> bool {
        !self.only_shows && self.shown.as_ref().is_some_and(|shown| !shown.commands.is_empty())
    }

    /// Whether nodes begin or return to service only as long as the program runs.
    pub(crate) fn stops_by_leaving(&self) -> bool {
        let shown = self.shown.as_ref().filter(|_| !self.only_shows);
        shown.is_some_and(|ShownRoll { record, state, .. }| {
            let is_under_way = matches!(state, RollState::Working | RollState::Waiting(_));
            is_under_way && record.halt.is_none() && !record.paused
        })
    }

    /// Opens the selected node, or else the first that is blocked, or else the one that the dashboard follows.
    fn open(&mut self) -> Option<RollEffect> {
        let blocked = || self.rows.iter().position(|row| row.state == RowState::Blocked);
        let row = self.selected().or_else(blocked).or_else(|| self.focus());
        let node = row.map(|at| self.rows[at].progress.node.clone());
        let node = node.filter(|node| self.maintenances.contains_key(node))?;
        self.opened = Some((node.clone(), 0));
        Some(self.read_causes(node))
    }

    /// A node's maintenance and all others of the roll that are left, if it is one of them.
    pub(crate) fn maintenances_of(
        &self,
        node: &str,
    ) -> Option<(Arc<NodeMaintenance>, Vec<Arc<NodeMaintenance>>)> {
        Some((self.maintenances.get(node)?.clone(), self.maintenances.values().cloned().collect()))
    }

    /// That no reconciler leads, if a node of the roll needs that.
    pub(crate) fn hindering_gap(&self) -> Option<&LeaderGap> {
        let need = LeaderNeed::of_all(self.maintenances.values().map(AsRef::as_ref));
        self.leader_gap.as_ref().filter(|gap| need.is_hindered_by(gap))
    }

    /// The node about which another program asks whether the roll continues with it, and who runs that program.
    pub(crate) fn asked_elsewhere(&self) -> Option<(&str, &str)> {
        let record = self.shown.as_ref().filter(|_| self.only_shows).map(|shown| &shown.record)?;
        let goes_on = record.halt.is_none() && !record.paused && record.aborted.is_none();
        let runner = record.runner.as_ref().filter(|_| goes_on && is_seen(record, self.now))?;
        let row = self.rows.iter().find(|row| row.progress.step == Step::Confirming && !row.state.has_left());
        Some((&row?.progress.node, &runner.who))
    }

    /// Whether the roll was aborted: it can be neither paused nor continued.
    pub(crate) fn is_aborted(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.record.aborted.is_some())
    }

    fn toggle_pause(&mut self) -> Option<RollEffect> {
        let pause = !self.shown.as_ref()?.record.paused;
        if self.requested_pause.is_some() || self.is_aborted() {
            return None;
        }
        self.requested_pause = Some(pause);
        Some(RollEffect::Input(RollInput::Pause(pause)))
    }

    fn select(&mut self, motion: Motion) {
        let line = self.focus().unwrap_or(0);
        // The first key selects the row that the dashboard follows.
        let target = match motion {
            Motion::By(_) if self.selected().is_none() => line,
            _ => motion.target(line, usize::from(self.size.1) / 2),
        };
        let row = self.rows.get(target).or(self.rows.last());
        self.selected = row.map(|row| row.progress.node.clone());
    }

    /// The row that the user selected.
    pub(crate) fn selected(&self) -> Option<usize> {
        let selected = self.selected.as_deref()?;
        self.rows.iter().position(|row| row.progress.node == selected)
    }

    /// The row that is selected, or else the first that is under way.
    pub(crate) fn focus(&self) -> Option<usize> {
        let first = |is_wanted: fn(RowState) -> bool| self.rows.iter().position(|row| is_wanted(row.state));
        self.selected()
            .or_else(|| first(|state| state == RowState::Halted))
            .or_else(|| first(|state| !state.has_left() && state != RowState::Planned))
            .or_else(|| first(|state| state == RowState::Planned))
            .or(self.rows.len().checked_sub(1))
    }

    /// Whether what is shown may be out of date.
    pub(crate) fn is_stale(&self) -> bool {
        let is_stale =
            |shown: &ShownRoll| !shown.is_current || self.now.duration_since(shown.at) >= STALE_AFTER;
        self.shown.as_ref().is_some_and(is_stale)
    }

    /// How many nodes were done before the dashboard opened.
    pub(crate) fn done_before(&self) -> usize {
        let seen = self.rows.iter().filter(|row| matches!(row.state, RowState::Done(_))).count();
        self.shown.as_ref().map_or(0, |shown| shown.record.done.nodes).saturating_sub(seen)
    }

    /// The nodes whose output is shown, with it: the selected one, or else those whose action is running, or else the one
    /// that printed last.
    pub(crate) fn outputs(&self) -> Vec<(&RollRow, Vec<&str>)> {
        let with_output = |row: &&RollRow| self.output.contains_key(&row.progress.node);
        let is_acting = |row: &&RollRow| row.progress.step.has_action() && !row.state.has_left();
        let mut rows: Vec<&RollRow> = match self.selected() {
            Some(at) => vec![&self.rows[at]],
            None => self.rows.iter().filter(is_acting).collect(),
        };
        if rows.is_empty() {
            rows.extend(self.rows.iter().find(|row| self.last_printed.as_ref() == Some(&row.progress.node)));
        }
        rows.retain(with_output);
        rows.into_iter().map(|row| (row, self.output_of(&row.progress.node))).collect()
    }

    fn output_of(&self, node: &str) -> Vec<&str> {
        self.output.get(node).into_iter().flatten().map(String::as_str).collect()
    }

    /// What stays on the terminal after the dashboard: the nodes that are done, and the last output of the node that halted
    /// the roll.
    pub(crate) fn last_lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        match self.done_before() {
            0 => {}
            1 => lines.push(Line::new("1 node was done before.")),
            before => lines.push(Line::new(format!("{before} nodes were done before."))),
        }
        for row in &self.rows {
            let RowState::Done(took) = row.state else { continue };
            let pods = row.pod_words();
            let took = took.map(|took| format!(" in {}", age(took.as_secs()))).unwrap_or_default();
            let line = Line::new(format!("node/{} ", row.progress.node)).with(Style::Good, "Done");
            // The time is that of all steps of the node.
            lines.push(line.and(format!("{took}: {pods}")));
        }
        let halt = self.shown.as_ref().and_then(|shown| shown.record.halt.as_ref());
        if let Some(halt) = halt {
            let output = self.output_of(&halt.node);
            let last = &output[output.len().saturating_sub(LAST_OUTPUT)..];
            lines.extend(last.iter().map(|text| Line::new(format!("  {} | {text}", halt.node))));
        }
        lines
    }
}
