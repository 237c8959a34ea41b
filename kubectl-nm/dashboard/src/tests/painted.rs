//! A screen as text: its characters, and below them its styles, one letter per style.

use std::collections::BTreeMap;
use std::fmt::Write;

use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use ratatui::{Frame, Terminal};

use crate::model::Model;
use crate::view::draw;

/// What is drawn for a model.
pub(crate) fn buffer(model: &Model) -> Buffer {
    drawn(model.size, |frame| draw(model, frame))
}

/// What is drawn on a screen of this size.
pub(crate) fn drawn((width, height): (u16, u16), draw: impl FnOnce(&mut Frame)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

/// The text on the screen.
pub(crate) fn text(model: &Model) -> String {
    lines(&buffer(model)).join("\n")
}

/// The text and the styles.
pub(crate) fn painted(model: &Model) -> String {
    painted_buffer(&buffer(model))
}

pub(crate) fn painted_buffer(buffer: &Buffer) -> String {
    let mut letters: BTreeMap<String, char> = BTreeMap::new();
    let mut looks = Vec::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width)
            .map(|x| {
                let Some(look) = look(&buffer[(x, y)]) else { return ' ' };
                let next = char::from(b'a' + u8::try_from(letters.len()).unwrap());
                *letters.entry(look).or_insert(next)
            })
            .collect();
        looks.push(line.trim_end().to_owned());
    }
    let mut painted = lines(buffer).join("\n");
    let mut legend: Vec<(char, String)> = letters.into_iter().map(|(look, letter)| (letter, look)).collect();
    legend.sort_unstable();
    painted.push_str("\n~~~ looks ~~~\n");
    painted.push_str(looks.join("\n").trim_end());
    painted.push_str("\n~~~\n");
    for (letter, look) in legend {
        writeln!(painted, "{letter}: {look}").unwrap();
    }
    painted
}

/// The style of a cell in words; none if it is plain.
pub(crate) fn look(cell: &Cell) -> Option<String> {
    // Of a blank, only the background is visible.
    let is_blank = cell.symbol() == " ";
    let fg = if is_blank { Color::Reset } else { cell.fg };
    let of_blank = Modifier::REVERSED | Modifier::UNDERLINED;
    let modifier = if is_blank { cell.modifier & of_blank } else { cell.modifier };
    let is_plain = (fg, cell.bg, modifier) == (Color::Reset, Color::Reset, Modifier::empty());
    (!is_plain).then(|| describe(fg, cell.bg, modifier))
}

/// The lines of a screen, without trailing blanks.
pub(crate) fn lines(buffer: &Buffer) -> Vec<String> {
    let line = |y| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn describe(fg: Color, bg: Color, modifier: Modifier) -> String {
    let mut words = Vec::new();
    if fg != Color::Reset {
        words.push(fg.to_string());
    }
    if bg != Color::Reset {
        words.push(format!("on {bg}"));
    }
    words.extend(modifier.iter_names().map(|(name, _)| name.to_lowercase()));
    words.join(" ")
}
