//! What each key does in the two views.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use nm_core::client::watch_stream::WatchChange;
use serde_json::json;

use crate::message::Effect;
use crate::message::Message;
use crate::model::Options;
use crate::model::dialogs::Dialog;
use crate::model::lists::listing::{Rows, Sort};
use crate::model::{Model, SideContent};
use crate::tests::painted::text;
use crate::tests::scenes::{ago, empty, fleet, node, options, press, send, type_in};

/// The name of the selected node or pod.
fn selected(model: &Model) -> &str {
    match &model.open {
        Some(open) => open.pods.rows.selected().map_or("", |row| &row.id.name),
        None => model.fleet.rows.selected().map_or("", |row| &row.node),
    }
}

fn small() -> Options {
    Options { size: (80, 12), ..options() }
}

fn sorting(model: &Model) -> (Sort, bool) {
    (model.arrangement().sort, model.arrangement().reversed)
}

fn controlled(model: &mut Model, c: char) -> Vec<Effect> {
    send(model, Message::Input(Event::Key(control(c))))
}

fn control(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
}

fn alt(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::ALT)
}

fn plain(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

#[test]
fn motion_keys_move_through_the_rows() {
    use KeyCode::{Char, Down, End, Home, PageDown, PageUp, Up};
    for (keys, at_node, at_pod) in [
        (&[][..], "worker-07", "cart-0"),
        (&[Down], "worker-12", "cart-2"),
        (&[Char('j'), Char('j')], "worker-33", "import-9x"),
        (&[Down, Down, Up], "worker-12", "cart-2"),
        (&[Down, Char('k')], "worker-07", "cart-0"),
        (&[Up], "worker-07", "cart-0"),
        (&[End], "worker-03", "cni-x7"),
        (&[Char('G')], "worker-03", "cni-x7"),
        (&[Char('G'), Char('g')], "worker-07", "cart-0"),
        (&[End, Home], "worker-07", "cart-0"),
        (&[PageDown, PageUp], "worker-07", "cart-0"),
        (&[PageDown, PageDown, PageDown], "worker-03", "cni-x7"),
    ] {
        for (mut model, at) in [(fleet(small()), at_node), (node(small()), at_pod)] {
            for key in keys {
                assert_eq!(press(&mut model, *key), []);
            }
            assert_eq!(selected(&model), at, "{keys:?}");
        }
    }
}

#[test]
fn a_page_is_what_the_screen_shows() {
    let mut model = fleet(Options { size: (80, 14), ..options() });
    let is_row = |line: &&str| line.trim_start_matches(['▶', ' ']).starts_with("worker-");
    let rows = text(&model).lines().filter(is_row).count();
    press(&mut model, KeyCode::PageDown);
    assert_eq!(model.fleet.rows.at(), rows);
}

#[test]
fn enter_opens_a_node_and_escape_closes_one_level_at_a_time() {
    let mut model = fleet(options());
    press(&mut model, KeyCode::Down);
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::Open("worker-12".into())]);
    assert_eq!(model.opened(), Some("worker-12"));
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    type_in(&mut model, "e/x");
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, "f");
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.side, None);
    assert!(model.arrangement().blocked_only);
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    assert!(model.arrangement().filter.is_empty() && !model.arrangement().blocked_only);
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::Close]);
    assert_eq!((model.opened(), selected(&model)), (None, "worker-12"));
    type_in(&mut model, " ");
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    assert!(model.fleet.marked.is_empty());
    assert_eq!(press(&mut empty(options()), KeyCode::Enter), [], "there is nothing to open");
}

#[test]
fn a_single_named_node_is_open_from_the_start() {
    let named = |nodes: &[&str]| {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        empty(Options { nodes, ..options() }).opened().map(str::to_owned)
    };
    assert_eq!([named(&[]), named(&["a"]), named(&["a", "b"])], [None, Some("a".into()), None]);
}

