//! Credential programs: how often they are started, and how their credentials are renewed while a command runs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::start;
use nm_tests::programs::{RunningCommand, plugin_of, program};
use nm_tests::requests::until_requests;
use nm_tests::wait::in_time;
use serde_json::{Value, json};

/// A program that notes each start, and prints the credential in a file.
struct Login {
    folder: tempfile::TempDir,
    kubeconfig: Value,
}

impl Login {
    fn new(cluster: &Cluster) -> Self {
        let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let login =
            Self { folder: tempfile::tempdir().unwrap(), kubeconfig: serde_saphyr::from_str(&text).unwrap() };
        let script = login.folder.path().join("login");
        std::fs::write(
            &script,
            "#!/bin/sh\ncd \"$(dirname \"$0\")\" && echo started >> starts && cat credential\n",
        )
        .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": script, "interactiveMode": "Never",
            "installHint": "ask the administrators"});
        let mut kubeconfig = login.kubeconfig.clone();
        kubeconfig["users"][0]["user"] = json!({"exec": exec});
        std::fs::write(login.kubeconfig(), kubeconfig.to_string()).unwrap();
        login
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The token of the administrator.
    fn good(&self) -> &str {
        self.kubeconfig["users"][0]["user"]["token"].as_str().unwrap()
    }

    fn issues(&self, token: &str) {
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": token}});
        std::fs::write(self.folder.path().join("credential"), credential.to_string()).unwrap();
    }

    fn starts(&self) -> usize {
        starts(self.folder.path())
    }
}

fn starts(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("starts")).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_program_is_started_once_for_each_command() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "the kubeconfig has to carry a token").await else {
        return;
    };
    let login = Login::new(&cluster);
    login.issues(login.good());
    let node = &cluster.nodes().await[0];
    let commands =
        [&["status"][..], &["plan", node], &["start", node], &["explain", node], &["doctor"], &["version"]];
    for (number, command) in commands.into_iter().enumerate() {
        let outcome = plugin_of(&login.kubeconfig(), command).await;
        assert_eq!(login.starts(), number + 1, "{command:?}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_renewed_and_the_request_is_sent_again() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "the kubeconfig has to carry a token").await else {
        return;
    };
    let login = Login::new(&cluster);
    login.issues("stale");
    let script = login.folder.path().join("login");
    let second = format!(
        "[ -e known ] && sed s/stale/{}/ credential > new && mv new credential\ntouch known\n",
        login.good()
    );
    let text = std::fs::read_to_string(&script).unwrap().replacen(
        "#!/bin/sh\n",
        &format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\n{second}"),
        1,
    );
    std::fs::write(&script, text).unwrap();
    let _ = plugin_of(&login.kubeconfig(), &["status"]).await.ok();
    assert_eq!(login.starts(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_with_a_new_token_when_the_server_refuses_the_old_one() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "it counts and refuses requests").await else { return };
    let sandbox = cluster.sandbox().unwrap();
    let nodes = cluster.nodes().await;
    let login = Login::new(&cluster);
    login.issues(login.good());
    let kubeconfig = login.kubeconfig();
    let env = [("KUBECONFIG", kubeconfig.as_path())];
    let arguments = ["watch", "--output", "lines"];
    let mut watch = RunningCommand::start_with_env(program("kubectl-nm"), &cluster, &arguments, &env);
    start(&cluster, &nodes[0], &nodes[0]).await;
    until_line(&mut watch, &nodes[0]).await;
    let is_watch = |entry: &Entry| entry.verb == "watch" && entry.resource == "nodemaintenances";
    until_requests(sandbox, 1, "the plugin watches", is_watch).await;

    let other: Value = serde_saphyr::from_str(&sandbox.add_user("renewed", &["system:masters"])).unwrap();
    login.issues(other["users"][0]["user"]["token"].as_str().unwrap());
    let watches = Target::any().verb("watch").resource("nodemaintenances");
    let refused = Action::Fail(Failure::Unauthorized, Moment::BeforeEffect);
    sandbox.faults().add(Rule::new(watches.clone(), refused).when(When::First(1)));
    assert_eq!(sandbox.faults().end_watches(&watches, 0), 1);
    start(&cluster, &nodes[1], &nodes[1]).await;
    until_line(&mut watch, &nodes[1]).await;
    let has_new_token = |entry: &Entry| is_watch(entry) && entry.user == "renewed";
    until_requests(sandbox, 1, "the plugin watches with the new token", has_new_token).await;
    assert_eq!(login.starts(), 2);
}

/// Reads lines until one names the node.
async fn until_line(command: &mut RunningCommand, node: &str) {
    let named = async {
        while let Some(line) = command.line().await {
            if line.contains(node) {
                return;
            }
        }
        panic!("the command has ended without a line about {node}");
    };
    in_time("a line about the node", named).await;
}
