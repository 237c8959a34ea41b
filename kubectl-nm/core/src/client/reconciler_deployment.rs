//! nm-reconciler's Deployment: its labels, its container and its settings.
//!
//! Settings are read as nm-reconciler does: a flag, in the `command` or the `args` of its container, takes precedence over
//! the environment variable of the same setting.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Field manager of what `kubectl nm` applies.
pub const FIELD_MANAGER: &str = "kubectl-nm";

/// The label that all installed objects have, and its value.
pub const NAME_LABEL: (&str, &str) = ("app.kubernetes.io/name", "kubectl-nm");

/// Selector of nm-reconciler's Deployment and its pods.
pub const LABEL_SELECTOR: &str = "app.kubernetes.io/name=kubectl-nm,app.kubernetes.io/component=reconciler";

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

/// The command line of a container: `command` and `args` by name.
pub type CommandLine = BTreeMap<&'static str, Value>;

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
            Some(flag) => SettingValue::Value(flag.value),
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

    /// The field of the command line that contains the flag, with another value for it; `None` if no flag sets it.
    pub fn command_line_with(self, deployment: &Value, value: &str) -> Option<CommandLine> {
        let container = container(deployment)?;
        let flag = self.flag_in(container)?;
        let mut words = container[flag.list].clone();
        words[flag.at] = if flag.is_joined { json!(format!("{}={value}", self.flag)) } else { json!(value) };
        Some(CommandLine::from([(flag.list, words)]))
    }

    /// Sets the variable in a container. Does nothing if the container has no `env` list.
    pub fn set_variable(self, container: &mut Value, value: &str) {
        if let Some(variables) = container["env"].as_array_mut() {
            variables.retain(|variable| variable["name"] != self.variable);
            variables.push(json!({"name": self.variable, "value": value}));
        }
    }

    /// The last occurrence of the flag, which takes effect.
    fn flag_in(self, container: &Value) -> Option<FlagOccurrence> {
        let words: Vec<(&'static str, usize, &str)> = COMMAND_LINE_FIELDS
            .into_iter()
            .flat_map(|list| {
                let words = container[list].as_array().into_iter().flatten().enumerate();
                words.map(move |(at, word)| (list, at, word.as_str().unwrap_or_default()))
            })
            .collect();
        words.iter().enumerate().rev().find_map(|(nth, &(list, at, word))| {
            match word.strip_prefix(self.flag)? {
                "" => words.get(nth + 1).map(|&(list, at, word)| FlagOccurrence::new(list, at, word, false)),
                rest => rest.strip_prefix('=').map(|value| FlagOccurrence::new(list, at, value, true)),
            }
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

struct FlagOccurrence {
    /// The field that contains the value.
    list: &'static str,
    at: usize,
    value: String,
    /// Whether flag and value are one word, joined by `=`.
    is_joined: bool,
}

impl FlagOccurrence {
    fn new(list: &'static str, at: usize, value: &str, is_joined: bool) -> Self {
        Self { list, at, value: value.to_owned(), is_joined }
    }
}

/// The fields of the command line that this program has applied before. Server-side apply removes those that are left out.
pub fn applied_command_line(deployment: &Value) -> CommandLine {
    let managers = deployment["metadata"]["managedFields"].as_array().into_iter().flatten();
    let own = managers
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
        .map(|entry| &entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]);
    let own: Vec<&Value> = own.map(|fields| &fields[format!("k:{{\"name\":\"{CONTAINER}\"}}")]).collect();
    let is_own = |list: &&str| own.iter().any(|fields| !fields[format!("f:{list}")].is_null());
    let Some(container) = container(deployment) else { return CommandLine::new() };
    let lists = COMMAND_LINE_FIELDS.into_iter().filter(is_own).filter(|list| container[*list].is_array());
    lists.map(|list| (list, container[list].clone())).collect()
}

/// Whether a field, as the API server names it in a conflict, belongs to the command line. It is applied only if the user
/// changes a setting that is a flag there.
pub fn is_command_line(field: &str) -> bool {
    let rest = field.strip_prefix(&format!(".spec.template.spec.containers[name=\"{CONTAINER}\"]."));
    rest.is_some_and(|list| COMMAND_LINE_FIELDS.contains(&list))
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

    #[test]
    fn a_flag_is_changed_in_place() {
        let changed = |container: &Value| MAX_UNAVAILABLE.command_line_with(&deployment(container), "5");
        for (container, list, words) in [
            (
                json!({"args": ["-a", "--max-unavailable=2", "-b"]}),
                "args",
                json!(["-a", "--max-unavailable=5", "-b"]),
            ),
            (
                json!({"args": ["--max-unavailable", "2", "-b"]}),
                "args",
                json!(["--max-unavailable", "5", "-b"]),
            ),
            (
                json!({"command": ["nm-reconciler", "--max-unavailable=2"], "args": ["-a"]}),
                "command",
                json!(["nm-reconciler", "--max-unavailable=5"]),
            ),
        ] {
            assert_eq!(changed(&container), Some(CommandLine::from([(list, words)])), "{container}");
        }
        assert_eq!(changed(&json!({"env": [{"name": "NM_MAX_UNAVAILABLE", "value": "5"}]})), None);
    }

    #[test]
    fn the_applied_command_line_is_found_in_managed_fields() {
        let mut deployment = deployment(&json!({"args": ["-a"], "command": ["nm-reconciler"]}));
        let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"reconciler\"}": {".": {}, "f:args": {}, "f:image": {}}}}}}});
        let entry = |manager: &str| json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
        deployment["metadata"] = json!({"managedFields": entry("kubectl-nm")});
        assert_eq!(applied_command_line(&deployment), CommandLine::from([("args", json!(["-a"]))]));
        deployment["metadata"] = json!({"managedFields": entry("helm")});
        assert_eq!(applied_command_line(&deployment), CommandLine::new());
        assert!(is_command_line(".spec.template.spec.containers[name=\"reconciler\"].args"));
        for other in [".spec.replicas", ".spec.template.spec.containers[name=\"proxy\"].args"] {
            assert!(!is_command_line(other), "{other}");
        }
    }
}
