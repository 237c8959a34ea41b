//! Draws the dashboard of a roll. Nothing here changes it.

use std::time::Duration;

use jiff::Timestamp;
use nm_core::args::duration::{TimeStyle, age, show};
use nm_core::maintenance::roll::paused_words;
use nm_core::terminal::text::{counted, harmless};
use nm_roll::by_now::halted_words;
use nm_roll::decide::{NodeProgress, ReadyTime, RollState};
use nm_roll::report::estimate_text;
use nm_shared::PodCounts;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use crate::config::action_table::Action;
use crate::config::key_map::KeyMap;
use crate::elapsed::elapsed;
use crate::model::banners::leader_words;
use crate::roll::model::{RollModel, ShownRoll};
use crate::roll::outputs::{draw_outputs, output_height};
use crate::roll::row::{RollRow, RowState};
use crate::view::canvas::{Canvas, line};
use crate::view::dialogs::draw_keys;
use crate::view::footer::draw_key_line;
use crate::view::header::data_age;
use crate::view::table::{Column, draw_cells, draw_heads, fit};
use crate::view::theme::{Glyphs, Surface, Tone};
use crate::wrapping::wrap;

/// From so many columns on, the summary has a bar, and the beginning its time.
const BAR_FROM: u16 = 60;

/// From so many rows on, there is space for more than the table.
const TALL: u16 = 14;

/// From so many rows on, there is space for the settings of the roll.
const ROOMY: u16 = 18;

/// The cursor comes before the first column.
const INDENT: u16 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RollColumn {
    Wave,
    Node,
    Step,
    Time,
    Pods,
    Detail,
}

const COLUMNS: [Column<RollColumn>; 6] = [
    Column::new(RollColumn::Wave, "WAVE", 4, 0, 2),
    Column::new(RollColumn::Node, "NODE", 9, 0, 9),
    Column::new(RollColumn::Step, "STEP", 12, 0, 8),
    Column::new(RollColumn::Time, "FOR", 6, 0, 6),
    Column::new(RollColumn::Pods, "PODS", 5, 0, 5),
    Column::new(RollColumn::Detail, "DETAIL", 14, 1, 1),
];

type TonedLines = Vec<(String, Tone)>;

pub(crate) fn draw(model: &RollModel, frame: &mut Frame) {
    let area = frame.area();
    let canvas = &mut Canvas::new(frame.buffer_mut(), model.appearance);
    let is_tall = area.height >= TALL;
    let settings = if area.height >= ROOMY { settings(model, area.width) } else { TonedLines::new() };
    let state = limited(state(model, area.width), if is_tall { 3 } else { 1 });
    let question = limited(question(model, area.width), if is_tall { 3 } else { 2 });
    let columns = columns(model, area.width);
    let why = limited(why(model, &columns, area.width), if is_tall { 3 } else { 0 });
    let length = |lines: &TonedLines| u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let fixed = 4 + length(&settings) + length(&state) + length(&question) + length(&why);
    let output = if is_tall { output_height(model, area.height.saturating_sub(fixed)) } else { 0 };
    let [
        header,
        summary,
        settings_area,
        state_area,
        question_area,
        heads,
        body,
        why_area,
        output_area,
        footer,
    ] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(length(&settings)),
        Constraint::Length(length(&state)),
        Constraint::Length(length(&question)),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(length(&why)),
        Constraint::Length(output),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_header(model, canvas, header);
    canvas.write_lines(question_area, 1, &question);
    // Stale data never looks live.
    canvas.fade(model.is_stale());
    if let Some(shown) = &model.shown {
        draw_summary(model, shown, canvas, summary);
    }
    canvas.write_lines(settings_area, 1, &settings);
    canvas.write_lines(state_area, 1, &state);
    draw_rows(model, &columns, canvas, heads, body);
    canvas.write_lines(why_area, 1, &why);
    draw_outputs(model, canvas, output_area);
    canvas.fade(false);
    draw_footer(model, canvas, footer);
    if let Some((lines, top)) = model.opened_lines() {
        draw_opened(&lines, top, &question, canvas, area);
    }
    if let Some(top) = model.help {
        draw_help(model, top, canvas, area);
    }
}

/// At most so many lines. The rest is in the last one, whose end the canvas marks as cut.
fn limited(mut lines: TonedLines, rows: usize) -> TonedLines {
    if lines.len() > rows && rows > 0 {
        let rest = lines.split_off(rows - 1);
        let tone = rest[0].1;
        let words: Vec<String> = rest.into_iter().map(|(text, _)| text).collect();
        lines.push((words.join(" "), tone));
    }
    lines.truncate(rows);
    lines
}

