//! How to make the disruption controller count the pods of a budget again.

use nm_shared::api::names::RECOUNT_ANNOTATION;
use nm_shared::{BlockReason, BlockedPod, BudgetFacts};

use crate::terminal::command_context::shell_quoted;

/// What follows `kubectl -n NAMESPACE`. It changes the budgets each time that it runs.
pub(super) fn recount(budgets: &str) -> String {
    format!("annotate pdb {budgets} {RECOUNT_ANNOTATION}=\"$(date +%s)\" --overwrite")
}

/// The command for the budgets that are left once no more than one selects the pod; none for other pods.
pub(super) fn of_several(pod: &BlockedPod, kubectl: &str) -> Option<String> {
    let budgets = &pod.facts.budgets;
    (pod.reason == BlockReason::MultipleDisruptionBudgets && !budgets.is_empty())
        .then(|| format!("{kubectl} -n {} {}", shell_quoted(&pod.namespace), recount(&quoted_names(budgets))))
}

/// The names of budgets for a command.
pub(super) fn quoted_names(budgets: &[BudgetFacts]) -> String {
    let names: Vec<_> = budgets.iter().map(|budget| shell_quoted(&budget.name)).collect();
    names.join(" ")
}
