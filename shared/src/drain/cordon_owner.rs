//! Who keeps a node from taking new pods: a maintenance, another controller, or a person.
//!
//! `spec.unschedulable` has no owner. The marks of a maintenance are known, and so are the taints of common controllers.
//! Otherwise, `managedFields` shows the program that set the field, unless it is an interactive program.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::api::group::Group;
use crate::drain::node_patch;

/// Taints of controllers that remove or repair nodes. They also keep pods off nodes that are not cordoned.
const CONTROLLERS: [&str; 9] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    // Karpenter before 1.0.
    "karpenter.sh/disruption",
    "medik8s.io/remediation",
    "node.kubernetes.io/out-of-service",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
];

/// Taints of Kubernetes itself: conditions and roles of a node, which cordon nothing.
const KUBERNETES: [&str; 3] =
    ["node.kubernetes.io/", "node-role.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// The names in `managedFields` of interactive programs that cordon nodes: terminals, and dashboards, which have the
/// name of a browser or of a library.
const PEOPLE: [&str; 5] = ["kubectl", "oc", "k9s", "Mozilla", "node-fetch"];

/// Who keeps a node from taking new pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CordonOwner {
    /// A maintenance, ours or the medik8s operator's.
    Maintenance,
    /// Another controller, by the key of its taint.
    Controller(String),
    /// A program that only cordons, by its name in `managedFields`.
    Program(String),
    /// A person, or a program that left no name.
    Person,
}

/// What a node shows of its cordon.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    /// The metadata of the node, with the undo record.
    pub metadata: &'a ObjectMeta,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: &'a [Taint],
    /// The program that set `spec.unschedulable`, by `managedFields`.
    pub set_by: Option<&'a str>,
}

/// Who keeps the node from taking new pods; none if nothing does.
pub fn cordon_owner(marks: &Marks<'_>) -> Option<CordonOwner> {
    let repels = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let mut taints = marks.taints.iter().filter(repels).map(|taint| taint.key.as_str());
    let is_of_maintenance = |key: &str| Group::ALL.iter().any(|group| key == group.drain_taint());
    if taints.clone().any(is_of_maintenance)
        || (marks.unschedulable && node_patch::was_schedulable(marks.metadata).is_some())
    {
        return Some(CordonOwner::Maintenance);
    }
    let controller = |key: &str| CordonOwner::Controller(key.to_owned());
    if let Some(known) = taints.clone().find(|key| CONTROLLERS.contains(key)) {
        return Some(controller(known));
    }
    if !marks.unschedulable {
        return None;
    }
    match marks.set_by {
        Some(program) if is_of_people(program) => Some(CordonOwner::Person),
        Some(program) => Some(CordonOwner::Program(program.to_owned())),
        None => {
            let unknown = taints.find(|key| !KUBERNETES.iter().any(|prefix| key.starts_with(prefix)));
            Some(unknown.map_or(CordonOwner::Person, controller))
        }
    }
}

/// Whether this is an interactive program, by its name, which may have a suffix, as in `kubectl-edit`.
fn is_of_people(program: &str) -> bool {
    PEOPLE.iter().any(|name| {
        let suffix = program.strip_prefix(name);
        suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RECORD: &str = "{\"madeUnschedulable\":true}";

    /// The owner of a node with these taints, as `key:effect`.
    fn owner(unschedulable: bool, taints: &[&str], set_by: Option<&str>, record: Option<&str>) -> String {
        let metadata: ObjectMeta = serde_json::from_value(match record {
            Some(record) => json!({"annotations": {"kubectl-nm.dev/undo": record},
                "labels": {"remediation.medik8s.io/exclude-from-remediation": "true"}}),
            None => json!({}),
        })
        .unwrap();
        let taint = |text: &&str| {
            let (key, effect) = text.split_once(':').unwrap();
            Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
        };
        let taints: Vec<Taint> = taints.iter().map(taint).collect();
        match cordon_owner(&Marks { metadata: &metadata, unschedulable, taints: &taints, set_by }) {
            None => String::from("-"),
            Some(CordonOwner::Maintenance) => String::from("maintenance"),
            Some(CordonOwner::Controller(key)) => format!("controller {key}"),
            Some(CordonOwner::Program(name)) => format!("program {name}"),
            Some(CordonOwner::Person) => String::from("person"),
        }
    }

    #[test]
    fn the_marks_of_a_node_show_who_cordoned_it() {
        const CORDON: &str = "node.kubernetes.io/unschedulable:NoSchedule";
        const DRAIN: &str = "medik8s.io/drain:NoSchedule";
        const SCALER: &str = "ToBeDeletedByClusterAutoscaler:NoSchedule";
        const GPU: &str = "nvidia.com/gpu:NoSchedule";
        for (unschedulable, taints, set_by, record, expected) in [
            // In service.
            (false, &[][..], None, None, "-"),
            (false, &[GPU], None, None, "-"),
            (false, &["node.kubernetes.io/not-ready:NoExecute"], None, None, "-"),
            (false, &["node-role.kubernetes.io/control-plane:NoSchedule"], None, None, "-"),
            (false, &["kubectl-nm.dev/maintenance-planned:PreferNoSchedule"], None, None, "-"),
            (false, &["karpenter.sh/disrupted:PreferNoSchedule"], None, None, "-"),
            (false, &[], None, Some(RECORD), "-"),
            // In maintenance.
            (true, &[CORDON, DRAIN], Some("nm-reconciler"), Some(RECORD), "maintenance"),
            (true, &[CORDON, DRAIN], Some("kubectl"), None, "maintenance"),
            (true, &["kubevirt.io/drain:NoSchedule"], None, None, "maintenance"),
            (true, &[CORDON], None, Some(RECORD), "maintenance"),
            (false, &[DRAIN], None, None, "maintenance"),
            (true, &[CORDON], None, Some("{\"planned\":true}"), "person"),
            (true, &[DRAIN, SCALER], None, None, "maintenance"),
            // Controllers.
            (true, &[CORDON, SCALER], Some("kubectl"), None, "controller ToBeDeletedByClusterAutoscaler"),
            (false, &["karpenter.sh/disrupted:NoSchedule"], None, None, "controller karpenter.sh/disrupted"),
            (true, &[CORDON, "example.com/repair:NoExecute"], None, None, "controller example.com/repair"),
            // Programs that only cordon.
            (true, &[CORDON], Some("kured"), None, "program kured"),
            (
                true,
                &[CORDON, GPU],
                Some("machine-config-controller"),
                None,
                "program machine-config-controller",
            ),
            (true, &[CORDON], Some("octopus"), None, "program octopus"),
            // People.
            (true, &[CORDON], None, None, "person"),
            (true, &[], None, None, "person"),
            (true, &[CORDON, GPU], Some("kubectl"), None, "person"),
            (true, &[CORDON], Some("kubectl-edit"), None, "person"),
            (true, &[CORDON], Some("oc"), None, "person"),
            (true, &[CORDON, "node-role.kubernetes.io/control-plane:NoSchedule"], None, None, "person"),
            (true, &[CORDON, "node.kubernetes.io/not-ready:NoExecute"], None, None, "person"),
            (true, &[CORDON, "example.com/soft:PreferNoSchedule"], None, None, "person"),
        ] {
            assert_eq!(
                owner(unschedulable, taints, set_by, record),
                expected,
                "{taints:?} {set_by:?} {record:?}"
            );
        }
    }
}
