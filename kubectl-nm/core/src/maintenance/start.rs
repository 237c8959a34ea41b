//! Starting maintenances, for `start`, `plan` and the dashboard: what is requested, what exists already, and the creation.

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::Status;
use nm_shared::api::maintenance::MAX_REASON_LENGTH;
use nm_shared::api::names;
use nm_shared::gate::ownership;
use nm_shared::{DrainSpec, NodeMaintenance, NodeMaintenanceSpec};
use serde_json::{Map, Value, json};

use crate::args::drain_flags::DrainFlags;
use crate::client::cluster::Cluster;
use crate::error::{Change, Error};
use crate::maintenance::roll::RollRunners;
use crate::maintenance::{
    State, has_timed_out, hold, kept_by_roll, new_settings, node, suspend, time_limit_end,
};
use crate::terminal::command_context::shell_quoted;

/// The spec that the flags of `start` request.
#[derive(Args, Clone, Debug, Default)]
pub struct StartRequest {
    /// The reason for the maintenance, shown to other users; at most 1,024 characters
    #[arg(long, short = 'r', value_parser = parse_reason)]
    pub(crate) reason: Option<String>,

    /// Settings of the drain.
    #[command(flatten)]
    pub drain: DrainFlags,
}

impl StartRequest {
    /// The requested spec for a node.
    pub fn spec(&self, node: &str) -> NodeMaintenanceSpec {
        NodeMaintenanceSpec {
            node_name: node.to_owned(),
            reason: self.reason.clone(),
            suspend: false,
            drain: self.drain.spec(),
        }
    }

    /// The reason, if one is given.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The same request without a time limit of the drain.
    #[must_use]
    pub fn without_timeout(&self) -> Self {
        Self { drain: self.drain.without_timeout(), ..self.clone() }
    }

    /// Checks that an existing maintenance has the requested spec. `kubectl` is the command that reaches this cluster.
    ///
    /// # Errors
    ///
    /// If a requested field has another value ([`Error::Differs`]).
    pub fn check(&self, existing: &NodeMaintenance, kubectl: &str) -> Result<(), Error> {
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
        let change = match drain.is_empty() {
            true => Change::Reason,
            false if has_failed_by_timeout(existing) => {
                // Otherwise the drain would not continue: its time limit has passed.
                let limit = drain.entry("timeoutSeconds").or_insert(json!(0));
                Change::FailedDrain(time_limit_end(existing, limit.as_i64().unwrap_or(0)))
            }
            false => Change::Settings,
        };
        let effects = new_settings::effects(existing, &drain, Timestamp::now());
        if !drain.is_empty() {
            spec.insert(String::from("drain"), Value::Object(drain));
        }
        if differences.is_empty() {
            return Ok(());
        }
        let patch = json!({"spec": spec}).to_string();
        Err(Error::Differs {
            node: node(existing).to_owned(),
            differences: differences.join(", "),
            remedy: format!(
                "{kubectl} patch nm {} --type=merge -p {}",
                shell_quoted(&existing.name_any()),
                shell_quoted(&patch)
            ),
            change,
            effects,
        })
    }
}

/// What announces to nm-reconciler that maintenances are created together, so that all nodes are cordoned before the first pod is
/// evicted, however long the creations take.
#[derive(Clone, Debug, Default)]
pub struct Together(Option<String>);

impl Together {
    /// Of so many maintenances that are created from now on.
    pub fn of(count: usize, now: Timestamp) -> Self {
        Self((count > 1).then(|| format!("{:x}/{count}", now.as_nanosecond())))
    }

    /// Adds the announcement to one of them.
    pub fn announce(&self, maintenance: &mut NodeMaintenance) {
        if let Some(value) = &self.0 {
            let annotations = maintenance.metadata.annotations.get_or_insert_default();
            annotations.insert(names::START_TOGETHER_ANNOTATION.to_owned(), value.clone());
        }
    }
}

/// Whether the drain has failed because its time limit has passed.
fn has_failed_by_timeout(existing: &NodeMaintenance) -> bool {
    State::of(existing) == State::Failed && has_timed_out(existing)
}

/// Why a reason is too long; `None` if it is not.
pub fn reason_problem(reason: &str) -> Option<String> {
    let length = reason.chars().count();
    (length > MAX_REASON_LENGTH)
        .then(|| format!("a reason has at most {MAX_REASON_LENGTH} characters, and this one has {length}"))
}

fn parse_reason(reason: &str) -> Result<String, String> {
    reason_problem(reason).map_or_else(|| Ok(reason.to_owned()), Err)
}

/// Checks with a dry run that the definition of the cluster has every field that is set, before a drain begins.
///
/// # Errors
///
/// If the definition lacks a field, or if the request fails.
pub async fn check_definition(cluster: &Cluster, wanted: &NodeMaintenance) -> Result<(), Error> {
    if wanted.spec.suspend || wanted.spec.drain.is_some() {
        start(cluster, wanted, true).await?;
    }
    Ok(())
}

