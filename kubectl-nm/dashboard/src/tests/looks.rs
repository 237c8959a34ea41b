//! Every screen at each width, in all themes and in ASCII: one snapshot for each screen.
//!
//! A snapshot has the screen with its styles at each size. The themes have the same text, so of each theme there is only what
//! becomes of the styles of the dark one. The last part is the screen in ASCII.

use std::collections::BTreeSet;
use std::fmt::Write;

use insta::assert_snapshot;
use ratatui::buffer::Buffer;

use crate::config::appearance::{Appearance, ThemeName};
use crate::model::{Model, Options};
use crate::tests::painted::{buffer, lines, look, painted_buffer};
use crate::tests::scenes::{empty, fleet, moving, node, options, type_in};
use crate::tests::{acting, drain_options, nodes, reading, replacements, replay, roll, screens};

/// A screen of the dashboard.
type Scene = fn(Options) -> Buffer;

/// The size at which themes are compared.
const MIDDLE: (u16, u16) = (80, 24);

const SIZES: [(u16, u16); 4] = [(45, 20), MIDDLE, (120, 30), (200, 50)];

/// The screens, by their names.
const SCENES: [(&str, Scene); 35] = [
    ("node", |options| buffer(&moving(options))),
    ("help", |options| typed(fleet, options, "?")),
    ("start", |options| typed(fleet, options, "n")),
    ("start_many", |options| buffer(&screens::start_many(options))),
    ("start_refused", |options| typed(fleet, options, "nworker-05 nobody worker-01 z* Worker")),
    ("stop_one", |options| typed(fleet, options, "x")),
    ("stop_two", |options| typed(fleet, options, "  x2")),
    ("stale_fleet", |options| buffer(&screens::stale(fleet(options)))),
    ("stale_node", |options| buffer(&screens::stale(node(options)))),
    ("events", |options| typed(reading::degraded, options, "e")),
    ("yaml", |options| typed(reading::degraded, options, "y")),
    ("row", |options| typed(reading::created, options, "v")),
    ("chosen", |options| buffer(&reading::chosen(options))),
    ("filter", |options| typed(fleet, options, "/!state:dr reason:/(/")),
    ("evict", |options| buffer(&acting::evicting(options))),
    ("pause", |options| typed(fleet, options, "  p")),
    ("outcome", |options| buffer(&replacements::ended(options))),
    ("waits_for_pods", |options| buffer(&drain_options::waiting_for_pods(options))),
    ("waits_for_volumes", |options| buffer(&drain_options::waiting_for_volumes(options))),
    ("connecting", |options| buffer(&empty(options))),
    ("no_maintenance", |options| buffer(&screens::no_maintenance(options))),
    ("forbidden", |options| buffer(&screens::forbidden(empty(options)))),
    ("forbidden_midway", |options| buffer(&screens::forbidden(fleet(options)))),
    ("pods_forbidden", |options| buffer(&screens::pods_forbidden(options))),
    ("nodes_loading", |options| buffer(&empty(Options { all_nodes: true, ..options }))),
    ("nodes_forbidden", |options| buffer(&nodes::forbidden(options))),
    ("node_loading", |options| buffer(&screens::node_loading(options))),
    ("node_idle", |options| buffer(&screens::node_idle(options))),
    ("named", |options| buffer(&screens::named(options))),
    ("replay_help", |options| buffer(&replay::help(options))),
    ("roll_beginning", |options| roll::screen(roll::beginning, &options)),
    ("roll_working", |options| roll::screen(roll::working, &options)),
    ("roll_waiting", |options| roll::screen(roll::waiting, &options)),
    ("roll_halted", |options| roll::screen(roll::halted, &options)),
    ("roll_confirming", |options| roll::screen(roll::confirming, &options)),
];

fn typed(make: fn(Options) -> Model, options: Options, keys: &str) -> Buffer {
    let mut model = make(options);
    type_in(&mut model, keys);
    buffer(&model)
}

/// The looks of a theme for those of the dark one, one line for each. A look that several become is there several times.
fn changed_looks(dark: &Buffer, themed: &Buffer) -> String {
    let cells = || (0..dark.area.height).flat_map(|y| (0..dark.area.width).map(move |x| (x, y)));
    let looks: BTreeSet<_> = cells()
        .filter_map(|at| Some((look(&dark[at]), look(&themed[at]))).filter(|(dark, themed)| dark != themed))
        .collect();
    let named = |look: &Option<String>| look.clone().unwrap_or_else(|| String::from("plain"));
    looks.iter().fold(String::new(), |mut text, (dark, themed)| {
        writeln!(text, "{} -> {}", named(dark), named(themed)).unwrap();
        text
    })
}

/// The lines of a theme that differ from those of the dark one.
fn changed_lines(dark: &Buffer, themed: &Buffer) -> String {
    let (dark, themed) = (lines(dark), lines(themed));
    let changed = dark.iter().zip(themed).filter(|(dark, themed)| *dark != themed);
    changed.map(|(_, themed)| themed).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_screen_at_each_width_in_all_themes_and_in_ascii() {
    for (name, scene) in SCENES {
        let of = |size, theme, ascii| {
            scene(Options { size, appearance: Appearance { theme, ascii }, ..options() })
        };
        let mut text = String::new();
        for size in SIZES {
            let shown = of(size, ThemeName::Dark, false);
            writeln!(text, "=== {} x {} ===\n{}", size.0, size.1, painted_buffer(&shown)).unwrap();
        }
        let dark = of(MIDDLE, ThemeName::Dark, false);
        for theme in [ThemeName::Light, ThemeName::ColourBlind, ThemeName::Mono] {
            let themed = of(MIDDLE, theme, false);
            writeln!(text, "=== {theme:?} ===\n{}", changed_looks(&dark, &themed)).unwrap();
            // Without colours, bars have a pattern for each state.
            if theme == ThemeName::Mono {
                writeln!(text, "{}\n", changed_lines(&dark, &themed)).unwrap();
            } else {
                assert_eq!(lines(&themed), lines(&dark), "{name} in {theme:?}");
            }
        }
        let ascii = lines(&of(MIDDLE, ThemeName::Dark, true)).join("\n");
        assert!(ascii.is_ascii(), "{name}: {ascii}");
        writeln!(text, "=== ASCII ===\n{ascii}").unwrap();
        assert_snapshot!(name, text);
    }
}
