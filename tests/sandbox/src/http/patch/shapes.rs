//! List types: atomic, set, or map by keys.

use serde_json::{Value, json};

use crate::cluster::catalog::resource::Resource;

/// The type of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// Atomic: the list is one value.
    Atomic,
    /// A set of values.
    Set,
    /// A map with these keys.
    Map(Vec<String>),
}

/// The position in an object: a schema in custom resources, field names in built-in ones.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shapes<'a> {
    /// In a built-in resource, or in the metadata of any.
    BuiltIn,
    /// At a schema; null if there is none.
    Schema(&'a Value),
    /// At the root of a custom resource.
    Root(&'a Value),
}

impl<'a> Shapes<'a> {
    /// The root of a resource's objects.
    pub(crate) fn of(resource: &'a Resource) -> Self {
        match &resource.definition {
            Some(definition) => Self::Root(&definition.schema),
            None => Self::BuiltIn,
        }
    }

    /// Below a field.
    pub(crate) fn field(self, name: &str) -> Self {
        match self {
            Self::BuiltIn => Self::BuiltIn,
            Self::Root(_) if name == "metadata" => Self::BuiltIn,
            Self::Root(schema) | Self::Schema(schema) => {
                Self::Schema(schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]))
            }
        }
    }

    /// Within the items of a list.
    pub(crate) fn items(self) -> Self {
        match self {
            Self::Schema(schema) | Self::Root(schema) => Self::Schema(&schema["items"]),
            Self::BuiltIn => Self::BuiltIn,
        }
    }

    /// The type of the list in the field `name`.
    pub(crate) fn list(self, name: &str) -> ListKind {
        match self {
            Self::BuiltIn => built_in(name),
            Self::Root(schema) | Self::Schema(schema) => from_schema(schema),
        }
    }

    /// Whether the object in the field `name` is atomic.
    pub(crate) fn is_atomic_map(self, name: &str) -> bool {
        match self {
            Self::BuiltIn => ATOMIC_MAPS.contains(&name),
            Self::Root(schema) | Self::Schema(schema) => schema["x-kubernetes-map-type"] == "atomic",
        }
    }

    /// Whether each item of the list in the field `name` is atomic, although the list is merged item by item.
    pub(crate) fn has_atomic_items(self, name: &str) -> bool {
        match self {
            Self::BuiltIn => matches!(name, "ownerReferences" | "secrets" | "imagePullSecrets" | "variables"),
            Self::Root(schema) | Self::Schema(schema) => schema["items"]["x-kubernetes-map-type"] == "atomic",
        }
    }
}

/// The objects of built-in resources that are one value (`x-kubernetes-map-type: atomic` in the `OpenAPI` document of the API
/// server): selectors and references.
const ATOMIC_MAPS: &[&str] = &[
    "configMapKeyRef",
    "dataSource",
    "fieldRef",
    "fileKeyRef",
    "labelSelector",
    "matchConstraints",
    "matchResources",
    "namespaceSelector",
    "nodeSelector",
    "objectSelector",
    "paramKind",
    "paramRef",
    "podSelector",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resourceFieldRef",
    "roleRef",
    "scopeSelector",
    "secretKeyRef",
    "selector",
];

fn from_schema(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            ListKind::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    }
}

/// The lists of built-in resources that are merged. All others (taints, tolerations, arguments) are atomic.
fn built_in(name: &str) -> ListKind {
    let keys: &[&str] = match name {
        "finalizers" | "validationActions" => return ListKind::Set,
        "ownerReferences" => &["uid"],
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets"
        | "webhooks"
        | "matchConditions"
        | "variables"
        | "resourceClaims" => &["name"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "conditions" | "addresses" => &["type"],
        "ports" => &["containerPort", "port", "protocol"],
        "hostAliases" | "podIPs" | "hostIPs" => &["ip"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        _ => return ListKind::Atomic,
    };
    ListKind::Map(keys.iter().map(|&key| key.to_owned()).collect())
}

/// The keys of an item and their values, without missing ones.
pub(crate) fn identity(item: &Value, keys: &[String]) -> Value {
    let mut found = json!({});
    for key in keys {
        let value = &item[key];
        if !value.is_null() {
            found[key] = value.clone();
        } else if key == "protocol" {
            found[key] = json!("TCP");
        }
    }
    found
}
