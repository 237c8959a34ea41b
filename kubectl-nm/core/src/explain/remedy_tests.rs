//! The remedies, one line for each reason.

use nm_shared::api::status::PolicyFacts;

use super::*;

fn none() -> BlockFacts {
    BlockFacts::default()
}

fn budget(name: &str, numbers: Option<(i32, i32)>) -> BlockFacts {
    let budget = BudgetFacts {
        name: name.to_owned(),
        desired_healthy: numbers.map(|(desired, _)| desired),
        current_healthy: numbers.map(|(_, current)| current),
        ..BudgetFacts::default()
    };
    BlockFacts { budget: Some(budget), ..none() }
}

#[test]
fn no_budget_is_to_be_edited_because_of_its_numbers_alone() {
    let command = |needed, pods| {
        let mut facts = budget("cart", Some((needed, 3)));
        facts.budget.as_mut().unwrap().expected_pods = pods;
        remedy(&case(BlockReason::DisruptionBudget, &facts, None)).command
    };
    for pods in [None, Some(3), Some(4)] {
        assert_eq!(command(3, pods), "kubectl nm explain n1", "which reads the pods and their owners");
    }
}

#[test]
fn the_advice_about_a_budget_says_only_what_its_numbers_show() {
    let advice = |needed, has, pods| {
        let mut facts = budget("cart", Some((needed, has)));
        facts.budget.as_mut().unwrap().expected_pods = pods;
        remedy(&case(BlockReason::DisruptionBudget, &facts, None)).advice
    };
    for (numbers, expected) in [
        ((1, 1, Some(1)), "The budget requires all existing pods: "),
        ((3, 3, Some(3)), "The budget requires all existing pods: "),
        ((2, 2, Some(3)), "Some of the budget's pods are not Ready, or are missing"),
        ((2, 1, None), "Some of the budget's pods are not Ready, or are missing"),
        ((2, 3, Some(3)), "The budget still counts evictions that were just accepted"),
        ((0, 1, None), "This shows why the budget allows no eviction"),
        ((3, 3, None), "This shows why the budget allows no eviction"),
    ] {
        let (needed, has, pods) = numbers;
        let advice = advice(needed, has, pods);
        assert!(advice.starts_with(expected), "{numbers:?}: {advice}");
    }
    let unknown = remedy(&case(BlockReason::DisruptionBudget, &none(), None)).advice;
    assert!(!unknown.contains("not Ready"), "{unknown}");
}

fn several_budgets(names: &[&str]) -> BlockFacts {
    let budget = |name: &&str| BudgetFacts { name: (*name).to_owned(), ..BudgetFacts::default() };
    BlockFacts { budgets: names.iter().map(budget).collect(), ..none() }
}

fn policy(name: &str) -> BlockFacts {
    BlockFacts { policy: Some(PolicyFacts { name: name.into(), binding: None }), ..none() }
}

fn forbidden(user: &str, verb: &str, resource: &str) -> BlockFacts {
    let access = ForbiddenAccess { user: user.into(), verb: verb.into(), resource: resource.into() };
    BlockFacts { forbidden: Some(access), ..none() }
}

fn case<'a>(reason: BlockReason, facts: &'a BlockFacts, owner: Option<&'a Owner>) -> Case<'a> {
    Case {
        kubectl: "kubectl",
        node: "n1",
        namespace: "shop",
        name: "cart-0",
        owner,
        is_bare: false,
        reason,
        facts,
    }
}

