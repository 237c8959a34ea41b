//! nm-reconciler's Deployment: its labels, its container and its settings.
//!
//! Settings are read as nm-reconciler does: a flag, in the `command` or the `args` of its container, takes precedence over
//! the environment variable of the same setting.

use serde_json::{Value, json};

/// Field manager of what `kubectl nm` applies.
pub const FIELD_MANAGER: &str = "kubectl-nm";

/// The label that all installed objects have, and its value.
pub const NAME_LABEL: (&str, &str) = ("app.kubernetes.io/name", "kubectl-nm");

/// Selector of nm-reconciler's Deployment and its pods.
pub const LABEL_SELECTOR: &str = "app.kubernetes.io/name=kubectl-nm,app.kubernetes.io/component=reconciler";

/// The name of the medik8s operator's Deployment, or its prefix (`config/default/kustomization.yaml` in its sources, and the
/// hyperconverged cluster operator's).
pub const OTHER_OPERATOR: &str = "node-maintenance-operator";

/// The container of nm-reconciler in the manifests. Others may add containers.
pub const CONTAINER: &str = "reconciler";

const COMMAND_LINE_FIELDS: [&str; 2] = ["command", "args"];

/// Limit of the nodes that may be unavailable at once, as a number or a percentage; further maintenances are queued.
pub const MAX_UNAVAILABLE: Setting = Setting { flag: "--max-unavailable", variable: "NM_MAX_UNAVAILABLE" };

/// Whether it writes conditions to nodes. The flag takes no value.
pub const NODE_CONDITIONS: Setting = Setting { flag: "--node-conditions", variable: "NM_NODE_CONDITIONS" };

/// Whether etcd runs outside of the cluster. The flag takes no value.
pub(crate) const EXTERNAL_ETCD: Setting = Setting { flag: "--external-etcd", variable: "NM_EXTERNAL_ETCD" };

/// A setting of nm-reconciler: its flag, and the environment variable with the same meaning.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    flag: &'static str,
    variable: &'static str,
}

/// Effective value of a [`Setting`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// Neither a flag nor a variable sets it, so nm-reconciler uses its default.
    Unset,
    /// Value of the flag or the variable; `true` for a flag without a value.
    Value(String),
    /// It comes from another object, such as a `ConfigMap`.
    Elsewhere,
}

/// The container of nm-reconciler: the one with its name, or the only one.
pub fn container(deployment: &Value) -> Option<&Value> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
    let named = containers.iter().find(|container| container["name"] == CONTAINER);
    named.or(match containers.as_slice() {
        [only] => Some(only),
        _ => None,
    })
}

/// The same container as [`container`], for changes.
pub fn container_mut(deployment: &mut Value) -> Option<&mut Value> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array_mut()?;
    let named = containers.iter().position(|container| container["name"] == CONTAINER);
    let at = named.or((containers.len() == 1).then_some(0))?;
    containers.get_mut(at)
}

/// Image of nm-reconciler's container.
pub fn image(deployment: &Value) -> Option<&str> {
    container(deployment)?["image"].as_str()
}

impl Setting {
    /// The effective value in a Deployment.
    pub(crate) fn of(self, deployment: &Value) -> SettingValue {
        let Some(container) = container(deployment) else { return SettingValue::Unset };
        match self.flag_in(container) {
            Some(value) => SettingValue::Value(value.to_owned()),
            None => self.variable_in(container),
        }
    }

    /// The effective value in a Deployment, for a flag without a value.
    pub fn switch_of(self, deployment: &Value) -> SettingValue {
        let Some(container) = container(deployment) else { return SettingValue::Unset };
        let mut words =
            COMMAND_LINE_FIELDS.into_iter().flat_map(|list| container[list].as_array().into_iter().flatten());
        if words.any(|word| word == self.flag) {
            return SettingValue::Value(String::from("true"));
        }
        self.variable_in(container)
    }

    /// The value of the variable, whether or not a flag takes precedence.
    pub fn variable_of(self, deployment: &Value) -> Option<String> {
        match self.variable_in(container(deployment)?) {
            SettingValue::Value(value) => Some(value),
            SettingValue::Unset | SettingValue::Elsewhere => None,
        }
    }

    /// Whether a flag sets it, so that the variable has no effect.
    pub fn is_flag_of(self, deployment: &Value) -> bool {
        container(deployment).is_some_and(|container| self.flag_in(container).is_some())
    }

