//! `spec.drain.waitForVolumeDetach`: after the last pod is gone, the drain waits until its volumes are detached.
//!
//! Nothing remembers which volumes the pods that left have used, so that a restart loses nothing: the drain waits for every
//! volume that is attached to the node, except for those whose claims are used by pods that stay. The wait is measured from
//! the transition time of the condition `VolumesDetached`, which exists only while no pod has to leave.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};

use crate::api::attached_volume::{AttachedVolume, ClaimReference};
use crate::api::condition::{self, ConditionReason, ConditionType, whole_seconds};
use crate::api::maintenance::{OnDetachTimeout, WaitForVolumeDetach};
use crate::api::status::NodeMaintenanceStatus;
use crate::cluster::pod;
use crate::cluster::volume_attachment::{NodeVolumes, VolumeAttachment};
use crate::drain::plan::{DrainPlan, PlannedPod, StayReason, Verdict};

/// The number of volumes that a message names before "and N more".
const MAX_NAMED_VOLUMES: usize = 3;

/// The volumes that the drain of a node without pods waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeDetach {
    /// The volumes that are attached, sorted by name.
    pub attached: Vec<AttachedVolume>,
    /// Whether there may be others, because the attachments of the node or their claims are not known.
    pub is_unknown: bool,
    /// When the wait ends; none without a limit.
    pub deadline: Option<Timestamp>,
    /// What follows, if the time is over and the volumes are not known to be detached.
    pub timed_out: Option<OnDetachTimeout>,
    timeout_seconds: i64,
}

impl VolumeDetach {
    /// Determines what the drain waits for at `now`; none while pods have to leave.
    pub fn new(
        wait: WaitForVolumeDetach,
        plan: &DrainPlan,
        volumes: &NodeVolumes,
        before: Option<&NodeMaintenanceStatus>,
        now: Timestamp,
    ) -> Option<Self> {
        if plan.pending().next().is_some() {
            return None;
        }
        let known =
            before.and_then(|before| condition::find(&before.conditions, ConditionType::VolumesDetached));
        let waits = known.filter(|condition| condition.status == "False");
        let since =
            waits.map_or_else(|| whole_seconds(now), |condition| condition.last_transition_time.clone());
        let used = claims_in_use(plan);
        let claim_of = |attachment: &VolumeAttachment| {
            let volume = attachment.volume.as_deref()?;
            volumes.claims.get(volume).cloned().flatten()
        };
        // Once all other volumes were detached, it is that of a pod that stays, as far as is known.
        let was_detached = known.is_some_and(|condition| condition.status == "True") && !used.is_empty();
        let is_unread = |attachment: &VolumeAttachment| {
            let volume = attachment.volume.as_deref();
            was_detached && volume.is_some_and(|volume| !volumes.claims.contains_key(volume))
        };
        let (unread, read): (Vec<_>, Vec<_>) =
            volumes.attachments.iter().partition(|attachment| is_unread(attachment));
        let all = read.into_iter().map(|attachment| (attachment, claim_of(attachment)));
        let waited_for = all.filter(|(_, claim)| !claim.as_ref().is_some_and(|claim| used.contains(claim)));
        let mut attached: Vec<AttachedVolume> = waited_for
            .map(|(attachment, claim)| AttachedVolume {
                attachment: attachment.name().to_owned(),
                persistent_volume: attachment.volume.as_deref().map(str::to_owned),
                claim,
                driver: attachment.driver.to_string(),
                since: since.clone(),
                // The API server limits it to 1,024 bytes.
                error: attachment.detach_error.as_deref().map(str::to_owned),
            })
            .collect();
        attached.sort_by(|one, other| {
            (&one.persistent_volume, &one.attachment).cmp(&(&other.persistent_volume, &other.attachment))
        });
        // After a restart, or an interruption of the watch, the status is right until the attachments and their claims are
        // known again.
        let mut is_unknown = !volumes.is_complete || !unread.is_empty();
        if is_unknown && attached.is_empty() {
            is_unknown = known.is_none() || waits.is_some();
            let before = before.and_then(|before| before.attached_volumes.clone());
            attached = before.filter(|_| waits.is_some()).unwrap_or_default();
        }
        let timeout = SignedDuration::from_secs(wait.timeout_seconds);
        let deadline = if timeout.is_zero() { None } else { since.0.checked_add(timeout).ok() };
        let is_over = deadline.is_some_and(|deadline| deadline <= now);
        let timed_out = (is_over && (is_unknown || !attached.is_empty())).then_some(wait.on_timeout);
        Some(Self { attached, is_unknown, deadline, timed_out, timeout_seconds: wait.timeout_seconds })
    }

