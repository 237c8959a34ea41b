//! What `explain`, the dashboard and the status alone say of each situation of the table, compared with facts.

use nm_shared::cluster::disruption_budget::BudgetRefusal;
use nm_shared::{BlockFacts, BlockReason};

use super::rows::{Row, rows};
use super::*;
use crate::explain::explanation::of_pod;
use crate::explain::remedy::{Case, in_short, remedy};

#[test]
fn every_situation_has_its_sentence_and_a_command_that_harms_nothing() {
    let rows = rows();
    assert!(rows.len() >= 40, "{}", rows.len());
    let over = ["By now, the budget allows", "The pods have left"];
    for Row { name, situation, what, commands: command } in &rows {
        let causes = situation.causes();
        let [cause] = causes.as_slice() else { panic!("{name}: {causes:#?}") };
        assert_eq!(cause.what[1..], *std::slice::from_ref(what), "{name}");
        match cause.commands.as_slice() {
            [look, allow] if *command == ALWAYS_ALLOW => {
                assert_eq!(allow, ALWAYS_ALLOW, "{name}");
                assert!(look.contains(" describe ") || look.contains(" logs "), "{name}: {look}");
            }
            commands => assert_eq!(commands.join("\n"), *command, "{name}"),
        }
        // What only starts needs nobody either.
        let is_over = command.is_empty() || over.iter().any(|over| what.starts_with(over));
        assert_eq!(cause.passes(), is_over, "{name}");
        assert_eq!(
            (cause.pods.as_slice(), cause.refusals),
            (["shop/web-0".to_owned()].as_slice(), 3),
            "{name}"
        );
        check_harmless(cause);
        let needed = situation.budget().facts().desired_healthy.unwrap();
        let are_enough = situation.ready(|_| true) > needed;
        assert!(!what.starts_with("Enough pods are Ready") || are_enough, "{name}: {what}");
        // The dashboard has it in the details of the pod.
        let (pod, facts) = (PodReference { name: "web-0".into(), ..web() }, situation.facts());
        let now = NOW.parse().unwrap();
        let alone =
            of_pod(&pod, &situation.object(), &Reconcilers::default(), &facts, "kubectl", now).unwrap();
        assert_eq!(
            (&alone.what, &alone.advice, &alone.commands, alone.outlook),
            (&cause.what, &cause.advice, &cause.commands, cause.outlook),
            "{name}"
        );
    }
}

#[test]
fn the_words_of_the_status_alone_contradict_no_situation() {
    for Row { name, situation, .. } in rows() {
        let budget = situation.budget();
        let BudgetRefusal { message, budget: Some(numbers) } = budget.refusal() else { panic!("{name}") };
        let (needed, healthy) = (numbers.desired_healthy.unwrap(), numbers.current_healthy.unwrap());
        let facts = BlockFacts { budget: Some(numbers), ..BlockFacts::default() };
        let reason = BlockReason::DisruptionBudget;
        let short = in_short("shop", reason, &facts, &message);
        assert!(short.contains("shop/web"), "{name}: {short}");
        assert!(short.contains(&format!("needs {needed}, has {healthy}")), "{name}: {short}");
        assert!(
            !short.contains(" allows ") || short.contains(&format!(" allows {} ", budget.allowed())),
            "{name}: {short}"
        );
        let case = Case {
            kubectl: "kubectl",
            node: "n1",
            namespace: "shop",
            name: "web-0",
            owner: None,
            is_bare: false,
            reason,
            facts: &facts,
        };
        let remedy = remedy(&case);
        assert_eq!(remedy.command, EXPLAIN, "{name}");
        let (ready, expected) = (
            situation.ready(|name| !situation.has_evicted(name)),
            facts.budget.as_ref().and_then(|budget| budget.expected_pods),
        );
        let is_true = |said: &str, fact: bool| !remedy.advice.contains(said) || fact;
        assert!(is_true("just accepted", situation.evicted().is_some()), "{name}: {remedy:?}");
        assert!(
            is_true("not Ready, or are missing", expected.is_some_and(|pods| ready < pods)),
            "{name}: {remedy:?}"
        );
        assert!(
            is_true("requires all existing pods", expected.is_some_and(|pods| needed >= pods)),
            "{name}: {remedy:?}"
        );
    }
}
