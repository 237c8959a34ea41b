//! Reading everything: panes in full, columns, themes, and filters.

use crossterm::event::KeyCode;
use insta::assert_snapshot;
use nm_core::client::watch_stream::WatchChange;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use crate::config::action_table::Action;
use crate::config::appearance::{Appearance, ThemeName};
use crate::config::columns::ListName;
use crate::message::Message;
use crate::model::lists::listing::Rows;
use crate::model::{Model, Options, SideContent};
use crate::tests::painted::{painted, text};
use crate::tests::scenes::{all_nodes, fleet, node, options, press, send, type_in};

fn sized(width: u16, height: u16) -> Options {
    Options { size: (width, height), ..options() }
}

#[test]
fn the_selected_row_is_shown_in_full() {
    let mut model = node(sized(80, 30));
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.side.unwrap().shows, SideContent::Details);
    let shown = text(&model);
    assert!(
        shown.contains("Reason: DisruptionBudget") && shown.contains("kubectl nm explain worker-07"),
        "{shown}"
    );
    type_in(&mut model, "j");
    assert!(text(&model).contains(" shop/cart-2\n"), "it follows the selection: {}", text(&model));
    type_in(&mut model, "v");
    assert_eq!(model.side, None);
    for (make, shown) in
        [(fleet as fn(Options) -> Model, "Reason: kernel 6.12"), (all_nodes, "not in maintenance")]
    {
        let mut model = make(sized(120, 30));
        type_in(&mut model, "jv");
        assert!(text(&model).contains(shown), "{}", text(&model));
    }
}

/// Changes a maintenance.
fn edit(model: &mut Model, name: &str, change: impl FnOnce(&mut Value)) {
    let object = model.fleet.maintenance_of(name).unwrap().as_ref().clone();
    let mut json = serde_json::to_value(object).unwrap();
    change(&mut json);
    let object: NodeMaintenance = serde_json::from_value(json).unwrap();
    send(model, Message::Maintenances(WatchChange::Applied(object.into())));
}

fn written_by(manager: &str) -> Value {
    json!([{"manager": manager}])
}

/// Maintenances of a roll, of this program and of another one, one of which has a long reason.
pub(super) fn created(options: Options) -> Model {
    let mut model = fleet(options);
    edit(&mut model, "worker-07", |object| {
        object["metadata"]["labels"] = json!({"kubectl-nm.dev/roll": "kernel-6.12"});
        object["spec"]["reason"] =
            json!("kernel 6.12, because the one before loses writes when a disk is full (INC-4711)");
    });
    edit(&mut model, "worker-12", |object| {
        object["metadata"]["managedFields"] = written_by("kubectl-nm");
    });
    edit(&mut model, "worker-33", |object| {
        object["metadata"]["managedFields"] = written_by("argocd-controller");
    });
    model
}

/// A node whose conditions have messages.
pub(super) fn degraded(options: Options) -> Model {
    let mut model = node(options);
    edit(&mut model, "worker-07", |object| {
        let conditions = object["status"]["conditions"].as_array_mut().unwrap();
        let mut degraded = conditions[0].clone();
        degraded["type"] = json!("Degraded");
        degraded["reason"] = json!("Webhook");
        degraded["message"] = json!(
            "the webhook guard.example.com refused the eviction of shop/cart-2: the \
            shop is on sale until Monday, and nobody may take a pod of it before then"
        );
        conditions.push(degraded);
    });
    model
}

/// A list whose columns were chosen.
pub(super) fn chosen(options: Options) -> Model {
    let mut model = created(options);
    choose(&mut model, &["node", "state", "why", "reason", "creator", "phase", "name"]);
    model
}

#[test]
fn the_panes() {
    for (width, height) in [(200, 50), (120, 30), (80, 24), (45, 24)] {
        let mut model = degraded(sized(width, height));
        type_in(&mut model, "v");
        assert_snapshot!(format!("details_{width}x{height}"), text(&model));
    }
}

#[test]
fn every_pane_in_all_themes_and_in_ascii() {
    for (name, theme, ascii) in [
        ("light", ThemeName::Light, false),
        ("colour_blind", ThemeName::ColourBlind, false),
        ("mono", ThemeName::Mono, false),
        ("ascii", ThemeName::Dark, true),
    ] {
        let options = Options { appearance: Appearance { theme, ascii }, ..sized(80, 24) };
        let mut model = degraded(options);
        type_in(&mut model, "v");
        assert!(!ascii || text(&model).is_ascii(), "{}", text(&model));
        assert_snapshot!(format!("details_{name}"), painted(&model));
    }
}

