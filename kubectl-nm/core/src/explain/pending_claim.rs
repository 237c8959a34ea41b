//! Why a claim of a Pending pod has no volume, as the claim, its events and its `StorageClass` show it.

use jiff::{SignedDuration, Timestamp};
use nm_shared::PodReference;

use crate::terminal::command_context::shell_quoted;

/// The provisioner of a class whose volumes are created by hand.
pub(super) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Provisioning usually takes less than this.
const PROVISIONING: SignedDuration = SignedDuration::from_secs(30);

/// A claim of a Pending pod that has no volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingClaim {
    /// Its namespace and name.
    pub claim: PodReference,
    /// Name of its `StorageClass`; none if it names none.
    pub class: Option<String>,
    /// Why it has no volume.
    pub why: NoVolume,
}

/// Why a claim has no volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoVolume {
    /// The claim does not exist.
    NoClaim,
    /// The claim is being deleted, which ends once no pod uses it.
    Deleted,
    /// Its `StorageClass` does not exist.
    NoClass,
    /// Its `StorageClass` creates no volumes.
    NoProvisioner,
    /// The message of its last event, which reports a failure.
    Failed(String),
    /// It has waited since then for a provisioner; the message of the event.
    Awaited(Timestamp, String),
}

impl PendingClaim {
    /// Whether a volume may be there in a moment.
    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        matches!(self.why, NoVolume::Awaited(since, _) if now.duration_since(since) < PROVISIONING)
    }

    /// The reason, as a sentence without its full stop.
    pub(super) fn words(&self) -> String {
        let claim = &self.claim;
        let name = self.class.as_deref().unwrap_or_default();
        let class = if name.is_empty() { String::new() } else { format!(" of StorageClass {name}") };
        match &self.why {
            NoVolume::NoClaim => format!("claim {claim} does not exist"),
            NoVolume::Deleted => format!("claim {claim} is being deleted, so no new pod can use it"),
            NoVolume::NoClass => {
                format!("claim {claim} has no volume, because its StorageClass {name} does not exist")
            }
            NoVolume::NoProvisioner => {
                format!("claim {claim}{class} has no volume, and this class creates none ({NO_PROVISIONER})")
            }
            NoVolume::Failed(message) | NoVolume::Awaited(_, message) => {
                format!("claim {claim}{class} has no volume: {}", message.trim_end_matches('.'))
            }
        }
    }

    /// What to do, as a sentence without its full stop.
    pub(super) fn advice(&self) -> &'static str {
        match self.why {
            NoVolume::NoClaim => {
                "Correct its name in the workload of the pod, or create the claim. A new claim gets an empty volume unless it names \
                 a volume that was retained (spec.volumeName), from which its former claimRef has to be removed"
            }
            NoVolume::Deleted => {
                "Once no pod uses the claim any more, it is gone; then create it again. If the reclaim policy of its volume is \
                 Delete, the data is deleted with it: set the policy to Retain to keep it"
            }
            NoVolume::NoClass => {
                "Create the StorageClass; a claim cannot change its class, so to use another one, create the claim again"
            }
            NoVolume::NoProvisioner => "Create a PersistentVolume of this class that fits the claim",
            NoVolume::Failed(_) | NoVolume::Awaited(..) if self.class.is_none() => {
                "Create a PersistentVolume without a StorageClass that fits the claim: without a class, no \
                 provisioner creates one"
            }
            NoVolume::Failed(_) | NoVolume::Awaited(..) => {
                "Check whether the provisioner of the StorageClass runs, and what it reports"
            }
        }
    }

    /// Commands that show more.
    pub(super) fn commands(&self, kubectl: &str) -> Vec<String> {
        let (namespace, name) = (shell_quoted(&self.claim.namespace), shell_quoted(&self.claim.name));
        let describe = format!("{kubectl} -n {namespace} describe pvc {name}");
        let class = self.class.as_deref().map(shell_quoted);
        let second = match (&self.why, class) {
            (NoVolume::NoClaim, _) => {
                return vec![format!("{kubectl} -n {namespace} get pvc"), format!("{kubectl} get pv")];
            }
            (NoVolume::NoClass, _) => format!("{kubectl} get storageclass"),
            (NoVolume::Deleted | NoVolume::NoProvisioner, _) | (_, None) => format!("{kubectl} get pv"),
            (_, Some(class)) => format!("{kubectl} describe storageclass {class}"),
        };
        vec![describe, second]
    }
}
