//! The budget of a pod in an editor, for which the dashboard lends the terminal.

use std::path::Path;

use kube_sandbox::faults::Target;
use nm_tests::programs::plugin;
use nm_tests::skip::{has_kubectl, skipped};
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::ENTER;
use nm_tests::wait::{in_time, wait_until};

use crate::dashboard::setup::{Blocked, program_in_path, quit, with_credential_plugin};

/// Opens the budget of the selected pod in the editor.
async fn edit(terminal: &Terminal) {
    terminal.press("E");
    terminal.until_shown("[Enter] edit").await;
    terminal.press(ENTER);
}

async fn until_exists(file: &Path) {
    let exists = async {
        while !file.exists() {
            tokio::task::yield_now().await;
        }
    };
    in_time(&format!("{} exists", file.display()), exists).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_a_pod_is_edited_in_an_editor_and_the_dashboard_comes_back() {
    if !has_kubectl() {
        return;
    }
    let blocked = Blocked::start("edit").await;
    let files = tempfile::tempdir().unwrap();
    let path = program_in_path(
        files.path(),
        "relax",
        "#!/bin/sh\nsed -i.old 's/minAvailable: 1/minAvailable: 0/' \"$1\"\n",
    );
    let env = [("PATH", path.as_str()), ("KUBE_EDITOR", "relax")];
    let terminal = blocked.dashboard(&[], &env).await;
    terminal.press("E");
    let question = terminal.until_shown("[Enter] edit").await;
    assert!(
        question.contains(&format!("kubectl -n {} edit pdb cart", blocked.workload.namespace())),
        "{question}"
    );
    terminal.press(ENTER);
    let pods = blocked.workload.pods();
    wait_until(&pods, &blocked.pod, "gone", |found| found.is_none()).await;
    terminal.until_live().await;
    terminal.until_shown("ended: kubectl").await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_is_waited_for_when_the_goal_is_reached_meanwhile() {
    if !has_kubectl() {
        return;
    }
    let blocked = Blocked::start("goal").await;
    let files = tempfile::tempdir().unwrap();
    let [opened, close, saved] = ["opened", "close", "saved"].map(|name| files.path().join(name));
    let script = format!(
        "#!/bin/sh\ntouch {}\nwhile [ ! -e {} ]; do sleep 0.1; done\ntouch {}\n",
        opened.display(),
        close.display(),
        saved.display()
    );
    let path = program_in_path(files.path(), "slow", &script);
    let env = [("PATH", path.as_str()), ("KUBE_EDITOR", "slow")];
    let mut terminal = blocked.dashboard(&["--until", "drained"], &env).await;
    edit(&terminal).await;
    until_exists(&opened).await;
    blocked.workload.delete_budget("cart").await;
    // Another program sees later that the node is drained.
    let other = plugin(&blocked.cluster, &["watch", &blocked.node, "--until", "drained"]).await;
    assert_eq!(other.code, Some(0), "{other:?}");
    assert!(!saved.exists());
    std::fs::write(&close, "").unwrap();
    assert_eq!(terminal.exit_code().await, 0);
    assert!(saved.exists(), "the editor was killed");
    let left = terminal.until_shown(&format!("node/{} drained", blocked.node)).await;
    assert!(left.contains("Edit cancelled") || left.contains("no changes made"), "{left}");
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_plugin_of_the_dashboard_takes_no_keys_from_the_editor() {
    if !has_kubectl() {
        return;
    }
    let blocked = Blocked::start("prompt").await;
    let Some(sandbox) = blocked.cluster.sandbox() else {
        skipped("the kubeconfig has to carry a token");
        return;
    };
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = with_credential_plugin(&blocked.cluster, files.path());
    std::fs::write(files.path().join("known"), "").unwrap();
    let [expired, questions, typed] = ["expired", "questions", "typed"].map(|name| files.path().join(name));
    let script = format!(
        "#!/bin/sh\ntouch {}\nread -r line\necho \"$line\" > {}\nrm {}\n",
        expired.display(),
        typed.display(),
        expired.display()
    );
    let path = program_in_path(files.path(), "asks", &script);
    let env = [("PATH", path.as_str()), ("KUBE_EDITOR", "asks")];
    let terminal = blocked.dashboard_of(&kubeconfig, &[], &env).await;
    edit(&terminal).await;
    until_exists(&expired).await;
    // The dashboard watches again, and needs a credential for that.
    sandbox.faults().end_watches(&Target::any().verb("watch").resource("nodemaintenances"), 0);
    until_exists(&questions).await;
    terminal.press("for the editor\n");
    until_exists(&typed).await;
    terminal.until_live().await;
    assert_eq!(std::fs::read_to_string(&typed).unwrap(), "for the editor\n");
    assert!(!files.path().join("answers").exists(), "the plugin gets no keys");
    quit(terminal).await;
}
