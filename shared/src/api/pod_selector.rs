//! The label selectors in `spec.drain`: how large they may be, and what they match.
//!
//! Whoever may create a maintenance chooses them, and they are evaluated for each pod with every reconcile. So their size is
//! limited by the schema, and a selector is compiled once for each version of its object: clones share the result. An object
//! that is older than the limits keeps its selector.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// How many labels a selector may name in `matchLabels`, and how many requirements it may have in `matchExpressions`.
pub const MAX_REQUIREMENTS: usize = 16;

/// How many values a requirement may have.
pub const MAX_VALUES: usize = 32;

/// The longest key of a label: a prefix of 253 characters, a slash and a name.
const MAX_KEY_LENGTH: usize = 317;

/// The longest value of a label.
const MAX_VALUE_LENGTH: usize = 63;

/// The longest operator, `DoesNotExist`.
const MAX_OPERATOR_LENGTH: usize = 12;

/// A label selector of pods.
#[derive(Debug, Clone, Default)]
pub struct PodSelector(Arc<SharedSelector>);

#[derive(Debug, Default)]
struct SharedSelector {
    labels: LabelSelector,
    /// The selector, or why it is not valid.
    compiled: OnceLock<Result<Selector, String>>,
}

impl PodSelector {
    /// Whether it matches a pod with these labels. One that is not valid matches none.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.compiled().is_ok_and(|compiled| compiled.matches(labels))
    }

    /// Whether it is valid.
    ///
    /// # Errors
    /// With a sentence, if it is not.
    pub fn validate(&self) -> Result<(), &str> {
        self.compiled().map(|_| ())
    }

    fn compiled(&self) -> Result<&Selector, &str> {
        let compile = || Selector::try_from(self.0.labels.clone()).map_err(|error| error.to_string());
        self.0.compiled.get_or_init(compile).as_ref().map_err(String::as_str)
    }
}

impl From<LabelSelector> for PodSelector {
    fn from(labels: LabelSelector) -> Self {
        Self(Arc::new(SharedSelector { labels, compiled: OnceLock::new() }))
    }
}

impl Deref for PodSelector {
    type Target = LabelSelector;

    fn deref(&self) -> &LabelSelector {
        &self.0.labels
    }
}

impl PartialEq for PodSelector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.labels == other.0.labels
    }
}

impl Serialize for PodSelector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.labels.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PodSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        LabelSelector::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for PodSelector {
    fn schema_name() -> Cow<'static, str> {
        "PodSelector".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Value::from(LabelSelector::json_schema(generator));
        let mut limit = |path: &str, limits: Value| {
            if let (Some(Value::Object(found)), Value::Object(limits)) = (schema.pointer_mut(path), limits) {
                found.extend(limits);
            }
        };
        let rule = json!({"rule": format!("self.all(key, size(key) <= {MAX_KEY_LENGTH})"),
            "message": format!("the keys may have up to {MAX_KEY_LENGTH} characters")});
        let labels = json!({"maxProperties": MAX_REQUIREMENTS, "x-kubernetes-validations": [rule]});
        limit("/properties/matchLabels", labels);
        limit("/properties/matchLabels/additionalProperties", json!({"maxLength": MAX_VALUE_LENGTH}));
        limit("/properties/matchExpressions", json!({"maxItems": MAX_REQUIREMENTS}));
        let requirement = "/properties/matchExpressions/items/properties";
        limit(&format!("{requirement}/key"), json!({"maxLength": MAX_KEY_LENGTH}));
        limit(&format!("{requirement}/operator"), json!({"maxLength": MAX_OPERATOR_LENGTH}));
        limit(&format!("{requirement}/values"), json!({"maxItems": MAX_VALUES}));
        limit(&format!("{requirement}/values/items"), json!({"maxLength": MAX_VALUE_LENGTH}));
        Schema::try_from(schema).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd::crd;

    #[test]
    fn a_selector_is_compiled_once_for_all_clones_of_its_object() {
        let selector: PodSelector =
            serde_json::from_value(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}))
                .unwrap();
        let clone = selector.clone();
        assert!(clone.matches(&BTreeMap::from([("app".to_owned(), "web".to_owned())])));
        assert!(!clone.matches(&BTreeMap::new()));
        assert!(selector.0.compiled.get().is_some());
        let invalid: PodSelector =
            serde_json::from_value(json!({"matchExpressions": [{"key": "app", "operator": "Near"}]}))
                .unwrap();
        assert!(invalid.validate().is_err() && !invalid.matches(&BTreeMap::new()));
        assert!(PodSelector::default().matches(&BTreeMap::new()));
    }

    #[test]
    fn the_definition_limits_each_part_of_a_selector() {
        let crd = serde_json::to_value(crd()).unwrap();
        let drain = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            ["drain"];
        for selector in [
            &drain["properties"]["podSelector"]["properties"],
            &drain["properties"]["waitForCompletion"]["properties"]["podSelector"]["properties"],
        ] {
            let requirement = &selector["matchExpressions"]["items"]["properties"];
            for (limit, expected) in [
                (&selector["matchLabels"]["additionalProperties"]["maxLength"], MAX_VALUE_LENGTH),
                (&selector["matchExpressions"]["maxItems"], MAX_REQUIREMENTS),
                (&requirement["key"]["maxLength"], MAX_KEY_LENGTH),
                (&requirement["operator"]["maxLength"], MAX_OPERATOR_LENGTH),
                (&requirement["values"]["maxItems"], MAX_VALUES),
                (&requirement["values"]["items"]["maxLength"], MAX_VALUE_LENGTH),
                (&selector["matchLabels"]["maxProperties"], MAX_REQUIREMENTS),
            ] {
                assert_eq!(*limit, json!(expected), "{selector}");
            }
        }
    }
}
