//! `nm-sandbox demo` and `nm-sandbox up`.

use std::process::Stdio;

use nm_tests::programs::{RunningCommand, program};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_drains_a_node_and_returns_it_to_service() {
    let demo =
        Command::new(program("nm-sandbox")).arg("demo").stdin(Stdio::null()).kill_on_drop(true).output();
    let output =
        tokio::time::timeout(std::time::Duration::from_secs(60), demo).await.expect("the demo ends").unwrap();
    let (said, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}{told}");
    let line =
        |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default().to_owned();
    assert!(line("Before:").contains("is schedulable, taints: none"), "{said}");
    assert!(line("Drained:").contains("is cordoned, taints: medik8s.io/drain"), "{said}");
    assert!(line("After:").contains("is schedulable, taints: none"), "{said}");
    let order =
        ["blocked shop/cart", "unblocked shop/cart", "drained"].map(|what| said.find(what).expect(what));
    assert!(order.is_sorted(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn up_prints_the_kubeconfig_for_the_shell_and_runs_until_interrupted() {
    let mut up = RunningCommand::sandbox(&["--nodes", "2", "--pods", "4"]);
    let line = up.line().await.expect("a line");
    let kubeconfig = line.strip_prefix("export KUBECONFIG=").expect("a line for the shell").to_owned();
    assert!(std::path::Path::new(&kubeconfig).exists());
    let status =
        Command::new(program("kubectl-nm")).arg("status").env("KUBECONFIG", &kubeconfig).output().await;
    assert!(status.unwrap().status.success(), "the CRD is installed");
    up.signal("INT");
    assert_eq!(up.exit_code().await, Some(0));
    assert!(!std::path::Path::new(&kubeconfig).exists(), "the kubeconfig is deleted");
}
