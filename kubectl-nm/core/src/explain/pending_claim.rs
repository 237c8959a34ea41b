//! Why a claim of a Pending pod has no volume, as the claim, its events and its `StorageClass` show it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use nm_shared::PodReference;
use serde_json::{Value, json};

use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::first_names;

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
    /// The volumes that have the data of a former claim of this name, as far as the user may list volumes.
    pub retained: Vec<RetainedVolume>,
}

/// A volume that was retained when its claim was deleted. Kubernetes binds it to no claim as long as its `claimRef` has the uid of
/// that one: <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#retain>.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetainedVolume {
    /// Its name.
    pub name: String,
    /// The uid of its former claim.
    pub claim_uid: String,
    /// Whether its `claimRef` has a resource version.
    pub has_version: bool,
}

impl RetainedVolume {
    /// A volume that has the data of a former claim of this name.
    pub(super) fn of(volume: PersistentVolume, claim: &PodReference) -> Option<Self> {
        let spec = volume.spec?;
        let former = spec.claim_ref?;
        let is_released = volume.status?.phase.as_deref() == Some("Released")
            && spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain")
            && volume.metadata.deletion_timestamp.is_none();
        let is_of_claim = former.namespace.as_deref() == Some(&*claim.namespace)
            && former.name.as_deref() == Some(&*claim.name);
        let (name, claim_uid) = (volume.metadata.name?, former.uid?);
        let has_version = former.resource_version.is_some();
        (is_released && is_of_claim).then_some(Self { name, claim_uid, has_version })
    }

    /// The command that lets a new claim of the same name have the volume, and no other claim. It does nothing if the volume
    /// has another claim by now.
    fn rebind(&self, kubectl: &str) -> String {
        const UID: &str = "/spec/claimRef/uid";
        let mut patch = vec![
            json!({"op": "test", "path": UID, "value": self.claim_uid}),
            json!({"op": "remove", "path": UID}),
        ];
        if self.has_version {
            patch.push(json!({"op": "remove", "path": "/spec/claimRef/resourceVersion"}));
        }
        let patch = Value::from(patch).to_string();
        format!("{kubectl} patch pv {} --type=json -p {}", shell_quoted(&self.name), shell_quoted(&patch))
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
        let why = self.why_words();
        let names: Vec<String> = self.retained.iter().map(|volume| volume.name.clone()).collect();
        match names.as_slice() {
            [] => why,
            [only] => format!("{why}; the retained volume {only} has its former data"),
            several => format!("{why}; the retained volumes {} have its former data", first_names(several)),
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
        match (self.retained.as_slice(), &self.why) {
            ([], _) => {}
            ([_], NoVolume::NoClaim) => {
                return "Create the claim again with the name of the retained volume (spec.volumeName), or its volume will be empty. Once the \
                        claim exists, this shows the command that binds them";
            }
            ([_], _) => {
                return "A new volume would be empty. To use the former data, remove the uid of the former claim from the retained volume: \
                        Kubernetes then binds it to this claim, and to no other";
            }
            (_, _) => {
                return "A new volume would be empty. To use former data, find out which of the retained volumes has the latest, and remove \
                        the uid of the former claim from its claimRef: Kubernetes then binds it to the claim of that name";
            }
        }
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
        let all = format!("{kubectl} -n {namespace} get pvc");
        let describe = format!("{kubectl} -n {namespace} describe pvc {name}");
        if let [only] = self.retained.as_slice()
            && self.why != NoVolume::NoClaim
        {
            return vec![describe, only.rebind(kubectl)];
        }
        if !self.retained.is_empty() {
            let names = self.retained.iter().map(|volume| shell_quoted(&volume.name).into_owned());
            let volumes = names.collect::<Vec<_>>().join(" ");
            let claim = if self.why == NoVolume::NoClaim { all } else { describe };
            return vec![claim, format!("{kubectl} get pv {volumes} -o yaml")];
        }
        let class = self.class.as_deref().map(shell_quoted);
        let second = match (&self.why, class) {
            (NoVolume::NoClaim, _) => return vec![all, format!("{kubectl} get pv")],
            (NoVolume::NoClass, _) => format!("{kubectl} get storageclass"),
            (NoVolume::Deleted | NoVolume::NoProvisioner, _) | (_, None) => format!("{kubectl} get pv"),
            (_, Some(class)) => format!("{kubectl} describe storageclass {class}"),
        };
        vec![describe, second]
    }
}
