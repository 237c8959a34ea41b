//! What a person sees of the reconciler from outside: its log, its probes and its metrics.

use std::net::SocketAddr;

use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::programs::program;
use nm_tests::reconciler::{Reconciler, unconfigured};
use nm_tests::until::PATIENCE;
use nm_tests::workload::Workload;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{drained, only_sandbox, start, stop};

/// Any port.
const SERVING: &[&str] = &["--metrics-addr", "127.0.0.1:0"];

/// A reconciler that logs as shipped: in JSON, a line a message.
struct Logged(Reconciler);

impl Logged {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        Self(Reconciler::as_shipped(cluster, flags))
    }

    /// The first line with this message, once it is written.
    async fn line(&self, message: &str) -> Value {
        parsed(&self.0.until_logged(message, |line| parsed(line)["message"] == message).await)
    }

    /// All lines so far.
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

/// The status line and the body of what is served there.
pub(crate) async fn get(server: SocketAddr, path: &str) -> (String, String) {
    let mut connection = TcpStream::connect(server).await.unwrap();
    connection.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// The answer once it is as wanted: what the program serves follows what it watches.
pub(crate) async fn until_served(server: SocketAddr, path: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut last = String::new();
    let asking = async {
        loop {
            last = get(server, path).await.1;
            if wanted(&last) {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, asking).await;
    assert!(in_time.is_ok(), "{path} serves {last}");
    last
}

/// The value of a sample, by its name and labels; none if it is not there.
pub(crate) fn sample(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pod_is_one_line_of_the_log_and_is_seen_in_the_metrics_until_it_goes() {
    let Some(cluster) = only_sandbox(2, "only a sandbox plays an eviction that fails").await else { return };
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "observed").await;
    workload.pod_on(node, "cart", json!({})).await;
    let pod = format!("{}/cart", workload.namespace());
    let faults = cluster.sandbox().unwrap().faults();
    let evictions = Target::any().subresource("eviction");
    let refused = faults.add(Rule::new(evictions, Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
    let reconciler = Logged::start(&cluster, SERVING);
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
    drained(&cluster, "e2e-observed").await;
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
        ["started", "pod is blocked", "eviction accepted", "pod is blocked no more", "eviction refused"];
    let lines = reconciler.lines();
    let count = |key: &str, said: &str| lines.iter().filter(|line| line[key] == said).count();
    assert_eq!(counts.map(|message| count("message", message)), [1, 1, 1, 1, 0], "{lines:#?}");
    let reasons = ["BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance", "UncordonNode"];
    for reason in reasons {
        assert_eq!(count("reason", reason), 1, "{reason} in {lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stands_by_is_ready_and_leaves_counting_to_the_one_that_leads() {
    let cluster = Cluster::start(1).await;
    let flags = [SERVING, &["--leader-elect"]].concat();
    let first = Logged::start(&cluster, &flags);
    first.line("leading").await;
    let second = Logged::start(&cluster, &flags);
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
async fn the_right_to_tell_on_nodes_is_missed_in_one_line_and_asked_for_seldom() {
    let Some(cluster) = only_sandbox(1, "requests are counted").await else { return };
    let workload = Workload::new(&cluster, "untold").await;
    let node = &cluster.nodes().await[0];
    for name in ["a", "b", "c", "d", "e"] {
        workload.pod_on(node, name, json!({})).await;
    }
    let reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    start(&cluster, "e2e-untold", node).await;
    drained(&cluster, "e2e-untold").await;
    let requests = cluster.sandbox().unwrap().requests();
    let is_refused = |entry: &Entry| entry.subresource == "status" && entry.code == 403;
    assert_eq!(requests.count(is_refused), 1, "not at every look");
    let again = requests.until(|log| log.count(is_refused) > 1);
    tokio::time::timeout(PATIENCE, again).await.expect("it is asked for again");
    let told = reconciler.log().iter().filter(|line| line.contains("are not published")).count();
    assert_eq!(told, 1, "{:#?}", reconciler.log());
    stop(&cluster, "e2e-untold").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_and_flags_that_contradict_each_other_end_the_program_at_its_start() {
    let cluster = Cluster::start(1).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut reconciler = Reconciler::as_shipped(&cluster, &["--metrics-addr", &address]);
    let line = reconciler.until_logged("why it ends", |_| true).await;
    assert!(line.contains(&format!("cannot serve the probes and metrics on {address}")), "{line}");
    assert!(line.contains("by --metrics-addr"), "{line}");
    assert_eq!(reconciler.exit_code().await, Some(1));

    let mut command = unconfigured(&program("nm-reconciler"));
    let output = command.args(["--leader-elect=false", "--lease-duration", "20"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--lease-duration") && said.contains("--leader-elect"), "{said}");
}
