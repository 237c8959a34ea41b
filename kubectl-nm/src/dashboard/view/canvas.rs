//! What writes on the screen. All text passes here, and here it is made harmless.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use crate::dashboard::options::Options;
use crate::dashboard::view::theme::{Glyphs, Theme, Tone};
use crate::terminal::text::harmless;

/// Writes on a buffer.
pub(crate) struct Pen<'a> {
    buffer: &'a mut Buffer,
    theme: Theme,
    /// The characters that pictures are made of.
    pub(crate) glyphs: &'static Glyphs,
    ascii: bool,
    faded: bool,
}

impl<'a> Pen<'a> {
    /// Writes on that buffer as the options say.
    pub(crate) fn new(buffer: &'a mut Buffer, options: &Options) -> Self {
        let glyphs = Glyphs::of(options.ascii);
        Self { buffer, theme: Theme(options.theme), glyphs, ascii: options.ascii, faded: false }
    }

    /// What is written from now on is old, or is so no more.
    pub(crate) fn fade(&mut self, faded: bool) {
        self.faded = faded;
    }

    /// Writes text at a place of the area's first line, cut at its right end, and says where it ended.
    pub(crate) fn write(&mut self, area: Rect, x: u16, text: &str, tone: Tone) -> u16 {
        let end = area.x + area.width;
        if area.height == 0 || x >= end {
            return x;
        }
        let text = self.shown(text);
        let room = end - x;
        let mut style = self.theme.style(tone);
        if self.faded {
            style = style.add_modifier(Modifier::DIM);
        }
        // Bytes are never fewer than columns, and counting them is cheap.
        if text.len() <= usize::from(room) || Span::raw(&*text).width() <= usize::from(room) {
            return self.buffer.set_stringn(x, area.y, text, usize::from(room), style).0;
        }
        let (x, _) = self.buffer.set_stringn(x, area.y, text, usize::from(room - 1), style);
        self.buffer.set_stringn(x, area.y, self.glyphs.more, 1, style).0
    }

    /// Writes text if there is room for all of it.
    pub(crate) fn write_whole(&mut self, area: Rect, x: u16, text: &str, tone: Tone) -> Option<u16> {
        let width = Span::raw(self.shown(text)).width();
        let fits = usize::from(x) + width <= usize::from(area.x + area.width);
        fits.then(|| self.write(area, x, text, tone))
    }

    /// Writes text that ends where the area ends, and says where it begins.
    pub(crate) fn write_right(&mut self, area: Rect, text: &str, tone: Tone) -> u16 {
        let width = u16::try_from(Span::raw(self.shown(text)).width()).unwrap_or(u16::MAX).min(area.width);
        let x = area.x + area.width - width;
        self.write(area, x, text, tone);
        x
    }

    /// Lays the selection over an area.
    pub(crate) fn select(&mut self, area: Rect) {
        self.buffer.set_style(area, self.theme.selection());
    }

    /// A bar that is full to that part, in the width given.
    pub(crate) fn bar(&self, (part, of): (i32, i32), width: u16) -> String {
        let width = usize::from(width);
        let part = usize::try_from(part.clamp(0, of.max(0))).unwrap_or(0);
        let full = usize::try_from(of).ok().filter(|of| *of > 0).map_or(0, |of| part * width / of);
        format!("{}{}", self.glyphs.full.repeat(full), self.glyphs.empty.repeat(width - full))
    }

    /// An empty frame with a title; says what is within.
    pub(crate) fn frame(&mut self, area: Rect, title: &str, tone: Tone) -> Rect {
        let blank = " ".repeat(usize::from(area.width));
        let [across, down, corners @ ..] = self.glyphs.frame;
        let inner = across.repeat(usize::from(area.width.saturating_sub(2)));
        for row in 0..area.height {
            let line = Rect { y: area.y + row, height: 1, ..area };
            self.buffer.set_style(line, ratatui::style::Style::reset());
            self.write(line, line.x, &blank, Tone::Plain);
            if row == 0 {
                self.write(line, line.x, &format!("{}{inner}{}", corners[0], corners[1]), tone);
            } else if row + 1 == area.height {
                self.write(line, line.x, &format!("{}{inner}{}", corners[3], corners[2]), tone);
            } else {
                self.write(line, line.x, down, tone);
                self.write_right(line, down, tone);
            }
        }
        self.write(
            area.inner(ratatui::layout::Margin::new(2, 0)),
            area.x + 2,
            &format!(" {title} "),
            Tone::Strong,
        );
        area.inner(ratatui::layout::Margin::new(2, 1))
    }

    fn shown(&self, text: &str) -> String {
        let text = harmless(text);
        if self.ascii && !text.is_ascii() {
            text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
        } else {
            text
        }
    }
}

/// One line of an area.
pub(crate) fn line(area: Rect, row: u16) -> Rect {
    if row < area.height { Rect { y: area.y + row, height: 1, ..area } } else { Rect { height: 0, ..area } }
}

/// The text in lines of that width at most, broken between words.
pub(crate) fn wrapped(text: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.len() + word.len() < usize::from(width) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A column of a line.
pub(crate) fn cell(line: Rect, x: u16, width: u16) -> Rect {
    let end = (line.x + line.width).min(x.saturating_add(width));
    Rect { x, width: end.saturating_sub(x), ..line }
}