/// The text in lines that fit the width.
fn paragraph(text: &str, width: u16, tone: Tone) -> TonedLines {
    wrap(&harmless(text), usize::from(width.saturating_sub(2))).into_iter().map(|line| (line, tone)).collect()
}

fn draw_header(model: &RollModel, canvas: &mut Canvas<'_>, area: Rect) {
    canvas.fill(area, Surface::Title);
    let (word, tone) = state_word(model, canvas.glyphs);
    let start = canvas.write_right(Rect { width: area.width.saturating_sub(1), ..area }, &word, tone);
    let area = Rect { width: start.saturating_sub(area.x + 1), ..area };
    let x = canvas.write(area, area.x, " nm roll ", Tone::Badge);
    let x = canvas.write(area, x, &model.name, Tone::Strong);
    canvas.write(area, x + 2, &model.reason, Tone::Plain);
}

/// What the roll does, in a word.
fn state_word(model: &RollModel, glyphs: &Glyphs) -> (String, Tone) {
    let Some(ShownRoll { record, state, current_at, .. }) = &model.shown else {
        return (String::from("connecting"), Tone::Busy);
    };
    let (word, tone) = match state {
        _ if model.is_stale() => return (data_age(*current_at, model.now), Tone::Alarm),
        _ if record.halt.is_some() => ("HALTED", Tone::Alarm),
        _ if model.asked.is_some() || model.asked_elsewhere().is_some() => ("CONFIRM", Tone::Alarm),
        RollState::Done => ("done", Tone::Good),
        RollState::Aborted(_) => ("ABORTED", Tone::Alarm),
        _ if record.aborted.is_some() => ("ABORTED", Tone::Alarm),
        _ if record.paused => ("paused", Tone::Busy),
        RollState::Waiting(_) => ("waiting", Tone::Busy),
        _ => return (format!("working {}", glyphs.live), Tone::Good),
    };
    (word.to_owned(), tone)
}

fn draw_summary(model: &RollModel, shown: &ShownRoll, canvas: &mut Canvas<'_>, area: Rect) {
    let done = shown.record.done.nodes;
    let mut x = canvas.write(area, area.x + 1, &format!("{done}/{} nodes done", shown.nodes), Tone::Strong);
    if area.width >= BAR_FROM {
        let part = (i32::try_from(done).unwrap_or(i32::MAX), i32::try_from(shown.nodes).unwrap_or(i32::MAX));
        let counts =
            PodCounts { gone: part.0, waiting: part.1.saturating_sub(part.0), ..PodCounts::default() };
        x = canvas.pod_bar(area, x + 1, area.width / 5, &counts);
    }
    let gone = format!("{} gone", counted(shown.pods, "pod"));
    x = canvas.write(area, x + 2, &gone, Tone::Plain);
    let before = model.done_before();
    if before > 0 {
        x = canvas.write_whole(area, x + 2, &format!("{before} done before"), Tone::Quiet).unwrap_or(x);
    }
    let is_seen = |node: &String| model.rows.iter().any(|row| row.progress.node == *node);
    let gone = shown.nodes.saturating_sub(before + model.rows.len());
    let skipped = shown.record.skipped.iter().filter(|node| !is_seen(node)).count().min(gone);
    if skipped > 0 {
        x = canvas.write_whole(area, x + 2, &format!("{skipped} skipped"), Tone::Busy).unwrap_or(x);
    }
    let gone = gone - skipped;
    if gone > 0 {
        x = canvas.write_whole(area, x + 2, &format!("{gone} left the roll"), Tone::Busy).unwrap_or(x);
    }
    if let Some(runner) = &shown.record.runner {
        canvas.write_whole(area, x + 2, &format!("run by {}", runner.who), Tone::Quiet);
    }
}

/// Since when the roll runs, and what it does. What does not fit is cut.
fn settings(model: &RollModel, width: u16) -> TonedLines {
    let Some(ShownRoll { began, at_a_time, action, .. }) = &model.shown else { return TonedLines::new() };
    let began = began.map(|began| {
        let since = model.now.duration_since(began);
        let format = if since.as_hours() < 24 { "%H:%M UTC" } else { "%Y-%m-%d %H:%M UTC" };
        let at = if width < BAR_FROM { String::new() } else { format!(" {},", began.strftime(format)) };
        format!("started{at} {} ago", age(since.as_secs()))
    });
    let at_a_time = format!("{} at a time", counted(*at_a_time, "node"));
    let parts: Vec<String> = began.into_iter().chain([at_a_time]).chain(action.clone()).collect();
    vec![(parts.join("  "), Tone::Plain)]
}

