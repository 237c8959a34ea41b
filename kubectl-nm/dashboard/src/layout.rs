//! The layout of the screen for its size.
//!
//! The view draws with it and keys scroll with it, so that both agree. Where there is less space, parts of the screen
//! and columns are left out.

use nm_core::terminal::text::harmless;
use ratatui::layout::{Constraint, Layout, Rect};

use crate::model::lists::listing::Rows;
use crate::model::panes::advice::Advice;
use crate::model::{Model, SideContent};
use crate::wrapping::{wrap, wrap_to};

/// Below so many columns or rows, dialogs that change the cluster do not open.
const SMALL_BELOW: (u16, u16) = (40, 8);

/// From so many columns on, the side pane is beside the rows; below, it is under them.
const BESIDE_FROM: u16 = 120;

/// From so many rows on, messages have a line of their own above the keys.
const MESSAGE_FROM: u16 = 10;

/// From so many rows on, the fleet has a line for its pods.
const TWO_LINES_FROM: u16 = 16;

/// From so many columns and rows on, the panel is beside the rows.
const PANEL_BESIDE_FROM: (u16, u16) = (150, 12);

/// How many rows a panel has at least.
const LEAST_PANEL: u16 = 6;

/// Splits the space between the rows and a panel, where no pane is open: beside the rows where the screen is wide, and else
/// below them, in what they do not need.
fn split_panel(model: &Model, area: Rect) -> [Rect; 2] {
    let rows = u16::try_from(model.rows().len()).unwrap_or(u16::MAX);
    if model.side.is_some() || !model.has_panel() {
        return [area, Rect::default()];
    }
    if model.open.is_none() && area.width >= PANEL_BESIDE_FROM.0 && area.height >= PANEL_BESIDE_FROM.1 {
        return Layout::horizontal([Constraint::Fill(11), Constraint::Fill(9)]).areas(area);
    }
    // The headings are a line too. On a tall screen, rows may scroll in two thirds of it.
    let needed = rows.saturating_add(1);
    let least = if area.height >= 4 * LEAST_PANEL { area.height / 3 } else { 0 };
    let height = area.height.saturating_sub(needed).max(least);
    if height < LEAST_PANEL {
        return [area, Rect::default()];
    }
    Layout::vertical([Constraint::Fill(1), Constraint::Length(height)]).areas(area)
}

/// From so many rows on, the page that shows what kubectl prints is below the rows, and not over them.
const PAGE_BELOW_FROM: u16 = 36;

/// Whether a page can be below the rows, so that there is a choice.
pub(crate) fn can_split(model: &Model) -> bool {
    model.size.1 >= PAGE_BELOW_FROM
}

/// Whether a page is below the rows.
fn has_page_below(model: &Model) -> bool {
    model.output.is_some() && !model.has_whole_page && can_split(model)
}

/// Splits the screen between the rows and the page below them. A page over the whole screen leaves the rows where they are.
pub(crate) fn split_page(model: &Model, area: Rect) -> [Rect; 2] {
    if !has_page_below(model) {
        return [area, area];
    }
    Layout::vertical([Constraint::Fill(2), Constraint::Fill(3)]).areas(area)
}

/// The whole screen.
fn screen(model: &Model) -> Rect {
    let (width, height) = model.size;
    Rect { x: 0, y: 0, width, height }
}

/// The areas of the screen. Areas that are not shown are empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenLayout {
    pub(crate) header: Rect,
    pub(crate) summary: Rect,
    /// What an ended drain has done and cost.
    pub(crate) outcome: Rect,
    pub(crate) banner: Rect,
    pub(crate) heads: Rect,
    pub(crate) body: Rect,
    pub(crate) side: Rect,
    /// What there is to know of the selected node, or the last events about the open one.
    pub(crate) panel: Rect,
    pub(crate) volumes: Rect,
    pub(crate) blockers: Rect,
    pub(crate) why: Rect,
    /// Where a replay is.
    pub(crate) replay: Rect,
    /// What happened, or was requested.
    pub(crate) message: Rect,
    pub(crate) footer: Rect,
}

