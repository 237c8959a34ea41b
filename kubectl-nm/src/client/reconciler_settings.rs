//! The settings of nm-reconciler in its Deployment, read and written in one place. It is as for the program itself: a flag,
//! in the `command` or the `args` of its container, has precedence over the variable of the same setting.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Who we are in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kubectl-nm";

/// The container of nm-reconciler in the manifests. Others beside it are not ours.
pub(crate) const CONTAINER: &str = "reconciler";

/// The lists of words that make the command line, in its order.
const COMMAND_LINE: [&str; 2] = ["command", "args"];

/// How many nodes may be unavailable at once.
pub(crate) const MAX_UNAVAILABLE: Setting =
    Setting { flag: "--max-unavailable", variable: "NM_MAX_UNAVAILABLE" };

/// Whether it tells on the nodes where their maintenance stands; its flag takes no value.
pub(crate) const NODE_CONDITIONS: Setting =
    Setting { flag: "--node-conditions", variable: "NM_NODE_CONDITIONS" };

/// A setting of nm-reconciler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Its flag.
    flag: &'static str,
    /// Its variable.
    variable: &'static str,
}

/// What a Deployment says of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// Nothing.
    Nothing,
    /// This, as it is written there.
    Value(String),
    /// It is taken from somewhere that the Deployment only names.
    Elsewhere,
}

/// Lists of a container by their names, `command` and `args`.
pub(crate) type Words = BTreeMap<&'static str, Value>;

/// The container of nm-reconciler: the one of its name, or the only one.
pub(crate) fn container(deployment: &Value) -> Option<&Value> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
    let named = containers.iter().find(|container| container["name"] == CONTAINER);
    named.or(match containers.as_slice() {
        [only] => Some(only),
        _ => None,
    })
}

/// The same, to be changed.
pub(crate) fn container_mut(deployment: &mut Value) -> Option<&mut Value> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array_mut()?;
    let named = containers.iter().position(|container| container["name"] == CONTAINER);
    let at = named.or((containers.len() == 1).then_some(0))?;
    containers.get_mut(at)
}

/// The image that nm-reconciler runs.
pub(crate) fn image(deployment: &Value) -> Option<&str> {
    container(deployment)?["image"].as_str()
}

impl Setting {
    /// What the Deployment says of it, in effect.
    pub(crate) fn of(self, deployment: &Value) -> Given {
        let Some(container) = container(deployment) else { return Given::Nothing };
        match self.flag_in(container) {
            Some(flag) => Given::Value(flag.value),
            None => self.variable_in(container),
        }
    }

    /// The same of one whose flag takes no value.
    pub(crate) fn switch_of(self, deployment: &Value) -> Given {
        let Some(container) = container(deployment) else { return Given::Nothing };
        let mut words =
            COMMAND_LINE.into_iter().flat_map(|list| container[list].as_array().into_iter().flatten());
        if words.any(|word| word == self.flag) {
            return Given::Value(String::from("true"));
        }
        self.variable_in(container)
    }

    /// What its variable is set to, whether or not a flag has precedence.
    pub(crate) fn variable_of(self, deployment: &Value) -> Option<String> {
        match self.variable_in(container(deployment)?) {
            Given::Value(value) => Some(value),
            Given::Nothing | Given::Elsewhere => None,
        }
    }

    /// Whether a flag sets it, so that its variable has no effect.
    pub(crate) fn is_flag_of(self, deployment: &Value) -> bool {
        container(deployment).is_some_and(|container| self.flag_in(container).is_some())
    }

    /// The list of the command line in which its flag is, with another value for it; none if it has no flag there, so that
    /// its variable is in effect.
    pub(crate) fn words_with(self, deployment: &Value, value: &str) -> Option<Words> {
        let container = container(deployment)?;
        let flag = self.flag_in(container)?;
        let mut words = container[flag.list].clone();
        words[flag.at] = if flag.is_joined { json!(format!("{}={value}", self.flag)) } else { json!(value) };
        Some(Words::from([(flag.list, words)]))
    }

    /// Sets its variable in a container.
    pub(crate) fn set_variable(self, container: &mut Value, value: &str) {
        if let Some(variables) = container["env"].as_array_mut() {
            variables.retain(|variable| variable["name"] != self.variable);
            variables.push(json!({"name": self.variable, "value": value}));
        }
    }