#[test]
fn quitting_never_stops_a_maintenance() {
    for mut model in [fleet(options()), node(options()), empty(options())] {
        assert_eq!(type_in(&mut model, "q"), [Effect::Quit]);
        assert_eq!(controlled(&mut model, 'c'), [Effect::Quit]);
        assert_eq!(controlled(&mut model, 'z'), [Effect::Suspend]);
        assert_eq!(controlled(&mut model, 'x'), []);
        type_in(&mut model, "/q");
        assert_eq!(model.arrangement().filter.text(), "q", "a letter, while a filter is being typed");
        assert_eq!(controlled(&mut model, 'c'), [Effect::Quit]);
    }
}

#[test]
fn filters_apply_while_typed_enter_keeps_them_and_escape_restores_the_previous() {
    for mut model in [fleet(options()), node(options())] {
        type_in(&mut model, "/worker");
        assert_eq!(model.arrangement().filter.text(), "worker");
        press(&mut model, KeyCode::Backspace);
        press(&mut model, KeyCode::Enter);
        assert_eq!((model.arrangement().filter.text(), model.typing.is_none()), ("worke", true));
        type_in(&mut model, "/r-3");
        assert_eq!(model.arrangement().filter.text(), "worker-3");
        press(&mut model, KeyCode::Esc);
        assert_eq!(model.arrangement().filter.text(), "worke");
        type_in(&mut model, "/ a");
        controlled(&mut model, 'w');
        assert_eq!(model.arrangement().filter.text(), "worke ");
        controlled(&mut model, 'u');
        assert_eq!(model.arrangement().filter.text(), "");
        send(&mut model, Message::Input(Event::Paste("ns:shop\nx".into())));
        assert_eq!(model.arrangement().filter.text(), "ns:shop x");
    }
}

#[test]
fn s_cycles_through_the_sort_orders_and_capital_s_reverses() {
    let mut model = fleet(options());
    let mut sorts = Vec::new();
    for _ in 0..4 {
        type_in(&mut model, "s");
        sorts.push((model.arrangement().sort, selected(&model).to_owned()));
    }
    let expected = [
        (Sort::Name, "worker-01"),
        (Sort::Progress, "worker-21"),
        (Sort::Age, "worker-01"),
        (Sort::Risk, "worker-07"),
    ];
    assert_eq!(sorts, expected.map(|(sort, node)| (sort, node.to_owned())));
    type_in(&mut model, "S");
    assert_eq!((sorting(&model), selected(&model)), ((Sort::Risk, true), "worker-03"));

    let mut model = node(options());
    type_in(&mut model, "ss");
    assert_eq!(model.arrangement().sort, Sort::Age, "pods have no progress");
    type_in(&mut model, "sS");
    assert_eq!(sorting(&model), (Sort::Risk, true));
}

#[test]
fn f_shows_only_blocked_rows() {
    let mut model = fleet(options());
    type_in(&mut model, "f");
    assert_eq!(model.fleet.rows.len(), 3);
    type_in(&mut model, "f");
    assert_eq!(model.fleet.rows.len(), 11);
    let mut model = node(options());
    type_in(&mut model, "f");
    assert_eq!(model.open.as_ref().unwrap().pods.rows.len(), 3);
}

#[test]
fn side_panes_open_scroll_and_close() {
    let mut model = node(Options { size: (80, 16), ..options() });
    let side = |model: &Model| model.side.map(|side| (side.shows, side.top));
    type_in(&mut model, "e");
    assert_eq!(side(&model), Some((SideContent::Events, 0)));
    type_in(&mut model, "y");
    assert_eq!(side(&model), Some((SideContent::Document, 0)));
    type_in(&mut model, "j");
    assert_eq!(selected(&model), "cart-2", "the rows have the focus at first");
    let at = |model: &Model| (model.side.unwrap().top, selected(model).to_owned());
    assert_eq!(at(&model), (0, "cart-2".into()));
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "jjk");
    assert_eq!(at(&model), (1, "cart-2".into()));
    type_in(&mut model, "G");
    let (bottom, _) = at(&model);
    assert!(bottom > 10 && bottom < model.document.lines.len());
    press(&mut model, KeyCode::PageUp);
    assert!(at(&model).0 < bottom);
    type_in(&mut model, "g");
    press(&mut model, KeyCode::BackTab);
    type_in(&mut model, "j");
    assert_eq!(at(&model), (0, "import-9x".into()));
    type_in(&mut model, "y");
    assert_eq!(model.side, None);
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "k");
    assert_eq!((model.side, selected(&model)), (None, "cart-2"), "no pane is open");
}