/// What happens next, and when the roll will end.
fn state(model: &RollModel, width: u16) -> TonedLines {
    let Some(ShownRoll { record, state, estimate, .. }) = &model.shown else {
        return paragraph("Reading the roll from the cluster.", width, Tone::Plain);
    };
    let (text, tone) = match (state, &record.halt) {
        _ if model.is_stale() => (String::from("The cluster does not respond."), Tone::Bad),
        (_, Some(halt)) => {
            let by_now = model.rows.iter().find_map(|row| row.progress.by_now);
            (halted_words(halt, by_now, TimeStyle::Ago(model.now)), Tone::Bad)
        }
        (RollState::Done, _) => (String::from("All nodes are done."), Tone::Good),
        (RollState::Aborted(who), _) => (format!("{who} aborted the roll."), Tone::Bad),
        _ if let Some(who) = &record.aborted => {
            let text = match state {
                RollState::Waiting(why) if model.only_shows => format!("{who} aborted the roll: {why}."),
                _ => {
                    format!("{who} aborted the roll. Nodes whose command or Job has started are finished.")
                }
            };
            (text, Tone::Bad)
        }
        _ if record.paused => {
            let pause = model.keys.hint(Action::Pause);
            let paused = paused_words(record.pause.as_ref(), TimeStyle::Ago(model.now));
            (
                format!(
                    "{paused}: no further node or action is started, and drains are paused. {pause} continues."
                ),
                Tone::Busy,
            )
        }
        _ if let Some((node, who)) = model.asked_elsewhere() => (
            format!("{node} waits for a confirmation on the terminal where {who} runs the roll."),
            Tone::Busy,
        ),
        (RollState::Waiting(why), _) => (format!("no node is started: {why}"), Tone::Busy),
        _ => match estimate {
            Some(estimate) => (estimate_text(estimate, model.now), Tone::Plain),
            None => (String::from("The time left is estimated once a node is done."), Tone::Quiet),
        },
    };
    let gap = model.hindering_gap().filter(|_| !model.is_stale());
    let mut lines =
        gap.map(|gap| paragraph(&leader_words(gap, &model.kubectl), width, Tone::Bad)).unwrap_or_default();
    lines.extend(paragraph(&text, width, tone));
    lines
}

/// The opened node over the whole screen but its last lines, which have the question, if there is one, and the keys.
fn draw_opened(
    lines: &[String],
    top: usize,
    question: &[(String, Tone)],
    canvas: &mut Canvas<'_>,
    area: Rect,
) {
    let asked = u16::try_from(question.len()).unwrap_or(u16::MAX);
    let body = Rect { height: area.height.saturating_sub(asked.saturating_add(1)), ..area };
    let wrapped: TonedLines =
        lines.iter().flat_map(|text| paragraph(text, area.width, Tone::Plain)).collect();
    let top = top.min(wrapped.len().saturating_sub(usize::from(body.height)));
    let blank = " ".repeat(usize::from(area.width));
    for at in 0..body.height {
        let line = line(body, at);
        canvas.write(line, line.x, &blank, Tone::Plain);
        if let Some((text, tone)) = wrapped.get(top + usize::from(at)) {
            let tone = if at == 0 && top == 0 { Tone::Strong } else { *tone };
            canvas.write(line, line.x + 1, text, tone);
        }
    }
    let below = Rect { y: body.y + body.height, height: asked, ..area };
    for at in 0..asked {
        canvas.write(line(below, at), below.x, &blank, Tone::Plain);
    }
    canvas.write_lines(below, 1, question);
}

fn question(model: &RollModel, width: u16) -> TonedLines {
    if model.is_leaving {
        let commands = model.shown.as_ref().map(|shown| shown.commands.join(", ")).unwrap_or_default();
        let what = match (commands.as_str(), model.stops_by_leaving()) {
            ("", _) => String::from(
                "Leaving stops the roll: no further node is started and none returns to service until it is resumed",
            ),
            (commands, false) => format!("Leaving ends the command of {commands}"),
            (commands, true) => {
                format!(
                    "Leaving ends the command of {commands}, and no further node starts until the roll is resumed"
                )
            }
        };
        return paragraph(&format!("{what}. Leave? [y] yes  [n] no"), width, Tone::Alarm);
    }
    let Some(node) = &model.asked else { return TonedLines::new() };
    let text = format!("{node} is drained. Continue with it? [y] yes  [n] no, halt the roll");
    paragraph(&text, width, Tone::Alarm)
}