    /// The last of its flags, which is the one in effect.
    fn flag_in(self, container: &Value) -> Option<Flag> {
        let words: Vec<(&'static str, usize, &str)> = COMMAND_LINE
            .into_iter()
            .flat_map(|list| {
                let words = container[list].as_array().into_iter().flatten().enumerate();
                words.map(move |(at, word)| (list, at, word.as_str().unwrap_or_default()))
            })
            .collect();
        words.iter().enumerate().rev().find_map(|(nth, &(list, at, word))| {
            match word.strip_prefix(self.flag)? {
                "" => words.get(nth + 1).map(|&(list, at, word)| Flag::new(list, at, word, false)),
                rest => rest.strip_prefix('=').map(|value| Flag::new(list, at, value, true)),
            }
        })
    }

    fn variable_in(self, container: &Value) -> Given {
        let mut variables = container["env"].as_array().into_iter().flatten().rev();
        match variables.find(|variable| variable["name"] == self.variable) {
            Some(variable) if !variable["valueFrom"].is_null() => Given::Elsewhere,
            Some(variable) => match variable["value"].as_str() {
                None | Some("") => Given::Nothing,
                Some(value) => Given::Value(value.to_owned()),
            },
            None if container["envFrom"].as_array().is_some_and(|sources| !sources.is_empty()) => {
                Given::Elsewhere
            }
            None => Given::Nothing,
        }
    }
}

/// A flag on a command line.
struct Flag {
    /// The list in which its value is.
    list: &'static str,
    /// Where in it.
    at: usize,
    /// Its value.
    value: String,
    /// Whether flag and value are one word.
    is_joined: bool,
}

impl Flag {
    fn new(list: &'static str, at: usize, value: &str, is_joined: bool) -> Self {
        Self { list, at, value: value.to_owned(), is_joined }
    }
}

/// The lists of the command line that this program has applied, as they are: what it applies no more is removed.
pub(crate) fn applied_words(deployment: &Value) -> Words {
    let managers = deployment["metadata"]["managedFields"].as_array().into_iter().flatten();
    let own = managers
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
        .map(|entry| &entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]);
    let own: Vec<&Value> = own.map(|fields| &fields[format!("k:{{\"name\":\"{CONTAINER}\"}}")]).collect();
    let is_own = |list: &&str| own.iter().any(|fields| !fields[format!("f:{list}")].is_null());
    let Some(container) = container(deployment) else { return Words::new() };
    let lists = COMMAND_LINE.into_iter().filter(is_own).filter(|list| container[*list].is_array());
    lists.map(|list| (list, container[list].clone())).collect()
}

/// Whether a field, as the API server names it in a conflict, is a list of the command line. A conflict about one comes of a
/// setting that somebody asked to change and that has no other place.
pub(crate) fn is_command_line(field: &str) -> bool {
    let rest = field.strip_prefix(&format!(".spec.template.spec.containers[name=\"{CONTAINER}\"]."));
    rest.is_some_and(|list| COMMAND_LINE.contains(&list))
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
    fn a_setting_is_what_is_in_effect_in_the_container_of_nm_reconciler() {
        let value = |text: &str| Given::Value(text.to_owned());
        let variable = |what: &str, value: Value| json!({"env": [{"name": "X"}, {"name": "NM_MAX_UNAVAILABLE", what: value}]});
        for (container, expected) in [
            (json!({}), Given::Nothing),
            (json!({"args": ["--node-conditions", "--max-unavailable-else=3"]}), Given::Nothing),
            (json!({"args": ["--max-unavailable", "2"]}), value("2")),
            (json!({"args": ["--max-unavailable=10%"]}), value("10%")),
            (json!({"args": ["--max-unavailable=1", "--max-unavailable=3"]}), value("3")),
            (json!({"command": ["nm-reconciler", "--max-unavailable=4"]}), value("4")),
            (json!({"command": ["nm-reconciler", "--max-unavailable"], "args": ["4"]}), value("4")),
            (json!({"args": ["--max-unavailable=$(LIMIT)"]}), value("$(LIMIT)")),
            (variable("value", json!("5")), value("5")),
            (variable("value", Value::Null), Given::Nothing),
            (variable("valueFrom", json!({"configMapKeyRef": {"key": "k"}})), Given::Elsewhere),
            (json!({"envFrom": [{"configMapRef": {"name": "x"}}]}), Given::Elsewhere),
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
        assert_eq!((container(&nameless), MAX_UNAVAILABLE.of(&nameless)), (None, Given::Nothing));
        let only = json!({"name": "c", "image": "nm:1"});
        let alone = json!({"spec": {"template": {"spec": {"containers": [only]}}}});
        assert_eq!(container(&alone), Some(&only));
    }

    #[test]
    fn a_flag_is_changed_where_it_is_and_the_words_around_it_stay() {
        let changed = |container: &Value| MAX_UNAVAILABLE.words_with(&deployment(container), "5");
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
            assert_eq!(changed(&container), Some(Words::from([(list, words)])), "{container}");
        }
        assert_eq!(changed(&json!({"env": [{"name": "NM_MAX_UNAVAILABLE", "value": "5"}]})), None);
    }

    #[test]
    fn what_we_have_applied_of_a_command_line_is_known() {
        let mut deployment = deployment(&json!({"args": ["-a"], "command": ["nm-reconciler"]}));
        let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"reconciler\"}": {".": {}, "f:args": {}, "f:image": {}}}}}}});
        let entry = |manager: &str| json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
        deployment["metadata"] = json!({"managedFields": entry("kubectl-nm")});
        assert_eq!(applied_words(&deployment), Words::from([("args", json!(["-a"]))]));
        deployment["metadata"] = json!({"managedFields": entry("helm")});
        assert_eq!(applied_words(&deployment), Words::new());
        assert!(is_command_line(".spec.template.spec.containers[name=\"reconciler\"].args"));
        for other in [".spec.replicas", ".spec.template.spec.containers[name=\"proxy\"].args"] {
            assert!(!is_command_line(other), "{other}");
        }
    }
}
