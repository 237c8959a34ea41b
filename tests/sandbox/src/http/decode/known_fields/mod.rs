//! The fields of built-in kinds and their types, against which bodies and patches are decoded.
//!
//! The API server decodes an object into the Go type of its kind. Unknown fields are dropped, with a warning or an
//! error according to `fieldValidation`; values of the wrong type are always errors. The types come from the schemas
//! of `k8s-openapi`.

mod exceptions;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::http::decode::known_fields::exceptions::{KEPT, YOUNGER};

/// The result of decoding an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Fields that were dropped, as in `spec.containers[0].bogus`.
    pub(crate) unknown: Vec<String>,
    /// The first value of the wrong type.
    pub(crate) misfit: Option<TypeMismatch>,
}

/// A value of the wrong type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TypeMismatch {
    /// The type of the value, such as `string`.
    pub(crate) found: String,
    /// The Go type of the value, such as `slice`.
    pub(crate) read_as: &'static str,
    /// Go type and path of the field, such as `PodSpec.spec.containers`.
    pub(crate) field: String,
    /// The expected type, such as `int32`.
    pub(crate) expected: String,
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, field, expected, .. } = self;
        write!(f, "json: cannot unmarshal {found} into Go struct field {field} of type {expected}")
    }
}

/// Drops unknown fields, and empty lists and maps that Go omits (`omitempty`). Objects of unknown kinds are not
/// changed.
pub(crate) fn decode(group: &str, kind: &str, object: &mut Value) -> Decoded {
    decode_as(KNOWN.kinds.get(&(group, kind)), object)
}

/// Decodes the metadata of an object of any kind.
pub(crate) fn decode_metadata(object: &mut Value) -> Decoded {
    let mut decoded = Decoded::default();
    if let Some(metadata) = object.get_mut("metadata") {
        decoded = decode_as(Some(&KNOWN.metadata), metadata);
        for path in &mut decoded.unknown {
            path.insert_str(0, "metadata.");
        }
    }
    decoded
}

fn decode_as(shape: Option<&FieldType>, object: &mut Value) -> Decoded {
    let mut decoding = Decoder::default();
    if let Some(shape) = shape {
        decoding.walk(shape, object, &FieldLocation::default());
    }
    decoding.decoded
}

static KNOWN: LazyLock<KnownTypes> = LazyLock::new(KnownTypes::gather);

/// The type of a field.
#[derive(Debug, Clone)]
enum FieldType {
    /// Any value.
    Open,
    Text,
    Flag,
    /// A number, by the name of its Go type.
    Number(&'static str),
    List(Box<FieldType>),
    Table(Box<FieldType>),
    /// A struct, by its full name.
    Fields(String),
}

struct KnownTypes {
    /// Fields that are serialized even if they are empty, by type.
    kept: HashMap<String, BTreeSet<String>>,
    types: HashMap<String, BTreeMap<String, FieldType>>,
    kinds: HashMap<(&'static str, &'static str), FieldType>,
    metadata: FieldType,
}

impl KnownTypes {
    fn gather() -> Self {
        let mut generator = SchemaGenerator::default();
        let mut kinds = HashMap::new();
        macro_rules! know {
            ($($group:literal: $module:ident { $($kind:ident)* })*) => { $($(
                kinds.insert(($group, stringify!($kind)), shape::<api::$module::v1::$kind>(&mut generator));
            )*)* };
        }
        know! {
            "": core {
                ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod
                PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
            }
            "apps": apps { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
            "batch": batch { Job }
            "policy": policy { Eviction PodDisruptionBudget }
            "rbac.authorization.k8s.io": rbac { ClusterRole ClusterRoleBinding Role RoleBinding }
            "storage.k8s.io": storage { StorageClass VolumeAttachment }
            "admissionregistration.k8s.io": admissionregistration {
                MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
                ValidatingWebhookConfiguration
            }
            "scheduling.k8s.io": scheduling { PriorityClass }
            "coordination.k8s.io": coordination { Lease }
            "flowcontrol.apiserver.k8s.io": flowcontrol { FlowSchema PriorityLevelConfiguration }
            "networking.k8s.io": networking { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
            "node.k8s.io": node { RuntimeClass }
            "discovery.k8s.io": discovery { EndpointSlice }
            "authentication.k8s.io": authentication { SelfSubjectReview TokenReview }
            "authorization.k8s.io": authorization {
                LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
            }
        }
        kinds.insert(("meta.k8s.io", "DeleteOptions"), shape::<DeleteOptions>(&mut generator));
        let definition = shape::<CustomResourceDefinition>(&mut generator);
        kinds.insert(("apiextensions.k8s.io", "CustomResourceDefinition"), definition);
        let metadata = shape::<ObjectMeta>(&mut generator);
        let mut types: HashMap<String, BTreeMap<String, FieldType>> = generator
            .definitions()
            .iter()
            .filter_map(|(name, schema)| Some((name.clone(), schema["properties"].as_object()?)))
            .map(|(name, fields)| {
                (name, fields.iter().map(|(field, of)| (field.clone(), read(of))).collect())
            })
            .collect();
        let mut kept: HashMap<String, BTreeSet<String>> = HashMap::new();
        for (name, schema) in generator.definitions() {
            let required = schema["required"].as_array().into_iter().flatten();
            kept.insert(name.clone(), required.filter_map(Value::as_str).map(str::to_owned).collect());
        }
        for (name, field) in KEPT {
            kept.entry((*name).to_owned()).or_default().insert((*field).to_owned());
        }
        for (name, fields) in YOUNGER {
            if let Some(known) = types.get_mut(*name) {
                known.extend(fields.iter().map(|field| ((*field).to_owned(), FieldType::Open)));
            }
        }
        Self { kept, types, kinds, metadata }
    }
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> FieldType {
    read(generator.subschema_for::<T>().as_value())
}

fn read(schema: &Value) -> FieldType {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return FieldType::Fields(name.to_owned());
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        // Times and bytes have their own decoders.
        (Some("string"), None) => FieldType::Text,
        (Some("boolean"), _) => FieldType::Flag,
        (Some("integer"), Some("int32")) => FieldType::Number("int32"),
        (Some("integer"), _) => FieldType::Number("int64"),
        (Some("array"), _) => FieldType::List(Box::new(read(&schema["items"]))),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            FieldType::Table(Box::new(read(&schema["additionalProperties"])))
        }
        _ => FieldType::Open,
    }
}

impl FieldType {
    /// Whether Go omits the field for this value. Empty strings and zeros may be pointers, and stay.
    fn is_nothing(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Open, _) => false,
            // Times have their own encoder, which writes `null`.
            (Self::Fields(name), Value::Null) => KNOWN.types.contains_key(name),
            (_, Value::Null) => true,
            (Self::List(_), Value::Array(items)) => items.is_empty(),
            (Self::Table(_), Value::Object(entries)) => entries.is_empty(),
            _ => false,
        }
    }

