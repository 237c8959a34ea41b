//! The opened node of a roll, and the one that the line below the rows explains, as `explain` reports them.

use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::explanation::all_causes;
use nm_core::explain::remedy::Remedy;
use nm_core::leader::Reconcilers;
use nm_core::maintenance::headline;
use nm_core::maintenance::roll::RollRunners;

use crate::model::panes::advice::{remedy_of_blocked, remedy_of_causes};
use crate::roll::model::RollModel;
use crate::roll::row::{RollRow, RowState};

impl RollModel {
    /// The node whose causes are shown: the opened one, or the blocked one that the line below the rows explains.
    pub(super) fn explained_node(&self) -> Option<&str> {
        let opened = self.opened.as_ref().map(|(node, _)| node.as_str());
        let shown = || self.told_row().filter(|row| row.state == RowState::Blocked);
        opened.or_else(|| Some(shown()?.progress.node.as_str()))
    }

    /// The row that the line below the rows is about: the selected one, or else the first that is blocked, or else the first that is
    /// under way.
    pub(super) fn told_row(&self) -> Option<&RollRow> {
        let blocked = || self.rows.iter().find(|row| row.state == RowState::Blocked);
        let selected = self.selected().map(|at| &self.rows[at]);
        selected.or_else(blocked).or_else(|| self.rows.get(self.focus()?))
    }

    /// Takes what the causes of a node depend on, if it is still explained.
    pub(crate) fn learn(&mut self, node: &str, mut facts: Box<ClusterFacts>) {
        if self.explained.node == node {
            // The maintenances may have changed since the read began.
            facts.note_maintenances(self.maintenances.values().map(AsRef::as_ref));
            self.explained.facts = Some(facts);
        }
    }

    /// What blocks a node, and what to do about it, as the dashboard of maintenances shows them.
    pub(crate) fn remedy(&self, node: &str) -> Option<(String, Remedy)> {
        if let Some(facts) = self.explained.facts.as_deref().filter(|_| self.explained.node == node) {
            let maintenance = self.maintenances.get(node)?;
            let causes = all_causes(maintenance, &self.reconcilers(), facts, &self.kubectl, self.now);
            if let Some(advice) = remedy_of_causes(maintenance, &causes) {
                return Some((advice.why, advice.remedy));
            }
        }
        let rolls = RollRunners::of(self.maintenances.values().map(AsRef::as_ref));
        remedy_of_blocked(self.maintenances.get(node)?, &rolls, &self.kubectl, self.now)
    }

    /// Whether a reconciler leads.
    pub(super) fn reconcilers(&self) -> Reconcilers {
        let leadership = self.leader_gap.as_ref().map(|gap| gap.leadership(self.now)).unwrap_or_default();
        Reconcilers { leadership, ..Reconcilers::default() }
    }

    /// Its state, and all causes with what to do; and the first line that is shown.
    pub(crate) fn opened_lines(&self) -> Option<(Vec<String>, usize)> {
        let (node, top) = self.opened.as_ref()?;
        let maintenance = self.maintenances.get(node)?;
        let mut lines = vec![format!("{node}: {}", headline(maintenance))];
        let known = ClusterFacts::of_maintenances(self.maintenances.values().map(AsRef::as_ref));
        let facts = self.explained.facts.as_deref().unwrap_or(&known);
        let mut all = all_causes(maintenance, &self.reconcilers(), facts, &self.kubectl, self.now);
        if self.asked.as_ref() == Some(node) {
            lines.push(String::new());
            lines.push(String::from("The roll waits until you confirm that it continues with this node."));
            lines.push(String::from("Answer the question below."));
            // That it waits for the answer is said. The rest matters for the answer.
            all.retain(|cause| !cause.passes());
        } else if all.is_empty() {
            lines.push(String::from("Nothing is blocked."));
        }
        for cause in all {
            lines.push(String::new());
            lines.extend(cause.what);
            lines.extend(cause.unseen);
            if !cause.pods.is_empty() {
                lines.push(format!("Pods: {}", cause.pods.join(", ")));
            }
            if !cause.advice.is_empty() {
                lines.push(format!("{}.", cause.advice.trim_end_matches('.')));
            }
            lines.extend(cause.commands.into_iter().map(|command| format!("  {command}")));
        }
        Some((lines, *top))
    }
}
