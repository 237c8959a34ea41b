//! What tests of the dashboard in a terminal begin and end with.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nm_shared::BlockReason;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_blocked};
use nm_tests::programs::program;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::ENTER;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

/// A node in maintenance with a pod that its budget blocks.
pub(super) struct Blocked {
    pub(super) cluster: Cluster,
    pub(super) workload: Workload,
    pub(super) node: String,
    pub(super) pod: String,
    _reconciler: Reconciler,
}

impl Blocked {
    pub(super) async fn start(name: &str) -> Self {
        let cluster = Cluster::start(2).await;
        let workload = Workload::new(&cluster, name).await;
        let pod = workload.pod_behind_budget("cart").await;
        let node = node_of(&pod).to_owned();
        start(&cluster, &node, &node).await;
        let reconciler = Reconciler::start(&cluster);
        until_blocked(&cluster, &node, BlockReason::DisruptionBudget).await;
        Self { pod: pod.metadata.name.unwrap(), cluster, workload, node, _reconciler: reconciler }
    }

    /// The dashboard with the view of the node, and the blocked pod selected.
    pub(super) async fn dashboard(&self, more: &[&str], env: &[(&str, &str)]) -> Terminal {
        let arguments = [&["watch", self.node.as_str()], more].concat();
        let terminal = Terminal::run_plugin(self.cluster.kubeconfig(), &arguments, env);
        terminal.resize(30, 140);
        terminal.until_live().await;
        terminal.until("the pod", |screen| screen.contents().contains(" Blocked")).await;
        terminal
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.workload.namespace(), self.pod)
    }
}

/// Leaves a dashboard, and checks that the terminal is as it was.
pub(super) async fn quit(mut terminal: Terminal) -> Terminal {
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
    terminal
}

/// Presses Enter in a dialog once its plan is there, whatever the plan says.
pub(super) async fn confirm_plan(terminal: &Terminal) {
    let is_made = |screen: &vt100::Screen| {
        let screen = screen.contents();
        screen.contains("Plan: ") && !screen.contains("Plan: reading")
    };
    terminal.until("the plan", is_made).await;
    terminal.press(ENTER);
}

/// A dashboard in a terminal of so many rows and columns.
pub(super) fn dashboard(cluster: &Cluster, args: &[&str], (rows, columns): (u16, u16)) -> Terminal {
    let env = [("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())];
    Terminal::run(&program("kubectl-nm"), &[&["watch"], args].concat(), &env, rows, columns)
}

/// A program in a folder of its own, and `PATH` with that folder first.
pub(super) fn program_in_path(files: &Path, name: &str, script: &str) -> String {
    let file = files.join(name);
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", files.display(), std::env::var("PATH").unwrap_or_default())
}

/// A credential plugin that prompts for a password on its first run. Its credential has expired, so it runs for every
/// request. While a file `expired` exists beside it, it prompts again, and fails if there is no input.
const CREDENTIAL_PLUGIN: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
if [ -e expired ]; then
    echo 'visit https://login.example' >&2
    echo asked >> questions
    printf 'Code: ' >&2
    read -r code || exit 9
    echo "answered $code" >> answers
fi
if [ ! -e known ]; then
    printf 'Password: ' >&2
    read -r password || exit 9
    echo "$password" > known
fi
cat credential
"#;

/// A kubeconfig whose credentials come from [`CREDENTIAL_PLUGIN`].
pub(super) fn with_credential_plugin(cluster: &Cluster, folder: &Path) -> PathBuf {
    let mut kubeconfig: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": kubeconfig["users"][0]["user"]["token"], "expirationTimestamp": "2020-01-01T00:00:00Z"},
    });
    std::fs::write(folder.join("credential"), credential.to_string()).unwrap();
    let script = folder.join("login");
    std::fs::write(&script, CREDENTIAL_PLUGIN).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    kubeconfig["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": script, "interactiveMode": "IfAvailable",
    }});
    let path = folder.join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}
