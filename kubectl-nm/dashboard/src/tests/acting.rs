//! Actions on the selected row: dialogs about pods, and the output of kubectl.

use crossterm::event::{Event, KeyCode};
use insta::assert_snapshot;
use nm_core::client::watch_stream::WatchChange;
use nm_core::error::Error;
use nm_core::explain::owner::Owner;
use nm_shared::{BudgetFacts, ForbiddenAccess};

use crate::config::action_table::{ACTIONS, View};
use crate::config::appearance::{Appearance, ThemeName};
use crate::message::{ClusterRequest, Effect, Message};
use crate::model::dialogs::pod_dialog::{GuardingBudgets, MachinePart, PodAction, PodFacts, PodTarget};
use crate::model::panes::output::{OutputChange, OutputLine};
use crate::model::{Model, Options};
use crate::tests::painted::{painted, text};
use crate::tests::scenes::{all_nodes, fleet, node, options, pod, pods, press, send, type_in};

fn sized(width: u16, height: u16) -> Options {
    Options { size: (width, height), ..options() }
}

fn budget(allowed: i32) -> BudgetFacts {
    BudgetFacts {
        name: "cart".into(),
        desired_healthy: Some(3),
        current_healthy: Some(3 + allowed),
        disruptions_allowed: Some(allowed),
        ..BudgetFacts::default()
    }
}

pub(super) fn facts() -> PodFacts {
    PodFacts {
        uid: "cart-0".into(),
        owner: Owner::recorded("sts/cart"),
        has_empty_dir: true,
        is_terminating: false,
        is_assigned: false,
        finalizers: vec![],
        machine: None,
        budgets: GuardingBudgets::Known(vec![budget(0)]),
        kept_by: vec![],
        denied: None,
    }
}

/// Presses a key that asks about the selected pod, and answers what is looked up.
pub(super) fn asked(model: &mut Model, key: &str, facts: Result<PodFacts, Error>) {
    let effects = type_in(model, key);
    let [Effect::LookUp { action, target }] = &effects[..] else { panic!("{effects:?}") };
    send(model, Message::PodFacts { action: *action, target: target.clone(), result: facts.map(Box::new) });
}

/// The dialog that evicts a pod.
pub(super) fn evicting(options: Options) -> Model {
    let mut model = node(options);
    asked(&mut model, "R", Ok(facts()));
    model
}

fn cart_0() -> PodTarget {
    PodTarget { namespace: "shop".into(), name: "cart-0".into(), uid: Some("cart-0".into()), grace: None }
}

#[test]
fn an_eviction_is_one_request_for_the_selected_pod() {
    let mut model = node(options());
    asked(&mut model, "R", Ok(facts()));
    let request = ClusterRequest::Evict { target: cart_0(), uid: "cart-0".into() };
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::Send { id: 1, request }]);
    assert!(text(&model).contains("evicting shop/cart-0 ..."), "{}", text(&model));
}

#[test]
fn what_the_drain_does_not_evict_is_not_evicted_by_hand() {
    for (pod, why) in [
        ("cni-x7", "it stays on the node: managed by a DaemonSet"),
        ("ledger-1", "it is terminating already"),
        ("virt-launcher", "KubeVirt is migrating its virtual machine"),
    ] {
        let mut model = node(options());
        type_in(&mut model, &format!("/{pod}"));
        press(&mut model, KeyCode::Enter);
        assert_eq!(type_in(&mut model, "R"), [], "{pod}");
        assert!(model.notice.as_ref().unwrap().text.contains(why), "{pod}: {:?}", model.notice);
    }
}

#[test]
fn a_pod_that_only_finalizers_keep_is_not_deleted_again() {
    let mut model = node(options());
    let kept_by = vec![String::from("example.com/hold")];
    asked(&mut model, "D", Ok(PodFacts { kept_by, ..facts() }));
    let shown = text(&model);
    assert!(shown.contains("only finalizer example.com/hold keeps"), "{shown}");
    assert!(shown.contains("the owner of its finalizer"), "{shown}");
    assert!(!shown.contains("Type delete") && !shown.contains("delete pod"), "{shown}");
    type_in(&mut model, "delete");
    assert_eq!(press(&mut model, KeyCode::Enter), []);
}

#[test]
fn the_deletion_of_a_pod_of_a_machine_says_what_it_does_to_the_machine() {
    let check = |part: MachinePart, said: &str| {
        let mut model = node(options());
        asked(&mut model, "D", Ok(PodFacts { machine: Some(part), ..facts() }));
        let shown = text(&model);
        assert!(shown.contains(said), "{shown}");
    };
    check(MachinePart::Launcher("db".into()), "shuts down the virtual machine db");
    check(MachinePart::Disk("db".into()), "unplugs a disk of the running virtual machine db");
}

