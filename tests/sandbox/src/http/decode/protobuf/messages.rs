//! The supported messages: numbers and types of their fields, from the Kubernetes API definitions.

/// A field's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Text,
    Number,
    Flag,
    /// A map of strings.
    Map,
    /// A map of bytes, which are base64 in JSON.
    ByteMap,
    NumberOrText,
    Message(&'static str),
}

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    number: u64,
    /// Its name in JSON.
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
    pub(crate) repeated: bool,
    /// Whether an explicit zero has a meaning.
    pub(crate) pointer: bool,
}

/// The fields of a message.
pub(crate) type Message = &'static [Field];

/// The message with this name.
pub(crate) fn message(name: &str) -> Option<Message> {
    MESSAGES.iter().find(|(known, _)| *known == name).map(|(_, fields)| *fields)
}

/// The field with this number.
pub(crate) fn field(message: Message, number: u64) -> Option<&'static Field> {
    message.iter().find(|field| field.number == number)
}

const fn one(number: u64, name: &'static str, kind: FieldKind) -> Field {
    Field { number, name, kind, repeated: false, pointer: false }
}

const fn many(number: u64, name: &'static str, kind: FieldKind) -> Field {
    Field { number, name, kind, repeated: true, pointer: false }
}

const fn maybe(number: u64, name: &'static str, kind: FieldKind) -> Field {
    Field { number, name, kind, repeated: false, pointer: true }
}

const TEXT: FieldKind = FieldKind::Text;
const NUMBER: FieldKind = FieldKind::Number;
const FLAG: FieldKind = FieldKind::Flag;
const METADATA: Field = one(1, "metadata", FieldKind::Message("ObjectMeta"));
const SELECTOR: FieldKind = FieldKind::Message("LabelSelector");
const TEMPLATE: FieldKind = FieldKind::Message("PodTemplateSpec");
const RULES: Field = many(2, "rules", FieldKind::Message("PolicyRule"));
const SUBJECTS: Field = many(2, "subjects", FieldKind::Message("Subject"));
const ROLE: Field = one(3, "roleRef", FieldKind::Message("RoleRef"));