#[test]
fn every_size_of_the_panes_can_be_drawn() {
    for (make, keys) in [(degraded as fn(Options) -> Model, "v"), (created, "/!/(/")] {
        let mut model = make(options());
        type_in(&mut model, keys);
        for (width, height) in
            [(1, 1), (2, 7), (5, 2), (39, 60), (40, 9), (79, 11), (119, 8), (120, 13), (300, 20)]
        {
            model.size = (width, height);
            text(&model);
        }
    }
}

#[test]
fn a_pane_says_which_of_its_lines_are_shown() {
    let mut model = degraded(sized(80, 24));
    type_in(&mut model, "y");
    let lines = text(&model).lines().find(|line| line.contains(" YAML ")).unwrap().to_owned();
    assert!(lines.contains(" 1-") && lines.contains(" of "), "{lines}");
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::PageDown);
    assert!(!text(&model).contains(" YAML  1-"), "{}", text(&model));
}

fn choose(model: &mut Model, columns: &[&'static str]) {
    model.options.config.columns.choose(ListName::Maintenances, columns.to_vec());
}

#[test]
fn long_lines_wrap() {
    let mut model = node(sized(45, 30));
    type_in(&mut model, "e");
    assert!(text(&model).contains("PDB"), "{}", text(&model));
    assert!(text(&model).contains("needs 3, has 3"), "{}", text(&model));
}

#[test]
fn errors_wrap_in_the_last_lines() {
    let mut model = fleet(sized(45, 24));
    let long = "the API server refused: a message that is much too long for one line of a narrow screen, to its very end";
    send(&mut model, Message::ProgramOutput(long.into()));
    let shown = text(&model);
    assert!(shown.contains("to its very end"), "{shown}");
}

#[test]
fn a_chosen_column_goes_before_some_of_the_default() {
    for (width, columns, head) in [
        (45, &["node", "state", "progress", "reason"][..], "REASON"),
        (80, &["node", "state", "progress", "why", "name"], "NAME"),
    ] {
        let mut model = created(sized(width, 30));
        choose(&mut model, columns);
        assert!(text(&model).lines().nth(3).unwrap().contains(head), "{}", text(&model));
    }
}

#[test]
fn every_column_of_the_lists_can_be_drawn() {
    for (list, make) in [
        (ListName::Maintenances, fleet as fn(Options) -> Model),
        (ListName::Nodes, all_nodes),
        (ListName::Pods, node),
    ] {
        for column in list.columns() {
            let mut model = make(sized(120, 30));
            model.options.config.columns.choose(list, vec![column.name]);
            let lines: Vec<String> = text(&model).lines().map(str::to_owned).collect();
            let head = lines.iter().position(|line| line.contains('▶')).unwrap() - 1;
            assert!(!lines[head].trim().is_empty(), "{}", column.name);
        }
    }
}

#[test]
fn the_theme_is_changed() {
    let mut model = fleet(options());
    for theme in [ThemeName::Light, ThemeName::ColourBlind, ThemeName::Mono, ThemeName::Dark] {
        assert_eq!(type_in(&mut model, "T"), []);
        assert_eq!(model.options.appearance.theme, theme);
    }
}

#[test]
fn without_colours_the_theme_stays_mono_and_the_key_says_why() {
    let appearance = Appearance { theme: ThemeName::Mono, ascii: false };
    let mut model = fleet(Options { appearance, without_colours: Some("NO_COLOR"), ..options() });
    type_in(&mut model, "T");
    assert_eq!(model.options.appearance, appearance);
    let said = "NO_COLOR turns colours off: the theme stays mono";
    assert!(text(&model).contains(said), "{}", text(&model));
}

#[test]
fn a_bad_expression_is_shown_beside_the_filter() {
    let mut model = fleet(sized(120, 30));
    type_in(&mut model, "/!/worker-1(/");
    let shown = text(&model);
    assert!(shown.contains("unclosed group"), "{shown}");
    assert_eq!(model.fleet.rows.len(), 11, "nothing is selected out");
    press(&mut model, KeyCode::Esc);
    type_in(&mut model, "/!node:/-[012]/ !state:failed");
    let left = model.fleet.rows.len();
    assert_eq!(left, 1, "{}", text(&model));
}

#[test]
fn a_bad_expression_is_reported_after_it_was_entered() {
    let mut model = fleet(sized(120, 30));
    type_in(&mut model, "/cart /worker-1(/");
    press(&mut model, KeyCode::Enter);
    let shown = text(&model);
    assert!(shown.contains("not in the filter: /worker-1(/: unclosed group"), "{shown}");
    for filter in
        ["cart", "STATE:dra", "!state:idle", "state:unsched", "state:/paus/", "10:30", "foo:", "state:"]
    {
        let mut model = fleet(options());
        type_in(&mut model, &format!("/{filter}"));
        press(&mut model, KeyCode::Enter);
        assert_eq!(model.notice, None, "nothing is wrong with {filter}");
    }
}

#[test]
fn a_key_or_a_state_that_there_is_not_is_reported_after_it_was_entered() {
    for (filter, said) in [
        ("foo:bar", "there is no key foo, so foo:bar is searched for as text"),
        ("cart !foo:bar", "there is no key foo, so foo:bar is searched for as text"),
        ("state:pausd", "no state begins with pausd"),
    ] {
        let mut model = fleet(sized(120, 30));
        type_in(&mut model, &format!("/{filter}"));
        press(&mut model, KeyCode::Enter);
        assert!(text(&model).contains(said), "{}", text(&model));
    }
}

#[test]
fn pods_of_an_open_node_are_found_as_they_are_printed_and_none_is_hidden_by_their_node() {
    let mut model = node(sized(120, 40));
    type_in(&mut model, "/shop/cart-0");
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.rows().len(), 1, "{}", text(&model));
    for filter in ["node:worker-07", "!phase:run"] {
        let mut model = node(sized(120, 40));
        let all = model.rows().len();
        type_in(&mut model, &format!("/{filter}"));
        press(&mut model, KeyCode::Enter);
        assert_eq!(model.rows().len(), all, "{filter}");
        assert!(
            text(&model).contains(&format!("{} hides no pods", filter.trim_start_matches('!'))),
            "{}",
            text(&model)
        );
    }
}

