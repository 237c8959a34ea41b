//! The Job that runs a roll in the cluster.
//!
//! Its pod is evicted like any other when its node is drained, and the Job controller starts another one elsewhere. The
//! controller waits for 10 s before that, and twice as long each time. So the roll drains the node of its pod last in each wave.

pub use nm_shared::api::names::ROLL_RUNNER_LABEL as RUNNER_LABEL;
use nm_shared::api::names::{
    DRAIN_TAINT, EXCLUDE_LABEL, KUBEVIRT_DRAIN_TAINT, NO_SCHEDULE, UNSCHEDULABLE_TAINT,
};
use serde_json::{Value, json};

use crate::settings::RollSettings;

pub use nm_core::maintenance::ROLLS_NAMESPACE as NAMESPACE;

/// A Job that runs a command on a drained node, as a file to begin with.
pub const JOB_TEMPLATE: &str = include_str!("job_template.yaml");

/// The service account of the Jobs that run rolls.
pub const SERVICE_ACCOUNT: &str = "nm-roll";

/// The container of the pods.
pub const CONTAINER: &str = "roll";

/// The plugin in the image of nm-reconciler.
pub const PROGRAM: &str = "/kubectl-nm";

/// Environment variable with the name of the pod.
pub const POD_VARIABLE: &str = "NM_POD";

/// Environment variable with the name of the node of the pod.
pub const NODE_VARIABLE: &str = "NM_RUNNER_NODE";

/// Environment variable with the uid of the Job.
pub const JOB_VARIABLE: &str = "NM_JOB_UID";

/// Each eviction of a pod of the Job counts as a failure.
const BACKOFF_LIMIT: u32 = 1000;

/// Seconds after which the finished Job, its log and the history of the roll are deleted.
const TTL: u32 = 7 * 86_400;

/// Seconds after which a pod on a lost node is replaced. The node is considered lost after 40 to 50 s.
const LOST_SECONDS: u32 = 10;

/// The name of the Job that runs a roll, and of the `ConfigMap` with its history.
pub fn name(roll: &str) -> String {
    format!("nm-roll-{roll}")
}

/// The Job, for people: its namespace and name.
pub fn title(roll: &str) -> String {
    format!("Job {NAMESPACE}/{}", name(roll))
}

/// The Job without its content, to read it.
pub fn reference(roll: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": NAMESPACE, "name": name(roll)}})
}

/// The labels of the objects with that name.
pub(super) fn labels(roll: &str) -> Value {
    json!({
        "app.kubernetes.io/name": "kubectl-nm",
        "app.kubernetes.io/component": "roll",
        RUNNER_LABEL: roll,
    })
}

/// The Job that runs a roll with exactly these settings.
pub fn of(roll: &str, settings: &RollSettings, image: &str) -> Value {
    let labels = labels(roll);
    let tolerated = [
        UNSCHEDULABLE_TAINT,
        DRAIN_TAINT,
        KUBEVIRT_DRAIN_TAINT,
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    ];
    let tolerated = tolerated.map(|key| json!({"key": key, "operator": "Exists", "effect": NO_SCHEDULE}));
    let lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let lost = lost.map(|key| {
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_SECONDS})
    });
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(roll), "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "ttlSecondsAfterFinished": TTL,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": SERVICE_ACCOUNT,
                    "restartPolicy": "Never",
                    "enableServiceLinks": false,
                    // A drained node is better than none.
                    "tolerations": tolerated.into_iter().chain(lost).collect::<Vec<_>>(),
                    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "preference": {"matchExpressions": [
                            {"key": EXCLUDE_LABEL, "operator": "DoesNotExist"},
                        ]}},
                        // Control-plane nodes are the last ones of a roll.
                        {"weight": 10, "preference": {"matchExpressions": [
                            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
                        ]}},
                    ]}},
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": CONTAINER,
                        "image": image,
                        "command": [PROGRAM],
                        "args": ["roll", "serve", roll, format!("--settings={}", settings.digest())],
                        "env": [
                            field(POD_VARIABLE, "metadata.name"),
                            field(NODE_VARIABLE, "spec.nodeName"),
                            field(JOB_VARIABLE, "metadata.labels['batch.kubernetes.io/controller-uid']"),
                        ],
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "32Mi"},
                            "limits": {"memory": "512Mi"},
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}

/// Whether a pod of the Job runs the roll, or will: it has not ended, is not being deleted, and nobody has suspended it.
pub fn is_live(job: &Value) -> bool {
    !has_ended(job) && job["metadata"]["deletionTimestamp"].is_null() && job["spec"]["suspend"] != true
}

/// Whether the Job has ended, so that none of its pods runs the roll any more.
pub fn has_ended(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        matches!(condition["type"].as_str(), Some("Complete" | "Failed")) && condition["status"] == "True"
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde::Deserialize;

    use super::*;

    fn settings() -> RollSettings {
        let settings = json!({"waves": [3], "maxUnavailable": 1, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        serde_json::from_value(settings).unwrap()
    }

    #[test]
    fn the_job_runs_these_settings_only_and_may_be_evicted() {
        let job = of("kernel-6.12", &settings(), "r.example.com/nm:1");
        Job::deserialize(&job).unwrap();
        assert_eq!(job["metadata"]["name"], "nm-roll-kernel-6.12");
        let other = RollSettings { max_unavailable: 2, ..settings() };
        assert_ne!(settings().digest(), other.digest());
        assert!(job.to_string().contains(&settings().digest()), "{job}");
        assert!(
            !job.to_string().contains(&format!("\"{}\"", crate::record::LABEL)),
            "its pod is not evicted"
        );
    }

    #[test]
    fn each_version_computes_the_same_digest_of_the_same_settings() {
        // Otherwise, a Job of another version could not run a roll. A new setting is left out unless it is used.
        assert_eq!(
            settings().digest(),
            "sha256:f4c5519c302ed0bbf563b91a179859463d1eff18060dd22174e8dee42568eca7"
        );
    }

    #[test]
    fn the_template_is_a_job_that_a_roll_may_run() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), JOB_TEMPLATE).unwrap();
        let job = crate::job::read(file.path(), Some(NAMESPACE)).unwrap();
        assert_eq!(job["metadata"]["namespace"], NAMESPACE);
    }

    #[test]
    fn a_job_runs_a_roll_until_it_has_ended_or_somebody_suspends_or_deletes_it() {
        let ended = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        assert!(
            is_live(&json!({})) && is_live(&json!({"spec": {"suspend": false}, "status": {"failed": 3}}))
        );
        assert!(!is_live(&ended) && !is_live(&json!({"spec": {"suspend": true}})));
        assert!(!is_live(&json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})));
    }

    #[test]
    fn a_job_has_ended_when_a_condition_says_so() {
        let of = |type_: &str, status: &str| {
            has_ended(&json!({"status": {"conditions": [{"type": type_, "status": status}]}}))
        };
        assert!(of("Complete", "True") && of("Failed", "True"));
        assert!(!of("Complete", "False") && !of("FailureTarget", "True") && !has_ended(&json!({})));
    }
}
