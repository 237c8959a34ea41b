//! The reconciler as a process.

use nm_tests::cluster::Cluster;
use nm_tests::programs::program;
use nm_tests::reconciler::{Reconciler, unconfigured};
use serde_json::Value;

use crate::{drained, start};

#[tokio::test(flavor = "multi_thread")]
async fn both_signals_stop_the_reconciler_cleanly_within_five_seconds() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    for signal in ["TERM", "INT"] {
        let mut reconciler = Reconciler::start(&cluster);
        let name = format!("e2e-{}", signal.to_lowercase());
        start(&cluster, &name, node).await;
        drained(&cluster, &name).await;
        crate::stop(&cluster, &name).await;
        reconciler.signal(signal);
        let code = tokio::time::timeout(std::time::Duration::from_secs(5), reconciler.exit_code()).await;
        assert_eq!(code.expect("it stops in time"), Some(0), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_flags_are_refused_as_usage_errors() {
    let output = unconfigured(&program("nm-reconciler")).arg("--no-such-flag").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-such-flag"));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_taken_from_the_environment() {
    let cluster = Cluster::start(1).await;
    let reconciler = Reconciler::told_by(&cluster, &[("NM_MAX_UNAVAILABLE", "1")]);
    let started = reconciler.until_logged("its settings", |line| line.contains("\"started\"")).await;
    let started: Value = serde_json::from_str(&started).unwrap();
    assert_eq!(started["max_unavailable"], "1", "{started}");
}

#[test]
fn a_setting_that_is_misspelt_in_the_environment_is_refused_at_the_start() {
    let mut command = unconfigured(&program("nm-reconciler"));
    let output = command.env("NM_MAX_UNAVAILBLE", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("unknown environment variable NM_MAX_UNAVAILBLE:"), "{said}");
}
