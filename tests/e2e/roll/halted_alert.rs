//! The alert of a halted roll, from the metrics that nm-reconciler serves of a roll in the cluster.

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::until_gone;
use nm_tests::probes::until_served;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::runner_pods::RunnerPods;
use nm_tests::skip::has_program;
use serde_json::json;

use super::in_cluster::{action, action_pod, begin, end_action, until_complete};
use crate::manifests::alerts::{promtool, rules};

const METRIC: &str = "nm_halted_rolls";

/// The name and the labels of the metric, once its value is this number of rolls.
async fn until_halted(reconciler: &Reconciler, rolls: &str) -> String {
    let sample = |metrics: &str| {
        let mut lines = metrics.lines().filter(|line| line.starts_with(METRIC));
        let (series, value) = lines.next()?.rsplit_once(' ')?;
        (value == rolls).then(|| series.to_owned())
    };
    let server = reconciler.metrics_address().await;
    sample(&until_served(server, "/metrics", |metrics| sample(metrics).is_some()).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_halts_in_the_cluster_fires_its_alert_until_it_is_resumed() {
    let cluster = Cluster::start(1).await;
    let nodes = cluster.nodes().await;
    let start = || Reconciler::start_with(&cluster, &["--metrics-addr", "127.0.0.1:0"]);
    let reconciler = start();
    let _pods = RunnerPods::start(&cluster).await;
    let _ = begin(&cluster, "alerts", &nodes[..1], &action(false)).await.ok();
    let failed = action_pod(&cluster, &[]).await;
    let series = until_halted(&reconciler, "0").await;
    end_action(&cluster, &failed, false).await;
    assert_eq!(until_halted(&reconciler, "1").await, series);
    reconciler.crash().await;
    let reconciler = start();
    assert_eq!(until_halted(&reconciler, "1").await, series, "the next leader reports it too");
    let flags = ["roll", "resume", "alerts", "--yes", "--runner-image", "nm:test"];
    let _ = plugin(&cluster, &flags).await.ok();
    until_halted(&reconciler, "0").await;
    let again = action_pod(&cluster, &[&failed]).await;
    end_action(&cluster, &again, true).await;
    until_complete(&cluster, "alerts").await;
    until_gone(&cluster, &nodes[0]).await;

    if !has_program("promtool", &["--version"]) {
        return;
    }
    let firing = r#"ALERTS{alertname="NodeMaintenanceRollHalted", alertstate="firing", severity="warning"}"#;
    let expr = r#"ALERTS{alertname="NodeMaintenanceRollHalted", alertstate="firing"}"#;
    let at = |time: &str, samples: serde_json::Value| json!({"expr": expr, "eval_time": time, "exp_samples": samples});
    let tests = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [{
        "interval": "1m",
        "input_series": [{"series": series, "values": "0x9 1x20 0x20"}],
        "promql_expr_test": [
            at("14m", json!([])), at("15m", json!([{"labels": firing, "value": 1}])), at("35m", json!([])),
        ],
    }]});
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("rules.yaml"), rules().to_string()).unwrap();
    std::fs::write(scratch.path().join("tests.yaml"), tests.to_string()).unwrap();
    let _ = promtool(scratch.path(), &["test", "rules", "tests.yaml"]);
}
