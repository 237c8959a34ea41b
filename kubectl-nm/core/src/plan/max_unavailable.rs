//! The flag `--max-unavailable` of the reconciler, read from its Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;

use crate::client::reconciler_deployment::{self, MAX_UNAVAILABLE, SettingValue};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MaxUnavailableLimit {
    /// This many nodes, set by this Deployment.
    Set(MaxUnavailable, String),
    None(String),
    Unknown(String),
}

impl MaxUnavailableLimit {
    pub(crate) fn value(&self) -> Option<MaxUnavailable> {
        match self {
            Self::Set(limit, _) => Some(*limit),
            Self::None(_) | Self::Unknown(_) => None,
        }
    }

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
        let deployment = serde_json::to_value(deployment).unwrap_or_default();
        if reconciler_deployment::container(&deployment).is_none() {
            return Self::Unknown(format!("{name} has no container reconciler"));
        }
        let elsewhere = || Self::Unknown(format!("{name} sets it from another source"));
        match MAX_UNAVAILABLE.of(&deployment) {
            SettingValue::Unset => Self::None(name),
            SettingValue::Elsewhere => elsewhere(),
            SettingValue::Value(text) => {
                text.parse().map_or_else(|_| elsewhere(), |limit| Self::Set(limit, name.clone()))
            }
        }
    }
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
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "sidecar", "args": ["--max-unavailable=9"]}, container]}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_limit_is_read_from_the_deployment() {
        let by = || String::from("deployment nm/nm-reconciler");
        let set = |text: &str| MaxUnavailableLimit::Set(text.parse().unwrap(), by());
        let elsewhere =
            || MaxUnavailableLimit::Unknown("deployment nm/nm-reconciler sets it from another source".into());
        let env = |value: Value| json!({"env": [{"name": "X"}, value]});
        for (container, expected) in [
            (json!({}), MaxUnavailableLimit::None(by())),
            (json!({"args": ["--max-unavailable", "2"]}), set("2")),
            (env(json!({"name": "NM_MAX_UNAVAILABLE", "value": "5"})), set("5")),
            (json!({"args": ["--max-unavailable=$(LIMIT)"]}), elsewhere()),
            (
                env(json!({"name": "NM_MAX_UNAVAILABLE", "valueFrom": {"configMapKeyRef": {"key": "k"}}})),
                elsewhere(),
            ),
        ] {
            assert_eq!(MaxUnavailableLimit::of(&[deployment(&container)]), expected, "{container}");
        }
    }

    #[test]
    fn without_the_container_the_limit_is_unknown() {
        let mut other = deployment(&json!({"args": ["--max-unavailable=1"]}));
        other.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[1].name = "main".into();
        let why = "deployment nm/nm-reconciler has no container reconciler";
        assert_eq!(MaxUnavailableLimit::of(&[other]), MaxUnavailableLimit::Unknown(why.into()));
    }

    #[test]
    fn without_exactly_one_deployment_the_limit_is_unknown() {
        let one = deployment(&json!({}));
        assert!(
            matches!(MaxUnavailableLimit::of(&[]), MaxUnavailableLimit::Unknown(why) if why.starts_with("no deployment"))
        );
        assert!(
            matches!(MaxUnavailableLimit::of(&[one.clone(), one]), MaxUnavailableLimit::Unknown(why) if why.starts_with("2 deployments"))
        );
    }
}