#[test]
fn every_reason_has_a_command_that_can_be_pasted() {
    use BlockReason as Reason;
    let (cart, machine) = (Owner::new(OwnerKind::StatefulSet, "cart"), Owner::recorded("vmi/db").unwrap());
    let (sts, foreign) = (Some(&cart), Owner::recorded("statefulset.apps.kruise.io/cart").unwrap());
    for (reason, facts, owner, command) in [
        (Reason::DisruptionBudget, budget("cart", Some((3, 3))), sts, "kubectl nm explain n1"),
        (Reason::DisruptionBudget, none(), sts, "kubectl -n shop get pdb"),
        (Reason::MultipleDisruptionBudgets, none(), sts, "kubectl -n shop get pdb -o wide"),
        (
            Reason::MultipleDisruptionBudgets,
            several_budgets(&["all", "$x"]),
            sts,
            "kubectl -n shop edit pdb all '$x'",
        ),
        (
            Reason::AdmissionWebhook,
            none(),
            sts,
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
        ),
        (
            Reason::AdmissionPolicy,
            policy("no-evictions"),
            sts,
            "kubectl get validatingadmissionpolicies no-evictions -o yaml",
        ),
        (Reason::AdmissionPolicy, none(), sts, "kubectl -n shop describe pod cart-0"),
        (Reason::NotMigratable, none(), Some(&machine), "kubectl -n shop describe vmi/db"),
        (Reason::NotMigratable, none(), None, "kubectl -n shop describe pod cart-0"),
        (Reason::MigrationFailed, none(), None, "kubectl -n shop get vmim -o wide"),
        (Reason::MigrationNotStarted, none(), Some(&machine), "kubectl -n shop describe vmi/db"),
        (Reason::Forbidden, none(), None, "kubectl nm doctor"),
        (
            Reason::Forbidden,
            forbidden("system:serviceaccount:ops:nm-reconciler", "create", "pods/eviction"),
            None,
            "kubectl auth can-i create pods --subresource=eviction -n shop --as=system:serviceaccount:ops:nm-reconciler",
        ),
        (
            Reason::Forbidden,
            forbidden("u", "delete", "pods"),
            None,
            "kubectl nm install --grant pod-deletion",
        ),
        (Reason::NamespaceTerminating, none(), None, "kubectl get namespace shop -o yaml"),
        (Reason::ServerError, none(), None, "kubectl get --raw '/readyz?verbose'"),
        (Reason::Unmanaged, none(), None, "kubectl -n shop delete pod cart-0"),
        (Reason::LocalStorage, none(), sts, "kubectl -n shop delete pod cart-0"),
        (Reason::KeepsReturning, none(), sts, "kubectl -n shop edit sts/cart"),
        (
            Reason::KeepsReturning,
            none(),
            Some(&foreign),
            "kubectl -n shop edit statefulset.apps.kruise.io/cart",
        ),
        (Reason::KeepsReturning, none(), None, "kubectl -n shop describe pod cart-0"),
        (Reason::Finalizers, none(), None, "kubectl -n shop edit pod cart-0"),
        (Reason::NodeNotReady, none(), None, "kubectl describe node n1"),
        (Reason::NotEnding, none(), None, "kubectl -n shop describe pod cart-0"),
        (Reason::Unknown, none(), None, "kubectl -n shop describe pod cart-0"),
    ] {
        let remedy = remedy(&case(reason, &facts, owner));
        assert_eq!(remedy.command, command, "{reason:?}");
        assert!(!remedy.advice.is_empty() && !remedy.advice.ends_with('.'), "{remedy:?}");
    }
}

#[test]
fn one_finalizer_has_one_owner() {
    let of = |names: &[&str]| {
        let facts = BlockFacts { finalizers: names.iter().map(ToString::to_string).collect(), ..none() };
        remedy(&case(BlockReason::Finalizers, &facts, None)).advice
    };
    assert!(of(&["a/b"]).starts_with("The owner of its finalizer must remove it;"), "{}", of(&["a/b"]));
    for several in [of(&["a/b", "c/d"]), of(&[])] {
        assert!(several.starts_with("The owners of its finalizers must remove them;"), "{several}");
    }
    let facts = BlockFacts { finalizers: vec!["a/b".to_owned()], ..none() };
    let said = subject_and_reason(&["shop/web-0".to_owned()], BlockReason::Finalizers, &facts, "");
    assert_eq!(said.unwrap(), "shop/web-0 has terminated, and a finalizer keeps it: a/b");
}

#[test]
fn the_taint_of_a_node_that_is_off_is_named_with_its_condition() {
    let advice = remedy(&case(BlockReason::NodeNotReady, &none(), None)).advice;
    assert!(advice.contains("node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"), "{advice}");
    assert!(advice.contains("verified that the machine is off"), "{advice}");
}