/// What a node waits for, if the table cuts it off.
fn why(model: &RollModel, columns: &[Column<RollColumn>], width: u16) -> TonedLines {
    let Some(row) = model.told_row() else { return TonedLines::new() };
    let (node, detail) = (&row.progress.node, detail(row, model.now));
    if let (RowState::Blocked, Some((why, remedy))) = (row.state, model.remedy(node)) {
        let mut lines = paragraph(&format!("{}.", why.trim_end_matches('.')), width, Tone::Bad);
        let advice = remedy.advice.trim_end_matches('.');
        let text = match remedy.command.as_str() {
            "" => format!("{advice}."),
            command => format!("{advice}: {command}"),
        };
        lines
            .extend((!advice.is_empty()).then(|| paragraph(&text, width, Tone::Plain)).into_iter().flatten());
        return lines;
    }
    let column = columns.iter().find(|column| column.what == RollColumn::Detail);
    let is_cut = column.is_none_or(|column| detail.chars().count() > usize::from(column.width));
    // Why the roll halted is above the table.
    if detail.is_empty() || !is_cut || row.state == RowState::Halted {
        return TonedLines::new();
    }
    let tone = if row.state == RowState::Blocked { Tone::Bad } else { Tone::Plain };
    paragraph(&format!("{node}: {detail}"), width, tone)
}

fn columns(model: &RollModel, width: u16) -> Vec<Column<RollColumn>> {
    let mut columns = COLUMNS;
    let longest = model.rows.iter().map(|row| row.progress.node.len()).max().unwrap_or(0);
    columns[1].width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(4, (width / 3).max(4));
    fit(&columns, width.saturating_sub(INDENT))
}

fn draw_rows(
    model: &RollModel,
    columns: &[Column<RollColumn>],
    canvas: &mut Canvas<'_>,
    heads: Rect,
    body: Rect,
) {
    draw_heads(columns, INDENT, canvas, heads);
    let height = usize::from(body.height);
    // The focus stays in the middle, so that the nodes before and after it are visible.
    let lowest = model.rows.len().saturating_sub(height);
    let top = model.focus().unwrap_or(0).saturating_sub(height / 2).min(lowest);
    if model.rows.len() > height && heads.width >= BAR_FROM {
        let (first, last) = (top + 1, top + height);
        let part = format!("{first}-{last} of {}", model.rows.len());
        canvas.write_right(Rect { width: heads.width.saturating_sub(1), ..heads }, &part, Tone::Quiet);
    }
    let mut wave = None;
    for (at, (index, row)) in (0u16..).zip(model.rows.iter().enumerate().skip(top).take(height)) {
        let area = line(body, at);
        // Each wave is named once.
        let is_first = wave.replace(row.progress.wave) != Some(row.progress.wave);
        draw_cells(columns, INDENT, canvas, area, |column, canvas| {
            cell(row, column.what, is_first, model, canvas.glyphs)
        });
        if model.selected() == Some(index) {
            canvas.write(area, area.x, canvas.glyphs.cursor, Tone::Accent);
            canvas.fill(area, Surface::Selection);
        }
    }
}

fn cell(
    row: &RollRow,
    column: RollColumn,
    is_first: bool,
    model: &RollModel,
    glyphs: &Glyphs,
) -> (String, Tone) {
    let RollRow { progress, state, .. } = row;
    let tone = if state.has_left() { Tone::Quiet } else { Tone::Plain };
    let text = match column {
        RollColumn::Wave if is_first => progress.wave.saturating_add(1).to_string(),
        RollColumn::Wave => String::new(),
        RollColumn::Node if state.has_left() => progress.node.clone(),
        RollColumn::Node => return (progress.node.clone(), Tone::Strong),
        RollColumn::Step => {
            let (sign, tone) = sign(row, glyphs);
            return (format!("{sign} {}", row.step_word()), tone);
        }
        RollColumn::Time => match state {
            RowState::Planned | RowState::Removed => String::from("-"),
            RowState::Done(took) => took.map_or_else(|| String::from("-"), |took| elapsed(took.as_secs())),
            _ => elapsed(model.now.duration_since(progress.since).as_secs()),
        },
        RollColumn::Pods if *state == RowState::Planned => String::from("-"),
        RollColumn::Pods => format!("{}/{}", progress.pods.0, progress.pods.1),
        RollColumn::Detail => detail(row, model.now),
    };
    (text, tone)
}