#[test]
fn a_phase_hides_nothing_in_the_tree_of_workloads_either() {
    let mut model = node(sized(120, 40));
    type_in(&mut model, "w/phase:run");
    press(&mut model, KeyCode::Enter);
    assert!(model.open.as_ref().unwrap().tree.is_shown);
    assert!(text(&model).contains("phase:run hides no pods"), "{}", text(&model));
}

#[test]
fn a_filter_that_hides_nothing_is_cleared_too() {
    for filter in ["/(/", "ns:"] {
        let mut model = fleet(options());
        type_in(&mut model, &format!("/{filter}"));
        press(&mut model, KeyCode::Enter);
        press(&mut model, KeyCode::Esc);
        assert_eq!(model.arrangement().filter.text(), "", "{filter}");
    }
}

#[test]
fn keys_of_the_configuration_are_used_and_shown() {
    let mut model = fleet(options());
    model.options.config.keys.assign(Action::Stop, vec![String::from("F9")]);
    type_in(&mut model, "x");
    assert!(model.dialog.is_none());
    assert!(text(&model).contains("[F9]"), "{}", text(&model));
    press(&mut model, KeyCode::F(9));
    assert!(text(&model).contains("stop 1 maintenance"));
    press(&mut model, KeyCode::Esc);
    model.options.config.keys.assign(Action::Reverse, vec![]);
    type_in(&mut model, "?");
    assert!(!text(&model).contains("reverse the order"), "{}", text(&model));
}

#[test]
fn the_keys_of_the_configuration_are_those_of_the_sentences_too() {
    let mut model = fleet(sized(120, 30));
    for (action, key) in
        [(Action::Down, "F5"), (Action::Switch, "F6"), (Action::Back, "F7"), (Action::Open, "F8")]
    {
        model.options.config.keys.assign(action, vec![key.to_owned()]);
    }
    type_in(&mut model, "y");
    assert!(text(&model).contains("[F6] scroll"), "{}", text(&model));
    press(&mut model, KeyCode::F(6));
    assert!(text(&model).contains("[F5 k] scroll  [F6] back"), "{}", text(&model));
    press(&mut model, KeyCode::F(7));
    type_in(&mut model, "l");
    assert!(text(&model).contains("press F8 to open the selected one"), "{}", text(&model));
    press(&mut model, KeyCode::Char('?'));
    assert!(text(&model).contains("help  [F5 k] scroll  [F7] close"), "{}", text(&model));
    press(&mut model, KeyCode::F(7));
    assert_eq!(model.dialog, None);
}

#[test]
fn a_mistake_in_the_configuration_is_shown_until_a_key_is_pressed() {
    let notice = Some(String::from("/home/ada/.config/kubectl-nm/config.toml:3: unknown column \"size\""));
    let mut model = fleet(Options { notice, ..sized(80, 24) });
    assert!(text(&model).contains("config.toml:3: unknown column"), "{}", text(&model));
    type_in(&mut model, "j");
    assert!(!text(&model).contains("config.toml"), "{}", text(&model));
}
