//! Volume claims that are being deleted. Kubernetes removes such a claim as soon as no pod uses it, so a drain may cause that.

use std::collections::BTreeMap;

use nm_shared::PodReference;
use nm_shared::cluster::pod;
use nm_shared::cluster::volumes;
use nm_shared::forecast::Forecast;
use serde_json::{Value, json};

use crate::plan::cluster_snapshot::ClusterSnapshot;
use crate::terminal::text::{Line, Style, first_names};

/// A claim that is being deleted, of pods that leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedClaim {
    claim: PodReference,
    pods: Vec<PodReference>,
    /// Whether the volume stays when the claim is removed; none if the volume is not known.
    is_retained: Option<bool>,
}

impl DeletedClaim {
    /// Those of the pods that leave.
    pub(super) fn of(forecast: &Forecast, snapshot: &ClusterSnapshot) -> Vec<Self> {
        let mut found: BTreeMap<PodReference, Self> = BTreeMap::new();
        for expected in forecast.pods.iter().filter(|pod| pod.leaves) {
            let read = snapshot.pods.as_ref();
            let Some(pod) = read.and_then(|pods| pods.find(&expected.node, pod::uid(&expected.pod))) else {
                continue;
            };
            let namespace = pod::names(&expected.pod).namespace;
            for name in volumes::claims(pod) {
                let claim = PodReference { namespace: namespace.to_owned(), name: name.to_owned() };
                if snapshot.deleted_claims.contains(&claim) {
                    let is_retained = snapshot.volumes.is_retained(&claim);
                    let of_claim = found.entry(claim.clone());
                    let of_claim = of_claim.or_insert(Self { claim, pods: Vec::new(), is_retained });
                    of_claim.pods.push(pod::reference(&expected.pod));
                }
            }
        }
        found.into_values().collect()
    }

    pub(super) fn line(&self) -> Line {
        let pods: Vec<String> = self.pods.iter().map(ToString::to_string).collect();
        let line =
            Line::new(format!("claim {} of {} is being deleted, and ", self.claim, first_names(&pods)));
        let (removed, when) = match self.is_retained {
            Some(true) => ("is removed", "once no pod uses it, but its volume is retained"),
            Some(false) => ("is removed with its data", "once no pod uses it"),
            None => ("is removed", "once no pod uses it; whether its volume is retained is not known"),
        };
        let line = line.with(Style::Bad, removed).and(format!(" {when}"));
        line.and("; replacements wait for another claim")
    }

    pub(super) fn document(&self) -> Value {
        let Self { claim, pods, is_retained } = self;
        json!({"harm": "ClaimDeleted", "claim": claim, "pods": pods, "retained": is_retained})
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolume;
    use nm_shared::cluster::volumes::Volumes;

    use super::*;
    use crate::plan::report::tests::{pod, report, snapshot};
    use crate::plan::text;

    #[test]
    fn a_claim_that_is_being_deleted_is_lost_with_its_last_pod() {
        let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let planned = |policy: Option<&str>, deleted: &str| {
            let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &claim)]);
            let volume = |policy: &str| -> PersistentVolume {
                let claim = json!({"namespace": "shop", "name": "data"});
                let spec = json!({"claimRef": claim, "persistentVolumeReclaimPolicy": policy});
                serde_json::from_value(json!({"metadata": {"name": "pv-1"}, "spec": spec})).unwrap()
            };
            snapshot.volumes = Volumes::new(policy.map(volume));
            snapshot.deleted_claims.insert(PodReference { namespace: "shop".into(), name: deleted.into() });
            let lines = text::lines(&report(&["n1"], None, snapshot, &[]));
            lines.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let shown = |policy: Option<&str>, deleted: &str| {
            planned(policy, deleted).into_iter().find(|line| line.contains("being deleted"))
        };
        let lost = "claim shop/data of shop/db-0 is being deleted, and is removed with its data once no pod uses it; replacements wait for another claim";
        assert_eq!(shown(Some("Delete"), "data").as_deref(), Some(lost));
        let retained = "claim shop/data of shop/db-0 is being deleted, and is removed once no pod uses it, but its volume is retained; \
                        replacements wait for another claim";
        assert_eq!(shown(Some("Retain"), "data").as_deref(), Some(retained));
        let unknown = "claim shop/data of shop/db-0 is being deleted, and is removed once no pod uses it; whether its volume is retained is not \
                       known; replacements wait for another claim";
        assert_eq!(shown(None, "data").as_deref(), Some(unknown));
        assert_eq!(shown(Some("Delete"), "other"), None);
    }
}
