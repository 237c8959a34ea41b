//! The dialogs: each lists what will happen before it does.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use nm_core::explain::cause::sentence;
use nm_core::maintenance::{State, node, purpose_words, roll_name, uid};
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_core::terminal::text::{counted, first_names};
use nm_roll::stopped_rolls::StoppedRolls;
use nm_shared::{NodeMaintenance, PodState};
use ratatui::layout::Rect;

use crate::config::action_table::{ACTIONS, Action, ActionEntry, HelpGroup};
use crate::config::key_map::KeyMap;
use crate::layout::is_small;
use crate::model::Model;
use crate::model::dialogs::start_plan::StartPlan;
use crate::model::dialogs::start_preview::StartPreview;
use crate::model::dialogs::{Dialog, PauseDialog, StartDialog, StopDialog, is_confirmed, plugin_command};
use crate::model::fleet::fleet_row::FleetRow;
use crate::model::text_field::Field;
use crate::objects::node_metadata::NodeReadiness;
use crate::view::action_dialogs::{pod_lines, pod_title};
use crate::view::canvas::{Canvas, line};
use crate::view::dialog_lines::{DialogLine, LinePriority, age_of_nodes, fit_lines, listed, page_of};
use crate::view::start_dialog::{StartLines, enter, preview, start_lines};
use crate::view::theme::{Glyphs, Tone};
use crate::wrapping::wrap;

const WIDEST: u16 = 76;

const WIDEST_START: u16 = 110;

pub(super) fn draw(model: &Model, dialog: &Dialog, canvas: &mut Canvas<'_>, area: Rect) {
    if is_small(model) && !matches!(dialog, Dialog::Help(_)) {
        canvas.write(line(area, 0), area.x, "window too small  [Esc] cancel", Tone::Alarm);
        return;
    }
    // What is known of a start is longer than what other dialogs show.
    let begins = match dialog {
        Dialog::Start(_) => true,
        Dialog::Pause(dialog) => dialog.preview != StartPreview::Nothing,
        Dialog::Help(_) | Dialog::Stop(_) | Dialog::Pod(_) => false,
    };
    let widest = if begins { WIDEST_START } else { WIDEST };
    let width = area.width.saturating_sub(2).min(widest);
    let area = Rect { x: area.x + (area.width - width) / 2, width, ..area };
    let typed = typed_in(width, canvas.glyphs);
    match dialog {
        Dialog::Help(top) => draw_help(model, *top, canvas, area),
        Dialog::Start(dialog) => {
            let plan = model.start_plan(dialog);
            let title = match plan.nodes.len() {
                0 => String::from("put nodes into maintenance"),
                count => format!("start {}", counted(count, "node")),
            };
            draw_start(model, dialog, &plan, &title, canvas, area);
        }
        Dialog::Stop(dialog) => {
            let title = format!("stop {}", counted(dialog.targets.len(), "maintenance"));
            draw_lines(canvas, area, &title, &stop_lines(model, dialog, typed));
        }
        Dialog::Pause(dialog) => {
            let verb = if dialog.pause { "pause" } else { "resume" };
            let title = format!("{verb} {}", counted(dialog.targets.len(), "maintenance"));
            draw_lines(canvas, area, &title, &pause_lines(model, dialog, typed));
        }
        Dialog::Pod(dialog) => {
            draw_lines(canvas, area, &pod_title(dialog), &pod_lines(model, dialog, typed));
        }
    }
}

/// Shows a field with its name, in a dialog of that width.
fn typed_in(width: u16, glyphs: &'static Glyphs) -> impl Fn(&str, &Field) -> String {
    move |name, field| {
        let space = usize::from(width).saturating_sub(name.len() + 5);
        format!("{name} {}", field.shown(glyphs.caret, glyphs.more, space))
    }
}

