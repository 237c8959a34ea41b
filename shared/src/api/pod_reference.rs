//! A pod, or another object, by namespace and name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pod by name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(default)]
pub struct PodReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for PodReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
