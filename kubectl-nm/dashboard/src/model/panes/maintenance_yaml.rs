//! A maintenance as YAML, for the side pane.

use kube::ResourceExt;
use nm_shared::NodeMaintenance;

const MAX_PENDING_PODS: usize = 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// The uid and the version of the object.
    made_from: Option<(String, String)>,
    pub(crate) lines: Vec<String>,
}

impl Document {
    /// Updates the YAML, if the object has changed.
    pub(crate) fn refresh(&mut self, maintenance: Option<&NodeMaintenance>) {
        let version = maintenance
            .map(|object| (object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default()));
        if self.made_from == version && !self.lines.is_empty() {
            return;
        }
        self.lines = maintenance.map_or_else(|| vec![String::from("not in maintenance")], written);
        self.made_from = version;
    }
}

fn written(maintenance: &NodeMaintenance) -> Vec<String> {
    let mut shown = maintenance.clone();
    // Managed fields, and thousands of pending pods, would bury everything else.
    shown.metadata.managed_fields = None;
    let mut skipped = 0;
    if let Some(status) = &mut shown.status {
        skipped = status.pending_pods.len().saturating_sub(MAX_PENDING_PODS);
        status.pending_pods.truncate(MAX_PENDING_PODS);
        status.pending_pods_refs.truncate(MAX_PENDING_PODS);
    }
    let mut lines: Vec<String> = match serde_saphyr::to_string(&shown) {
        Ok(text) => text.lines().map(str::to_owned).collect(),
        Err(error) => vec![format!("# cannot be written as YAML: {error}")],
    };
    if skipped > 0 {
        lines.push(format!("# {skipped} more pendingPods and pendingPodsRefs are left out here"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::{requested, with_status};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_yaml_is_updated_when_the_version_changes() {
        let mut document = Document::default();
        document.refresh(None);
        assert_eq!(document.lines, ["not in maintenance"]);
        let mut object = requested("n1");
        document.refresh(Some(&object));
        assert_eq!(document.lines[0], "apiVersion: nodemaintenance.medik8s.io/v1beta1");
        object.spec.reason = Some("new kernel".into());
        document.refresh(Some(&object));
        assert!(!document.lines.join("\n").contains("new kernel"), "the version is the same");
        object.metadata.resource_version = Some("2".into());
        document.refresh(Some(&object));
        assert!(document.lines.join("\n").contains("reason: new kernel"));
    }

    #[test]
    fn a_long_list_of_pods_is_cut_with_a_note() {
        let pods: Vec<String> = (0..10_000).map(|i| format!("p{i}")).collect();
        let mut document = Document::default();
        document.refresh(Some(&with_status("n1", json!({"phase": "Running", "pendingPods": pods}))));
        assert!(document.lines.len() < 100, "{}", document.lines.len());
        assert!(document.lines.last().unwrap().starts_with("# 9980 more"));
    }
}
