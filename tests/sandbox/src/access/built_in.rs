//! The roles and bindings of every new cluster, for the resources that the sandbox serves.
//!
//! `admin`, `edit` and `view` are aggregated, so that a role with the label
//! `rbac.authorization.k8s.io/aggregate-to-view` extends all three, as in a real cluster.

use serde_json::{Value, json};

use crate::access::aggregation::aggregated;
use crate::access::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use crate::cluster::Cluster;
use crate::cluster::catalog::resource::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES};
use crate::cluster::registry;
use crate::cluster::registry::{Effect, Part};
use crate::cluster::store::{Collection, Key, Object};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

/// Creates the roles and bindings that are missing.
pub(crate) fn seed(cluster: &Cluster) {
    for role in roles() {
        add(cluster, &CLUSTER_ROLES, role);
    }
    for binding in bindings() {
        add(cluster, &CLUSTER_ROLE_BINDINGS, binding);
    }
    // Repeated, since `admin` aggregates `edit`, and `edit` aggregates `view`.
    for name in ["view", "edit", "admin"] {
        aggregate(cluster, name);
    }
}

fn add(cluster: &Cluster, collection: &Collection, object: Value) {
    let Some(resource) = cluster.catalog.of(collection) else {
        return;
    };
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        if state.get(collection, &Key::of(&object)).is_none() {
            // It cannot fail for any other reason.
            let _ = registry::create(state, &resource, object, now, Effect::Real);
        }
    });
}

/// A controller does this too, in clusters with controllers.
fn aggregate(cluster: &Cluster, name: &str) {
    let Some(resource) = cluster.catalog.of(&CLUSTER_ROLES) else {
        return;
    };
    cluster.store.write(|state| {
        let all: Vec<Object> = state.list(&CLUSTER_ROLES, None).collect();
        let role = state.get(&CLUSTER_ROLES, &Key::cluster(name))?;
        let mut next = Value::clone(&role);
        next["rules"] = aggregated(&role, &all)?;
        registry::update(state, &resource, &next, Part::Main, Effect::Real).ok()
    });
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn roles() -> Vec<Value> {
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];
    let discovery: Vec<&str> = discovery.into_iter().chain(public).collect();
    let role = |name: &str, rules: Value| json!({"metadata": metadata(name), "rules": rules});
    let reviews = rule(
        &["authorization.k8s.io"],
        &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        &["create"],
    );
    let identity = rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]);
    let mut roles = vec![
        role(
            "cluster-admin",
            json!([rule(&["*"], &["*"], &["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        ),
        role("system:basic-user", json!([reviews, identity])),
        role("system:discovery", json!([{"nonResourceURLs": discovery, "verbs": ["get"]}])),
        role("system:public-info-viewer", json!([{"nonResourceURLs": public, "verbs": ["get"]}])),
    ];
    let above = [("view", Some("edit"), view()), ("edit", Some("admin"), edit()), ("admin", None, admin())];
    for (name, above, rules) in above {
        let label = |of: &str| format!("rbac.authorization.k8s.io/aggregate-to-{of}");
        let mut part = role(&format!("system:aggregate-to-{name}"), json!(rules));
        part["metadata"]["labels"][label(name)] = json!("true");
        let mut whole = role(name, json!([]));
        whole["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label(name): "true"}}]});
        if let Some(above) = above {
            whole["metadata"]["labels"][label(above)] = json!("true");
        }
        roles.extend([part, whole]);
    }
    roles
}

/// Read access to a namespace, except to secrets and RBAC.
fn view() -> Vec<Value> {
    let core = [
        "configmaps",
        "endpoints",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/status",
        "serviceaccounts",
        "services",
        "services/status",
    ];
    let apps = [
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ];
    vec![
        rule(&[""], &core, READ),
        rule(&["", "events.k8s.io"], &["events"], READ),
        rule(&["apps"], &apps, READ),
        rule(&["batch"], &["jobs", "jobs/status"], READ),
        rule(&["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"], READ),
    ]
}

/// Write access, access to secrets, and impersonation of service accounts.
fn edit() -> Vec<Value> {
    let core = ["configmaps", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"];
    let apps = [
        "daemonsets",
        "deployments",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ];
    let both: Vec<&str> = READ.iter().chain(WRITE).copied().collect();
    vec![
        rule(&[""], &["secrets"], READ),
        rule(&[""], &["serviceaccounts"], &["impersonate"]),
        rule(&[""], &core, WRITE),
        rule(&[""], &["pods/eviction", "serviceaccounts/token"], &["create"]),
        rule(&["", "events.k8s.io"], &["events"], WRITE),
        rule(&["apps"], &apps, WRITE),
        rule(&["batch"], &["jobs"], WRITE),
        rule(&["policy"], &["poddisruptionbudgets"], WRITE),
        rule(&["coordination.k8s.io"], &["leases"], &both),
    ]
}

/// RBAC within a namespace.
fn admin() -> Vec<Value> {
    let both: Vec<&str> = READ.iter().chain(WRITE).copied().collect();
    vec![
        rule(&["authorization.k8s.io"], &["localsubjectaccessreviews"], &["create"]),
        rule(&["rbac.authorization.k8s.io"], &["rolebindings", "roles"], &both),
    ]
}

fn bindings() -> Vec<Value> {
    let group = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let binding = |role: &str, groups: &[&str]| {
        let subjects: Vec<Value> = groups.iter().map(|name| group(name)).collect();
        json!({"metadata": metadata(role), "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}})
    };
    vec![
        binding("cluster-admin", &[MASTERS]),
        binding("system:basic-user", &[AUTHENTICATED]),
        binding("system:discovery", &[AUTHENTICATED]),
        binding("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ]
}
