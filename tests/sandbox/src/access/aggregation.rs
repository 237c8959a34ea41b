//! Aggregated `ClusterRoles`: their rules are the rules of all roles that their selectors match.

use serde_json::{Value, json};

use crate::cluster::store::Object;
use crate::model::label_selector::LabelSelector;

/// The rules of an aggregated role, given all roles in the order of their names; none if it aggregates itself.
pub(crate) fn aggregated(role: &Value, all: &[Object]) -> Option<Value> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array()?;
    let mut rules: Vec<&Value> = Vec::new();
    for selector in selectors {
        let selector = LabelSelector::parse(selector);
        for other in all {
            let chosen = other["metadata"]["name"] != role["metadata"]["name"]
                && selector.matches(&other["metadata"]["labels"]);
            if chosen {
                for rule in other["rules"].as_array().into_iter().flatten() {
                    if !rules.contains(&rule) {
                        rules.push(rule);
                    }
                }
            }
        }
    }
    Some(json!(rules))
}