    /// Whether all volumes are detached.
    pub fn is_done(&self) -> bool {
        !self.is_unknown && self.attached.is_empty()
    }

    /// Whether the drain is finished: the volumes are detached, or no longer waited for.
    pub fn is_over(&self) -> bool {
        self.is_done() || self.timed_out == Some(OnDetachTimeout::Succeed)
    }

    /// Why the drain is not finished, or finished with a warning; none if the volumes are detached.
    pub fn reason(&self) -> Option<ConditionReason> {
        match self.timed_out {
            _ if self.is_done() => None,
            Some(_) => Some(ConditionReason::DetachTimedOut),
            None => Some(ConditionReason::DetachingVolumes),
        }
    }

    /// What the drain waits for, as a part of a sentence; empty if the volumes are detached.
    pub fn summary(&self) -> String {
        match self.attached.len() {
            0 if self.is_unknown => "it is not known which volumes are attached".to_owned(),
            0 => String::new(),
            1 => "1 volume is attached: see status.attachedVolumes".to_owned(),
            count => format!("{count} volumes are attached: see status.attachedVolumes"),
        }
    }

    /// The sentence about volumes that were not detached in time.
    pub fn timeout_message(&self) -> String {
        let after = format!("{} s after the last pod was gone", self.timeout_seconds);
        let named: Vec<String> =
            self.attached.iter().take(MAX_NAMED_VOLUMES).map(AttachedVolume::label).collect();
        let named = named.join(", ");
        match self.attached.len() {
            0 => format!("it is not known which volumes are still attached {after}"),
            1 => format!("1 volume is still attached {after}: {named}"),
            count => {
                let more = count.saturating_sub(MAX_NAMED_VOLUMES);
                let ending = if more > 0 { format!(", and {more} more") } else { String::new() };
                format!("{count} volumes are still attached {after}: {named}{ending}")
            }
        }
    }
}

