//! The reconciler as a process: signals, flags and environment variables.

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained};
use nm_tests::programs::program;
use nm_tests::reconciler::{Reconciler, without_settings};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_and_sigint_stop_the_reconciler_within_five_seconds() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    for signal in ["TERM", "INT"] {
        let mut reconciler = Reconciler::start(&cluster);
        let name = format!("e2e-{}", signal.to_lowercase());
        start(&cluster, &name, node).await;
        until_drained(&cluster, &name).await;
        stop(&cluster, &name).await;
        reconciler.signal(signal);
        let code = tokio::time::timeout(std::time::Duration::from_secs(5), reconciler.exit_code()).await;
        assert_eq!(code.expect("it exits in time"), Some(0), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_flags_are_usage_errors() {
    let output = without_settings(&program("nm-reconciler")).arg("--no-such-flag").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-such-flag"));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_read_from_the_environment() {
    let cluster = Cluster::start(1).await;
    let reconciler = Reconciler::start_with_env(&cluster, &[("NM_MAX_UNAVAILABLE", "1")]);
    let started = reconciler.until_logged("its settings", |line| line.contains("\"started\"")).await;
    let started: Value = serde_json::from_str(&started).unwrap();
    assert_eq!(started["max_unavailable"], "1", "{started}");
}

#[test]
fn a_misspelt_setting_in_the_environment_is_a_usage_error() {
    let mut command = without_settings(&program("nm-reconciler"));
    let output = command.env("NM_MAX_UNAVAILBLE", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("unknown environment variable NM_MAX_UNAVAILBLE:"), "{stderr}");
}
