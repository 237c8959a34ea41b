//! An index of roles and bindings that follows the store, so that a decision reads only the bindings of one user.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::access::attributes::Attributes;
use crate::access::policy::PolicyRule;
use crate::access::user::{User, as_service_account};
use crate::cluster::catalog::resource::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use crate::cluster::store::{Collection, Key, State, Store};

/// An authorization decision and its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Whether the request is allowed.
    pub(crate) allowed: bool,
    /// The reason, or empty.
    pub(crate) reason: String,
}

/// The rules that a user has in a namespace, and errors of roles that are missing.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    pub(crate) rules: Vec<Arc<[PolicyRule]>>,
    pub(crate) missing: Vec<String>,
}

/// The subject of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

/// The role of a binding. The namespace is empty for a `ClusterRole`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RoleRef {
    namespace: String,
    name: String,
}

#[derive(Debug)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The index.
#[derive(Debug)]
pub(crate) struct Roles {
    grown: watch::Receiver<u64>,
    seen: Option<u64>,
    rules: HashMap<RoleRef, Arc<[PolicyRule]>>,
    /// By namespace and name; the namespace of cluster roles is empty.
    bindings: HashMap<Key, Binding>,
    by_subject: HashMap<Subject, BTreeSet<Key>>,
}

static WATCHED: [Collection; 4] = [CLUSTER_ROLES, ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS];

impl Roles {
    /// An index that reads the store at its first use.
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            grown: store.subscribe(),
            seen: None,
            rules: HashMap::new(),
            bindings: HashMap::new(),
            by_subject: HashMap::new(),
        }
    }

    /// Reads the changes since the last call.
    pub(crate) fn refresh(&mut self, store: &Store) {
        if self.seen != Some(*self.grown.borrow()) {
            store.read(|state| self.read(state));
        }
    }

    fn read(&mut self, state: &State) {
        let changes = self.seen.and_then(|seen| {
            WATCHED.iter().map(|kind| state.changes_since(kind, seen)).collect::<Option<Vec<_>>>()
        });
        if let Some(changes) = changes {
            for (collection, changes) in WATCHED.iter().zip(changes) {
                for change in changes {
                    let key = change.after.as_deref().or(change.before.as_deref()).map(Key::of);
                    self.replace(
                        collection,
                        &key.unwrap_or_else(|| Key::cluster("")),
                        change.after.as_deref(),
                    );
                }
            }
        } else {
            self.rules.clear();
            self.bindings.clear();
            self.by_subject.clear();
            for collection in &WATCHED {
                for object in state.list(collection, None) {
                    self.replace(collection, &Key::of(&object), Some(&object));
                }
            }
        }
        self.seen = Some(state.revision());
    }

    fn replace(&mut self, collection: &Collection, key: &Key, object: Option<&Value>) {
        if [CLUSTER_ROLES, ROLES].contains(collection) {
            let role = RoleRef { namespace: key.namespace.clone(), name: key.name.clone() };
            match object {
                Some(object) => _ = self.rules.insert(role, PolicyRule::all_of(object).into()),
                None => _ = self.rules.remove(&role),
            }
            return;
        }
        if let Some(old) = self.bindings.remove(key) {
            for subject in &old.subjects {
                if let Some(bindings) = self.by_subject.get_mut(subject) {
                    bindings.remove(key);
                }
            }
        }
        if let Some(object) = object {
            let binding = Binding::read(object, &key.namespace);
            for subject in &binding.subjects {
                self.by_subject.entry(subject.clone()).or_default().insert(key.clone());
            }
            self.bindings.insert(key.clone(), binding);
        }
    }

    /// Whether the user's roles cover a request.
    pub(crate) fn verdict(&self, user: &User, wanted: Attributes<'_>) -> Decision {
        let mut missing = Vec::new();
        for (key, (subject, binding)) in self.bindings_of(user, wanted.namespace()) {
            match self.rules.get(&binding.role) {
                None => missing.push(binding.role.not_found()),
                Some(rules) if rules.iter().any(|rule| rule.covers(wanted)) => {
                    let (role, name) = (binding.role.kind(), &binding.role.name);
                    let by = if key.namespace.is_empty() {
                        format!("ClusterRoleBinding {:?}", key.name)
                    } else {
                        format!("RoleBinding {:?}", format!("{}/{}", key.name, key.namespace))
                    };
                    let reason =
                        format!("RBAC: allowed by {by} of {role} {name:?} to {}", subject.described());
                    return Decision { allowed: true, reason };
                }
                Some(_) => {}
            }
        }
        let reason = joined(missing).map(|missing| format!("RBAC: {missing}"));
        Decision { allowed: false, reason: reason.unwrap_or_default() }
    }

    /// All rules of the user in a namespace.
    pub(crate) fn granted(&self, user: &User, namespace: &str) -> Granted {
        let mut granted = Granted::default();
        for (_, binding) in self.bindings_of(user, namespace).into_values() {
            match self.rules.get(&binding.role) {
                Some(rules) => granted.rules.push(rules.clone()),
                None => granted.missing.push(binding.role.not_found()),
            }
        }
        granted
    }

    /// The bindings of the cluster and of a namespace that have the user as a subject, cluster bindings first.
    fn bindings_of(&self, user: &User, namespace: &str) -> BTreeMap<&Key, (&Subject, &Binding)> {
        let mut found = BTreeMap::new();
        for subject in subjects(user) {
            let Some((subject, keys)) = self.by_subject.get_key_value(&subject) else {
                continue;
            };
            let mut add = |place: &str| {
                let inside = keys.range(Key::new(place, "")..).take_while(|key| key.namespace == place);
                for key in inside {
                    if let Some(binding) = self.bindings.get(key) {
                        found.entry(key).or_insert((subject, binding));
                    }
                }
            };
            add("");
            if !namespace.is_empty() {
                add(namespace);
            }
        }
        found
    }
}

