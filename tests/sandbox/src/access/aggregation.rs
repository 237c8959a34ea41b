//! `ClusterRoles` that are made of others: their rules are those of every role that their selectors choose.

use serde_json::{Value, json};

use crate::cluster::store::Object;
use crate::model::label_selector::LabelSelector;

/// The rules that a role should have, given all roles in the order of their names; none where it is made of itself.
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