#[rustfmt::skip]
const MESSAGES: &[(&str, Message)] = &[
    ("ObjectMeta", &[one(1, "name", TEXT), one(2, "generateName", TEXT), one(3, "namespace", TEXT),
        one(5, "uid", TEXT), one(6, "resourceVersion", TEXT), one(11, "labels", FieldKind::Map),
        one(12, "annotations", FieldKind::Map), many(14, "finalizers", TEXT)]),
    ("LabelSelector", &[one(1, "matchLabels", FieldKind::Map),
        many(2, "matchExpressions", FieldKind::Message("LabelSelectorRequirement"))]),
    ("LabelSelectorRequirement", &[one(1, "key", TEXT), one(2, "operator", TEXT), many(3, "values", TEXT)]),
    ("DeleteOptions", &[maybe(1, "gracePeriodSeconds", NUMBER), one(2, "preconditions", FieldKind::Message("Preconditions")),
        maybe(3, "orphanDependents", FLAG), one(4, "propagationPolicy", TEXT), many(5, "dryRun", TEXT)]),
    ("Preconditions", &[one(1, "uid", TEXT), one(2, "resourceVersion", TEXT)]),
    ("Namespace", &[METADATA]),
    ("ServiceAccount", &[METADATA, maybe(4, "automountServiceAccountToken", FLAG)]),
    ("ConfigMap", &[METADATA, one(2, "data", FieldKind::Map), one(3, "binaryData", FieldKind::ByteMap),
        maybe(4, "immutable", FLAG)]),
    ("Secret", &[METADATA, one(2, "data", FieldKind::ByteMap), one(3, "type", TEXT), one(4, "stringData", FieldKind::Map),
        maybe(5, "immutable", FLAG)]),
    ("Service", &[METADATA, one(2, "spec", FieldKind::Message("ServiceSpec"))]),
    ("ServiceSpec", &[many(1, "ports", FieldKind::Message("ServicePort")), one(2, "selector", FieldKind::Map),
        one(3, "clusterIP", TEXT), one(4, "type", TEXT), one(10, "externalName", TEXT)]),
    ("ServicePort", &[one(1, "name", TEXT), one(2, "protocol", TEXT), one(3, "port", NUMBER),
        one(4, "targetPort", FieldKind::NumberOrText), one(5, "nodePort", NUMBER)]),
    ("Deployment", &[METADATA, one(2, "spec", FieldKind::Message("DeploymentSpec"))]),
    ("DeploymentSpec", &[maybe(1, "replicas", NUMBER), one(2, "selector", SELECTOR), one(3, "template", TEMPLATE)]),
    ("Job", &[METADATA, one(2, "spec", FieldKind::Message("JobSpec"))]),
    ("JobSpec", &[maybe(1, "parallelism", NUMBER), maybe(2, "completions", NUMBER), one(4, "selector", SELECTOR),
        one(6, "template", TEMPLATE), maybe(7, "backoffLimit", NUMBER)]),
    ("PodTemplateSpec", &[METADATA, one(2, "spec", FieldKind::Message("PodSpec"))]),
    ("PodSpec", &[many(2, "containers", FieldKind::Message("Container")), one(3, "restartPolicy", TEXT),
        maybe(4, "terminationGracePeriodSeconds", NUMBER), one(7, "nodeSelector", FieldKind::Map),
        one(8, "serviceAccountName", TEXT), one(10, "nodeName", TEXT), one(24, "priorityClassName", TEXT)]),
    ("Container", &[one(1, "name", TEXT), one(2, "image", TEXT), many(3, "command", TEXT), many(4, "args", TEXT),
        one(5, "workingDir", TEXT), many(6, "ports", FieldKind::Message("ContainerPort")),
        many(7, "env", FieldKind::Message("EnvVar")), one(14, "imagePullPolicy", TEXT)]),
    ("ContainerPort", &[one(1, "name", TEXT), one(2, "hostPort", NUMBER), one(3, "containerPort", NUMBER),
        one(4, "protocol", TEXT)]),
    ("EnvVar", &[one(1, "name", TEXT), one(2, "value", TEXT)]),
    ("PodDisruptionBudget", &[METADATA, one(2, "spec", FieldKind::Message("PodDisruptionBudgetSpec"))]),
    ("PodDisruptionBudgetSpec", &[maybe(1, "minAvailable", FieldKind::NumberOrText), one(2, "selector", SELECTOR),
        maybe(3, "maxUnavailable", FieldKind::NumberOrText), one(4, "unhealthyPodEvictionPolicy", TEXT)]),
    ("Eviction", &[METADATA, one(2, "deleteOptions", FieldKind::Message("DeleteOptions"))]),
    ("PriorityClass", &[METADATA, one(2, "value", NUMBER), one(3, "globalDefault", FLAG), one(4, "description", TEXT),
        one(5, "preemptionPolicy", TEXT)]),
    ("Role", &[METADATA, RULES]),
    ("ClusterRole", &[METADATA, RULES]),
    ("RoleBinding", &[METADATA, SUBJECTS, ROLE]),
    ("ClusterRoleBinding", &[METADATA, SUBJECTS, ROLE]),
    ("PolicyRule", &[many(1, "verbs", TEXT), many(2, "apiGroups", TEXT), many(3, "resources", TEXT),
        many(4, "resourceNames", TEXT), many(5, "nonResourceURLs", TEXT)]),
    ("Subject", &[one(1, "kind", TEXT), one(2, "apiGroup", TEXT), one(3, "name", TEXT), one(4, "namespace", TEXT)]),
    ("RoleRef", &[one(1, "apiGroup", TEXT), one(2, "kind", TEXT), one(3, "name", TEXT)]),
    ("TokenRequest", &[METADATA, one(2, "spec", FieldKind::Message("TokenRequestSpec"))]),
    ("TokenRequestSpec", &[many(1, "audiences", TEXT), one(3, "boundObjectRef", FieldKind::Message("BoundObjectReference")),
        maybe(4, "expirationSeconds", NUMBER)]),
    ("BoundObjectReference", &[one(1, "kind", TEXT), one(2, "apiVersion", TEXT), one(3, "name", TEXT),
        one(4, "uid", TEXT)]),
    ("SelfSubjectReview", &[METADATA]),
    ("SelfSubjectRulesReview", &[METADATA, one(2, "spec", FieldKind::Message("SelfSubjectRulesReviewSpec"))]),
    ("SelfSubjectRulesReviewSpec", &[one(1, "namespace", TEXT)]),
    ("SelfSubjectAccessReview", &[METADATA, one(2, "spec", FieldKind::Message("SelfSubjectAccessReviewSpec"))]),
    ("SelfSubjectAccessReviewSpec", &[one(1, "resourceAttributes", FieldKind::Message("ResourceAttributes")),
        one(2, "nonResourceAttributes", FieldKind::Message("NonResourceAttributes"))]),
    ("ResourceAttributes", &[one(1, "namespace", TEXT), one(2, "verb", TEXT), one(3, "group", TEXT),
        one(4, "version", TEXT), one(5, "resource", TEXT), one(6, "subresource", TEXT), one(7, "name", TEXT)]),
    ("NonResourceAttributes", &[one(1, "path", TEXT), one(2, "verb", TEXT)]),
];
