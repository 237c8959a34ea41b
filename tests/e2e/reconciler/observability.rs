//! The reconciler's log, probes and metrics.

use std::net::SocketAddr;

use jiff::SignedDuration;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained};
use nm_tests::probes::{get, sample, until_served};
use nm_tests::programs::program;
use nm_tests::reconciler::{Reconciler, without_settings};
use nm_tests::requests::until_requests;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

/// How long the reconciler waits after a write of node conditions was forbidden, less a tolerance for requests on their way.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_millis(9_500);

/// Serves probes and metrics on a free port.
const SERVING: &[&str] = &["--metrics-addr", "127.0.0.1:0"];

/// A reconciler that logs as it does where it is installed: a JSON object per line.
struct JsonReconciler(Reconciler);

impl JsonReconciler {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        Self(Reconciler::start_with_only(cluster, flags))
    }

    /// The first log line with this message, once there is one.
    async fn line(&self, message: &str) -> Value {
        parsed(&self.0.until_logged(message, |line| parsed(line)["message"] == message).await)
    }

    /// All log lines so far.
    fn lines(&self) -> Vec<Value> {
        self.0.log().iter().map(|line| parsed(line)).collect()
    }

    async fn address(&self) -> SocketAddr {
        let line = self.line("serving the probes and metrics").await;
        line["address"].as_str().unwrap().parse().unwrap()
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pod_is_logged_once_and_counted_in_metrics_until_it_is_gone() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "only a sandbox injects failures").await else { return };
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "observed").await;
    workload.pod_on(node, "cart", json!({})).await;
    let pod = format!("{}/cart", workload.namespace());
    let faults = cluster.sandbox().unwrap().faults();
    let evictions = Target::any().subresource("eviction");
    let refused = faults.add(Rule::new(evictions, Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
    let reconciler = JsonReconciler::start(&cluster, SERVING);
    let server = reconciler.address().await;
    until_served(server, "/readyz", |body| body == "ok").await;
    start(&cluster, "e2e-observed", node).await;
    let during = until_served(server, "/metrics", |metrics| {
        sample(metrics, "nm_blocked_pods{reason=\"ServerError\"}") == Some(1.0)
            && sample(metrics, "nm_evictions_total{outcome=\"Unknown\"}") >= Some(3.0)
    })
    .await;
    assert_eq!(sample(&during, "nm_maintenances{phase=\"Running\"}"), Some(1.0), "{during}");
    assert!(sample(&during, "nm_api_requests_total{verb=\"create\",code=\"503\"}") >= Some(3.0), "{during}");
    assert_eq!(sample(&during, "nm_drain_duration_seconds_count"), Some(0.0));
    assert_eq!(sample(&during, "nm_leader"), Some(1.0));
    assert!(during.ends_with("# EOF\n"), "{during}");

    faults.remove(refused);
    until_drained(&cluster, "e2e-observed").await;
    let after = until_served(server, "/metrics", |metrics| {
        sample(metrics, "nm_maintenances{phase=\"Succeeded\"}") == Some(1.0)
            && sample(metrics, "nm_drain_duration_seconds_count") == Some(1.0)
    })
    .await;
    assert_eq!(sample(&after, "nm_blocked_pods{reason=\"ServerError\"}"), None, "{after}");
    assert_eq!(sample(&after, "nm_pod_blocked_duration_seconds_count"), Some(1.0));
    assert_eq!(sample(&after, "nm_evictions_total{outcome=\"Accepted\"}"), Some(1.0));
    assert_eq!(sample(&after, "nm_evictions_queued"), Some(0.0));
    stop(&cluster, "e2e-observed").await;

    let blocked = reconciler.line("pod is blocked").await;
    assert_eq!(
        json!([blocked["level"], blocked["maintenance"], blocked["node"], blocked["pod"], blocked["reason"]]),
        json!(["WARN", "e2e-observed", node, pod, "ServerError"]),
    );
    let accepted = reconciler.line("eviction accepted").await;
    assert_eq!(
        json!([accepted["maintenance"], accepted["node"], accepted["pod"]]),
        json!(["e2e-observed", node, pod])
    );
    reconciler.0.signal("TERM");
    reconciler.line("stopped").await;
    let counts =
        ["started", "pod is blocked", "eviction accepted", "pod is no longer blocked", "eviction refused"];
    let lines = reconciler.lines();
    let count = |key: &str, value: &str| lines.iter().filter(|line| line[key] == value).count();
    assert_eq!(counts.map(|message| count("message", message)), [1, 1, 1, 1, 0], "{lines:#?}");
    let reasons = ["BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance", "UncordonNode"];
    for reason in reasons {
        assert_eq!(count("reason", reason), 1, "{reason} in {lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_ready_and_only_the_leader_reports_maintenance_metrics() {
    let cluster = Cluster::start(1).await;
    let flags = [SERVING, &["--leader-elect"]].concat();
    let first = JsonReconciler::start(&cluster, &flags);
    first.line("leading").await;
    let second = JsonReconciler::start(&cluster, &flags);
    let (leader, standby) = (first.address().await, second.address().await);
    let leads = ["leader-election", "node-leases", "nodemaintenances", "nodes"];
    let verbose = |checks: &[&str]| {
        let lines: Vec<String> = checks.iter().map(|check| format!("[+]{check} ok\n")).collect();
        lines.concat() + "readyz check passed\n"
    };
    until_served(leader, "/readyz?verbose", |body| body == verbose(&leads)).await;
    until_served(standby, "/readyz?verbose", |body| body == verbose(&leads[..1])).await;
    for server in [leader, standby] {
        for path in ["/livez", "/healthz", "/readyz"] {
            assert_eq!(get(server, path).await, ("HTTP/1.0 200 OK".to_owned(), "ok".to_owned()), "{path}");
        }
    }
    let (leads, stands_by) = (get(leader, "/metrics").await.1, get(standby, "/metrics").await.1);
    let running = "nm_maintenances{phase=\"Running\"}";
    assert_eq!((sample(&leads, "nm_leader"), sample(&stands_by, "nm_leader")), (Some(1.0), Some(0.0)));
    assert_eq!((sample(&leads, running), sample(&stands_by, running)), (Some(0.0), None));

    first.0.signal("TERM");
    first.line("stopped").await;
    until_served(standby, "/metrics", |metrics| sample(metrics, running) == Some(0.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_access_to_node_conditions_is_logged_once_and_retried_with_backoff() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox logs requests").await else { return };
    let workload = Workload::new(&cluster, "unpublished").await;
    let node = &cluster.nodes().await[0];
    for name in ["a", "b", "c", "d", "e"] {
        workload.pod_on(node, name, json!({})).await;
    }
    let reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    start(&cluster, "e2e-unpublished", node).await;
    until_drained(&cluster, "e2e-unpublished").await;
    let is_refused = |entry: &Entry| entry.subresource == "status" && entry.code == 403;
    let sandbox = cluster.sandbox().unwrap();
    let refused = until_requests(sandbox, 2, "the write is retried", is_refused).await;
    let interval = refused[1].at.duration_since(refused[0].at);
    assert!(interval >= RETRY_INTERVAL, "{interval}");
    let warnings = reconciler.log().iter().filter(|line| line.contains("are not published")).count();
    assert_eq!(warnings, 1, "{:#?}", reconciler.log());
    stop(&cluster, "e2e-unpublished").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_and_contradictory_flags_are_startup_errors() {
    let cluster = Cluster::start(1).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut reconciler = Reconciler::start_with_only(&cluster, &["--metrics-addr", &address]);
    let line = reconciler.until_logged("why it ends", |_| true).await;
    assert!(line.contains(&format!("cannot serve the probes and metrics on {address}")), "{line}");
    assert!(line.contains("--metrics-addr"), "{line}");
    assert_eq!(reconciler.exit_code().await, Some(1));

    let mut command = without_settings(&program("nm-reconciler"));
    let output = command.args(["--leader-elect=false", "--lease-duration", "20"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let value = String::from_utf8_lossy(&output.stderr);
    assert!(value.contains("--lease-duration") && value.contains("--leader-elect"), "{value}");
}