/// Draws the start dialog. What is known about the start scrolls between what is typed and the keys.
fn draw_start(
    model: &Model,
    dialog: &StartDialog,
    plan: &StartPlan,
    title: &str,
    canvas: &mut Canvas<'_>,
    area: Rect,
) {
    let space = (area.width.saturating_sub(4), usize::from(area.height.saturating_sub(2)));
    let typed = typed_in(area.width, canvas.glyphs);
    let StartLines { mut fields, body, mut foot } = start_lines(model, dialog, plan, space, typed);
    let rows = space.1.saturating_sub(fields.len() + foot.len());
    let (mut page, position) = page_of(&body, space.0, rows, dialog.page);
    let position = position.map(|(first, last, total)| format!("  [PgDn] {first}-{last} of {total}"));
    let title = format!("{title}{}", position.unwrap_or_default());
    fields.append(&mut page);
    fields.append(&mut foot);
    draw_lines(canvas, area, &title, &fields);
}

fn draw_lines(canvas: &mut Canvas<'_>, area: Rect, title: &str, lines: &[DialogLine]) {
    let lines = fit_lines(lines, area.width.saturating_sub(4), usize::from(area.height.saturating_sub(2)));
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let inner = canvas.frame(Rect { y: area.y + (area.height - height) / 3, height, ..area }, title);
    for (line, DialogLine { text, tone, .. }) in inner.rows().zip(&lines) {
        canvas.write(line, line.x, text, *tone);
    }
}

/// The state of a maintenance as it is by now.
fn state_of(model: &Model, target: &NodeMaintenance) -> String {
    let row = model.fleet.maintenance(&uid(target)).map(|object| FleetRow::of(object));
    row.map_or_else(|| String::from("already gone"), |row| format!("{} {}%", row.state_word(), row.percent))
}

fn pause_lines(
    model: &Model,
    dialog: &PauseDialog,
    typed: impl Fn(&str, &Field) -> String,
) -> Vec<DialogLine> {
    let sentence = |text: &str| DialogLine::new(text, Tone::Plain, LinePriority::Consequence);
    let count = dialog.targets.len();
    let verb = if dialog.pause { "pause" } else { "resume" };
    let only = match dialog.targets.as_slice() {
        [target] => Some(State::of(target)),
        _ => None,
    };
    let what = match (dialog.pause, only) {
        (false, Some(State::Planned)) => "The maintenance starts, and the pods of its node are evicted:",
        (false, Some(_)) => "The drain continues:",
        (false, None) => "The drains continue, and planned maintenances start:",
        (true, Some(State::Requested | State::Queued)) => {
            "The maintenance does not start until it is resumed:"
        }
        (true, Some(_)) => "No more pods are evicted until it is resumed. The node stays cordoned:",
        (true, None) => "No more pods are evicted until they are resumed. Cordoned nodes stay cordoned:",
    };
    let mut lines = vec![sentence(what), DialogLine::blank()];
    lines.extend(listed(
        dialog.targets.iter().map(|target| format!("  {}  {}", node(target), state_of(model, target))),
    ));
    lines.extend(preview(model, &dialog.preview));
    lines.push(DialogLine::blank());
    let of_rolls = if dialog.pause { unpaused } else { bypassed };
    lines.extend(of_rolls(dialog, &model.options.kubectl).map(|text| sentence(&text)));
    lines.push(command_line(&plugin_command(&model.options.kubectl, verb, &dialog.targets)));
    lines.push(DialogLine::blank());
    if count > 1 {
        let count = typed(&format!("Type {count} to {verb} {count} maintenances:"), &dialog.count);
        lines.push(DialogLine::new(count, Tone::Strong, LinePriority::Required));
    }
    let ready = is_confirmed(&dialog.count, count);
    let enter = if ready { enter(verb, &dialog.preview) } else { String::new() };
    lines.push(DialogLine::new(format!("{enter}[Esc] cancel"), Tone::Quiet, LinePriority::Required));
    lines
}

/// The command that does the same.
fn command_line(command: &str) -> DialogLine {
    DialogLine::new(command, Tone::Quiet, LinePriority::Listed)
}