    /// Sets the variable in a container. Does nothing if the container has no `env` list.
    pub fn set_variable(self, container: &mut Value, value: &str) {
        if let Some(variables) = container["env"].as_array_mut() {
            variables.retain(|variable| variable["name"] != self.variable);
            variables.push(json!({"name": self.variable, "value": value}));
        }
    }

    /// The value of the last occurrence of the flag, which takes effect.
    fn flag_in(self, container: &Value) -> Option<&str> {
        let lists =
            COMMAND_LINE_FIELDS.into_iter().flat_map(|list| container[list].as_array().into_iter().flatten());
        let words: Vec<&str> = lists.map(|word| word.as_str().unwrap_or_default()).collect();
        words.iter().enumerate().rev().find_map(|(at, word)| match word.strip_prefix(self.flag)? {
            "" => words.get(at + 1).copied(),
            rest => rest.strip_prefix('='),
        })
    }

    fn variable_in(self, container: &Value) -> SettingValue {
        let mut variables = container["env"].as_array().into_iter().flatten().rev();
        match variables.find(|variable| variable["name"] == self.variable) {
            Some(variable) if !variable["valueFrom"].is_null() => SettingValue::Elsewhere,
            Some(variable) => match variable["value"].as_str() {
                None | Some("") => SettingValue::Unset,
                Some(value) => SettingValue::Value(value.to_owned()),
            },
            None if container["envFrom"].as_array().is_some_and(|sources| !sources.is_empty()) => {
                SettingValue::Elsewhere
            }
            None => SettingValue::Unset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(container: &Value) -> Value {
        let mut container = container.clone();
        container["name"] = json!(CONTAINER);
        let sidecar = json!({"name": "sidecar", "image": "proxy:1", "args": ["--max-unavailable=9"],
            "env": [{"name": "NM_MAX_UNAVAILABLE", "value": "8"}]});
        json!({"spec": {"template": {"spec": {"containers": [sidecar, container]}}}})
    }

    #[test]
    fn a_setting_has_the_effective_value_in_the_container_of_nm_reconciler() {
        let value = |text: &str| SettingValue::Value(text.to_owned());
        let variable = |what: &str, value: Value| json!({"env": [{"name": "X"}, {"name": "NM_MAX_UNAVAILABLE", what: value}]});
        for (container, expected) in [
            (json!({}), SettingValue::Unset),
            (json!({"args": ["--node-conditions", "--max-unavailable-else=3"]}), SettingValue::Unset),
            (json!({"args": ["--max-unavailable", "2"]}), value("2")),
            (json!({"args": ["--max-unavailable=10%"]}), value("10%")),
            (json!({"args": ["--max-unavailable=1", "--max-unavailable=3"]}), value("3")),
            (json!({"command": ["nm-reconciler", "--max-unavailable=4"]}), value("4")),
            (json!({"command": ["nm-reconciler", "--max-unavailable"], "args": ["4"]}), value("4")),
            (json!({"args": ["--max-unavailable=$(LIMIT)"]}), value("$(LIMIT)")),
            (variable("value", json!("5")), value("5")),
            (variable("value", Value::Null), SettingValue::Unset),
            (variable("valueFrom", json!({"configMapKeyRef": {"key": "k"}})), SettingValue::Elsewhere),
            (json!({"envFrom": [{"configMapRef": {"name": "x"}}]}), SettingValue::Elsewhere),
            (
                json!({"args": ["--max-unavailable=1"], "env": [{"name": "NM_MAX_UNAVAILABLE", "value": "5"}]}),
                value("1"),
            ),
        ] {
            assert_eq!(MAX_UNAVAILABLE.of(&deployment(&container)), expected, "{container}");
        }
    }

    #[test]
    fn other_containers_are_not_read() {
        assert_eq!(image(&deployment(&json!({"image": "nm:1"}))), Some("nm:1"));
        let mut nameless = deployment(&json!({}));
        nameless["spec"]["template"]["spec"]["containers"][1]["name"] = json!("main");
        assert_eq!((container(&nameless), MAX_UNAVAILABLE.of(&nameless)), (None, SettingValue::Unset));
        let only = json!({"name": "c", "image": "nm:1"});
        let alone = json!({"spec": {"template": {"spec": {"containers": [only]}}}});
        assert_eq!(container(&alone), Some(&only));
    }
}
