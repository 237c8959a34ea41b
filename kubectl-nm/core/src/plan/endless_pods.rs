//! Pods that a drain leaves to terminate on their own, without a time limit, and that may never do that.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use nm_shared::PodReference;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::forecast::{Forecast, PodForecast, PodOutcome};
use serde_json::{Value, json};

use crate::client::pod_limit::PodLimit;
use crate::client::pod_problem::{failing_reason, is_restarted_forever};
use crate::plan::cluster_snapshot::ClusterSnapshot;
use crate::terminal::text::{Line, Style, counted, first_names};

/// Pods that may never terminate on their own, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndlessPods {
    pub(super) why: Endless,
    pub(super) pods: Vec<PodReference>,
}

/// Why a pod may never terminate on its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Endless {
    /// The kubelet restarts its containers whenever they exit.
    RestartedForever,
    /// It does not run, for this reason: `ErrImagePull`.
    NotRunning(String),
}

impl EndlessPods {
    /// Those of a forecast, by reason.
    pub(super) fn of(forecast: &Forecast, snapshot: &ClusterSnapshot, now: Timestamp) -> Vec<Self> {
        let read = snapshot.pods.iter().flat_map(|pods| pods.planned.values()).flatten();
        let read: HashMap<&str, &Pod> =
            read.filter_map(|pod| Some((pod.metadata.uid.as_deref()?, &**pod))).collect();
        let mut all: Vec<Self> = Vec::new();
        let waits = |expected: &&PodForecast| expected.fate == PodOutcome::Completes(None);
        for expected in forecast.pods.iter().filter(waits) {
            let Some(pod) = read.get(pod::uid(&expected.pod)) else { continue };
            let why = if is_restarted_forever(pod) {
                Some(Endless::RestartedForever)
            } else {
                failing_reason(pod, now)
                    .filter(|_| PodLimit::of(pod, job(&expected.pod, &snapshot.jobs), now).is_none())
                    .map(Endless::NotRunning)
            };
            let (Some(why), pod) = (why, pod::reference(&expected.pod)) else { continue };
            match all.iter_mut().find(|known| known.why == why) {
                Some(known) => known.pods.push(pod),
                None => all.push(Self { why, pods: vec![pod] }),
            }
        }
        all.sort_by(|one, other| one.why.cmp(&other.why));
        all
    }

    /// `the drain waits for 2 pods that never terminate on their own (restartPolicy Always): shop/web-0, shop/web-1`.
    pub(super) fn line(&self) -> Line {
        let is_one = self.pods.len() == 1;
        let their = if is_one { "its" } else { "their" };
        let never = match &self.why {
            Endless::RestartedForever => {
                let verb = if is_one { "terminates" } else { "terminate" };
                format!("never {verb} on {their} own (restartPolicy Always)")
            }
            Endless::NotRunning(reason) => {
                let run = if is_one { "it does" } else { "they do" };
                format!("may never terminate on {their} own, because {run} not run ({reason})")
            }
        };
        let names: Vec<String> = self.pods.iter().map(ToString::to_string).collect();
        Line::new(format!("the drain waits for {} that ", counted(self.pods.len(), "pod")))
            .with(Style::Bad, never)
            .and(format!(": {}; --completion-timeout limits the wait", first_names(&names)))
    }

    pub(super) fn document(&self) -> Value {
        let reason = match &self.why {
            Endless::RestartedForever => "RestartPolicyAlways",
            Endless::NotRunning(reason) => reason,
        };
        json!({"harm": "NeverTerminates", "pods": self.pods, "reason": reason})
    }
}

impl Endless {
    /// What a row of the plan adds to the wait for a pod.
    pub(super) fn details(&self) -> String {
        match self {
            Self::RestartedForever => String::from(
                "which never happens, because its containers are restarted (restartPolicy Always)",
            ),
            Self::NotRunning(reason) => format!("which may never happen, because it does not run ({reason})"),
        }
    }
}

