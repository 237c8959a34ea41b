//! `nm-sandbox demo` and `nm-sandbox up`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use nm_tests::programs::{RunningCommand, program};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_drains_a_node_and_returns_it_to_service() {
    let demo =
        Command::new(program("nm-sandbox")).arg("demo").stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(60), demo).await.expect("the demo ends").unwrap();
    let (said, reported) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}{reported}");
    let line =
        |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default().to_owned();
    assert!(line("Before:").contains("is schedulable, taints: none"), "{said}");
    assert!(line("Drained:").contains("is cordoned, taints: medik8s.io/drain"), "{said}");
    assert!(line("After:").contains("is schedulable, taints: none"), "{said}");
    let order =
        ["blocked shop/cart", "unblocked shop/cart", "Drained"].map(|what| said.find(what).expect(what));
    assert!(order.is_sorted(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_of_a_roll_reboots_every_node_within_two_minutes() {
    let mut demo = Command::new(program("nm-sandbox"));
    let demo = demo.args(["demo", "--roll"]).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(120), demo).await.expect("the demo ends").unwrap();
    let (said, reported) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}{reported}");
    assert!(reported.contains("$ kubectl nm roll --selector pool=blue "), "{reported}");
    for line in [
        "Before: 6 nodes are schedulable, 0 have rebooted, 24 pods run",
        "After:  6 nodes are schedulable, 6 have rebooted, 24 pods run",
    ] {
        assert!(said.lines().any(|one| one == line), "{line}\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn up_prints_the_kubeconfig_for_the_shell_and_runs_until_interrupted() {
    let mut up = RunningCommand::sandbox(&["--nodes", "2", "--pods", "4"]);
    let line = up.line().await.expect("a line");
    let kubeconfig = line.strip_prefix("export KUBECONFIG=").expect("a line for the shell").to_owned();
    assert!(Path::new(&kubeconfig).exists());
    let status =
        Command::new(program("kubectl-nm")).arg("status").env("KUBECONFIG", &kubeconfig).output().await;
    assert!(status.unwrap().status.success(), "the CRD is installed");
    up.signal("INT");
    assert_eq!(up.exit_code().await, Some(0));
    assert!(!Path::new(&kubeconfig).exists(), "the kubeconfig is deleted");
}

/// `cargo run -p nm-sandbox` is the first command of the README and `cargo test --workspace` the second.
#[test]
fn the_demo_and_the_tests_build_every_crate_with_the_same_features() {
    let crates = |selection: &[&str]| -> BTreeSet<String> {
        let mut tree = StdCommand::new(env!("CARGO"));
        tree.args(["tree", "--prefix", "none", "--format", "{p} {f}"]).args(selection);
        let output = tree.current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let (demo, tests) = (crates(&["-p", "nm-sandbox", "-e", "normal,build"]), crates(&["--workspace"]));
    let built_twice: Vec<&String> = demo.difference(&tests).collect();
    assert!(demo.len() > 100 && built_twice.is_empty(), "{built_twice:#?}");
}
