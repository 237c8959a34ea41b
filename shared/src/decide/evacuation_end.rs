//! What the end of a maintenance does about virtual machines: those that have not begun to move stay.
//!
//! The mark of a virtual machine is removed first, and its migration deleted once the mark is gone: KubeVirt would create
//! another. Both are retried until a live list shows neither.

use std::collections::HashSet;

use crate::cluster::pod::reference_in;
use crate::decide::decision::{EventReason, EventSubject, PendingEvent};
use crate::drain::migration::VirtualMachineInstanceMigration;
use crate::drain::virtual_machine::{MachineKey, VirtualMachineInstance};

/// The number of virtual machines that an event names.
const MAX_NAMED_MACHINES: usize = 5;

/// What is still to be done, by what a live list shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvacuationEnd {
    /// The virtual machines whose mark names the node.
    pub marked: Vec<MachineKey>,
    /// The virtual machines that a controller other than KubeVirt's moves.
    pub left_to_others: Vec<MachineKey>,
    /// The migrations to delete. Each has not begun, and its virtual machine is no longer marked.
    pub deletable: Vec<VirtualMachineInstanceMigration>,
    /// The virtual machines that leave although the maintenance ends: their migrations have started.
    pub moving: Vec<MachineKey>,
}

impl EvacuationEnd {
    /// Of the instances on `node` and the migrations of the cluster; none if these may not be listed.
    pub fn new(
        instances: &[VirtualMachineInstance],
        migrations: Option<&[VirtualMachineInstanceMigration]>,
        node: &str,
    ) -> Self {
        let on_node: HashSet<MachineKey> =
            instances.iter().map(|instance| reference_in(&instance.metadata)).collect();
        let marked = || instances.iter().filter(|instance| instance.is_leaving(node));
        let key = |instance: &VirtualMachineInstance| reference_in(&instance.metadata);
        let left_to_others = marked().filter(|instance| instance.is_left_to_others()).map(key).collect();
        let mut end = Self { marked: marked().map(key).collect(), left_to_others, ..Self::default() };
        let evacuations = migrations.unwrap_or_default().iter().filter(|migration| {
            migration.is_active() && migration.evacuates(node) && on_node.contains(&migration.machine())
        });
        for migration in evacuations {
            let machine = migration.machine();
            if !migration.is_deletable() {
                end.moving.push(machine);
            } else if !end.marked.contains(&machine) && migration.metadata.deletion_timestamp.is_none() {
                end.deletable.push(migration.clone());
            }
        }
        end.moving.sort();
        end
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.marked.is_empty() && self.deletable.is_empty()
    }
}

/// Why virtual machines may leave a node whose maintenance has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StillLeaving {
    /// Their migrations have begun.
    Begun,
    /// nm-reconciler may not delete migrations, which KubeVirt creates for all virtual machines at once.
    MayNotDelete,
    /// KubeVirt before 1.7 cannot be told to leave them.
    CannotCancel,
    /// KubeVirt, or the API server, did not do it in time. The last error, if there was one.
    NotInTime(Option<String>),
}

/// The event on the node about virtual machines that still leave it; none if there are none.
pub fn still_leaving<'a>(
    node: &str,
    machines: impl IntoIterator<Item = &'a MachineKey>,
    why: &StillLeaving,
) -> Option<PendingEvent> {
    let mut machines = machines.into_iter();
    let named: Vec<String> = machines.by_ref().take(MAX_NAMED_MACHINES).map(ToString::to_string).collect();
    if named.is_empty() {
        return None;
    }
    let more = machines.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let why = match why {
        StillLeaving::Begun => "their migrations have started".to_owned(),
        StillLeaving::MayNotDelete => format!(
            "nm-reconciler may not delete their migrations; {}",
            crate::api::grant::Grant::VirtualMachines.hint()
        ),
        StillLeaving::CannotCancel => "KubeVirt before 1.7 does not cancel evacuations".to_owned(),
        StillLeaving::NotInTime(error) => {
            let error = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
            format!("KubeVirt did not cancel their evacuation in time{error}")
        }
    };
    Some(PendingEvent {
        subject: EventSubject::Node,
        reason: EventReason::MachinesStillLeave,
        note: format!("Virtual machines may still leave node {node}: {}{more}: {why}", named.join(", ")),
        pod: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn instance(name: &str, mark: Option<&str>) -> VirtualMachineInstance {
        let object =
            json!({"metadata": {"namespace": "ns", "name": name}, "status": {"evacuationNodeName": mark}});
        serde_json::from_value(object).unwrap()
    }

    fn migration(machine: &str, node: &str, phase: &str) -> VirtualMachineInstanceMigration {
        let object = json!({
            "metadata": {"namespace": "ns", "name": format!("m-{machine}"), "uid": machine, "resourceVersion": "7",
                "annotations": {"kubevirt.io/evacuationMigration": node}},
            "spec": {"vmiName": machine}, "status": {"phase": phase},
        });
        serde_json::from_value(object).unwrap()
    }

    fn key(name: &str) -> MachineKey {
        MachineKey { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn marks_go_first_and_migrations_that_have_not_begun_when_the_mark_is_gone() {
        let instances = [instance("marked", Some("a")), instance("other", Some("b")), instance("free", None)];
        let migrations = [
            migration("marked", "a", "Pending"),
            migration("other", "b", "Pending"),
            migration("free", "a", "Scheduling"),
            migration("elsewhere", "a", "Pending"),
        ];
        let end = EvacuationEnd::new(&instances, Some(&migrations), "a");
        assert_eq!((end.marked.clone(), end.moving.clone()), (vec![key("marked")], vec![]));
        let deletable: Vec<(&str, Option<&str>)> = end
            .deletable
            .iter()
            .map(|migration| &migration.metadata)
            .map(|metadata| (metadata.name.as_deref().unwrap(), metadata.resource_version.as_deref()))
            .collect();
        assert_eq!(deletable, [("m-free", Some("7"))]);
        assert!(!end.is_done());
    }

    #[test]
    fn a_migration_that_has_begun_goes_on_and_one_that_a_person_created_is_left_alone() {
        let instances = [instance("a1", None), instance("a2", None), instance("a3", None)];
        let mut manual = migration("a2", "a", "Pending");
        manual.metadata.annotations = None;
        let migrations = [migration("a1", "a", "Scheduled"), manual, migration("a3", "a", "Succeeded")];
        let end = EvacuationEnd::new(&instances, Some(&migrations), "a");
        assert_eq!((end.is_done(), end.moving), (true, vec![key("a1")]));
        assert!(EvacuationEnd::new(&instances, None, "a").is_done());
    }

    #[test]
    fn the_event_names_a_few_machines_and_the_remedy() {
        let machines: Vec<MachineKey> = (0..7).map(|at| key(&format!("vm-{at}"))).collect();
        let note = |why| still_leaving("n1", &machines, &why).unwrap().note;
        assert!(note(StillLeaving::Begun).contains("ns/vm-4 and 2 more"), "{}", note(StillLeaving::Begun));
        assert!(note(StillLeaving::MayNotDelete).contains("--grant virtual-machines"));
        let late = StillLeaving::NotInTime(Some("503 from virt-api".to_owned()));
        assert!(note(late).ends_with("in time: 503 from virt-api"));
        assert_eq!(still_leaving("n1", &[], &StillLeaving::Begun), None);
    }
}