fn stop_lines(model: &Model, dialog: &StopDialog, typed: impl Fn(&str, &Field) -> String) -> Vec<DialogLine> {
    let count = dialog.targets.len();
    let has_begun = |target: &Arc<NodeMaintenance>| State::of(target) != State::Planned;
    let any_has_begun = dialog.has_cordons();
    let they = match (count, stay_cordoned(model, dialog)) {
        (1, _) if !any_has_begun => "the node stays as it is",
        (_, _) if !any_has_begun => "the nodes stay as they are",
        (1, Some(false)) => "the node returns to service",
        (_, Some(false)) => "the nodes return to service",
        (1, Some(true)) => "the node stays cordoned",
        (_, Some(true)) => "the nodes stay cordoned",
        (_, None) => "the nodes return to service or stay cordoned",
    };
    let is_drained = |target: &Arc<NodeMaintenance>| {
        matches!(State::of(target), State::Draining | State::Blocked | State::Paused)
    };
    let what = if dialog.targets.iter().any(is_drained) { "drain" } else { "maintenance" };
    let sentence = |text: &str| DialogLine::new(text, Tone::Plain, LinePriority::Consequence);
    let is_not_ready = |target: &Arc<NodeMaintenance>| {
        let details = model.fleet.node(node(target)).and_then(|metadata| metadata.details.as_ref());
        details.is_some_and(|details| details.readiness != NodeReadiness::Ready)
    };
    let mut lines = vec![sentence(&format!("The {what} ends, and {they}:")), DialogLine::blank()];
    lines.extend(listed(dialog.targets.iter().map(|target| {
        let state = state_of(model, target);
        let back = match model.fleet.node(node(target)).and_then(|metadata| metadata.was_schedulable) {
            _ if dialog.is_ignored_by(target) => ", is uncordoned by the medik8s operator",
            _ if !dialog.keep_cordon && !has_begun(target) => "",
            _ if dialog.keep_cordon && !FleetRow::of(target).has_started() => {
                ", not cordoned: its maintenance has not started"
            }
            Some(true) if dialog.keep_cordon => ", stays cordoned",
            Some(true) if is_not_ready(target) => ", becomes schedulable, but is not Ready",
            Some(true) => ", becomes schedulable",
            Some(false) => ", stays cordoned, as before the maintenance",
            None => "",
        };
        format!("  {}  {state}{back}{}", node(target), purpose_words(target))
    })));
    if any_has_begun {
        lines.push(sentence("Pods that were evicted are not moved back."));
    }
    let ignored = ignored(dialog, &model.options.kubectl);
    lines.extend(ignored.map(|text| DialogLine::new(text, Tone::Bad, LinePriority::Problem)));
    lines.extend(rolls_left(model, dialog));
    lines.extend(age_of_nodes(model));
    let flag = if dialog.keep_cordon { " --keep-cordon" } else { "" };
    lines.push(command_line(&(plugin_command(&model.options.kubectl, "stop", &dialog.targets) + flag)));
    lines.push(DialogLine::blank());
    if count > 1 {
        let count = typed(&format!("Type {count} to stop {count} maintenances:"), &dialog.count);
        lines.push(DialogLine::new(count, Tone::Strong, LinePriority::Required));
    }
    let ready = dialog.is_confirmed();
    let other = match dialog.keep_cordon {
        _ if !dialog.has_cordons() => "",
        true => "[Tab] return to service  ",
        false => "[Tab] keep cordoned  ",
    };
    let keys = format!("{}{other}[Esc] cancel", if ready { "[Enter] stop  " } else { "" });
    lines.push(DialogLine::new(keys, Tone::Quiet, LinePriority::Required));
    lines
}

/// Whether the nodes stay cordoned: as somebody chose, or because they were cordoned before. None if only some do.
fn stay_cordoned(model: &Model, dialog: &StopDialog) -> Option<bool> {
    let was_cordoned = |target: &Arc<NodeMaintenance>| {
        model.fleet.node(node(target)).and_then(|metadata| metadata.was_schedulable) == Some(false)
    };
    match dialog.targets.iter().filter(|target| was_cordoned(target)).count() {
        _ if dialog.keep_cordon => Some(true),
        0 => Some(false),
        all if all == dialog.targets.len() => Some(true),
        _ => None,
    }
}

/// The rolls that maintenances are part of.
fn rolls_of(targets: &[Arc<NodeMaintenance>]) -> Vec<String> {
    let rolls: BTreeSet<&str> = targets.iter().filter_map(|target| roll_name(target)).collect();
    rolls.into_iter().map(str::to_owned).collect()
}

