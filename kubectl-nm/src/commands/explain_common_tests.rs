//! The causes of several nodes.

use nm_core::explain::cause::alike_words;
use nm_core::testing::objects::{running, with_status};
use serde_json::json;

use super::tests::explained_by_status;
use super::*;

#[test]
fn commands_of_several_nodes_that_are_left_out_are_counted() {
    let said = |nodes: usize, pods: usize| {
        let blocked = |node: usize| {
            let names: Vec<String> = (0..pods).map(|pod| format!("p{node}{pod}")).collect();
            let mut status = running(50, &names.iter().map(|name| (name.as_str(), "x")).collect::<Vec<_>>());
            for pod in status["blockedPods"].as_array_mut().unwrap() {
                (pod["reason"], pod["budget"]) = (json!("Unmanaged"), json!(null));
            }
            with_status(&format!("n{node}"), status)
        };
        let objects: Vec<NodeMaintenance> = (1..=nodes).map(blocked).collect();
        explained_by_status(&objects).1
    };
    let of_few = said(2, 3);
    assert!(
        of_few.ends_with("    kubectl -n shop delete pod p22\n"),
        "one more takes no more room: {of_few}"
    );
    let of_many = said(8, 1);
    let end = "    kubectl -n shop delete pod p50\n  3 more commands are left out here: explain the nodes one by one to see more.\n";
    assert!(of_many.ends_with(end), "{of_many}");
    assert!(said(1, 6).ends_with(" p15\n"), "one more takes no more room");
    let again = "  4 more commands are left out here: explain the node again once these are dealt with.\n";
    assert!(said(1, 9).ends_with(again), "{}", said(1, 9));
    let of_each = "  13 more commands are left out here: explain the nodes one by one to see more.\n";
    assert!(said(2, 9).ends_with(of_each), "{}", said(2, 9));
}

#[test]
fn pods_that_have_gone_are_not_said_to_stay_while_nobody_leads() {
    let cause = |first| Cause {
        pods: vec![String::from("shop/web-0")],
        outlook: Outlook::AwaitsDrain,
        common: Some(CommonGround::FirstCause(Box::new(first))),
        ..Cause::default()
    };
    let words = |first| extent(&cause(first), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(words(FirstCause::PodsGone), "Were blocked: shop/web-0.");
    assert_eq!(words(FirstCause::AllowsNow), "Staying: shop/web-0.");
}

#[test]
fn what_several_nodes_leave_out_of_the_same_budgets_is_counted_once() {
    let cause = || {
        let numbers = |at: usize| format!("PDB ns-{at}/web needs 2, has 2.");
        let command = |at: usize| format!("kubectl -n ns-{at} patch pdb web");
        let shown =
            (0..5).map(numbers).chain([alike_words(4), String::from("It can never allow an eviction.")]);
        Cause {
            what: shown.collect(),
            alike: (5..9).map(numbers).collect(),
            commands: (0..5).map(command).collect(),
            left_out: (5..9).map(command).collect(),
            ..Cause::default()
        }
    };
    let of_nodes = |nodes: &[&str]| {
        let mut all = Vec::new();
        for node in nodes {
            CommonCause::add(&mut all, cause(), node);
        }
        let [mut common] = <[CommonCause; 1]>::try_from(all).unwrap_or_else(|_| panic!());
        common.shorten_commands();
        (common.sentences(), common.cause.commands.len(), common.cause.left_out.len())
    };
    assert_eq!(of_nodes(&["n1"]), (cause().what, 5, 4));
    let (_, shown, left_out) = of_nodes(&["n1", "n1"]);
    assert_eq!((shown, left_out), (5, 4), "two causes of one node have the same commands");
    let (sentences, shown, left_out) = of_nodes(&["n1", "n2", "n3"]);
    assert_eq!((shown, left_out), (5, 4));
    assert_eq!(sentences.len(), 7, "{sentences:#?}");
    assert_eq!(sentences[5], "It can never allow an eviction.");
    assert_eq!(sentences[6], "4 more details are left out here: explain the nodes one by one to see more.");
}
