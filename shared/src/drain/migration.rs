//! The migrations of virtual machines: `VirtualMachineInstanceMigration` of KubeVirt.
//!
//! KubeVirt creates one for each marked virtual machine at once, and does not delete it when the mark is removed: the virtual
//! machine leaves the node nevertheless. Limits for the cluster and for each node decide how many leave `Pending`. One that
//! is deleted before its target pod is handed to virt-handler (`Pending`, `Scheduling`) fails, and the virtual machine stays. A
//! failed one is followed by another, which waits 20 s, 40 s and so on (`pkg/virt-controller/watch/migration/migration.go` in
//! kubevirt/kubevirt, v1.9.0).

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use crate::api::condition::whole_seconds;
use crate::api::migration::MigrationFacts;
use crate::drain::virtual_machine::{GROUP, MachineKey};

/// Annotation of a migration: the node that the virtual machine is evacuated from.
pub const EVACUATION_ANNOTATION: &str = "kubevirt.io/evacuationMigration";

/// KubeVirt waits this long after the first failure, and twice as long after each further one.
const BACKOFF: Duration = Duration::from_secs(20);

/// A migration of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
pub struct VirtualMachineInstanceMigration {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The specification of the migration.
    #[serde(default)]
    pub spec: MigrationSpec,
    /// The status of the migration.
    #[serde(default)]
    pub status: MigrationStatus,
}

/// The specification of a migration.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationSpec {
    /// Name of the virtual machine.
    pub vmi_name: String,
}

/// The status of a migration.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationStatus {
    /// The phase of the migration; empty before KubeVirt has processed it.
    pub phase: String,
    /// When it entered its phases.
    pub phase_transition_timestamps: Vec<PhaseTransition>,
}

/// When a migration entered a phase.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PhaseTransition {
    /// The phase.
    pub phase: String,
    /// When.
    pub phase_transition_timestamp: Option<Time>,
}

/// How far a migration has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStage {
    /// The migration waits for its turn.
    Pending,
    /// The target pod of the migration is not Ready yet.
    Scheduling,
    /// virt-handler has it.
    HandedOver,
    /// The migration has succeeded.
    Succeeded,
    /// The migration has failed.
    Failed,
}

impl Resource for VirtualMachineInstanceMigration {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "VirtualMachineInstanceMigration".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "virtualmachineinstancemigrations".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl VirtualMachineInstanceMigration {
    /// The virtual machine.
    pub fn machine(&self) -> MachineKey {
        MachineKey {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.spec.vmi_name.clone(),
        }
    }

    /// Whether it evacuates a virtual machine from `node`.
    pub fn evacuates(&self, node: &str) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(EVACUATION_ANNOTATION)).is_some_and(|source| source == node)
    }

    /// How far it has come. Phases that KubeVirt may add count as under way.
    pub fn stage(&self) -> MigrationStage {
        match self.status.phase.as_str() {
            "" | "Pending" => MigrationStage::Pending,
            "Scheduling" => MigrationStage::Scheduling,
            "Succeeded" => MigrationStage::Succeeded,
            "Failed" => MigrationStage::Failed,
            _ => MigrationStage::HandedOver,
        }
    }

    /// Whether it has not ended.
    pub fn is_active(&self) -> bool {
        !matches!(self.stage(), MigrationStage::Succeeded | MigrationStage::Failed)
    }

    /// Whether the virtual machine stays where it is if this is deleted.
    pub fn is_deletable(&self) -> bool {
        matches!(self.stage(), MigrationStage::Pending | MigrationStage::Scheduling)
    }

    /// Whether its target pod was never Ready.
    fn failed_early(&self) -> bool {
        !self.status.phase_transition_timestamps.iter().any(|entry| entry.phase == "Scheduled")
    }

    /// When it last entered a phase.
    pub(super) fn changed(&self) -> Option<Timestamp> {
        let entries = self.status.phase_transition_timestamps.iter();
        let last =
            entries.filter_map(|entry| entry.phase_transition_timestamp.as_ref()).map(|time| time.0).max();
        last.or_else(|| self.created())
    }

    /// When it entered a phase.
    pub(super) fn entered(&self, phase: &str) -> Option<Timestamp> {
        let entry = self.status.phase_transition_timestamps.iter().find(|entry| entry.phase == phase)?;
        entry.phase_transition_timestamp.as_ref().map(|time| time.0)
    }

    pub(super) fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }
}

/// The evacuations of one virtual machine from a node during a maintenance.
#[derive(Debug, Clone, Default)]
pub(super) struct MigrationHistory<'a> {
    /// The one that has not ended.
    pub(super) active: Option<&'a VirtualMachineInstanceMigration>,
    /// The migrations that have failed since the last success, newest first. KubeVirt's back-off counts all of them.
    failed: Vec<&'a VirtualMachineInstanceMigration>,
    /// The number of these that belong to the maintenance.
    recent: usize,
}

impl<'a> MigrationHistory<'a> {
    /// Of these migrations, which are of one virtual machine.
    pub(super) fn new(mut all: Vec<&'a VirtualMachineInstanceMigration>, began: Timestamp) -> Self {
        all.sort_by_key(|migration| std::cmp::Reverse(migration.created()));
        let active = all.iter().copied().find(|migration| migration.is_active());
        let ended = all.into_iter().filter(|migration| !migration.is_active());
        // A maintenance and a migration may begin in the same second.
        let is_recent = |migration: &&VirtualMachineInstanceMigration| {
            migration.created().is_none_or(|at| whole_seconds(at).0 >= whole_seconds(began).0)
        };
        let failed = ended.take_while(|migration| migration.stage() == MigrationStage::Failed);
        let failed: Vec<_> =
            failed.filter(|migration| migration.metadata.deletion_timestamp.is_none()).collect();
        let recent = failed.iter().filter(|migration| is_recent(migration)).count();
        Self { active, failed, recent }
    }

    /// The number of migrations that have failed during the maintenance.
    pub(super) fn failures(&self) -> usize {
        self.recent
    }

    /// When the last one failed.
    pub(super) fn failed_at(&self) -> Option<Timestamp> {
        self.failed.first()?.entered("Failed")
    }

    /// Whether the last one failed before its target pod was Ready.
    pub(super) fn failed_early(&self) -> bool {
        self.failed.first().is_some_and(|last| last.failed_early())
    }

    /// The facts of the active one.
    pub(super) fn facts(&self) -> Option<MigrationFacts> {
        let active = self.active?;
        let waits = active.stage() == MigrationStage::Pending;
        Some(MigrationFacts {
            name: active.metadata.name.clone().unwrap_or_default(),
            phase: active.status.phase.clone(),
            failures: i32::try_from(self.failed.len()).unwrap_or(i32::MAX),
            not_before: self.not_before().filter(|_| waits).map(whole_seconds),
        })
    }

    /// When KubeVirt begins the next one at the earliest, because others have failed.
    pub(super) fn not_before(&self) -> Option<Timestamp> {
        let doublings = u32::try_from(self.failed.len().checked_sub(1)?).unwrap_or(u32::MAX).min(16);
        self.failed_at()?.checked_add(BACKOFF.saturating_mul(1 << doublings)).ok()
    }
}