#[test]
fn a_pod_is_deleted_after_the_word_was_typed_and_its_cost_is_known() {
    let mut model = node(options());
    assert_eq!(type_in(&mut model, "D").len(), 1);
    type_in(&mut model, "delete");
    assert_eq!(press(&mut model, KeyCode::Enter), [], "nothing is known yet");
    let answer =
        Message::PodFacts { action: PodAction::Delete, target: cart_0(), result: Ok(Box::new(facts())) };
    send(&mut model, answer);
    let request = ClusterRequest::DeletePod { target: cart_0(), uid: "cart-0".into() };
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::Send { id: 1, request }]);
}

#[test]
fn without_permission_nothing_is_sent_and_the_permission_is_named() {
    let denied = ForbiddenAccess { user: "ann".into(), verb: "delete".into(), resource: "pods".into() };
    for key in ["R", "D"] {
        let mut model = node(options());
        asked(&mut model, key, Ok(PodFacts { denied: Some(denied.clone()), ..facts() }));
        type_in(&mut model, "delete");
        assert_eq!(press(&mut model, KeyCode::Enter), [], "{key}");
        assert!(text(&model).contains("Not permitted: ann may not delete pods"), "{}", text(&model));
    }
}

#[test]
fn kubectl_reads_about_the_row_of_each_view() {
    let read = |model: &mut Model, key: &str| {
        let effects = type_in(model, key);
        let [.., Effect::Read { arguments, .. }] = &effects[..] else { panic!("{effects:?}") };
        arguments.join(" ")
    };
    let logs = "--all-containers --prefix --tail=1000";
    assert_eq!(
        read(&mut node(options()), "l"),
        format!("-n shop logs cart-0 {logs} --follow --max-log-requests=50")
    );
    assert_eq!(
        read(&mut node(options()), "L"),
        format!("-n shop logs cart-0 {logs} --previous --ignore-errors")
    );
    assert_eq!(read(&mut node(options()), "d"), "-n shop describe pod cart-0");
    assert_eq!(read(&mut fleet(options()), "d"), "describe nm worker-07");
    assert_eq!(read(&mut all_nodes(options()), "gd"), "describe node worker-33");
    assert_eq!(read(&mut node(options()), "wgd"), "-n shop describe sts/cart");
}

#[test]
fn a_name_from_the_cluster_is_never_a_flag_of_kubectl() {
    // The API server does not check the kind and the name of an owner.
    let mut model = node(options());
    let hostile = pod("shop", "a-0", "--Kubeconfig=x/evil", &serde_json::json!({}));
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(vec![hostile]) });
    type_in(&mut model, "w/evil");
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, "g");
    for (key, command) in [
        ("d", "kubectl -n shop describe -- --kubeconfig=x/evil"),
        ("l", "--follow --max-log-requests=50 -- --kubeconfig=x/evil"),
    ] {
        let effects = type_in(&mut model, key);
        let [Effect::Read { arguments, .. }] = &effects[..] else { panic!("{effects:?}") };
        let at = arguments.iter().position(|word| word == "--").unwrap();
        assert_eq!(arguments[at + 1..], ["--kubeconfig=x/evil"]);
        assert!(model.output.as_ref().unwrap().command.contains(command), "{:?}", model.output);
        press(&mut model, KeyCode::Esc);
    }
}

#[test]
fn the_output_of_kubectl_is_a_page_that_scrolls_and_closes() {
    let mut model = node(sized(80, 12));
    let effects = type_in(&mut model, "d");
    let [Effect::Read { id, .. }] = effects[..] else { panic!("{effects:?}") };
    let line = |at: usize| OutputLine { text: format!("line {at}"), is_error: false };
    send(&mut model, Message::Output { id, change: OutputChange::Lines((0..40).map(line).collect()) });
    send(&mut model, Message::Output { id, change: OutputChange::Ended(Ok(())) });
    assert!(text(&model).contains("line 0\n"), "{}", text(&model));
    type_in(&mut model, "G");
    assert!(
        text(&model).contains("line 39") && text(&model).contains("31-40 of 40  ended"),
        "{}",
        text(&model)
    );
    send(&mut model, Message::Output { id: id + 7, change: OutputChange::Lines(vec![line(99)]) });
    assert!(!text(&model).contains("line 99"), "of another run");
    assert_eq!(type_in(&mut model, "c"), [Effect::Copy("kubectl -n shop describe pod cart-0".into())]);
    assert!(matches!(type_in(&mut model, "r")[..], [Effect::Read { .. }]));
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::StopReading]);
    assert!(text(&model).contains("NAMESPACE/POD"));
}