/// The Job of a pod, if it is known and one controls the pod.
fn job<'a>(pod: &DrainPod, jobs: &'a [Job]) -> Option<&'a Job> {
    let owner = pod::job(pod)?;
    jobs.iter().find(|job| {
        job.metadata.namespace.as_deref() == Some(pod::names(pod).namespace)
            && job.metadata.name.as_ref() == Some(&owner.name)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nm_shared::DrainSpec;

    use super::*;
    use crate::plan::document;
    use crate::plan::harm::{harms, lines};
    use crate::plan::report::PlanReport;
    use crate::plan::report::tests::{report, snapshot};
    use crate::plan::text;

    /// A pod of the Job of the same name, with this restart policy, whose container waits for this reason, if for any.
    fn pod(name: &str, policy: &str, waits: Option<&str>) -> Pod {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "o", "controller": true});
        let state = waits.map_or(json!({"running": {}}), |reason| json!({"waiting": {"reason": reason}}));
        let container = json!({"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": state});
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [owner]},
            "spec": {"containers": [], "restartPolicy": policy},
            "status": {"phase": "Pending", "containerStatuses": [container]},
        }))
        .unwrap()
    }

    fn planned(drain: Value, pods: Vec<Pod>, jobs: &Value) -> PlanReport {
        let drain: DrainSpec = serde_json::from_value(drain).unwrap();
        let mut snapshot = snapshot(&["n1", "n2"], pods.into_iter().map(Arc::new).collect());
        snapshot.jobs = serde_json::from_value(jobs.clone()).unwrap();
        report(&["n1"], Some(&drain), snapshot, &[])
    }

    fn waited_for(report: &PlanReport) -> Vec<String> {
        let lines = lines(&harms(report, None)).into_iter().map(|line| line.to_string());
        lines.filter(|line| line.starts_with("the drain waits for ")).collect()
    }

    #[test]
    fn pods_that_may_never_terminate_on_their_own_are_named_unless_the_wait_is_limited() {
        let all = || json!({"waitForCompletion": {"podSelector": {}}});
        let pods = || {
            vec![
                pod("bad-0", "Never", Some("ErrImagePull")),
                pod("bad-1", "Never", Some("ErrImagePull")),
                pod("crash", "OnFailure", Some("CrashLoopBackOff")),
                pod("good", "OnFailure", None),
                pod("new", "Never", Some("ContainerCreating")),
                pod("web", "Always", None),
            ]
        };
        let report = planned(all(), pods(), &json!([]));
        let limits = "; --completion-timeout limits the wait";
        assert_eq!(
            waited_for(&report),
            [
                format!(
                    "the drain waits for 1 pod that never terminates on its own (restartPolicy Always): shop/web{limits}"
                ),
                format!(
                    "the drain waits for 1 pod that may never terminate on its own, because it does not run (CrashLoopBackOff): \
                     shop/crash{limits}"
                ),
                format!(
                    "the drain waits for 2 pods that may never terminate on their own, because they do not run (ErrImagePull): \
                     shop/bad-0, shop/bad-1{limits}"
                ),
            ]
        );
        let text: String = text::lines(&report).iter().map(|line| line.to_string() + "\n").collect();
        for said in [
            "until it terminates on its own, which may never happen, because it does not run (ErrImagePull)",
            "until it terminates on its own, which never happens, because its containers are restarted (restartPolicy Always)",
            "the drain waits for 1 pod that never terminates",
            "Nothing would block the drain, but it would wait for pods that may never terminate. ",
        ] {
            assert!(text.contains(said), "{text}");
        }
        assert!(!report.is_blocked(), "the status counts them as waiting");
        assert_eq!(
            document::document(&report)["harms"][0],
            json!({"harm": "NeverTerminates", "pods": [{"namespace": "shop", "name": "web"}],
                "reason": "RestartPolicyAlways"})
        );
        let limited = json!({"waitForCompletion": {"podSelector": {}, "timeoutSeconds": 60}});
        let limited = planned(limited, pods(), &json!([]));
        assert_eq!(waited_for(&limited), [""; 0]);
        assert_eq!(waited_for(&planned(json!({}), pods(), &json!([]))), [""; 0], "the drain does not wait");
    }

    #[test]
    fn a_pod_whose_time_is_limited_terminates_in_any_case() {
        let limited = |seconds: i64| {
            let job = json!({"metadata": {"namespace": "shop", "name": "bad"},
                "spec": {"template": {}, "activeDeadlineSeconds": seconds}});
            let bad = vec![pod("bad", "Never", Some("ErrImagePull"))];
            waited_for(&planned(json!({"waitForCompletion": {}}), bad, &json!([job])))
        };
        assert_eq!(limited(60), [""; 0]);
        let mut crash = pod("crash", "OnFailure", Some("CrashLoopBackOff"));
        crash.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].restart_count = 2;
        let job = json!({"metadata": {"namespace": "shop", "name": "crash"}, "spec": {"template": {}}});
        let report = planned(json!({"waitForCompletion": {}}), vec![crash], &json!([job]));
        assert_eq!(waited_for(&report), [""; 0], "its Job fails after six restarts");
        for (policy, waits) in [("Never", Some("ErrImagePull")), ("Always", None)] {
            let mut pod = pod("bad", policy, waits);
            pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
            let report = planned(json!({"waitForCompletion": {}}), vec![pod], &json!([]));
            assert_eq!(waited_for(&report), [""; 0], "{policy}");
        }
    }
}
