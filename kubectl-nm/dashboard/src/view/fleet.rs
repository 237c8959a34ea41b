//! The rows of the fleet.

use nm_shared::PodCounts;
use ratatui::layout::Rect;

use crate::config::action_table::Action;
use crate::config::columns::ListName;
use crate::elapsed::elapsed;
use crate::layout::ScreenLayout;
use crate::model::Model;
use crate::model::fleet::fleet_row::FleetRow;
use crate::model::lists::listing::{Row, Rows};
use crate::objects::watch_state::WatchState;
use crate::view::canvas::Canvas;
use crate::view::table::{self, Column, DrawnRow};
use crate::view::theme::Tone;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FleetColumn {
    Node,
    State,
    Bar,
    Percent,
    Pods,
    Blocked,
    Time,
    Why,
    Reason,
    Creator,
    Phase,
    Name,
}

/// Those that are not shown by default go before some that are: somebody chose them.
const COLUMNS: [(&str, Column<FleetColumn>); 12] = [
    ("node", Column::new(FleetColumn::Node, "NODE", 12, 0, 12)),
    ("state", Column::new(FleetColumn::State, "STATE", 11, 0, 11)),
    ("progress", Column::new(FleetColumn::Bar, "PROGRESS", 10, 1, 3)),
    ("percent", Column::new(FleetColumn::Percent, "%", 4, 0, 7)),
    ("pods", Column::new(FleetColumn::Pods, "PODS", 9, 0, 1)),
    ("blocked", Column::new(FleetColumn::Blocked, "BLK", 3, 0, 8).in_full("BLOCKED")),
    ("elapsed", Column::new(FleetColumn::Time, "T+", 6, 0, 2).in_full("ELAPSED")),
    ("why", Column::new(FleetColumn::Why, "WHY", 16, 2, 6)),
    ("reason", Column::new(FleetColumn::Reason, "REASON", 12, 1, 10)),
    ("creator", Column::new(FleetColumn::Creator, "CREATOR", 12, 0, 9)),
    ("phase", Column::new(FleetColumn::Phase, "PHASE", 9, 0, 5)),
    ("name", Column::new(FleetColumn::Name, "NAME", 12, 0, 4)),
];

/// Sentences need the space more than a longer bar does.
const WIDEST_BAR: usize = 12;

/// From so many columns on, the reason gets more space.
const WORDS_FROM: u16 = 70;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let rows = &model.fleet.rows;
    if rows.len() == 0 {
        nothing(model, canvas, screen.body);
        return;
    }
    table::draw(rows, &columns(model, screen), INDENT, model, canvas, screen);
}

/// The cursor and the mark come before the first column.
const INDENT: u16 = 2;

/// The columns that fit the screen.
fn columns(model: &Model, screen: &ScreenLayout) -> Vec<Column<FleetColumn>> {
    let width = screen.heads.width.saturating_sub(INDENT);
    let longest = model.fleet.rows.all().map(|row| row.node.len()).max().unwrap_or(0);
    let mut columns = table::chosen(&COLUMNS, model.options.config.columns.of(ListName::Maintenances));
    for column in &mut columns {
        match column.what {
            FleetColumn::Node => {
                column.width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(4, (width / 3).max(4));
            }
            FleetColumn::Why => column.width = if width >= WORDS_FROM { 28 } else { 16 },
            _ => {}
        }
    }
    let mut columns = table::fit(&columns, width);
    table::give_rest(&mut columns, FleetColumn::Bar, WIDEST_BAR, FleetColumn::Why);
    columns
}

impl DrawnRow for FleetRow {
    type Cell = FleetColumn;

    fn cell(&self, column: &Column<FleetColumn>, model: &Model, canvas: &Canvas<'_>) -> (String, Tone) {
        let (glyph, tone) = canvas.glyphs.node(self.state);
        let text = match column.what {
            FleetColumn::Node => return (self.node.clone(), Tone::Strong),
            FleetColumn::State => return (format!("{glyph} {}", self.state_word()), tone),
            FleetColumn::Blocked if self.blocked > 0 => {
                return (right(&self.blocked.to_string(), column), Tone::Bad);
            }
            FleetColumn::Why => {
                let is_bad = model.fleet.is_unready(self) || !model.fleet.outages.of(self.key()).is_empty();
                let tone = match (is_bad, self.is_blocked()) {
                    (true, _) => Tone::Bad,
                    (false, true) => Tone::Plain,
                    (false, false) => Tone::Quiet,
                };
                return (model.fleet.why(self, model.now).into_owned(), tone);
            }
            _ if self.state.is_none() => String::from("-"),
            FleetColumn::Reason => known(&self.reason),
            FleetColumn::Creator => known(&self.creator),
            FleetColumn::Phase => known(self.phase),
            FleetColumn::Name => known(&self.name),
            FleetColumn::Percent if self.pods == 0 && !self.has_started() => String::from("   -"),
            FleetColumn::Pods if self.pods == 0 && !self.has_started() => String::from("-"),
            FleetColumn::Bar => String::new(),
            FleetColumn::Percent => format!("{:>3}%", self.percent),
            FleetColumn::Pods => format!("{}/{}", self.gone, self.pods),
            FleetColumn::Blocked => right("-", column),
            FleetColumn::Time => self.seconds(model.now).map_or_else(|| String::from("-"), elapsed),
        };
        (text, Tone::Plain)
    }

    fn bar(&self, column: &Column<FleetColumn>) -> Option<PodCounts> {
        (column.what == FleetColumn::Bar && self.state.is_some()).then(|| self.counts())
    }
}

fn known(text: &str) -> String {
    if text.is_empty() { String::from("-") } else { text.to_owned() }
}

/// The text at the right end of its column, as numbers are.
fn right(text: &str, column: &Column<FleetColumn>) -> String {
    format!("{text:>width$}", width = usize::from(column.width))
}

fn nothing(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let plain = |text: String| (text, Tone::Plain);
    let mut lines = vec![plain(String::new())];
    match model.freshness() {
        WatchState::Forbidden(why) => {
            lines.push((String::from("You have no permission to list maintenances:"), Tone::Bad));
            lines.push(plain(why.clone()));
            lines.push(plain(String::new()));
            lines.push((format!("{} auth can-i --list", model.options.kubectl), Tone::Strong));
            let again = model.hint(Action::Reconnect);
            lines.push(plain(format!("lists your permissions. {again} tries again")));
        }
        WatchState::Connecting => lines.push(plain(format!("Connecting to {}", model.options.context))),
        _ if model.rows().total() > 0 => {
            lines.push(plain(format!("None of {} rows matches the filter.", model.rows().total())));
            lines.push((format!("{} clears the filter", model.hint(Action::Back)), Tone::Quiet));
        }
        _ => {
            lines.push(plain(String::from("No node is in maintenance.")));
            if !model.options.readonly {
                lines.push((
                    format!("{} puts nodes into maintenance", model.hint(Action::Start)),
                    Tone::Quiet,
                ));
            }
        }
    }
    canvas.write_paragraphs(area, 3, &lines);
}