/// Checks that the API server has kept the settings of a maintenance that it created: the definitions of older versions and
/// of the medik8s operator lack some fields, and the API server prunes them. A setting that something in the cluster has
/// changed to another value is kept.
fn check_kept(created: &NodeMaintenance, wanted: &NodeMaintenance) -> Result<(), Error> {
    suspend::check_kept(created, wanted.spec.suspend)?;
    let value = |drain: Option<&DrainSpec>| json!(drain.cloned().unwrap_or_default());
    let drains = [None, wanted.spec.drain.as_ref(), created.spec.drain.as_ref()];
    let [default, wanted, created] = drains.map(value);
    let is_pruned = |field: &str| wanted[field] != default[field] && created[field] == default[field];
    let fields = wanted.as_object().into_iter().flat_map(Map::keys);
    let pruned: Vec<String> =
        fields.filter(|field| is_pruned(field)).map(|field| format!("spec.drain.{field}")).collect();
    if pruned.is_empty() { Ok(()) } else { Err(Error::DrainPruned(pruned)) }
}

fn difference(field: &str, is: &Value, wanted: &Value) -> String {
    let shown = |value: &Value| if value.is_null() { String::from("not set") } else { value.to_string() };
    format!("{field} is {} and not {}", shown(is), shown(wanted))
}

/// The maintenances that exist for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Existing {
    /// None, and the node's name is free.
    Nothing,
    /// The maintenance that has the node.
    Maintenance(Box<NodeMaintenance>),
    /// Only maintenances that are being deleted; what the first of them waits for, if anything keeps the node cordoned.
    Stopping(Option<String>),
    /// Only a maintenance that has ended and is kept by this roll.
    Kept(String),
    /// An object with the node's name, for this other node.
    NameTaken(String),
}

impl Existing {
    /// Finds what `all` contains for the node `wanted`.
    pub fn find(wanted: &str, all: &[NodeMaintenance]) -> Self {
        let is_stopping = |object: &NodeMaintenance| object.metadata.deletion_timestamp.is_some();
        let of_node = all.iter().filter(|object| node(object) == wanted && !is_stopping(object));
        let namesake = all.iter().find(|object| object.name_any() == wanted);
        match (ownership::oldest(of_node), namesake) {
            (Some(object), _) => Self::Maintenance(Box::new(object.clone())),
            (None, Some(object)) if node(object) != wanted => Self::NameTaken(node(object).to_owned()),
            _ => {
                let mut stopping = all.iter().filter(|object| node(object) == wanted);
                match stopping.clone().find_map(kept_by_roll) {
                    Some(roll) => Self::Kept(roll.to_owned()),
                    None => match stopping.next() {
                        Some(object) => Self::Stopping(hold(object).map(ToString::to_string)),
                        None => Self::Nothing,
                    },
                }
            }
        }
    }

    /// Why no maintenance can be started for the node; none if one can, or exists.
    pub fn refusal(&self, node: &str, rolls: &RollRunners, now: Timestamp) -> Option<Error> {
        match self {
            Self::Nothing | Self::Maintenance(_) => None,
            Self::Stopping(None) => Some(Error::Ending(node.to_owned())),
            Self::Stopping(Some(hold)) => {
                Some(Error::EndingHeld { node: node.to_owned(), hold: hold.clone() })
            }
            Self::Kept(roll) => Some(rolls.refusal(node, roll, now)),
            Self::NameTaken(other) => Some(Error::NameTaken { name: node.to_owned(), other: other.clone() }),
        }
    }
}

/// Result of [`start`].
#[derive(Debug, PartialEq)]
pub struct Started {
    /// The maintenance as the API server returned it.
    pub object: NodeMaintenance,
    /// Whether the start created it. Otherwise it existed.
    pub created: bool,
}