#[test]
fn a_tall_screen_has_the_page_below_the_rows_which_stay_live_and_z_switches() {
    let has_rows = |model: &Model| text(model).contains("NAMESPACE/POD");
    for height in [35, 36, 60] {
        let is_tall = height >= 36;
        let mut model = node(sized(120, height));
        press(&mut model, KeyCode::Down);
        output(&mut model);
        assert!(text(&model).contains("listening on port 8080"), "{}", text(&model));
        assert_eq!(has_rows(&model), is_tall, "{height} {}", text(&model));
        assert_eq!(text(&model).contains("[z]"), is_tall, "{height} {}", text(&model));
        if is_tall {
            assert!(text(&model).contains("▶⊘ Blocked     shop/cart-2"), "the cursor: {}", text(&model));
            let change =
                WatchChange::Deleted(pods().into_iter().find(|pod| pod.id.name == "cart-0").unwrap());
            send(&mut model, Message::Pods { node: "worker-07".into(), change });
            press(&mut model, KeyCode::Down);
            let shown = text(&model);
            assert!(!shown.contains("⊘ Blocked     shop/cart-0"), "the rows are live: {shown}");
            assert!(shown.contains("▶⊘ Blocked     shop/cart-2"), "the keys are the page's: {shown}");
        }
        type_in(&mut model, "z");
        assert!(!has_rows(&model), "{height} {}", text(&model));
        type_in(&mut model, "z");
        assert_eq!(has_rows(&model), is_tall, "{height} {}", text(&model));
        assert_eq!(press(&mut model, KeyCode::Esc), [Effect::StopReading]);
        assert!(has_rows(&model) && !text(&model).contains("port 8080"), "{}", text(&model));
    }
}

#[test]
fn read_only_refuses_every_action_that_changes_something() {
    for make in [fleet as fn(Options) -> Model, node, all_nodes] {
        for entry in ACTIONS.iter().filter(|entry| entry.changes) {
            let mut model = make(options());
            model.options.readonly = true;
            let key = if entry.keys[0] == "Space" { " " } else { entry.keys[0] };
            assert_eq!(type_in(&mut model, key), [], "{}", entry.name);
            let expected = format!("read-only: {} is disabled", entry.name);
            assert_eq!(model.notice.as_ref().unwrap().text, expected);
            press(&mut model, KeyCode::Left);
            assert!(!text(&model).contains(&format!("[{}]", entry.keys[0])), "{}", text(&model));
        }
    }
}

#[test]
fn keys_that_need_a_pod_say_where_one_is_selected() {
    let mut model = fleet(options());
    for key in ["l", "R", "D"] {
        assert_eq!(type_in(&mut model, key), []);
        assert!(
            model.notice.as_ref().unwrap().text.contains("press Enter to open the selected one"),
            "{key}"
        );
    }
    assert_eq!(model.view(), View::Fleet);
}

#[test]
fn the_dialogs_about_a_pod() {
    for (width, height) in [(200, 50), (120, 30), (80, 24), (45, 20)] {
        let mut model = node(sized(width, height));
        asked(&mut model, "D", Ok(PodFacts { owner: None, ..facts() }));
        assert_snapshot!(format!("delete_{width}x{height}"), text(&model));
        let mut model = node(sized(width, height));
        output(&mut model);
        assert_snapshot!(format!("output_{width}x{height}"), text(&model));
    }
}

/// Shows the log of a pod.
fn output(model: &mut Model) {
    let effects = type_in(model, "l");
    let [Effect::Read { id, .. }] = effects[..] else { panic!("{effects:?}") };
    let line = |text: &str, is_error| OutputLine { text: text.to_owned(), is_error };
    let lines = vec![
        line("[pod/cart-0/main] listening on port 8080", false),
        line(
            "[pod/cart-0/main] a request from 10.0.4.17 took 4,812 ms, of which 4,790 ms were spent waiting for the database \
             at ledger.pay.svc.cluster.local:5432 to accept a connection",
            false,
        ),
        line("Error from server (NotFound): container \"sidecar\" not found", true),
    ];
    send(model, Message::Output { id, change: OutputChange::Lines(lines) });
}

#[test]
fn themes_and_ascii_show_the_same_dialogs() {
    let looks = [
        ("light", Appearance { theme: ThemeName::Light, ascii: false }),
        ("colour_blind", Appearance { theme: ThemeName::ColourBlind, ascii: false }),
        ("mono", Appearance { theme: ThemeName::Mono, ascii: false }),
        ("ascii", Appearance { theme: ThemeName::Dark, ascii: true }),
    ];
    for (name, appearance) in looks {
        let options = Options { appearance, ..sized(80, 24) };
        let mut model = node(options.clone());
        asked(&mut model, "D", Ok(facts()));
        assert_snapshot!(format!("delete_{name}"), painted(&model));
        let mut model = node(options);
        output(&mut model);
        assert!(!appearance.ascii || text(&model).is_ascii());
        assert_snapshot!(format!("output_{name}"), painted(&model));
    }
}

#[test]
fn every_size_of_the_new_screens_can_be_drawn() {
    for keys in ["R", "D", "p", "l", "d"] {
        let mut model = node(options());
        type_in(&mut model, keys);
        for width in [1, 2, 5, 39, 45, 79, 300] {
            for height in [1, 2, 3, 7, 9, 60] {
                send(&mut model, Message::Input(Event::Resize(width, height)));
                text(&model);
            }
        }
    }
}