/// Errors as the API server lists them; none if there are none.
pub(crate) fn joined(mut errors: Vec<String>) -> Option<String> {
    errors.dedup();
    match errors.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

/// All subjects that a user matches.
fn subjects(user: &User) -> impl Iterator<Item = Subject> {
    let account = as_service_account(&user.name).map(|(namespace, name)| Subject::ServiceAccount {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    });
    let groups = user.groups.iter().cloned().map(Subject::Group);
    std::iter::once(Subject::User(user.name.clone())).chain(groups).chain(account)
}

impl Subject {
    fn described(&self) -> String {
        match self {
            Self::User(name) => format!("User {name:?}"),
            Self::Group(name) => format!("Group {name:?}"),
            Self::ServiceAccount { namespace, name } => {
                format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        }
    }
}

impl RoleRef {
    fn kind(&self) -> &'static str {
        if self.namespace.is_empty() { "ClusterRole" } else { "Role" }
    }

    fn not_found(&self) -> String {
        let kind = self.kind().to_lowercase();
        format!("{kind}.rbac.authorization.k8s.io {:?} not found", self.name)
    }
}

impl Binding {
    fn read(object: &Value, namespace: &str) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subject = |subject: &Value| {
            let name = text(&subject["name"]);
            match subject["kind"].as_str()? {
                "User" => Some(Subject::User(name)),
                "Group" => Some(Subject::Group(name)),
                "ServiceAccount" => {
                    let own = text(&subject["namespace"]);
                    let namespace = if own.is_empty() { namespace.to_owned() } else { own };
                    Some(Subject::ServiceAccount { namespace, name })
                }
                _ => None,
            }
        };
        let role = &object["roleRef"];
        let namespace = if role["kind"] == "Role" { namespace.to_owned() } else { String::new() };
        Self {
            role: RoleRef { namespace, name: text(&role["name"]) },
            subjects: object["subjects"].as_array().into_iter().flatten().filter_map(subject).collect(),
        }
    }
}
