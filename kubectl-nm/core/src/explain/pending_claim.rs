//! Why a claim of a Pending pod has no volume, as the claim, its events and its `StorageClass` show it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use nm_shared::PodReference;

use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::{MAX_NAMES, first_names};

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
    /// Whether it is that of an ephemeral volume, which has no data before its pod starts.
    pub is_ephemeral: bool,
    /// The retained volumes that were bound to a former claim of this name, as far as the user may list volumes.
    pub retained: Vec<String>,
}

/// The volumes of the cluster, as far as they matter to claims that have none.
#[derive(Debug, Clone, Default)]
pub struct ListedVolumes {
    /// The retained volumes that were bound to a claim that was deleted: the claim, and the name of the volume.
    retained: BTreeSet<(PodReference, String)>,
    /// The classes that volumes have.
    classes: BTreeSet<String>,
}

impl ListedVolumes {
    /// Adds a volume.
    pub(super) fn add(&mut self, volume: PersistentVolume) {
        let spec = volume.spec.unwrap_or_default();
        self.classes.extend(spec.storage_class_name);
        let is_retained = volume.status.is_some_and(|status| status.phase.as_deref() == Some("Released"))
            && spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain")
            && volume.metadata.deletion_timestamp.is_none();
        let claim = spec.claim_ref.filter(|_| is_retained);
        if let (Some(claim), Some(volume)) = (claim, volume.metadata.name)
            && let (Some(namespace), Some(name)) = (claim.namespace, claim.name)
        {
            self.retained.insert((PodReference { namespace, name }, volume));
        }
    }
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
    /// Its class has volumes, but no `StorageClass`, which only creates volumes.
    NotBound,
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

    /// Whether it matters which volumes there are. A claim that is being deleted still has its own.
    pub(super) fn needs_volumes(&self, now: Timestamp) -> bool {
        self.why != NoVolume::Deleted && !self.is_recent(now)
    }

    /// Notes what the volumes of the cluster show.
    pub(super) fn note(&mut self, volumes: &ListedVolumes) {
        if self.why == NoVolume::NoClass
            && self.class.as_ref().is_some_and(|class| volumes.classes.contains(class))
        {
            self.why = NoVolume::NotBound;
        }
        if !self.is_ephemeral {
            let of_claim = volumes.retained.iter().filter(|(claim, _)| *claim == self.claim);
            self.retained = of_claim.map(|(_, name)| name.clone()).collect();
        }
    }

    /// The reason, as a sentence without its full stop.
    pub(super) fn words(&self) -> String {
        let (why, retained) = (self.why_words(), first_names(&self.retained));
        match self.retained.len() {
            0 => why,
            1 => format!(
                "{why}; the retained volume {retained} was bound to a claim of this name, and may have its former data"
            ),
            _ => format!(
                "{why}; the retained volumes {retained} were bound to claims of this name, and may have their former data"
            ),
        }
    }

    fn why_words(&self) -> String {
        let claim = &self.claim;
        let name = self.class.as_deref().unwrap_or_default();
        let class = if name.is_empty() { String::new() } else { format!(" of StorageClass {name}") };
        match &self.why {
            NoVolume::NoClaim => format!("claim {claim} does not exist"),
            NoVolume::Deleted => format!("claim {claim} is being deleted, so no new pod can use it"),
            NoVolume::NoClass => {
                format!("claim {claim} has no volume, because its StorageClass {name} does not exist")
            }
            NoVolume::NotBound => {
                format!("claim {claim} has no volume: none of the volumes of its class {name} is bound to it")
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
    pub(super) fn advice(&self) -> String {
        let first = match self.retained.len() {
            0 => "",
            1 => "Look at the retained volume before another volume is provided. ",
            _ => "Look at the retained volumes before another volume is provided. ",
        };
        format!("{first}{}", self.advice_of_reason())
    }

    fn advice_of_reason(&self) -> &'static str {
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
            NoVolume::NotBound => {
                "Check whether one of the volumes of this class is available and fits the claim; without one, create it"
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
        let first = match self.why {
            NoVolume::NoClaim => format!("{kubectl} -n {namespace} get pvc"),
            _ => format!("{kubectl} -n {namespace} describe pvc {name}"),
        };
        let retained = self.retained.iter().take(MAX_NAMES);
        let volumes = if self.retained.is_empty() {
            format!("{kubectl} get pv")
        } else {
            retained.fold(format!("{kubectl} describe pv"), |all, volume| {
                format!("{all} {}", shell_quoted(volume))
            })
        };
        let class = match (&self.why, self.class.as_deref().map(shell_quoted)) {
            (NoVolume::NoClass, _) => Some(format!("{kubectl} get storageclass")),
            (NoVolume::Failed(_) | NoVolume::Awaited(..), Some(class)) => {
                Some(format!("{kubectl} describe storageclass {class}"))
            }
            _ => None,
        };
        let volumes = (class.is_none() || !self.retained.is_empty()).then_some(volumes);
        [first].into_iter().chain(volumes).chain(class).collect()
    }
}