impl ScreenLayout {
    pub(crate) fn whole(model: &Model) -> Self {
        let [rows, _] = split_page(model, screen(model));
        Self::of(model, rows)
    }

    pub(crate) fn of(model: &Model, area: Rect) -> Self {
        let tall = area.height;
        // Above a page, the rows get all of the space, and the last line is the page's edge.
        let is_alone = !has_page_below(model);
        let two_lines = tall >= TWO_LINES_FROM && !model.shows_nodes() && model.fleet.rows.total() > 0;
        let lines = |count: u16, shown: bool| Constraint::Length(if shown { count } else { 0 });
        let wrapped = |text: &str| notice_lines(text, area);
        let banner = model.banners().iter().map(|(text, _)| wrapped(text)).sum::<u16>().min(tall / 3);
        let (why, command) = remedy_lines(model, area);
        let blockers = blockers_text(model).map_or(0, |text| wrapped(&text).min(MOST_BLOCKERS));
        let message = model.message().map_or(0, |(notice, _)| wrapped(&notice.text));
        let volumes = u16::try_from(model.attached_volumes().len()).unwrap_or(u16::MAX);
        let [header, summary, outcome, banner, rest, volumes, blockers, why, replay, message, footer] =
            Layout::vertical([
                Constraint::Length(1),
                Constraint::Length(if model.open.is_some() || two_lines { 2 } else { 1 }),
                lines(count(outcome_lines(model, area).len()), tall >= 16),
                lines(banner, tall >= 10),
                Constraint::Fill(1),
                // The headings and the volumes, in a third of the screen at most.
                lines(volumes.saturating_add(1).min(tall / 3), is_alone && tall >= 10 && volumes > 0),
                lines(blockers, is_alone && tall >= 14),
                lines(count(why.len() + command.len()), is_alone && tall >= 12),
                lines(1, model.replay.is_some()),
                lines(message, is_alone && tall >= MESSAGE_FROM),
                Constraint::Length(1),
            ])
            .areas(area);
        let parts = if area.width >= BESIDE_FROM {
            Layout::horizontal([Constraint::Fill(11), Constraint::Fill(9)]).spacing(1)
        } else {
            // Half of the space, and what a short list does not need. The headings are a line too.
            let rows = count(model.rows().len());
            // Without rows, sentences say why.
            let needed = if rows == 0 { u16::MAX } else { rows.saturating_add(1) };
            Layout::vertical([Constraint::Length(needed.min(rest.height / 2)), Constraint::Fill(1)])
        };
        let [rows, side] =
            if model.side.is_some() && is_alone { parts.areas(rest) } else { [rest, Rect::default()] };
        let [rows, panel] = if is_alone { split_panel(model, rows) } else { [rows, Rect::default()] };
        let [heads, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(rows);
        Self {
            header,
            summary,
            outcome,
            banner,
            heads,
            body,
            side,
            panel,
            volumes,
            blockers,
            why,
            replay,
            message,
            footer,
        }
    }

    /// Whether the panel is beside the rows, and not below them.
    pub(crate) fn has_panel_beside(&self) -> bool {
        self.panel.x > self.body.x
    }

    pub(crate) fn rows(&self) -> usize {
        usize::from(self.body.height)
    }

    /// How many columns a line of the side pane has.
    pub(crate) fn side_columns(&self) -> usize {
        usize::from(self.side.width.saturating_sub(2))
    }

    /// How many lines the side pane shows, without its title.
    pub(crate) fn side_rows(&self) -> usize {
        usize::from(self.side.height.saturating_sub(1))
    }
}

/// How many lines a notice has: a quarter of the screen at most.
pub(crate) fn notice_lines(text: &str, area: Rect) -> u16 {
    count(wrap(text, text_columns(area)).len()).min(area.height / 4).max(1)
}

/// From so many rows on, what a drain has done and cost is there in full.
const WHOLE_OUTCOME_FROM: u16 = 24;

/// What the drain of the open node has done and cost, in lines.
pub(crate) fn outcome_lines(model: &Model, area: Rect) -> Vec<String> {
    let outcome = model.outcome();
    if area.height < WHOLE_OUTCOME_FROM {
        return outcome;
    }
    outcome.iter().flat_map(|line| wrap(&harmless(line), text_columns(area))).collect()
}

/// How many lines the most frequent blockers have at most.
const MOST_BLOCKERS: u16 = 2;

/// The most frequent blockers, if there are any.
pub(crate) fn blockers_text(model: &Model) -> Option<String> {
    let blockers = model.blockers();
    // What blocks the others is not known.
    let of = |(listed, blocked)| format!(" (the status lists {listed} of {blocked} blocked pods)");
    let of = model.listed_blocked().map(of).unwrap_or_default();
    (!blockers.is_empty()).then(|| format!("{BLOCKERS_LABEL}{}{of}", blockers.join(", ")))
}

pub(crate) const BLOCKERS_LABEL: &str = "blockers: ";

fn count(lines: usize) -> u16 {
    u16::try_from(lines).unwrap_or(u16::MAX)
}

/// How many columns a sentence has, with a blank at both ends.
pub(crate) fn text_columns(area: Rect) -> usize {
    usize::from(area.width.saturating_sub(2))
}

/// From so many rows on, what to do about the selected row may have several lines.
const SEVERAL_LINES_FROM: u16 = 20;

/// Why the selected row is blocked and what to do, and the command for it, in lines that fit behind a label.
pub(crate) fn remedy_lines(model: &Model, area: Rect) -> (Vec<String>, Vec<String>) {
    // The pane has the same.
    let is_shown = model.side.is_none_or(|side| side.shows != SideContent::Details);
    let Some((is_of_selected, Advice { why, remedy, .. })) = model.advice().filter(|_| is_shown) else {
        return (Vec::new(), Vec::new());
    };
    let most = if area.height >= SEVERAL_LINES_FROM { 3 } else { 1 };
    let width = text_columns(area).saturating_sub(REMEDY_LABEL.into());
    let fit = |text: String| wrap_to(&harmless(&text), width, most);
    // The advice comes first: a long message would cut it off, and is in the row as well. Of another row, the name comes first.
    let command = Some(remedy.command).filter(|command| !command.is_empty());
    let said = match remedy.advice.as_str() {
        "" => why,
        advice if is_of_selected => format!("{advice} ({why})"),
        advice => format!("{why}. {advice}"),
    };
    (fit(said), command.map(fit).unwrap_or_default())
}

/// The width of `why> `.
pub(crate) const REMEDY_LABEL: u16 = 5;

/// The areas of the page that shows what kubectl prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLayout {
    pub(crate) command: Rect,
    pub(crate) body: Rect,
    pub(crate) message: Rect,
    pub(crate) footer: Rect,
}