    /// The type's name in messages.
    fn name(&self) -> String {
        match self {
            Self::Open => "interface {}".into(),
            Self::Text => "string".into(),
            Self::Flag => "bool".into(),
            Self::Number(name) => (*name).into(),
            Self::List(items) => format!("[]{}", items.name()),
            Self::Table(values) => format!("map[string]{}", values.name()),
            Self::Fields(name) => {
                let mut parts = name.rsplitn(3, '.');
                let (kind, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{version}.{kind}")
            }
        }
    }
}

/// A position in an object.
#[derive(Debug, Default, Clone)]
struct FieldLocation {
    /// The path, such as `spec.containers[0]`.
    path: String,
    /// The Go type that has the field, and the path without indexes.
    field: (String, String),
}

impl FieldLocation {
    fn below(&self, owner: &str, name: &str) -> Self {
        let join = |path: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let owner = owner.rsplit('.').next().unwrap_or_default().to_owned();
        Self { path: join(&self.path), field: (owner, join(&self.field.1)) }
    }

    fn item(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), ..self.clone() }
    }
}

#[derive(Default)]
struct Decoder {
    decoded: Decoded,
}

impl Decoder {
    fn walk(&mut self, shape: &FieldType, value: &mut Value, place: &FieldLocation) {
        match (shape, value) {
            (FieldType::Open, _)
            | (_, Value::Null)
            | (FieldType::Text, Value::String(_))
            | (FieldType::Flag, Value::Bool(_)) => {}
            (FieldType::Number(_), Value::Number(number)) if number.is_i64() || number.is_u64() => {}
            (FieldType::List(items), Value::Array(values)) => {
                for (index, value) in values.iter_mut().enumerate() {
                    self.walk(items, value, &place.item(index));
                }
            }
            (FieldType::Table(values), Value::Object(fields)) => {
                for (name, value) in fields {
                    let path = format!("{}.{name}", place.path);
                    self.walk(values, value, &FieldLocation { path, ..place.clone() });
                }
            }
            (FieldType::Fields(name), value) => match (KNOWN.types.get(name), value) {
                (None, _) => {}
                (Some(known), Value::Object(fields)) => self.fields(name, known, fields, place),
                (Some(_), value) => self.misfit(shape, value, place),
            },
            (_, value) => self.misfit(shape, value, place),
        }
    }

    fn fields(
        &mut self,
        owner: &str,
        known: &BTreeMap<String, FieldType>,
        fields: &mut Map<String, Value>,
        place: &FieldLocation,
    ) {
        fields.retain(|name, value| {
            let place = place.below(owner, name);
            let Some(shape) = known.get(name) else {
                self.decoded.unknown.push(place.path);
                return false;
            };
            self.walk(shape, value, &place);
            if name == "creationTimestamp" && value.is_null() {
                return false;
            }
            !shape.is_nothing(value) || KNOWN.kept.get(owner).is_some_and(|kept| kept.contains(name))
        });
    }

