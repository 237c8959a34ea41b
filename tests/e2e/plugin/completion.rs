//! Completion of `kubectl nm` in a shell: by kubectl, which runs the link beside the plugin, or by a script.

use std::path::Path;

use nm_tests::cluster::Cluster;
use nm_tests::installed_plugin::InstalledPlugin;
use nm_tests::maintenance::start;
use nm_tests::skip::{has_kubectl, skipped};

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_completes_the_nodes_that_a_command_applies_to() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    start(&cluster, "another-name", a).await;
    let (plugin, kubeconfig) = (InstalledPlugin::built(), cluster.kubeconfig());
    std::os::unix::fs::symlink("kubectl-nm", plugin.folder().join("kubectl_complete-nm")).unwrap();

    for verb in ["stop", "status", "watch", "explain"] {
        assert_eq!(plugin.completions(kubeconfig, &[verb, ""]).await, [a], "{verb}");
    }
    assert_eq!(plugin.completions(kubeconfig, &["start", ""]).await, nodes[1..]);
    assert_eq!(plugin.completions(kubeconfig, &["start", b, ""]).await, nodes[2..]);
    assert!(
        plugin.completions(kubeconfig, &["stop", "-n", "kube-"]).await.contains(&"kube-system".to_owned())
    );
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let contexts = plugin.completions(kubeconfig, &["stop", "--context", ""]).await;
    assert!(!contexts.is_empty() && contexts.iter().all(|context| text.contains(context)), "{contexts:?}");
    assert_eq!(plugin.completions(kubeconfig, &["stat"]).await, ["status"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cluster_there_are_no_completions_and_no_errors() {
    let plugin = InstalledPlugin::built();
    std::os::unix::fs::symlink("kubectl-nm", plugin.folder().join("kubectl_complete-nm")).unwrap();
    // The operating system accepts connections to it, and no program answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let prompting = "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, \
        interactiveMode: IfAvailable, command: sh, args: [-c, 'echo Password: >&2; exit 1']}}}]";
    for (server, users) in
        [("https://127.0.0.1:1", ""), (&format!("https://{silent}"), ""), ("https://127.0.0.1:1", prompting)]
    {
        let kubeconfig = plugin.files().join("kubeconfig");
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n{users}\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        for kubeconfig in [&kubeconfig, Path::new("/nowhere/kubeconfig")] {
            let answer = plugin.run("kubectl_complete-nm", kubeconfig, &["stop", ""]).await.ok();
            assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), (":4\n", ""), "{server}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bash_script_completes_kubectl_nm() {
    let plugin = InstalledPlugin::built();
    let script = "source <(kubectl-nm completion bash)\nCOMP_WORDS=(kubectl-nm sta) COMP_CWORD=1 COMP_TYPE=9\n\
        _clap_complete_kubectl_nm kubectl-nm sta kubectl-nm\necho \"${COMPREPLY[*]}\"";
    if std::process::Command::new("bash").arg("--version").output().is_err() {
        return skipped("no bash on PATH");
    }
    let completed = plugin.run("bash", Path::new(""), &["--norc", "-c", script]).await.ok();
    let words: Vec<&str> = completed.stdout.split_whitespace().collect();
    assert_eq!(words, ["start", "status"], "{completed:?}");
}
