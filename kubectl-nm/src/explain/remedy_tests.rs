//! The remedies, one line a reason.

use super::*;

const NUMBERS: &str = "The disruption budget cart needs 3 healthy pods and has 3 currently";

fn case<'a>(reason: BlockReason, message: &'a str, owner: Option<&'a str>) -> Case<'a> {
    Case { kubectl: "kubectl", node: "n1", namespace: "shop", name: "cart-0", owner, reason, message }
}

#[test]
fn every_reason_has_a_command_that_can_be_pasted() {
    use BlockReason as Reason;
    let sts = Some("sts/cart");
    for (reason, message, owner, command) in [
        (Reason::DisruptionBudget, NUMBERS, sts, "kubectl -n shop edit pdb cart"),
        (
            Reason::DisruptionBudget,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            sts,
            "kubectl -n shop get pdb",
        ),
        (Reason::MultipleDisruptionBudgets, "", sts, "kubectl -n shop get pdb -o wide"),
        (
            Reason::AdmissionWebhook,
            "",
            sts,
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
        ),
        (Reason::NotMigratable, "", Some("vmi/db"), "kubectl -n shop describe vmi/db"),
        (Reason::NotMigratable, "", None, "kubectl -n shop describe pod cart-0"),
        (Reason::MigrationFailed, "", None, "kubectl -n shop get vmim -o wide"),
        (
            Reason::Forbidden,
            "",
            None,
            "kubectl auth can-i create pods --subresource=eviction -n shop --as=system:serviceaccount:node-maintenance:nm-reconciler",
        ),
        (
            Reason::Forbidden,
            "pods \"cart-0\" is forbidden: User \"system:serviceaccount:ops:nm-reconciler\" cannot create resource \"pods/eviction\"",
            None,
            "kubectl auth can-i create pods --subresource=eviction -n shop --as=system:serviceaccount:ops:nm-reconciler",
        ),
        (Reason::NamespaceTerminating, "", None, "kubectl get namespace shop -o yaml"),
        (Reason::ServerError, "", None, "kubectl get --raw '/readyz?verbose'"),
        (Reason::Unmanaged, "", None, "kubectl -n shop delete pod cart-0"),
        (Reason::LocalStorage, "", sts, "kubectl -n shop delete pod cart-0"),
        (Reason::ComesBack, "", sts, "kubectl -n shop edit sts/cart"),
        (Reason::ComesBack, "", None, "kubectl -n shop describe pod cart-0"),
        (
            Reason::Finalizers,
            "",
            None,
            r#"kubectl -n shop patch pod cart-0 --type=merge -p '{"metadata":{"finalizers":null}}'"#,
        ),
        (Reason::NodeNotReady, "", None, "kubectl describe node n1"),
        (Reason::NotEnding, "", None, "kubectl -n shop describe pod cart-0"),
        (Reason::Unknown, "", None, "kubectl -n shop describe pod cart-0"),
    ] {
        let remedy = remedy(&case(reason, message, owner));
        assert_eq!(remedy.command, command, "{reason:?}");
        assert!(!remedy.advice.is_empty() && !remedy.advice.ends_with('.'), "{remedy:?}");
    }
}

#[test]
fn the_advice_names_what_to_scale() {
    let remedy = remedy(&case(BlockReason::DisruptionBudget, NUMBERS, Some("sts/cart")));
    assert_eq!(remedy.advice, "Scale sts/cart up, or relax its budget");
}

#[test]
fn commands_go_to_the_cluster_that_is_shown_and_run_nothing_else() {
    let hostile = Case {
        kubectl: "kubectl --context 'prod eu'",
        name: "x; reboot",
        namespace: "it's",
        ..case(BlockReason::Unmanaged, "", None)
    };
    assert_eq!(remedy(&hostile).command, r"kubectl --context 'prod eu' -n 'it'\''s' delete pod 'x; reboot'");
    let message = "The disruption budget $(reboot) needs 1 healthy pods";
    let remedy = remedy(&case(BlockReason::DisruptionBudget, message, None));
    assert_eq!(remedy.command, "kubectl -n shop edit pdb '$(reboot)'");
}

#[test]
fn obstacles_are_told_in_short() {
    use BlockReason as Reason;
    for (reason, message, short, common) in [
        (Reason::DisruptionBudget, NUMBERS, "PDB shop/cart needs 3, has 3", "PDB shop/cart"),
        (
            Reason::DisruptionBudget,
            "The disruption budget cart is new.",
            "PDB shop/cart is new",
            "PDB shop/cart",
        ),
        (Reason::DisruptionBudget, "no", "no", "disruption budget in shop"),
        (Reason::Finalizers, "held by a/b", "held by a/b", "finalizers in shop"),
        (Reason::NotEnding, "", "not ending", "not ending in shop"),
    ] {
        assert_eq!(in_short("shop", reason, message), short);
        assert_eq!(obstacle("shop", reason, message), common);
    }
}

#[test]
fn a_permission_that_is_granted_apart_is_granted_by_a_command() {
    let said = Grant::PodDeletion.explain("User \"u\" cannot delete resource \"pods\" in API group \"\"");
    let granted = granting("kubectl --context=c", &said).unwrap();
    assert_eq!(granted.0, "Give nm-reconciler the permission to delete pods");
    assert_eq!(granted.1, "kubectl nm install --grant pod-deletion --context=c");
    assert_eq!(granting("kubectl", "User \"u\" cannot create resource \"pods/eviction\""), None);
}