/// The rolls whose order and limits a resume bypasses, as `kubectl nm resume` reports them.
fn bypassed(dialog: &PauseDialog, kubectl: &str) -> Option<String> {
    let names = rolls_of(&dialog.targets);
    let resume = nm_command(kubectl, &format!("roll resume {}", shell_quoted(names.first()?)));
    let is_early = dialog.targets.iter().any(|target| State::of(target) == State::Planned);
    let until = if is_early { ": they stay drained until their turn comes" } else { "" };
    Some(format!(
        "Nodes are part of roll {}, whose windows, gates and limit do not apply to them then{until}. {resume} continues a roll",
        first_names(&names)
    ))
}

/// The rolls that a pause of their nodes does not pause, as `kubectl nm pause` reports them.
fn unpaused(dialog: &PauseDialog, kubectl: &str) -> Option<String> {
    let names = rolls_of(&dialog.targets);
    let pause = nm_command(kubectl, &format!("roll pause {}", shell_quoted(names.first()?)));
    let roll = first_names(&names);
    Some(format!("This pauses only maintenances, and not roll {roll}. {pause} pauses a roll"))
}

/// What it means for rolls that the nodes leave them, as `kubectl nm stop` reports it.
fn rolls_left(model: &Model, dialog: &StopDialog) -> Vec<DialogLine> {
    let all = model.fleet.maintenances().cloned();
    let rolls = StoppedRolls::of(all, dialog.targets.iter().map(AsRef::as_ref), model.now);
    let warnings = rolls.warnings(&model.options.kubectl).into_iter();
    let line =
        |text: String| DialogLine::new(sentence(&text.replace('`', "")), Tone::Bad, LinePriority::Problem);
    warnings.map(line).collect()
}

/// That the medik8s operator uncordons nodes in any case, as `kubectl nm stop --keep-cordon` reports it.
fn ignored(dialog: &StopDialog, kubectl: &str) -> Option<String> {
    let nodes: Vec<String> = dialog.ignoring().map(|target| node(target).to_owned()).collect();
    let them = if nodes.len() == 1 { "it" } else { "them" };
    let cordon: Vec<_> = nodes.iter().map(|node| shell_quoted(node)).collect();
    (!nodes.is_empty()).then(|| {
        format!(
            "The medik8s node-maintenance-operator manages the maintenance of {}, and uncordons nodes at the end. Return {them} \
             to service, then run {kubectl} cordon {}",
            first_names(&nodes),
            cordon.join(" ")
        )
    })
}

fn draw_help(model: &Model, top: usize, canvas: &mut Canvas<'_>, area: Rect) {
    let lines = help_lines(model);
    let lines: Vec<(&str, &str)> = lines.iter().map(|(key, what)| (key.as_str(), *what)).collect();
    draw_keys(lines.iter(), top, canvas, area, &model.options.config.keys);
}

/// The lines of the help: a key and what it does; without a key, a heading or a sentence.
fn help_lines(model: &Model) -> Vec<(String, &'static str)> {
    let (options, keys) = (&model.options, &model.options.config.keys);
    let of_replay: &[(&str, &str)] = if options.is_replay() { REPLAY_HELP } else { &[] };
    let mut lines: Vec<_> = of_replay.iter().map(|(key, what)| ((*key).to_owned(), *what)).collect();
    // What has no key cannot be done. The keys of a replay go before those of the dashboard.
    let is_of_replay =
        |key: &str| of_replay.iter().any(|(taken, _)| taken.split(' ').any(|taken| taken == key));
    let keys_of = |entry: &ActionEntry| -> Vec<&str> {
        keys.keys(entry.action).iter().map(String::as_str).filter(|key| !is_of_replay(key)).collect()
    };
    for group in HelpGroup::ALL {
        lines.push((String::new(), group.heading()));
        let entries = ACTIONS.iter().filter(|entry| entry.group == group && options.offers(entry));
        lines.extend(
            entries.map(|entry| (keys_of(entry).join(", "), entry.help)).filter(|(keys, _)| !keys.is_empty()),
        );
        lines.push((String::new(), ""));
    }
    let filters = FILTERS.iter().copied().chain(STATE_WORDS.iter().map(String::as_str));
    lines.extend(filters.chain([""]).map(|note| (String::new(), note)));
    let signs = if options.appearance.ascii { &*ASCII_SIGNS } else { &*SIGNS };
    lines.extend(signs.iter().map(|note| (String::new(), note.as_str())));
    lines
}