    fn misfit(&mut self, shape: &FieldType, value: &Value, place: &FieldLocation) {
        let found = match (value, shape) {
            (Value::Bool(_), _) => "bool".to_owned(),
            (Value::Number(number), FieldType::Number(_)) => format!("number {number}"),
            (Value::Number(_), _) => "number".to_owned(),
            (Value::String(_), _) => "string".to_owned(),
            (Value::Array(_), _) => "array".to_owned(),
            (Value::Object(_) | Value::Null, _) => "object".to_owned(),
        };
        let read_as = match value {
            Value::Bool(_) => "bool",
            Value::Number(number) if number.is_f64() => "float64",
            Value::Number(_) => "int64",
            Value::String(_) => "string",
            Value::Array(_) => "slice",
            Value::Object(_) | Value::Null => "map",
        };
        let (owner, path) = &place.field;
        let field = format!("{owner}.{path}");
        let misfit = TypeMismatch { found, read_as, field, expected: shape.name() };
        self.decoded.misfit.get_or_insert(misfit);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::catalog::resource::{NEW_EVENTS, built_in};

    #[test]
    fn every_built_in_kind_is_known() {
        for resource in built_in().into_iter().filter(|resource| resource.collection != NEW_EVENTS) {
            let mut object = json!({"kind": resource.kind, "metadata": {"name": "a"}, "bogus": 1});
            let decoded = decode(resource.group(), &resource.kind, &mut object);
            assert_eq!(decoded.unknown, ["bogus"], "{}", resource.kind);
        }
    }

    #[test]
    fn fields_that_a_kind_does_not_have_are_dropped_and_named() {
        let mut pod = json!({"metadata": {"name": "p", "bogus": 1, "labels": {"any": "thing"}}, "spec": {
            "nodename": "n", "hostnameOverride": "h", "overhead": {"cpu": 1},
            "containers": [{"name": "c", "bogus": 1, "resources": {"limits": {"cpu": "1"}}}]}});
        let decoded = decode("", "Pod", &mut pod);
        assert_eq!(decoded.unknown, ["metadata.bogus", "spec.containers[0].bogus", "spec.nodename"]);
        assert_eq!(decoded.misfit, None);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"], "1");
    }

    #[test]
    fn empty_values_that_go_omits_are_omitted() {
        let role = ("rbac.authorization.k8s.io", "Role");
        let volumes = json!([{"name": "v", "emptyDir": {}}]);
        for ((group, kind), mut given, kept) in [
            (
                ("", "Pod"),
                json!({"metadata": {"annotations": {}, "creationTimestamp": null}}),
                json!({"metadata": {}}),
            ),
            (("", "Pod"), json!({"spec": {"nodeSelector": {}, "tolerations": null}}), json!({"spec": {}})),
            (("", "Pod"), json!({"spec": {"volumes": volumes}}), json!({"spec": {"volumes": volumes}})),
            (("", "Pod"), json!({"spec": {"containers": []}}), json!({"spec": {"containers": []}})),
            (("", "ConfigMap"), json!({"data": {}}), json!({})),
            (role, json!({"rules": []}), json!({"rules": []})),
        ] {
            assert_eq!(decode(group, kind, &mut given), Decoded::default());
            assert_eq!(given, kept, "{kind}");
        }
        let mut custom = json!({"metadata": {"annotations": {}}, "spec": {"labels": {}}});
        decode_metadata(&mut custom);
        assert_eq!(custom, json!({"metadata": {}, "spec": {"labels": {}}}));
    }

    #[test]
    fn type_errors_name_the_type_and_the_field() {
        for (pod, expected) in [
            (json!({"metadata": {"name": 1}}), "number ObjectMeta.metadata.name string"),
            (json!({"metadata": {"labels": {"a": 1}}}), "number ObjectMeta.metadata.labels string"),
            (json!({"spec": "x"}), "string Pod.spec v1.PodSpec"),
            (json!({"spec": {"containers": {}}}), "object PodSpec.spec.containers []v1.Container"),
            (
                json!({"spec": {"terminationGracePeriodSeconds": 1.5}}),
                "number 1.5 PodSpec.spec.terminationGracePeriodSeconds int64",
            ),
            (json!({"spec": {"hostNetwork": ["yes"]}}), "array PodSpec.spec.hostNetwork bool"),
        ] {
            let mut object = pod.clone();
            let TypeMismatch { found, field, expected: takes, .. } =
                decode("", "Pod", &mut object).misfit.unwrap();
            assert_eq!(format!("{found} {field} {takes}"), expected, "{pod}");
        }
    }
}
