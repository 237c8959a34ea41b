//! The opened node of a roll, as `explain` reports it.

use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::explanation::all_causes;
use nm_core::leader::Reconcilers;
use nm_core::maintenance::headline;

use crate::roll::model::RollModel;

impl RollModel {
    /// Its state, and all causes with what to do; and the first line that is shown.
    pub(crate) fn opened_lines(&self) -> Option<(Vec<String>, usize)> {
        let (node, top) = self.opened.as_ref()?;
        let maintenance = self.maintenances.get(node)?;
        let mut lines = vec![format!("{node}: {}", headline(maintenance))];
        let known = ClusterFacts::of_maintenances(self.maintenances.values().map(AsRef::as_ref));
        let facts = self.facts.as_deref().unwrap_or(&known);
        let leadership = self.leader_gap.as_ref().map(|gap| gap.leadership(self.now)).unwrap_or_default();
        let reconcilers = Reconcilers { leadership, ..Reconcilers::default() };
        let mut all = all_causes(maintenance, &reconcilers, facts, &self.kubectl, self.now);
        if self.asked.as_ref() == Some(node) {
            lines.push(String::new());
            lines.push(String::from("The roll waits until you confirm that it continues with this node."));
            lines.push(String::from("Answer the question below."));
            // What the drain has done matters for the answer. What the node waits for is said.
            all.retain(|cause| cause.is_outage);
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
