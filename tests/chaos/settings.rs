//! What a run is told by environment variables.

use std::path::PathBuf;
use std::time::Duration;

use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use serde_json::{Value, json};

use crate::plan::{self, Act};

/// Seconds of harm on a cluster of your own, and on a sandbox as a part of all tests.
const LENGTH: u64 = 180;
const SHORT_LENGTH: u64 = 20;

/// The settings of a run.
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    /// Whether the replicas stay.
    pub(crate) is_soak: bool,
    /// The cluster; none for a sandbox.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The command that pauses the API server for a moment.
    pub(crate) pause: Option<String>,
    /// The command that takes the machine of a node away for a while; `{}` is the name of the node.
    pub(crate) reboot: Option<String>,
    /// The audit log of the API server.
    pub(crate) audit: Option<PathBuf>,
    /// The kubeconfig of a user that the audit log is about. The replicas impersonate their service account with it.
    pub(crate) impersonator: Option<PathBuf>,
}

impl Settings {
    /// Reads the variables.
    ///
    /// # Panics
    /// If one is not a number, or if the API server of another machine should be paused.
    pub(crate) fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let number = |name: &str, otherwise: u64| {
            text(name)
                .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
        };
        let path = |name: &str| text(name).map(PathBuf::from);
        let kubeconfig = path("NM_E2E_KUBECONFIG");
        let length = if kubeconfig.is_some() { LENGTH } else { SHORT_LENGTH };
        Self {
            seed: number("NM_CHAOS_SEED", 1),
            length: Duration::from_secs(number("NM_CHAOS_SECONDS", length)),
            is_soak: text("NM_CHAOS_SOAK").is_some(),
            kubeconfig,
            pause: text("NM_CHAOS_PAUSE"),
            reboot: text("NM_CHAOS_REBOOT"),
            audit: path("NM_CHAOS_AUDIT"),
            impersonator: path("NM_CHAOS_IMPERSONATOR"),
        }
    }

    /// What is done, each with its time.
    pub(crate) fn acts(&self) -> Vec<(Duration, Act)> {
        let make = if self.is_soak { plan::acts_of_soak } else { plan::acts };
        let mut acts = make(self.seed, self.length);
        if self.reboot.is_some() {
            acts.extend(plan::reboots(self.seed, self.length));
            acts.sort_by_key(|(at, _)| *at);
        }
        acts
    }

    /// The command that does the same again.
    pub(crate) fn command(&self) -> String {
        let mut words = vec![format!("NM_CHAOS_SEED={}", self.seed)];
        words.push(format!("NM_CHAOS_SECONDS={}", self.length.as_secs()));
        words.extend(self.is_soak.then(|| "NM_CHAOS_SOAK=1".to_owned()));
        let paths = [
            ("NM_E2E_KUBECONFIG", &self.kubeconfig),
            ("NM_CHAOS_AUDIT", &self.audit),
            ("NM_CHAOS_IMPERSONATOR", &self.impersonator),
        ];
        for (name, path) in paths {
            words.extend(path.as_ref().map(|path| format!("{name}={}", path.display())));
        }
        for (name, command) in [("NM_CHAOS_PAUSE", &self.pause), ("NM_CHAOS_REBOOT", &self.reboot)] {
            words.extend(command.as_ref().map(|command| format!("{name}='{command}'")));
        }
        words.push("cargo test -p nm-tests --test chaos".to_owned());
        words.join(" ")
    }

    /// Refuses to pause an API server that others may use.
    ///
    /// # Panics
    /// If the API server is not on this machine.
    pub(crate) fn check_pause(&self, cluster: &Cluster) {
        if self.pause.is_some() {
            let config = read(cluster.kubeconfig());
            let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default().to_owned();
            let is_here = ["https://127.0.0.1:", "https://localhost:", "https://[::1]:"];
            assert!(
                is_here.iter().any(|here| server.starts_with(here)),
                "NM_CHAOS_PAUSE is for an API server on this machine, not for {server}"
            );
        }
    }

    /// The kubeconfig of the replicas.
    pub(crate) fn replica_kubeconfig(&self, cluster: &Cluster) -> PathBuf {
        let path = cluster.reconciler_kubeconfig();
        if let Some(impersonator) = &self.impersonator {
            let mut config = read(impersonator);
            let account = manifests::service_account().metadata;
            let (namespace, name) = (account.namespace.unwrap(), account.name.unwrap());
            for user in config["users"].as_array_mut().unwrap() {
                user["user"]["as"] = json!(format!("system:serviceaccount:{namespace}:{name}"));
            }
            std::fs::write(&path, config.to_string()).unwrap();
        }
        path
    }
}

fn read(kubeconfig: &std::path::Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap()
}