/// The column in which the help shows what a key does.
const HELP_TEXT: u16 = 15;

/// Draws keys and what they do, from line `top` on. Without a key, a line is a heading or a sentence.
pub(crate) fn draw_keys<'a>(
    keys: impl Iterator<Item = &'a (&'a str, &'a str)>,
    top: usize,
    canvas: &mut Canvas<'_>,
    area: Rect,
    map: &KeyMap,
) {
    // The frame takes two columns at both sides.
    let space = area.width.saturating_sub(4);
    let wrapped = |(key, what): &'a (&'a str, &'a str)| -> Vec<(Option<&str>, String)> {
        if key.is_empty() {
            return vec![(None, (*what).to_owned())];
        }
        let parts = wrap(what, usize::from(space.saturating_sub(HELP_TEXT)));
        // Many keys have a line of their own.
        let own = key.len() + 3 > usize::from(HELP_TEXT);
        let own_line = own.then(|| (Some(*key), String::new()));
        let key_of = |at: usize| if at == 0 && !own { key } else { "" };
        let parts = parts.into_iter().enumerate().map(|(at, part)| (Some(key_of(at)), part));
        own_line.into_iter().chain(parts).collect()
    };
    let lines: Vec<(Option<&str>, String)> = keys.flat_map(wrapped).collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let outer = Rect { y: area.y + (area.height - height) / 2, height, ..area };
    let inner = canvas
        .frame(outer, &format!("help  [{}] scroll  {} close", map.up_and_down(), map.hint(Action::Back)));
    let top = top.min(lines.len().saturating_sub(usize::from(inner.height)));
    for (line, (key, what)) in inner.rows().zip(&lines[top..]) {
        if let Some(key) = key {
            canvas.write(line, line.x + 2, key, Tone::Strong);
            canvas.write(line, line.x + HELP_TEXT, what, Tone::Plain);
        } else {
            let is_heading = what.len() < 12;
            canvas.write(line, line.x, what, if is_heading { Tone::Strong } else { Tone::Plain });
        }
    }
}

/// What the help shows of filters, below the keys.
const FILTERS: &[&str] = &[
    "All words of a filter have to match; one with ! must not. ns:, node:,",
    "workload: and object: take a prefix of a name or a pattern with * and ?,",
    "reason: a part of a reason, phase: a prefix of a phase of the API. Each",
    "may be a /regular expression/, as any other word. state: takes a prefix:",
];

/// The words that the filter `state:` takes.
static STATE_WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let nodes = State::ALL.map(State::word);
    let pods = PodState::ALL.map(PodState::word);
    let replacements = ["Unscheduled", "Starting", "NotReady", "Ready"];
    let lines = |words: &[&str], of: &str| {
        let words: Vec<String> =
            words.iter().map(|word| word.to_lowercase()).chain([format!("({of})")]).collect();
        words.chunks(7).map(|line| format!("  {}", line.join(" "))).collect::<Vec<_>>()
    };
    [lines(&nodes, "nodes"), lines(&pods, "pods"), lines(&replacements, "replacements")].concat()
});

/// What the signs mean.
static SIGNS: LazyLock<[String; 3]> = LazyLock::new(|| Glyphs::of(false).legend());

static ASCII_SIGNS: LazyLock<[String; 3]> = LazyLock::new(|| Glyphs::of(true).legend());

/// The keys of a replay, beside the others.
pub(crate) const REPLAY_HELP: &[(&str, &str)] = &[
    ("", "Replay"),
    ("Space", "pause or play; at the end, replay from the start"),
    ("Left Right", "10 s back and forward; with Shift, a minute"),
    ("Home End", "the beginning and the end"),
    ("0 ... 9", "jump to 0%, 10%, ... 90% of the recording"),
    ("+ -", "faster and slower"),
    ("", ""),
];