impl OutputLayout {
    pub(crate) fn whole(model: &Model) -> Self {
        let [_, page] = split_page(model, screen(model));
        Self::of(model, page)
    }

    pub(crate) fn of(model: &Model, area: Rect) -> Self {
        let space = usize::from(area.width.saturating_sub(2));
        let command = model.output.as_ref().map_or(0, |page| wrap(&page.command, space).len());
        // The command in full, unless nothing else would fit.
        let command = u16::try_from(command).unwrap_or(u16::MAX).min(area.height / 3).max(1);
        let message = model.message().map_or(0, |(notice, _)| count(wrap(&notice.text, space).len()));
        let message = if area.height >= MESSAGE_FROM { message.min(area.height / 4) } else { 0 };
        let [command, body, message, footer] = Layout::vertical([
            Constraint::Length(command),
            Constraint::Fill(1),
            Constraint::Length(message),
            Constraint::Length(1),
        ])
        .areas(area);
        Self { command, body, message, footer }
    }

    pub(crate) fn rows(&self) -> usize {
        usize::from(self.body.height)
    }

    /// How many columns a line has, beside a blank at both ends.
    pub(crate) fn columns(&self) -> usize {
        usize::from(self.body.width.saturating_sub(2))
    }
}

/// Whether the screen is too small to list what would happen.
pub(crate) fn is_small(model: &Model) -> bool {
    model.size.0 < SMALL_BELOW.0 || model.size.1 < SMALL_BELOW.1
}
