//! How many nodes may be unavailable at once: a flag of the reconciler, and so read from its Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use nm_shared::line::MaxUnavailable;

/// The labels of the reconciler's Deployment in the manifests.
pub(crate) const LABELS: &str = "app.kubernetes.io/name=kubectl-nm,app.kubernetes.io/component=reconciler";

const FLAG: &str = "--max-unavailable";
const VARIABLE: &str = "NM_MAX_UNAVAILABLE";

/// The limit, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// So many nodes, by this deployment.
    Set(MaxUnavailable, String),
    /// This deployment sets none.
    None(String),
    /// Nobody knows, and why.
    Unknown(String),
}

impl Limit {
    /// The limit, if there is one that is known.
    pub(crate) fn value(&self) -> Option<MaxUnavailable> {
        match self {
            Self::Set(limit, _) => Some(*limit),
            Self::None(_) | Self::Unknown(_) => None,
        }
    }

    /// What the deployments of reconcilers say.
    pub(crate) fn of(deployments: &[Deployment]) -> Self {
        let [deployment] = deployments else {
            return Self::Unknown(match deployments.len() {
                0 => String::from("no deployment has the labels of nm-reconciler"),
                several => format!("{several} deployments have the labels of nm-reconciler"),
            });
        };
        let metadata = &deployment.metadata;
        let name = format!(
            "deployment {}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        );
        let template = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let mut said = template.iter().flat_map(|spec| &spec.containers).filter_map(said_by);
        match said.next() {
            None => Self::None(name),
            Some(text) if text.is_empty() => Self::None(name),
            Some(text) => match text.parse() {
                Ok(limit) => Self::Set(limit, name),
                Err(_) => Self::Unknown(format!("{name} takes it from elsewhere")),
            },
        }
    }
}

/// What a container says of the limit, if anything; `$(NAME)` where it is to be found elsewhere. The flag has precedence
/// over the variable, as in the reconciler.
fn said_by(container: &Container) -> Option<String> {
    let words: Vec<&str> =
        [&container.command, &container.args].into_iter().flatten().flatten().map(String::as_str).collect();
    let flag = words.iter().enumerate().rev().find_map(|(at, word)| match word.strip_prefix(FLAG)? {
        "" => words.get(at + 1).copied(),
        rest => rest.strip_prefix('='),
    });
    if let Some(flag) = flag {
        return Some(flag.to_owned());
    }
    let mut variables = container.env.iter().flatten();
    let variable = variables.find(|variable| variable.name == VARIABLE)?;
    let elsewhere = variable.value_from.is_some().then(|| format!("$({VARIABLE})"));
    Some(elsewhere.or_else(|| variable.value.clone()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(container: &Value) -> Deployment {
        let mut container = container.clone();
        container["name"] = json!("reconciler");
        serde_json::from_value(json!({
            "metadata": {"namespace": "nm", "name": "nm-reconciler"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "sidecar"}, container]}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_limit_is_what_the_deployment_says() {
        let by = || String::from("deployment nm/nm-reconciler");
        let set = |text: &str| Limit::Set(text.parse().unwrap(), by());
        let elsewhere = || Limit::Unknown("deployment nm/nm-reconciler takes it from elsewhere".into());
        let env = |value: Value| json!({"env": [{"name": "X"}, value]});
        for (container, expected) in [
            (json!({}), Limit::None(by())),
            (json!({"args": ["--node-conditions"]}), Limit::None(by())),
            (json!({"args": ["--max-unavailable", "2"]}), set("2")),
            (json!({"args": ["--max-unavailable=10%"]}), set("10%")),
            (json!({"args": ["--max-unavailable=1", "--max-unavailable=3"]}), set("3")),
            (json!({"command": ["nm-reconciler", "--max-unavailable=4"]}), set("4")),
            (env(json!({"name": "NM_MAX_UNAVAILABLE", "value": "5"})), set("5")),
            (env(json!({"name": "NM_MAX_UNAVAILABLE"})), Limit::None(by())),
            (
                json!({"args": ["--max-unavailable=1"], "env": [{"name": "NM_MAX_UNAVAILABLE", "value": "5"}]}),
                set("1"),
            ),
            (json!({"args": ["--max-unavailable=$(LIMIT)"]}), elsewhere()),
            (
                env(json!({"name": "NM_MAX_UNAVAILABLE", "valueFrom": {"configMapKeyRef": {"key": "k"}}})),
                elsewhere(),
            ),
        ] {
            assert_eq!(Limit::of(&[deployment(&container)]), expected, "{container}");
        }
    }

    #[test]
    fn without_one_deployment_nobody_knows() {
        let one = deployment(&json!({}));
        assert!(matches!(Limit::of(&[]), Limit::Unknown(why) if why.starts_with("no deployment")));
        assert!(
            matches!(Limit::of(&[one.clone(), one]), Limit::Unknown(why) if why.starts_with("2 deployments"))
        );
    }
}
