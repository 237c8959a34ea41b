//! How long the dashboard takes from a change to a frame while it shows the tree of replacements of a full node.
//!
//! `docs/performance.md` has the command. The 99th percentile has to be at most 5 ms.

use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use nm_core::client::watch_stream::WatchChange;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use crate::message::Message;
use crate::model::lists::listing::Rows;
use crate::model::{Model, Options};
use crate::objects::replacements::ReplacementChange;
use crate::objects::replacements::ReplacementScope;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::replacements::{replica, report, report_pods};
use crate::tests::scenes::{fleet, now, options, pod, press, send, set_watch, type_in};
use crate::view::draw;

/// The pods on the node.
const PODS: usize = 250;

const NAMESPACES: usize = 40;

/// The pods on other nodes in these namespaces.
const ELSEWHERE: usize = 10_000;

const TIMES: usize = 2000;

const LIMIT: Duration = Duration::from_millis(5);

/// The tree of a node whose pods are all being replaced.
fn full_tree(elsewhere: usize) -> Model {
    let mut model = fleet(Options { size: (200, 50), ..options() });
    press(&mut model, KeyCode::Enter);
    set_watch(&mut model, WatchKind::Pods, WatchState::Live);
    let ending = json!({"deletionTimestamp": now().to_string(), "deletionGracePeriodSeconds": 30});
    let of = |number: usize| {
        let (namespace, workload) = (number % NAMESPACES, number / NAMESPACES);
        pod(&format!("ns-{namespace}"), &format!("p-{number}"), &format!("ReplicaSet/w-{workload}"), &ending)
    };
    let change = WatchChange::Listed((0..PODS).map(of).collect());
    send(&mut model, Message::Pods { node: "worker-07".into(), change });
    type_in(&mut model, "w");
    for namespace in 0..NAMESPACES {
        let name = format!("ns-{namespace}");
        let of = |number: usize| {
            let workload = format!("ReplicaSet/w-{}", number % 7);
            replica(&name, &format!("r-{namespace}-{number}"), &workload, "worker-11", 20, &json!({}))
        };
        report_pods(&mut model, &name, (0..elsewhere / NAMESPACES).map(of).collect());
    }
    model
}

/// One replacement changes.
fn change(model: &mut Model, number: usize) {
    let status = if number.is_multiple_of(2) {
        json!({"conditions": [{"type": "Ready", "status": "True"}]})
    } else {
        json!({})
    };
    let replica = replica("ns-7", "r-7-3", "ReplicaSet/w-3", "worker-11", 20, &status);
    let changed = ReplacementChange::Replicas(WatchChange::Applied(replica));
    report(model, ReplacementScope::pods("ns-7"), changed);
}

#[test]
fn the_tree_of_a_full_node_has_a_replacement_for_each_pod() {
    let mut model = full_tree(1000);
    change(&mut model, 0);
    let open = model.open.as_ref().unwrap();
    assert_eq!(open.tree.rows.total(), 3 * PODS, "each pod has a workload and a replacement");
}

#[test]
#[ignore = "a benchmark"]
fn tree_times() {
    let mut model = full_tree(ELSEWHERE);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(200, 50));
    let mut times: Vec<Duration> = (0..TIMES)
        .map(|number| {
            let started = Instant::now();
            change(&mut model, number);
            let Ok(_) = terminal.draw(|frame| draw(&model, frame));
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    let (p50, p99, worst) = (times[TIMES / 2], times[TIMES * 99 / 100], times[TIMES - 1]);
    println!("tree of {PODS} pods, {ELSEWHERE} elsewhere: change to frame {p50:.1?} {p99:.1?} {worst:.1?}");
    assert!(p99 <= LIMIT, "the 99th percentile is at most {LIMIT:?}");
}