/// Creates a maintenance, named after its node. If another client was faster, its maintenance is returned. With `dry_run`,
/// the API server only validates the request. A definition that lacks one of the settings is an error.
///
/// # Errors
///
/// If the definition lacks a setting, if the existing object prevents the start, or if a request fails.
pub async fn start(cluster: &Cluster, wanted: &NodeMaintenance, dry_run: bool) -> Result<Started, Error> {
    let refused = match cluster.create(wanted, dry_run).await {
        Ok(object) => {
            check_kept(&object, wanted)?;
            return Ok(Started { object, created: true });
        }
        Err(error) if error.status().is_some_and(Status::is_already_exists) => error,
        Err(error) => return Err(error),
    };
    let existing: Vec<NodeMaintenance> = cluster.maintenance(&wanted.name_any()).await?.into_iter().collect();
    match Existing::find(node(wanted), &existing) {
        Existing::Maintenance(object) => Ok(Started { object: *object, created: false }),
        other => {
            let rolls = RollRunners::of(&existing);
            Err(other.refusal(node(wanted), &rolls, Timestamp::now()).unwrap_or(refused))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::{ROLL_FINALIZER, ROLL_LABEL};
    use crate::testing::objects::{named, requested, stopping, with_status};

    fn maintenance(object: NodeMaintenance) -> Existing {
        Existing::Maintenance(Box::new(object))
    }

    #[test]
    fn the_oldest_maintenance_that_is_not_stopping_has_the_node() {
        for (all, existing) in [
            (vec![], Existing::Nothing),
            (vec![requested("n2")], Existing::Nothing),
            (vec![requested("n1")], maintenance(requested("n1"))),
            (vec![named("other", "n1", "u")], maintenance(named("other", "n1", "u"))),
            (vec![named("n1", "n2", "u")], Existing::NameTaken("n2".into())),
            (vec![named("n1", "n2", "u"), named("n2", "n1", "v")], maintenance(named("n2", "n1", "v"))),
            (vec![stopping(requested("n1"))], Existing::Stopping(None)),
            (
                vec![stopping(requested("n1")), named("other", "n1", "u")],
                maintenance(named("other", "n1", "u")),
            ),
            (vec![stopping(named("other", "n1", "u"))], Existing::Stopping(None)),
        ] {
            assert_eq!(Existing::find("n1", &all), existing, "{all:?}");
        }
    }

    #[test]
    fn a_maintenance_that_a_roll_keeps_is_refused_with_the_name_of_the_roll() {
        let mut kept = stopping(requested("n1"));
        kept.labels_mut().insert(ROLL_LABEL.into(), "kernel".into());
        kept.metadata.finalizers = Some(vec![ROLL_FINALIZER.into()]);
        let (rolls, now) = (RollRunners::default(), Timestamp::UNIX_EPOCH);
        let refusal = Existing::find("n1", &[kept]).refusal("n1", &rolls, now).unwrap();
        assert_eq!(refusal.to_string(), "node \"n1\" is part of roll \"kernel\"");
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        request: StartRequest,
    }

    #[test]
    fn a_maintenance_with_another_spec_is_an_error_with_the_command_that_changes_it() {
        let mut existing = named("other", "n1", "u");
        existing.spec.reason = Some("disk".into());
        let wants = |reason: Option<&str>| StartRequest {
            reason: reason.map(str::to_owned),
            ..StartRequest::default()
        };
        for same in [None, Some("disk")] {
            assert!(wants(same).check(&existing, "kubectl").is_ok(), "{same:?}");
        }
        let differs = wants(Some("it's the kernel")).check(&existing, "kubectl --context=c").unwrap_err();
        assert_eq!(
            differs.to_string(),
            "node \"n1\" is already in maintenance, but reason is \"disk\" and not \"it's the kernel\""
        );
        let hint = differs.hint().unwrap();
        assert!(hint.starts_with("somebody else may have started it"), "{hint}");
        let command = hint.split('`').nth(1).unwrap();
        let patch = "{\"spec\":{\"reason\":\"it's the kernel\"}}";
        assert_eq!(
            shlex::split(command).unwrap(),
            ["kubectl", "--context=c", "patch", "nm", "other", "--type=merge", "-p", patch]
        );
        let careful = DrainSpec { force: false, timeout_seconds: 60, ..DrainSpec::default() };
        let mut failed = with_status(
            "n1",
            json!({"phase": "Failed", "conditions": [{"type": "Drained", "status": "False", "reason": "TimedOut",
                "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}),
        );
        failed.spec.drain = Some(careful);
        let force = <Line as clap::Parser>::parse_from(["nm", "--force"]).request;
        let hint = force.check(&failed, "kubectl").unwrap_err().hint().unwrap();
        let patch = "{\"spec\":{\"drain\":{\"force\":true,\"timeoutSeconds\":0}}}";
        assert!(hint.contains(patch), "a drain that its time limit has ended needs a new one: {hint}");
        assert!(hint.ends_with("; the drain then continues, without a time limit"), "{hint}");
        let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"});
        failed.status.as_mut().unwrap().conditions.push(serde_json::from_value(cordoned).unwrap());
        let hint = |timeout: &str| {
            let longer = <Line as clap::Parser>::parse_from(["nm", "--timeout", timeout]).request;
            longer.check(&failed, "kubectl").unwrap_err().hint().unwrap()
        };
        let over = hint("90s");
        assert!(
            over.contains("would be over since 2026-01-02T03:05:35Z") && !over.contains("patch"),
            "{over}"
        );
        let decades = hint("999999h");
        assert!(decades.contains("; the drain then continues until 21"), "{decades}");
        existing.spec.reason = None;
        let differs = wants(Some("disk")).check(&existing, "kubectl").unwrap_err().to_string();
        assert!(differs.ends_with("but reason is not set and not \"disk\""), "{differs}");
    }
}
