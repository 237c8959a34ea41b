//! The Jobs that a drain makes fail for good, in words.

use std::collections::HashSet;
use std::slice;

use jiff::Timestamp;
use nm_shared::api::names::ROLL_RUNNER_LABEL;
use nm_shared::cluster::pod;
use nm_shared::forecast::failing_jobs::{control, failing};
use nm_shared::forecast::{Forecast, PodForecast};
use nm_shared::{DrainSpec, PodReference};
use serde_json::{Value, json};

use crate::args::duration::age;
use crate::client::pod_problem::has_failing_container;
use crate::plan::cluster_snapshot::ClusterSnapshot;
use crate::terminal::text::{Line, Style, counted, first_names};

/// Jobs that fail for good when their pods are evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingJobs {
    pub(super) jobs: Vec<PodReference>,
    /// The seconds after the cordon when their pods are evicted, if they have not ended; none if that is at once.
    pub(super) after: Option<i64>,
    /// What lets them finish; none if nothing does.
    pub(super) remedy: Option<Remedy>,
}

/// What lets Jobs finish that a drain would make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// `--wait-for-completion`.
    Wait,
    /// The same, but its selector does not select their pods.
    WithoutSelector,
}

impl FailingJobs {
    /// Those of a forecast, by when and by what lets them finish.
    pub(super) fn of(
        forecast: &Forecast,
        snapshot: &ClusterSnapshot,
        drain_of: impl Fn(&str) -> DrainSpec,
        now: Timestamp,
    ) -> Vec<Self> {
        let read = snapshot.pods.iter().flat_map(|pods| pods.planned.values()).flatten();
        let not_running: HashSet<&str> = read
            .filter(|pod| has_failing_container(pod, now))
            .filter_map(|pod| pod.metadata.uid.as_deref())
            .collect();
        let remedy = |job: &PodReference| {
            let is_of_job = |expected: &&PodForecast| {
                control(slice::from_ref(job), &expected.pod) && !pod::is_finished(&expected.pod)
            };
            // The drain does not wait for the pod of a roll, and a pod that does not run finishes nothing.
            let never_finishes = |expected: &PodForecast| {
                expected.pod.labels.contains_key(ROLL_RUNNER_LABEL)
                    || not_running.contains(pod::uid(&expected.pod))
            };
            let pods: Vec<&PodForecast> = forecast.pods.iter().filter(is_of_job).collect();
            if pods.iter().any(|expected| never_finishes(expected)) {
                return None;
            }
            let waits = pods.iter().any(|expected| drain_of(&expected.node).wait_for_completion.is_some());
            Some(if waits { Remedy::WithoutSelector } else { Remedy::Wait })
        };
        let mut all: Vec<Self> = Vec::new();
        for (after, jobs) in failing(forecast, &snapshot.jobs) {
            for job in jobs {
                // Those with a time may finish already.
                let remedy = if after.is_none() { remedy(&job) } else { None };
                match all.iter_mut().find(|known| (known.after, known.remedy) == (after, remedy)) {
                    Some(known) => known.jobs.push(job),
                    None => all.push(Self { jobs: vec![job], after, remedy }),
                }
            }
        }
        all
    }

    pub(super) fn line(&self) -> Line {
        let is_one = self.jobs.len() == 1;
        let verb = if is_one { "fails" } else { "fail" };
        let fail = format!("{} {verb} for good", counted(self.jobs.len(), "Job"));
        let names: Vec<String> = self.jobs.iter().map(ToString::to_string).collect();
        let names = first_names(&names);
        Line::default().with(Style::Bad, fail).and(match self.after {
            None => {
                let them = if is_one { "it" } else { "them" };
                let waits = match self.remedy {
                    Some(Remedy::Wait) => format!("; --wait-for-completion lets {them} finish"),
                    Some(Remedy::WithoutSelector) => {
                        format!("; --wait-for-completion without a selector lets {them} finish")
                    }
                    None => String::new(),
                };
                format!(" (backoffLimit): {names}{waits}")
            }
            Some(seconds) => {
                let they_run = if is_one { "it runs" } else { "they run" };
                format!(
                    " (backoffLimit) if {they_run} for {} or longer after the cordon: {names}",
                    age(seconds)
                )
            }
        })
    }

    pub(super) fn document(&self) -> Value {
        let mut document = json!({"harm": "JobsFail", "jobs": self.jobs});
        if let Some(seconds) = self.after {
            document["afterSeconds"] = json!(seconds);
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::plan::report::tests::{report, snapshot};

    #[test]
    fn a_job_that_may_finish_before_its_pods_are_evicted_fails_only_if_it_does_not() {
        let job = |name: &str| PodReference { namespace: "shop".into(), name: name.into() };
        let found = [
            FailingJobs { jobs: vec![job("a"), job("b")], after: None, remedy: Some(Remedy::Wait) },
            FailingJobs { jobs: vec![job("c")], after: Some(90), remedy: None },
        ];
        let lines: Vec<String> = found.iter().map(|failing| failing.line().to_string()).collect();
        assert_eq!(
            lines,
            [
                "2 Jobs fail for good (backoffLimit): shop/a, shop/b; --wait-for-completion lets them finish",
                "1 Job fails for good (backoffLimit) if it runs for 1m30s or longer after the cordon: shop/c"
            ]
        );
        assert_eq!(found[0].document(), json!({"harm": "JobsFail", "jobs": [job("a"), job("b")]}));
        assert_eq!(found[1].document(), json!({"harm": "JobsFail", "jobs": [job("c")], "afterSeconds": 90}));
    }

    #[test]
    fn a_wait_is_offered_only_to_jobs_that_it_lets_finish() {
        let fails = "1 Job fails for good (backoffLimit): shop/report";
        let running = json!({"running": {}});
        let no_image = json!({"waiting": {"reason": "ErrImagePull"}});
        let of_others = json!({"waitForCompletion": {"podSelector": {"matchLabels": {"app": "other"}}}});
        let runner = json!({"kubectl-nm.dev/roll-runner": "kernel"});
        for (state, drain, labels, waits) in [
            (&running, json!({}), json!({}), "; --wait-for-completion lets it finish"),
            (&running, of_others, json!({}), "; --wait-for-completion without a selector lets it finish"),
            (&no_image, json!({}), json!({}), ""),
            (&running, json!({"waitForCompletion": {}}), runner, ""),
        ] {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "report", "uid": "j", "controller": true});
            let container = json!({"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state});
            let pod = json!({"metadata": {"namespace": "shop", "name": "report-x", "uid": "p", "labels": labels,
                    "ownerReferences": [owner]},
                "spec": {"containers": [], "restartPolicy": "Never"},
                "status": {"phase": "Running", "containerStatuses": [container]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let job = json!({"metadata": {"namespace": "shop", "name": "report"},
                "spec": {"backoffLimit": 0, "template": {}}});
            let mut snapshot = snapshot(&["n1", "n2"], vec![Arc::new(pod)]);
            snapshot.jobs = vec![serde_json::from_value(job).unwrap()];
            let drain: DrainSpec = serde_json::from_value(drain).unwrap();
            let report = report(&["n1"], Some(&drain), snapshot, &[]);
            let lines: Vec<String> =
                report.failing_jobs.iter().map(|failing| failing.line().to_string()).collect();
            assert_eq!(lines, [format!("{fails}{waits}")], "{state} {labels}");
        }
    }
}