#[test]
fn commands_use_the_displayed_cluster_and_quote_names() {
    let nothing = none();
    let hostile = Case {
        kubectl: "kubectl --context 'prod eu'",
        name: "x; reboot",
        namespace: "it's",
        ..case(BlockReason::Unmanaged, &nothing, None)
    };
    assert_eq!(remedy(&hostile).command, r#"kubectl --context 'prod eu' -n "it's" delete pod 'x; reboot'"#);
    let facts = budget("$(reboot)", None);
    let unread = Case { kubectl: "kubectl --context=c", ..case(BlockReason::DisruptionBudget, &facts, None) };
    assert_eq!(remedy(&unread).command, "kubectl nm explain n1 --context=c");
    let several = several_budgets(&["$(reboot)"]);
    let remedy = remedy(&case(BlockReason::MultipleDisruptionBudgets, &several, None));
    assert_eq!(remedy.command, "kubectl -n shop edit pdb '$(reboot)'");
}

#[test]
fn blockers_are_shown_in_short_and_without_facts_by_their_message() {
    use BlockReason as Reason;
    let of_deletion =
        |refusal: BlockFacts| BlockFacts { budget: budget("cart", Some((3, 3))).budget, ..refusal };
    let finalizers = BlockFacts { finalizers: vec!["a/b".to_owned(), "c/d".to_owned()], ..none() };
    for (reason, facts, message, short, common) in [
        (
            Reason::DisruptionBudget,
            budget("cart", Some((3, 3))),
            "m",
            "PDB shop/cart needs 3, has 3",
            "PDB shop/cart",
        ),
        (
            Reason::DisruptionBudget,
            budget("cart", Some((4, 5))),
            "m",
            "PDB shop/cart allows 0 disruptions now (needs 4, has 5)",
            "PDB shop/cart",
        ),
        (
            Reason::DisruptionBudget,
            budget("cart", None),
            "it is new",
            "PDB shop/cart: it is new",
            "PDB shop/cart",
        ),
        (Reason::DisruptionBudget, none(), "no", "no", "disruption budget in shop"),
        (
            Reason::MultipleDisruptionBudgets,
            several_budgets(&["all", "cart"]),
            "m",
            "PDBs shop/all, shop/cart",
            "PDBs shop/all, shop/cart",
        ),
        (Reason::MultipleDisruptionBudgets, none(), "two", "two", "several budgets in shop"),
        (Reason::Finalizers, finalizers, "m", "finalizers a/b, c/d", "finalizers in shop"),
        (Reason::Finalizers, none(), "kept by a/b", "kept by a/b", "finalizers in shop"),
        (Reason::NotEnding, none(), "", "not ending", "pods that do not terminate in shop"),
        (Reason::Unmanaged, none(), "no", "no", "missing controllers in shop"),
        (
            Reason::Forbidden,
            of_deletion(forbidden("u", "delete", "pods")),
            "m",
            "PDB shop/cart needs 3, has 3; its deletion is refused: nm-reconciler had no permission to delete pods",
            "PDB shop/cart, and missing access in shop",
        ),
        (
            Reason::AdmissionPolicy,
            of_deletion(policy("p")),
            "no",
            "PDB shop/cart needs 3, has 3; its deletion is refused: no",
            "PDB shop/cart, and admission policy in shop",
        ),
    ] {
        assert_eq!(in_short("shop", reason, &facts, message), short);
        assert_eq!(common_blocker("shop", reason, &facts), common);
    }
}

#[test]
fn a_permission_that_is_not_installed_by_default_is_granted_by_a_command() {
    let access = ForbiddenAccess { user: "u".into(), verb: "delete".into(), resource: "pods".into() };
    let (advice, command) = missing_access("kubectl --context=c", Some(&access), "--list");
    assert_eq!(
        advice,
        "Grant nm-reconciler the permission to delete pods; it then deletes the pods whatever their budgets allow"
    );
    assert_eq!(command, "kubectl nm install --grant pod-deletion --context=c");
    assert_eq!(missing_access("kubectl --context=c", None, "--list").1, "kubectl nm doctor --context=c");
}