/// What a node waits for, or what blocks it.
fn detail(row: &RollRow, now: Timestamp) -> String {
    let NodeProgress { detail, ready_time, .. } = &row.progress;
    match (row.state, ready_time) {
        (RowState::UnderWay, Some(ReadyTime { since, wanted })) => {
            let ready = age(now.duration_since(*since).as_secs());
            format!("Ready for {ready} of {}", show(Duration::from_secs(*wanted)))
        }
        _ => detail.clone(),
    }
}

fn sign(row: &RollRow, glyphs: &Glyphs) -> (&'static str, Tone) {
    match row.state {
        RowState::Blocked | RowState::Halted => (glyphs.blocked, Tone::Bad),
        RowState::Done(_) => (glyphs.done, Tone::Quiet),
        RowState::Removed => (glyphs.idle, Tone::Quiet),
        RowState::Planned | RowState::UnderWay => glyphs.step(row.progress.step),
    }
}

fn draw_footer(model: &RollModel, canvas: &mut Canvas<'_>, area: Rect) {
    if let Some((notice, _)) = &model.notice {
        canvas.write(area, area.x + 1, notice, Tone::Bad);
        return;
    }
    let map = &model.keys;
    if model.opened.is_some() {
        let (back, scroll) = (map.shortest(Action::Back), map.up_and_down());
        draw_key_line(&[(&back, "close"), (&scroll, "scroll")], canvas, area);
        return;
    }
    let is_paused = model.shown.as_ref().is_some_and(|shown| shown.record.paused);
    let pause = match model.requested_pause {
        Some(true) => "pausing",
        Some(false) => "continuing",
        None if is_paused => "continue",
        None => "pause",
    };
    // What has no key cannot be done.
    let can_be_done = |action| action != Action::Pause || !model.is_aborted();
    let is_offered =
        |action: &(Action, &'static str)| !map.keys(action.0).is_empty() && can_be_done(action.0);
    let actions = [(Action::Quit, "leave"), (Action::Help, "help"), (Action::Pause, pause)];
    let mut keys: Vec<_> =
        actions.into_iter().filter(is_offered).map(|(action, word)| (map.shortest(action), word)).collect();
    keys.push((map.up_and_down(), "select"));
    keys.push((map.shortest(Action::Open), "open"));
    if model.selected().is_some() {
        keys.push((map.shortest(Action::Back), "follow"));
    }
    let keys: Vec<(&str, &str)> = keys.iter().map(|(key, what)| (key.as_str(), *what)).collect();
    draw_key_line(&keys, canvas, area);
}

fn draw_help(model: &RollModel, top: usize, canvas: &mut Canvas<'_>, area: Rect) {
    let width = area.width.saturating_sub(2).min(76);
    let area = Rect { x: area.x + (area.width - width) / 2, width, ..area };
    let lines = help(&model.keys);
    let legend = canvas.glyphs.legend_of_roll();
    let signs = legend.iter().map(|text| ("", text.as_str()));
    let lines: Vec<(&str, &str)> =
        lines.iter().map(|(key, what)| (key.as_str(), *what)).chain(signs).collect();
    draw_keys(lines.iter(), top, canvas, area, &model.keys);
}

/// Keys and what they do. Without a key, a heading or a sentence.
fn help(map: &KeyMap) -> Vec<(String, &'static str)> {
    let said = |text| Some((String::new(), text));
    // What has no key cannot be done.
    let keys = |action, what| Some((map.keys(action).join(", "), what)).filter(|(keys, _)| !keys.is_empty());
    let lines = [
        said("View"),
        keys(Action::Down, "select the next node, and show its output only"),
        keys(Action::Up, "the node before"),
        keys(Action::PageDown, "half a screen down"),
        keys(Action::PageUp, "half a screen up"),
        keys(Action::Top, "the first node"),
        keys(Action::Bottom, "the last node"),
        keys(Action::Open, "what the node waits for, and what to do about it"),
        keys(Action::Back, "follow the nodes under way, and show their output"),
        said(""),
        said("Actions"),
        keys(Action::Pause, "pause the roll, or continue it"),
        Some((String::from("y, n"), "continue with a drained node, or halt the roll")),
        keys(Action::Quit, "leave the roll; asks if that stops it or ends commands"),
        keys(Action::Suspend, "suspend"),
        said(""),
        said("While the roll is paused, no further node or action is started, and"),
        said("drains evict no pods. Actions that have started continue."),
        said("`kubectl nm roll resume NAME` continues a roll that was left."),
        said(""),
    ];
    lines.into_iter().flatten().collect()
}
