//! The dialog that changes the timeout and the pod selector of a drain.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::Selector;
use nm_core::args::duration;
use nm_core::terminal::command_context::shell_quoted;
use nm_shared::api::pod_selector::PodSelector;
use nm_shared::cluster::selector;
use nm_shared::{DrainSpec, NodeMaintenance};
use serde_json::{Map, Value, json};

use crate::model::text_field::Field;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ChangeField {
    #[default]
    Timeout,
    Selector,
}

/// Which field is invalid, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("timeout: {0}")]
    Timeout(String),
    #[error("pod selector: {0}")]
    Selector(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChangeDialog {
    pub(crate) target: Arc<NodeMaintenance>,
    pub(crate) timeout: Field,
    pub(crate) selector: Field,
    pub(crate) focus: ChangeField,
}

impl ChangeDialog {
    /// A dialog with the present values.
    pub(crate) fn new(target: Arc<NodeMaintenance>) -> Self {
        let spec = target.spec.drain.clone().unwrap_or_default();
        let timeout = Duration::from_secs(spec.timeout_seconds.try_into().unwrap_or(0));
        let timeout = if timeout.is_zero() { String::from("0") } else { duration::show(timeout) };
        Self {
            timeout: Field::new(timeout),
            selector: Field::new(spec.pod_selector.as_deref().map_or_else(String::new, shown)),
            target,
            focus: ChangeField::default(),
        }
    }

    pub(crate) fn field(&mut self) -> &mut Field {
        match self.focus {
            ChangeField::Timeout => &mut self.timeout,
            ChangeField::Selector => &mut self.selector,
        }
    }

    pub(crate) fn switch(&mut self) {
        self.focus = match self.focus {
            ChangeField::Timeout => ChangeField::Selector,
            ChangeField::Selector => ChangeField::Timeout,
        };
    }

    /// The drain as typed.
    pub(crate) fn wanted(&self) -> Result<DrainSpec, ChangeError> {
        let existing = self.target.spec.drain.clone().unwrap_or_default();
        let timeout = self.timeout.text().trim();
        let timeout = if timeout.is_empty() { "0" } else { timeout };
        let timeout = duration::parse(timeout).map_err(ChangeError::Timeout)?;
        let seconds = i64::try_from(timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0));
        let selector = selector::parse(self.selector.text().trim()).map_err(ChangeError::Selector)?;
        let selector = Some(selector).filter(|selector| *selector != LabelSelector::default());
        // The same selector may be written in several ways.
        let same = existing.pod_selector.as_deref().map(shown) == selector.as_ref().map(shown);
        let pod_selector = if same { existing.pod_selector.clone() } else { selector.map(PodSelector::from) };
        Ok(DrainSpec { timeout_seconds: seconds.unwrap_or(i64::MAX), pod_selector, ..existing })
    }

    /// The merge patch that makes the drain as typed; none if nothing was changed, or what is typed is invalid.
    pub(crate) fn patch(&self) -> Option<Value> {
        let existing = self.target.spec.drain.clone().unwrap_or_default();
        let wanted = self.wanted().ok()?;
        let difference = merge_patch(&json!(existing), &json!(wanted));
        let is_changed = difference.as_object().is_some_and(|fields| !fields.is_empty());
        is_changed.then(|| json!({"spec": {"drain": difference}}))
    }

    /// The command that does the same; `kubectl` is kubectl with the connection flags.
    pub(crate) fn command(&self, kubectl: &str) -> Option<String> {
        let patch = self.patch()?.to_string();
        let name = self.target.name_any();
        Some(format!("{kubectl} patch nm {} --type=merge -p {}", shell_quoted(&name), shell_quoted(&patch)))
    }
}

/// A selector as kubectl accepts it.
fn shown(selector: &LabelSelector) -> String {
    Selector::try_from(selector.clone()).map(|selector| selector.to_string()).unwrap_or_default()
}

/// The JSON merge patch (RFC 7386) that makes one value of another.
fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else { return to.clone() };
    let removed = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter(|(key, value)| from.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| {
        (key.clone(), from.get(key).map_or_else(|| value.clone(), |before| merge_patch(before, value)))
    });
    Value::Object(removed.chain(changed).collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::requested;

    use super::*;

    fn dialog(drain: Value) -> ChangeDialog {
        let mut object = requested("n1");
        object.spec.drain = serde_json::from_value(drain).unwrap();
        ChangeDialog::new(Arc::new(object))
    }

    #[test]
    fn the_dialog_begins_with_the_present_values_and_changes_nothing_by_itself() {
        for (drain, timeout, selector) in [
            (Value::Null, "0", ""),
            (json!({"timeoutSeconds": 5400}), "1h30m", ""),
            (json!({"podSelector": {"matchLabels": {"app": "web"}}}), "0", "app=web"),
            (
                json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}}),
                "0",
                "a in (b,c)",
            ),
        ] {
            let dialog = dialog(drain);
            assert_eq!((dialog.timeout.text(), dialog.selector.text()), (timeout, selector));
            assert_eq!((dialog.patch(), dialog.command("kubectl")), (None, None));
        }
    }

    #[test]
    fn the_patch_has_only_what_was_changed_and_removes_labels_that_are_not_wanted_any_more() {
        let web = json!({"timeoutSeconds": 60, "podSelector": {"matchLabels": {"app": "web", "tier": "a"}}});
        for (timeout, selector, patch) in [
            ("1m", "tier=a,app=web", None),
            ("10m", "app=web,tier=a", Some(json!({"timeoutSeconds": 600}))),
            ("", "app=web,tier=a", Some(json!({"timeoutSeconds": 0}))),
            ("1m", "app=db", Some(json!({"podSelector": {"matchLabels": {"app": "db", "tier": null}}}))),
            ("1m", "", Some(json!({"podSelector": null}))),
        ] {
            let mut dialog = dialog(web.clone());
            dialog.timeout = Field::new(timeout);
            dialog.selector = Field::new(selector);
            let patch = patch.map(|drain| json!({"spec": {"drain": drain}}));
            assert_eq!(dialog.patch(), patch, "{timeout} {selector}");
        }
    }

    #[test]
    fn what_is_invalid_is_named_and_not_sent() {
        for (timeout, selector, field) in [("soon", "", "timeout: "), ("0", "a in (", "pod selector: ")] {
            let mut dialog = dialog(Value::Null);
            dialog.timeout = Field::new(timeout);
            dialog.selector = Field::new(selector);
            let why = dialog.wanted().unwrap_err().to_string();
            assert!(why.starts_with(field), "{why}");
            assert_eq!(dialog.patch(), None);
        }
    }
}
