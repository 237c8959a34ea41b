//! What is asked for when nodes are put into maintenance, and what of it there is already.

use clap::Args;
use kube::ResourceExt;
use nm_shared::api::maintenance::MAX_REASON_LENGTH;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use serde_json::{Map, Value, json};

use crate::args::drain_flags::DrainFlags;
use crate::error::Error;
use crate::maintenance::node;

/// What is asked for.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Request {
    /// Why, for whoever looks at the nodes next; at most 1,024 characters
    #[arg(long, short = 'r', value_parser = parse_reason)]
    pub(crate) reason: Option<String>,

    #[command(flatten)]
    pub(crate) drain: DrainFlags,
}

impl Request {
    /// What the maintenance of a node is to say.
    pub(crate) fn spec(&self, node: &str) -> NodeMaintenanceSpec {
        NodeMaintenanceSpec {
            node_name: node.to_owned(),
            reason: self.reason.clone(),
            drain: self.drain.spec(),
        }
    }

    /// The same without a limit of the time that the drain may take.
    pub(crate) fn without_timeout(&self) -> Self {
        Self { drain: self.drain.without_timeout(), ..self.clone() }
    }

    /// Whether a maintenance that exists says what is asked for. `kubectl` is how that is called for this cluster.
    ///
    /// # Errors
    ///
    /// When it says something else, with what, and with the command that would change it.
    pub(crate) fn check(&self, existing: &NodeMaintenance, kubectl: &str) -> Result<(), Error> {
        let (mut differences, mut spec) = (Vec::new(), Map::new());
        if self.reason.is_some() && self.reason != existing.spec.reason {
            differences.push(difference("reason", &json!(existing.spec.reason), &json!(self.reason)));
            spec.insert(String::from("reason"), json!(self.reason));
        }
        let mut drain = Map::new();
        for (field, is, wanted) in self.drain.differences(existing.spec.drain.as_ref()) {
            differences.push(difference(&format!("drain.{field}"), &is, &wanted));
            drain.insert(field.to_owned(), wanted);
        }
        if !drain.is_empty() {
            spec.insert(String::from("drain"), Value::Object(drain));
        }
        if differences.is_empty() {
            return Ok(());
        }
        let patch = json!({"spec": spec}).to_string().replace('\'', r"'\''");
        Err(Error::Differs {
            node: node(existing).to_owned(),
            differences: differences.join(", "),
            remedy: format!("{kubectl} patch nm {} --type=merge -p '{patch}'", existing.name_any()),
        })
    }
}

/// What is wrong with a reason: it has more characters than the API server takes.
pub(crate) fn reason_problem(reason: &str) -> Option<String> {
    let length = reason.chars().count();
    (length > MAX_REASON_LENGTH)
        .then(|| format!("a reason has at most {MAX_REASON_LENGTH} characters, and this one has {length}"))
}

fn parse_reason(reason: &str) -> Result<String, String> {
    reason_problem(reason).map_or_else(|| Ok(reason.to_owned()), Err)
}

fn difference(field: &str, is: &Value, wanted: &Value) -> String {
    let shown = |value: &Value| if value.is_null() { String::from("not set") } else { value.to_string() };
    format!("{field} is {} and not {}", shown(is), shown(wanted))
}

/// What it takes to have a node in maintenance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// An object is to be created.
    Create,
    /// There is one.
    Present(Box<NodeMaintenance>),
    /// There is one, but it is being deleted.
    Ending,
    /// There is an object of the node's name for another node.
    NameTaken(String),
}

impl Step {
    /// What it takes, with these objects in the cluster.
    pub(crate) fn towards(wanted: &str, existing: &[NodeMaintenance]) -> Self {
        let is_ending = |object: &NodeMaintenance| object.metadata.deletion_timestamp.is_some();
        let oldest = existing
            .iter()
            .filter(|object| node(object) == wanted && !is_ending(object))
            .min_by_key(|object| object.metadata.creation_timestamp.clone());
        let namesake = existing.iter().find(|object| object.name_any() == wanted);
        match (oldest, namesake) {
            (Some(object), _) => Self::Present(Box::new(object.clone())),
            (None, Some(object)) if node(object) != wanted => Self::NameTaken(node(object).to_owned()),
            _ if existing.iter().any(|object| node(object) == wanted) => Self::Ending,
            _ => Self::Create,
        }
    }

    /// Why this step cannot be taken, if it cannot.
    pub(crate) fn refusal(&self, node: &str) -> Option<Error> {
        match self {
            Self::Create | Self::Present(_) => None,
            Self::Ending => Some(Error::Ending(node.to_owned())),
            Self::NameTaken(other) => Some(Error::NameTaken { name: node.to_owned(), other: other.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::fixture::{named, requested, stopping};

    fn present(object: NodeMaintenance) -> Step {
        Step::Present(Box::new(object))
    }

    #[test]
    fn what_exists_decides_what_is_to_be_done() {
        for (existing, step) in [
            (vec![], Step::Create),
            (vec![requested("n2")], Step::Create),
            (vec![requested("n1")], present(requested("n1"))),
            (vec![named("other", "n1", "u")], present(named("other", "n1", "u"))),
            (vec![named("n1", "n2", "u")], Step::NameTaken("n2".into())),
            (vec![named("n1", "n2", "u"), named("n2", "n1", "v")], present(named("n2", "n1", "v"))),
            (vec![stopping(requested("n1"))], Step::Ending),
            (vec![stopping(requested("n1")), named("other", "n1", "u")], present(named("other", "n1", "u"))),
            (vec![stopping(named("other", "n1", "u"))], Step::Ending),
        ] {
            assert_eq!(Step::towards("n1", &existing), step, "{existing:?}");
        }
    }

    #[test]
    fn a_maintenance_that_says_something_else_is_told_with_the_command_that_changes_it() {
        let mut existing = named("other", "n1", "u");
        existing.spec.reason = Some("disk".into());
        let wants =
            |reason: Option<&str>| Request { reason: reason.map(str::to_owned), ..Request::default() };
        for same in [None, Some("disk")] {
            assert!(wants(same).check(&existing, "kubectl").is_ok(), "{same:?}");
        }
        let differs = wants(Some("it's the kernel")).check(&existing, "kubectl --context=c").unwrap_err();
        assert_eq!(
            (differs.to_string().as_str(), differs.hint().unwrap().as_str()),
            (
                "node \"n1\" is in maintenance already, but reason is \"disk\" and not \"it's the kernel\"",
                "`kubectl --context=c patch nm other --type=merge -p '{\"spec\":{\"reason\":\"it'\\''s the kernel\"}}'` \
                 changes it"
            )
        );
        existing.spec.reason = None;
        let differs = wants(Some("disk")).check(&existing, "kubectl").unwrap_err().to_string();
        assert!(differs.ends_with("but reason is not set and not \"disk\""), "{differs}");
    }
}
