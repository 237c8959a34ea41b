//! The screenshots in the README and in the documentation: the views as drawn, as SVG.
//!
//! `NM_UPDATE=1 cargo test -p nm-dashboard screenshots` rewrites them. They are drawn from recordings of the dashboard, each at the
//! time at which a budget has blocked a drain for a while. That of a node is a recording of the demo (`cargo run -p nm-sandbox --
//! demo --record FILE`). That of the fleet was made with `kubectl nm watch --record FILE` in a sandbox of twelve nodes
//! (`nm-sandbox up --nodes 12 --pods 36 --stop-delay 12s`) and `nm-reconciler --max-unavailable 7`, without the pods, which
//! its view does not show.

use std::fmt::Write;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use crate::model::{Model, Options, RecordingMode};
use crate::recording::recording_file::RecordingFile;
use crate::replay::pace::Pace;
use crate::replay::player::Player;
use crate::tests::painted::buffer;
use crate::tests::scenes::options;

/// Width and height of a character.
const CELL: (u16, u16) = (9, 19);

/// Space around the screen.
const MARGIN: u16 = 12;

/// A recording, and how long after its begin it is shown.
struct Shown {
    name: &'static str,
    recording: &'static [u8],
    at: SignedDuration,
}

const FLEET: Shown = Shown {
    name: "fleet.ndjson",
    recording: include_bytes!("fleet.ndjson"),
    at: SignedDuration::from_secs(26),
};

const DEMO: Shown =
    Shown { name: "demo.ndjson", recording: include_bytes!("demo.ndjson"), at: SignedDuration::from_secs(4) };

const BACKGROUND: &str = "#14161b";
const FOREGROUND: &str = "#d6d9e0";

#[test]
fn screenshots_are_current() {
    let size = |height| Options { size: (110, height), ..options() };
    for (name, what, buffer) in [
        (
            "fleet",
            "The fleet view: ten nodes in maintenance, two of them blocked",
            buffer(&replayed(size(20), &FLEET)),
        ),
        (
            "node",
            "The node view: its pods, what blocks them, and a command that helps",
            buffer(&replayed(size(18), &DEMO)),
        ),
    ] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screenshots").join(format!("{name}.svg"));
        let svg = svg(&buffer, what);
        if std::env::var_os("NM_UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &svg).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == svg, "{} is not current: run the tests with NM_UPDATE=1", path.display());
    }
}

/// What the dashboard showed.
fn replayed(options: Options, shown: &Shown) -> Model {
    let file = RecordingFile::read(Box::new(Cursor::new(shown.recording)), shown.name.to_owned()).unwrap();
    let nodes = file.header().nodes.clone();
    let mut player = Player::new(file, Options { nodes, ..options }, Pace::new(1.0));
    player.seek_by(shown.at);
    player.work(Duration::MAX);
    let mut model = player.model;
    (model.options.recording, model.options.readonly, model.replay) = (RecordingMode::Off, false, None);
    model
}

/// The screen as an SVG with a description.
fn svg(buffer: &Buffer, what: &str) -> String {
    let (width, height) = (buffer.area.width * CELL.0 + 2 * MARGIN, buffer.area.height * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{what}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"15\" \
         xml:space=\"preserve\">\n"
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            x = run(buffer, x, y, &mut svg);
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Writes the characters from `start` on that have the same style. Returns where they end.
fn run(buffer: &Buffer, start: u16, y: u16, svg: &mut String) -> u16 {
    let look = |x: u16| {
        let cell = &buffer[(x, y)];
        (cell.fg, cell.bg, cell.modifier)
    };
    let end = (start..buffer.area.width).find(|x| look(*x) != look(start)).unwrap_or(buffer.area.width);
    let text: String = (start..end).map(|x| buffer[(x, y)].symbol()).collect();
    let (fg, bg, modifier) = look(start);
    let (mut fg, mut bg) = (colour(fg, FOREGROUND), colour(bg, BACKGROUND));
    if modifier.contains(Modifier::REVERSED) {
        std::mem::swap(&mut fg, &mut bg);
    }
    let (left, top, width) = (MARGIN + start * CELL.0, MARGIN + y * CELL.1, (end - start) * CELL.0);
    if bg != BACKGROUND {
        writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{}\" fill=\"{bg}\"/>",
            CELL.1
        )
        .unwrap();
    }
    if !text.trim().is_empty() {
        let weight = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
        let opacity = if modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
        // The length keeps columns aligned, whatever the font.
        writeln!(
            svg,
            "<text x=\"{left}\" y=\"{}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\" \
             fill=\"{fg}\"{weight}{opacity}>{}</text>",
            top + 14,
            escaped(&text)
        )
        .unwrap();
    }
    end
}

/// The colours as most terminals show them.
fn colour(colour: Color, otherwise: &'static str) -> String {
    match colour {
        Color::Reset => otherwise.to_owned(),
        Color::Green => String::from("#7fc98a"),
        Color::Yellow => String::from("#e2c16b"),
        Color::LightRed => String::from("#ff7b72"),
        Color::Indexed(index) => indexed(index),
        other => panic!("{other} has no colour in the screenshots yet"),
    }
}

/// A colour of the palette of 256: a cube of six levels of red, green and blue, and then levels of grey.
fn indexed(index: u8) -> String {
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    match index {
        0..16 => panic!("{index} depends on the terminal"),
        16..232 => {
            let [red, green, blue] = [(index - 16) / 36, (index - 16) / 6 % 6, (index - 16) % 6].map(level);
            format!("#{red:02x}{green:02x}{blue:02x}")
        }
        232.. => {
            let grey = 8 + 10 * (index - 232);
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(' ', "\u{a0}")
}
