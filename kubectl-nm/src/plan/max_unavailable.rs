//! How many nodes may be unavailable at once: a flag of the reconciler, and so read from its Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;

use crate::client::reconciler_deployment::{self, MAX_UNAVAILABLE, SettingValue};

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
        let deployment = serde_json::to_value(deployment).unwrap_or_default();
        if reconciler_deployment::container(&deployment).is_none() {
            return Self::Unknown(format!("{name} has no container reconciler"));
        }
        let elsewhere = || Self::Unknown(format!("{name} takes it from elsewhere"));
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
    fn the_limit_is_what_the_deployment_says() {
        let by = || String::from("deployment nm/nm-reconciler");
        let set = |text: &str| Limit::Set(text.parse().unwrap(), by());
        let elsewhere = || Limit::Unknown("deployment nm/nm-reconciler takes it from elsewhere".into());
        let env = |value: Value| json!({"env": [{"name": "X"}, value]});
        for (container, expected) in [
            (json!({}), Limit::None(by())),
            (json!({"args": ["--max-unavailable", "2"]}), set("2")),
            (env(json!({"name": "NM_MAX_UNAVAILABLE", "value": "5"})), set("5")),
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
    fn without_its_container_nobody_knows() {
        let mut other = deployment(&json!({"args": ["--max-unavailable=1"]}));
        other.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[1].name = "main".into();
        let why = "deployment nm/nm-reconciler has no container reconciler";
        assert_eq!(Limit::of(&[other]), Limit::Unknown(why.into()));
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