#[test]
fn the_events_scroll_to_the_last_one() {
    let mut model = node(Options { size: (80, 16), ..options() });
    let many = (0..20).map(|number| {
        let event = json!({"metadata": {"name": format!("e{number}")}, "note": "x", "eventTime": null});
        Arc::new(serde_json::from_value(event).unwrap())
    });
    let change = WatchChange::Listed(many.collect());
    send(&mut model, Message::Events { node: "worker-07".into(), change });
    type_in(&mut model, "e");
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "G");
    let top = model.side.unwrap().top;
    assert!(top > 10 && top < 23, "{top}");
}

#[test]
fn the_ages_of_events_have_the_format_of_the_rows() {
    let mut model = node(options());
    let at = format!("{}.000000Z", ago(248).trim_end_matches('Z'));
    let event = json!({"metadata": {"name": "e"}, "note": "x", "reason": "Cordoned", "eventTime": at});
    let change = WatchChange::Listed(vec![Arc::new(serde_json::from_value(event).unwrap())]);
    send(&mut model, Message::Events { node: "worker-07".into(), change });
    type_in(&mut model, "e");
    assert!(text(&model).contains(" 4m08s  Cordoned: x"), "{}", text(&model));
}

#[test]
fn the_hint_at_a_key_of_an_open_node_ends_with_the_next_key() {
    let is_shown = |model: &Model| text(model).contains("is a key of an open node");
    for next in [KeyCode::Down, KeyCode::Enter, KeyCode::Char('?')] {
        let mut model = fleet(options());
        type_in(&mut model, "l");
        assert!(is_shown(&model), "{}", text(&model));
        press(&mut model, next);
        assert!(!is_shown(&model), "{next:?}: {}", text(&model));
    }
}

#[test]
fn the_yaml_pane_follows_the_selection_and_events_need_an_open_node() {
    let mut model = fleet(options());
    type_in(&mut model, "yj");
    assert!(model.document.lines.iter().any(|line| line == "  name: worker-12"), "{:?}", model.document);
    type_in(&mut model, "ye");
    assert_eq!(model.side, None);
    assert!(model.notice.as_ref().unwrap().text.contains("press Enter"));
}

#[test]
fn c_copies_the_command_that_is_shown_or_else_the_row() {
    for (scene, keys, copied) in [
        (fleet as fn(Options) -> Model, "c", "kubectl nm explain worker-07"),
        (fleet, "jjc", "kubectl describe nm worker-33"),
        (fleet, "jjjjvc", "worker-08 Draining 50% 13/26"),
        (fleet, "jjjjc", "kubectl nm explain worker-07"),
        (node, "c", "kubectl nm explain worker-07"),
        (node, "jjjvc", "Terminating pay/ledger-1"),
        (node, "jjjc", "kubectl nm explain worker-07"),
        (node, "jjc", "kubectl -n web edit pod import-9x"),
    ] {
        let mut model = scene(options());
        assert_eq!(type_in(&mut model, keys), [Effect::Copy(copied.into())]);
        assert_eq!(model.notice.unwrap().text, format!("copied: {copied}"));
    }
    assert_eq!(type_in(&mut empty(options()), "c"), []);
}

#[test]
fn r_reconnects_and_the_question_mark_opens_the_help() {
    let mut model = fleet(options());
    assert_eq!(type_in(&mut model, "r"), [Effect::Reconnect]);
    type_in(&mut model, "?");
    assert_eq!(model.dialog, Some(Dialog::Help(0)));
    type_in(&mut model, "jjk");
    assert_eq!(model.dialog, Some(Dialog::Help(1)));
    for close in [KeyCode::Esc, KeyCode::Char('?'), KeyCode::Char('q'), KeyCode::Enter] {
        model.dialog = Some(Dialog::Help(0));
        assert_eq!(press(&mut model, close), []);
        assert_eq!(model.dialog, None);
    }
}