/// The claims of the pods that stay on the node. While one of them uses a volume, it stays attached.
fn claims_in_use(plan: &DrainPlan) -> HashSet<ClaimReference> {
    // A pod that terminates for too long has to leave; only the drain does not wait for it.
    let leaves = |planned: &PlannedPod| {
        planned.verdict == Verdict::Stay(StayReason::TerminatingTooLong) || pod::is_finished(&planned.pod)
    };
    let claims = plan.pods.iter().filter(|planned| !leaves(planned)).flat_map(|planned| {
        let namespace = pod::names(&planned.pod).namespace;
        planned
            .pod
            .claims
            .iter()
            .map(move |claim| ClaimReference { namespace: namespace.to_owned(), name: claim.to_string() })
    });
    claims.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::condition::ConditionUpdate;
    use crate::api::maintenance::DrainSpec;
    use crate::cluster::pod::{Deletion, DrainPod, PodPhase};
    use crate::drain::plan::DaemonSets;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn pod(name: &str, owner: &str, claim: &str) -> Arc<DrainPod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": true}]},
                "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
            }))
            .unwrap(),
        )
    }

    fn attachment(name: &str, volume: Option<&str>, error: &Value) -> Arc<VolumeAttachment> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": volume}},
                "status": {"attached": true, "detachError": error},
            }))
            .unwrap(),
        )
    }

    /// Each volume is bound to the claim of its name.
    fn volumes(names: &[&str]) -> NodeVolumes {
        let claim = |name: &&str| ClaimReference { namespace: "shop".to_owned(), name: (*name).to_owned() };
        NodeVolumes {
            attachments: names
                .iter()
                .map(|name| attachment(&format!("csi-{name}"), Some(name), &Value::Null))
                .collect(),
            is_complete: true,
            claims: names.iter().map(|name| ((*name).into(), Some(claim(name)))).collect(),
        }
    }

    const WAIT: WaitForVolumeDetach =
        WaitForVolumeDetach { timeout_seconds: 60, on_timeout: OnDetachTimeout::Succeed };

    fn detach(
        wait: WaitForVolumeDetach,
        pods: impl IntoIterator<Item = Arc<DrainPod>>,
        volumes: &NodeVolumes,
        since: Option<i64>,
        now: i64,
    ) -> Option<VolumeDetach> {
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        let plan = DrainPlan::new(pods, &DrainSpec::default(), &daemon_sets, at(now)).unwrap();
        let mut before = NodeMaintenanceStatus::default();
        if let Some(since) = since {
            let update = ConditionUpdate {
                type_: ConditionType::VolumesDetached,
                is_true: false,
                reason: ConditionReason::DetachingVolumes,
                message: String::new(),
            };
            condition::record(&mut before.conditions, update, None, at(since));
        }
        VolumeDetach::new(wait, &plan, volumes, Some(&before), at(now))
    }

    fn names(detach: &VolumeDetach) -> Vec<&str> {
        detach.attached.iter().map(|volume| volume.attachment.as_str()).collect()
    }

    #[test]
    fn the_wait_begins_when_the_last_pod_is_gone() {
        let both = volumes(&["b", "a"]);
        assert_eq!(detach(WAIT, [pod("p", "ReplicaSet", "a")], &both, None, 0), None);
        let waits = detach(WAIT, [], &both, None, 0).unwrap();
        assert_eq!(
            (names(&waits), waits.deadline, waits.is_over()),
            (vec!["csi-a", "csi-b"], Some(at(60)), false)
        );
        assert_eq!(waits.reason(), Some(ConditionReason::DetachingVolumes));
        assert_eq!(waits.summary(), "2 volumes are attached: see status.attachedVolumes");
        assert_eq!(waits.attached[0].label(), "a (claim shop/a)");
        let later = detach(WAIT, [], &both, Some(0), 50).unwrap();
        assert_eq!((later.deadline, later.attached[0].since.0), (Some(at(60)), at(0)));
        let done = detach(WAIT, [], &volumes(&[]), Some(0), 50).unwrap();
        assert_eq!((done.is_done(), done.is_over(), done.reason()), (true, true, None));
    }

    #[test]
    fn volumes_of_pods_that_stay_are_left_out_and_all_others_are_not() {
        let mut volumes = volumes(&["logs", "data"]);
        let stays = || [pod("agent", "DaemonSet", "logs")];
        assert_eq!(names(&detach(WAIT, stays(), &volumes, None, 0).unwrap()), ["csi-data"]);
        volumes.attachments.push(attachment("csi-inline", None, &Value::Null));
        assert_eq!(names(&detach(WAIT, stays(), &volumes, None, 0).unwrap()), ["csi-inline", "csi-data"]);
        // A volume that has not been read, or has no claim.
        volumes.claims.clear();
        assert_eq!(detach(WAIT, stays(), &volumes, None, 0).unwrap().attached.len(), 3);
        volumes.claims.insert("logs".into(), None);
        assert_eq!(detach(WAIT, stays(), &volumes, None, 0).unwrap().attached.len(), 3);
    }

    #[test]
    fn volumes_of_pods_that_have_ended_or_terminate_for_too_long_are_waited_for() {
        let with = |change: fn(&mut DrainPod)| {
            let mut changed = DrainPod::clone(&pod("moved", "ReplicaSet", "data"));
            change(&mut changed);
            changed.controller = None;
            let spec =
                json!({"podSelector": {"matchLabels": {"app": "a"}}, "skipWaitForDeleteTimeoutSeconds": 1});
            let spec: DrainSpec = serde_json::from_value(spec).unwrap();
            let plan = DrainPlan::new([Arc::new(changed)], &spec, &DaemonSets::default(), at(60)).unwrap();
            let detach = VolumeDetach::new(WAIT, &plan, &volumes(&["data"]), None, at(60)).unwrap();
            names(&detach).len()
        };
        assert_eq!(with(|_| ()), 0, "the pod is not selected");
        assert_eq!(with(|pod| pod.phase = PodPhase::Finished), 1);
        let terminating = |pod: &mut DrainPod| {
            pod.labels = Arc::new([("app".to_owned(), "a".to_owned())].into());
            pod.deletion = Some(Deletion { deadline: at(0), grace_seconds: None });
        };
        assert_eq!(with(terminating), 1);
    }

    #[test]
    fn unknown_attachments_are_waited_for() {
        let waits = detach(WAIT, [], &NodeVolumes::default(), Some(0), 59).unwrap();
        assert_eq!((waits.is_done(), waits.is_over(), waits.timed_out), (false, false, None));
        let interrupted = NodeVolumes { is_complete: false, ..volumes(&["a"]) };
        let waits = detach(WAIT, [], &interrupted, None, 0).unwrap();
        assert_eq!(waits.summary(), "1 volume is attached: see status.attachedVolumes");
        let over = detach(WAIT, [], &NodeVolumes::default(), Some(0), 60).unwrap();
        assert_eq!((over.is_done(), over.is_over()), (false, true));
        assert!(over.timeout_message().starts_with("it is not known"), "{}", over.timeout_message());
    }

    #[test]
    fn while_attachments_are_not_known_the_status_stays_as_it_is() {
        let unlisted = NodeVolumes::default();
        let known = |is_true: bool, attached: &[&str]| {
            let waits = detach(WAIT, [], &volumes(attached), Some(0), 30).unwrap();
            let mut before =
                NodeMaintenanceStatus { attached_volumes: Some(waits.attached), ..Default::default() };
            let (type_, reason) = (ConditionType::VolumesDetached, ConditionReason::AsExpected);
            let update = ConditionUpdate { type_, is_true, reason, message: String::new() };
            condition::record(&mut before.conditions, update, None, at(0));
            let plan = DrainPlan::default();
            VolumeDetach::new(WAIT, &plan, &unlisted, Some(&before), at(30)).unwrap()
        };
        assert!(known(true, &[]).is_done(), "they were detached");
        let waits = known(false, &["a"]);
        assert_eq!((names(&waits), waits.is_unknown), (vec!["csi-a"], true));
    }

    #[test]
    fn after_the_timeout_the_drain_is_finished_or_not_as_the_spec_says() {
        let four = volumes(&["a", "b", "c", "d"]);
        let fail = WaitForVolumeDetach { on_timeout: OnDetachTimeout::Fail, ..WAIT };
        for (wait, now, over, reason) in [
            (WAIT, 59, false, ConditionReason::DetachingVolumes),
            (WAIT, 60, true, ConditionReason::DetachTimedOut),
            (fail, 60, false, ConditionReason::DetachTimedOut),
            (WaitForVolumeDetach::default(), 1_000_000, false, ConditionReason::DetachingVolumes),
        ] {
            let found = detach(wait, [], &four, Some(0), now).unwrap();
            assert_eq!((found.is_over(), found.reason()), (over, Some(reason)), "{wait:?} {now}");
        }
        assert_eq!(
            detach(WAIT, [], &four, Some(0), 60).unwrap().timeout_message(),
            "4 volumes are still attached 60 s after the last pod was gone: a (claim shop/a), b (claim shop/b), \
             c (claim shop/c), and 1 more"
        );
        let done = detach(fail, [], &volumes(&[]), Some(0), 90).unwrap();
        assert_eq!((done.is_over(), done.timed_out), (true, None), "it succeeds once they are detached");
    }

    #[test]
    fn the_error_of_the_driver_is_reported() {
        let volumes = NodeVolumes {
            attachments: vec![attachment("csi-1", Some("pv"), &json!({"message": "busy"}))],
            ..NodeVolumes::default()
        };
        let waits = detach(WAIT, [], &volumes, None, 0).unwrap();
        assert_eq!(waits.attached[0].error.as_deref(), Some("busy"));
        assert_eq!(waits.attached[0].label(), "pv");
    }

    #[test]
    fn a_finished_drain_stays_finished_until_the_claims_of_staying_pods_are_read() {
        let mut unread = volumes(&["a"]);
        unread.claims.clear();
        let staying = || [pod("p", "DaemonSet", "a")];
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        let plan = DrainPlan::new(staying(), &DrainSpec::default(), &daemon_sets, at(9)).unwrap();
        let mut finished = NodeMaintenanceStatus::default();
        let update = ConditionUpdate {
            type_: ConditionType::VolumesDetached,
            is_true: true,
            reason: ConditionReason::DetachingVolumes,
            message: String::new(),
        };
        condition::record(&mut finished.conditions, update, None, at(0));
        let detach = VolumeDetach::new(WAIT, &plan, &unread, Some(&finished), at(9)).unwrap();
        assert!(detach.is_done(), "{detach:?}");
        let new = VolumeDetach::new(WAIT, &plan, &unread, None, at(9)).unwrap();
        assert!(!new.is_over(), "{new:?}");
    }
}
