//! Writes text on the screen. All text passes through here, where control characters are made visible.

use nm_core::terminal::text::harmless;
use nm_shared::{PodCounts, PodState};
use ratatui::buffer::Buffer;
use ratatui::layout::{Margin, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::config::appearance::{Appearance, ThemeName};
use crate::view::bar::{BarCell, EIGHTHS, cells, whole_cells};
use crate::view::theme::{Glyphs, Surface, Tone};
use crate::wrapping::{wrap, wrap_to};

/// So many eighths of a column.
const PARTS: [&str; EIGHTHS] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// How much of the end of a name stays: the random part of the name of a pod, and a bit more.
const KEPT_END: usize = 8;

pub(crate) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    appearance: Appearance,
    pub(crate) glyphs: &'static Glyphs,
    faded: bool,
}

impl<'a> Canvas<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer, appearance: Appearance) -> Self {
        Self { buffer, appearance, glyphs: Glyphs::of(appearance.ascii), faded: false }
    }

    /// Dims what is written from now on, because it may be out of date.
    pub(crate) fn fade(&mut self, faded: bool) {
        self.faded = faded;
    }

    /// Writes text on the area's first line from column `x` on, cut at the area's right end. Returns the column after
    /// it.
    pub(crate) fn write(&mut self, area: Rect, x: u16, text: &str, tone: Tone) -> u16 {
        let end = area.x + area.width;
        if area.height == 0 || x >= end {
            return x;
        }
        let text = self.shown(text);
        let width = end - x;
        let mut style = self.appearance.theme.style(tone);
        if self.faded {
            style = style.add_modifier(Modifier::DIM);
        }
        // A string has no more columns than bytes, and counting bytes is cheap.
        if text.len() <= usize::from(width) || Span::raw(&*text).width() <= usize::from(width) {
            return self.buffer.set_stringn(x, area.y, text, usize::from(width), style).0;
        }
        let (x, _) = self.buffer.set_stringn(x, area.y, text, usize::from(width - 1), style);
        self.buffer.set_stringn(x, area.y, self.glyphs.more, 1, style).0
    }

    /// The text cut in its middle, so that its end stays: it tells names of pods apart.
    pub(crate) fn cut_in_middle(&self, text: &str, width: u16) -> String {
        let (width, length) = (usize::from(width), text.chars().count());
        let Some(space) = width.checked_sub(1).filter(|_| length > width) else { return text.to_owned() };
        let end = KEPT_END.min(space / 2);
        let (start, rest): (String, String) =
            (text.chars().take(space - end).collect(), text.chars().skip(length - end).collect());
        start + self.glyphs.more + &rest
    }

    pub(crate) fn write_whole(&mut self, area: Rect, x: u16, text: &str, tone: Tone) -> Option<u16> {
        let width = Span::raw(self.shown(text)).width();
        let fits = usize::from(x) + width <= usize::from(area.x + area.width);
        fits.then(|| self.write(area, x, text, tone))
    }

    /// Writes text aligned with the area's right end. Returns its first column.
    pub(crate) fn write_right(&mut self, area: Rect, text: &str, tone: Tone) -> u16 {
        let width = u16::try_from(Span::raw(self.shown(text)).width()).unwrap_or(u16::MAX).min(area.width);
        let x = area.x + area.width - width;
        self.write(area, x, text, tone);
        x
    }

    /// Writes a text in as many lines as the area has; what does not fit is cut at the end of the last one.
    pub(crate) fn write_wrapped(&mut self, area: Rect, text: &str, tone: Tone) {
        let lines =
            wrap_to(&harmless(text), usize::from(area.width.saturating_sub(2)), usize::from(area.height));
        let lines: Vec<_> = lines.into_iter().map(|line| (line, tone)).collect();
        self.write_lines(area, 1, &lines);
    }

    pub(crate) fn write_lines(&mut self, area: Rect, indent: u16, lines: &[(String, Tone)]) {
        for (line, (text, tone)) in area.rows().zip(lines) {
            self.write(line, line.x + indent, text, *tone);
        }
    }

    /// Writes paragraphs of which each is broken between words.
    pub(crate) fn write_paragraphs(&mut self, area: Rect, indent: u16, paragraphs: &[(String, Tone)]) {
        let width = area.width.saturating_sub(indent + 1);
        let lines = paragraphs.iter().flat_map(|(text, tone)| {
            wrap(&harmless(text), usize::from(width)).into_iter().map(move |line| (line, *tone))
        });
        self.write_lines(area, indent, &lines.collect::<Vec<_>>());
    }

    /// Sets an area apart. What is written there later keeps its background.
    pub(crate) fn fill(&mut self, area: Rect, surface: Surface) {
        self.buffer.set_style(area.intersection(self.buffer.area), self.appearance.theme.surface(surface));
    }

    /// Draws a bar with a segment for the pods in each state, on the area's first line from column `x` on. Returns the column
    /// after it.
    pub(crate) fn pod_bar(&mut self, area: Rect, x: u16, width: u16, counts: &PodCounts) -> u16 {
        let end = (x + width).min(area.x + area.width);
        if area.height == 0 || x >= end {
            return x;
        }
        let theme = self.appearance.theme;
        let width = usize::from(end - x);
        if self.appearance.ascii || theme == ThemeName::Mono {
            for (at, state) in (x..end).zip(whole_cells(counts, width)) {
                self.write(area, at, self.glyphs.pattern(state), Tone::Pods(state));
            }
            return end;
        }
        for (at, BarCell { left, eighths, right }) in (x..end).zip(cells(counts, width)) {
            // What waits has the background of the bar, so that a copied bar is as long as what is done.
            let (symbol, style) = match (eighths, left) {
                (EIGHTHS, PodState::Waiting) => (" ", Style::new().bg(theme.pods(left))),
                (EIGHTHS, _) => ("█", Style::new().fg(theme.pods(left)).bg(theme.pods(left))),
                _ => {
                    (PARTS[eighths.min(EIGHTHS - 1)], Style::new().fg(theme.pods(left)).bg(theme.pods(right)))
                }
            };
            let style = if self.faded { style.add_modifier(Modifier::DIM) } else { style };
            self.buffer.set_stringn(at, area.y, symbol, 1, style);
        }
        end
    }

    /// Writes how many pods are in a state, with what stands for them in a bar, if there is space for it. Returns the column
    /// after it.
    pub(crate) fn pod_count(&mut self, area: Rect, x: u16, state: PodState, count: i32) -> Option<u16> {
        let text = format!("{} {count}", state.word().to_lowercase());
        let swatch = self.glyphs.swatch(state, self.appearance.theme);
        let needed = Span::raw(&text).width() + 2;
        if usize::from(x) + needed > usize::from(area.x + area.width) {
            return None;
        }
        let x = self.write(area, x, swatch, Tone::Pods(state)) + 1;
        let tone = if state == PodState::Blocked { Tone::Bad } else { Tone::Plain };
        Some(self.write(area, x, &text, tone))
    }

    pub(crate) fn bar(&self, (part, of): (i32, i32), width: u16) -> String {
        let width = usize::from(width);
        let part = usize::try_from(part.clamp(0, of.max(0))).unwrap_or(0);
        let full = usize::try_from(of).ok().filter(|of| *of > 0).map_or(0, |of| part * width / of);
        format!("{}{}", self.glyphs.full.repeat(full), self.glyphs.empty.repeat(width - full))
    }

    /// Draws an empty frame with a title. Returns the area within.
    pub(crate) fn frame(&mut self, area: Rect, title: &str) -> Rect {
        let [across, down, corners @ ..] = self.glyphs.frame;
        let inner = across.repeat(usize::from(area.width.saturating_sub(2)));
        let blank = " ".repeat(usize::from(area.width.saturating_sub(2)));
        for line in area.rows() {
            self.buffer.set_style(line, Style::reset());
            let (first, last) = (line.y == area.y, line.y + 1 == area.y + area.height);
            let text = match (first, last) {
                (true, _) => format!("{}{inner}{}", corners[0], corners[1]),
                (_, true) => format!("{}{inner}{}", corners[3], corners[2]),
                _ => {
                    let x = self.write(line, line.x, down, Tone::Accent);
                    let x = self.write(line, x, &blank, Tone::Plain);
                    self.write(line, x, down, Tone::Accent);
                    continue;
                }
            };
            self.write(line, line.x, &text, Tone::Accent);
        }
        self.write(area.inner(Margin::new(2, 0)), area.x + 2, &format!(" {title} "), Tone::Strong);
        area.inner(Margin::new(2, 1))
    }

    fn shown(&self, text: &str) -> String {
        let text = harmless(text);
        if self.appearance.ascii && !text.is_ascii() {
            text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
        } else {
            text
        }
    }
}

pub(crate) fn line(area: Rect, row: u16) -> Rect {
    if row < area.height { Rect { y: area.y + row, height: 1, ..area } } else { Rect { height: 0, ..area } }
}