#[test]
fn key_releases_and_unassigned_keys_do_nothing() {
    let mut model = fleet(options());
    let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    released.kind = KeyEventKind::Release;
    assert_eq!(send(&mut model, Message::Input(Event::Key(released))), []);
    assert_eq!(type_in(&mut model, "zZ1%"), []);
    assert_eq!(press(&mut model, KeyCode::F(1)), []);
    assert_eq!(send(&mut model, Message::Input(Event::FocusGained)), []);
}

#[test]
fn the_cursor_stays_on_a_node_whose_maintenance_ends_or_starts() {
    let nodes = ["worker-07", "worker-08", "worker-09"].map(String::from).to_vec();
    let mut model = fleet(Options { nodes, ..options() });
    type_in(&mut model, "j");
    let node = selected(&model).to_owned();
    let object = model.fleet.maintenance_of(&node).cloned().unwrap();
    send(&mut model, Message::Maintenances(WatchChange::Deleted(object.clone())));
    assert_eq!(selected(&model), node);
    send(&mut model, Message::Maintenances(WatchChange::Applied(object)));
    assert_eq!(selected(&model), node);
}

#[test]
fn fields_support_the_usual_editing_keys() {
    for (typed, keys, becomes) in [
        ("abc", vec![control('h')], "ab|"),
        ("abc", vec![plain(KeyCode::Left), control('h')], "a|c"),
        ("abc", vec![plain(KeyCode::Left), control('d')], "ab|"),
        ("abc", vec![plain(KeyCode::Home), plain(KeyCode::Delete)], "|bc"),
        ("one two", vec![alt('b'), alt('b'), plain(KeyCode::Char('x'))], "x|one two"),
        ("one two", vec![control('a'), alt('f')], "one| two"),
        ("one two", vec![alt('b'), control('k')], "one |"),
        ("one two", vec![alt('b'), control('u')], "|two"),
        ("one two", vec![alt('b'), control('w')], "|two"),
        ("one two", vec![KeyEvent::new(KeyCode::Backspace, KeyModifiers::ALT)], "one |"),
        ("one two", vec![control('a'), alt('d')], "| two"),
        ("日本", vec![plain(KeyCode::Left), control('b'), control('f'), control('h')], "|本"),
        ("abc", vec![control('a'), control('e'), plain(KeyCode::Right)], "abc|"),
        ("abc", vec![alt('x'), control('x')], "abc|"),
    ] {
        let mut model = fleet(options());
        type_in(&mut model, "/");
        type_in(&mut model, typed);
        for key in &keys {
            send(&mut model, Message::Input(Event::Key(*key)));
        }
        let filter = model.arrangement().filter.text().to_owned();
        let shown = text(&model).lines().last().unwrap().replace('\u{258f}', "|");
        assert!(shown.contains(&format!("filter: {becomes} ")), "{typed:?} {keys:?}: {shown}");
        assert_eq!(filter, becomes.replace('|', ""));
    }
}

#[test]
fn a_field_scrolls_to_the_cursor() {
    let long = (0..40).fold(String::new(), |long, i| format!("{long}node-{i:02} "));
    let mut model = fleet(options());
    type_in(&mut model, &format!("/{long}here"));
    assert!(text(&model).contains("node-39 here\u{258f}"), "{}", text(&model));
    press(&mut model, KeyCode::Home);
    assert!(text(&model).contains("filter: \u{258f}node-00"), "{}", text(&model));
    for is_reason in [false, true] {
        let mut model = fleet(options());
        type_in(&mut model, "n");
        if is_reason {
            press(&mut model, KeyCode::Tab);
        }
        type_in(&mut model, &format!("{long}here"));
        assert!(text(&model).contains("node-39 here\u{258f}"), "{}", text(&model));
    }
}
