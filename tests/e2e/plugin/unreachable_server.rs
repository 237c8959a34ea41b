//! Commands without a responding cluster: each fails in time and names the server.

use std::path::Path;
use std::time::{Duration, Instant};

use kube_sandbox::faults::{Action, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::files::kubeconfig_for;
use nm_tests::programs::{Outcome, plugin_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A limit for commands whose request timeout is 5 s. Two timeouts in a row would exceed it, a busy machine does not.
const ONE_REQUEST_TIMEOUT: Duration = Duration::from_millis(9500);

/// A limit for commands that do not wait.
const NO_WAIT: Duration = Duration::from_secs(2);

/// Every command that needs a cluster.
const COMMANDS: &[&[&str]] = &[
    &["start", "n1"],
    &["start", "n1", "n2", "-y", "--wait"],
    &["start", "-l", "a=b"],
    &["stop", "n1"],
    &["stop", "--all"],
    &["status"],
    &["plan", "n1", "n2"],
    &["explain", "n1"],
    &["watch"],
    &["watch", "n1", "--output", "json", "--until", "drained"],
    &["install"],
    &["uninstall", "-y"],
    &["doctor"],
    &["gather"],
    &["version"],
    &["version", "-o", "json"],
];

/// Runs all commands concurrently, so that the test takes as long as one timeout. Returns how long each took.
async fn run_all(kubeconfig: &Path, flag: &str) -> Vec<(&'static [&'static str], Outcome, Duration)> {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.tar.gz");
    build(kubeconfig).await;
    let commands = COMMANDS.iter().map(|args| {
        // The report must not be written to the working directory.
        let place = ["-o", report.to_str().unwrap()];
        let mut line = if args[0] == "gather" { [args, &place[..]].concat() } else { args.to_vec() };
        line.push(flag);
        async move {
            let begun = Instant::now();
            (*args, plugin_of(kubeconfig, &line).await, begun.elapsed())
        }
    });
    futures::future::join_all(commands).await
}

/// Builds the program if necessary, before a test measures time.
async fn build(kubeconfig: &Path) {
    let _ = plugin_of(kubeconfig, &["version", "--client"]).await.ok();
}

/// The output of a command without a cluster: only `version` prints something.
fn output_without_cluster(args: &[&str]) -> String {
    match args {
        ["version"] => format!("Plugin: {}\n", env!("CARGO_PKG_VERSION")),
        _ => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_reports_a_silent_server_and_times_out() {
    // The operating system accepts connections to it, and no program answers: https gets no certificate, http no response.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for scheme in ["https", "http"] {
        let server = format!("{scheme}://{}", silent.local_addr().unwrap());
        for (args, failed, took) in run_all(kubeconfig_for(&server).path(), "--request-timeout=5s").await {
            assert!(took < ONE_REQUEST_TIMEOUT, "{args:?} took {took:?}");
            assert_eq!(failed.code, Some(1), "{args:?}: {failed:?}");
            let errors = [
                format!("Unable to connect to the server {server}: it does not respond\nhint: "),
                format!("error: the server {server} did not respond within 5s\nhint: "),
            ];
            assert!(errors.iter().any(|said| failed.stderr.contains(said)), "{args:?}: {failed:?}");
            // Before the timeout, progress shows which request is waited for, and what may be wrong.
            let first = failed.stderr.lines().next().unwrap();
            let has_progress = first.contains(&format!(" {server}")) && first.ends_with(" ...");
            assert!(has_progress, "{args:?}: {failed:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_is_waited_for() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let slow = Action::DelayAnswer(Duration::from_secs(5));
    let lists = Target::any().verb("list").resource("nodemaintenances");
    cluster.sandbox().unwrap().faults().add(Rule::new(lists, slow));
    let shown = plugin_of(cluster.kubeconfig(), &["status"]).await.ok();
    assert!(shown.stderr.starts_with("asking "), "{shown:?}");
    assert!(shown.stderr.ends_with("No maintenances found.\n"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_reports_a_refused_connection_at_once() {
    // The bound socket keeps other programs from using the port.
    let port = bound_socket();
    let server = format!("https://{}", port.local_addr().unwrap());
    let file = kubeconfig_for(&server);
    build(file.path()).await;
    for args in COMMANDS.iter().filter(|args| args[0] != "gather") {
        let begun = Instant::now();
        let failed = plugin_of(file.path(), args).await;
        assert!(begun.elapsed() < NO_WAIT, "{args:?} took {:?}", begun.elapsed());
        assert_eq!(failed.code, Some(1), "{args:?}: {failed:?}");
        let said = format!("The connection to the server {server} was refused");
        assert!(failed.stderr.contains(&said), "{args:?}: {failed:?}");
    }
}

/// A socket with an address that does not listen.
fn bound_socket() -> tokio::net::TcpSocket {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_kubeconfig_is_reported_with_its_path_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("kubeconfig");
    let said = format!(
        "error: no cluster is configured: there is no kubeconfig at {}\nhint: name an existing kubeconfig with --kubeconfig \
         FILE or KUBECONFIG, or a server with --server\n",
        nowhere.display()
    );
    build(&nowhere).await;
    for args in COMMANDS.iter().filter(|args| !args.contains(&"json")) {
        let begun = Instant::now();
        plugin_of(&nowhere, args).await.expect(1, &output_without_cluster(args), &said);
        assert!(begun.elapsed() < NO_WAIT, "{args:?} took {:?}", begun.elapsed());
    }
}

/// Starts a server that sends the same response to every request, and returns its URL.
async fn serve_response(response: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 16 * 1024];
                let _ = connection.read(&mut request).await;
                let _ = connection.write_all(response.as_bytes()).await;
                let _ = connection.shutdown().await;
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_api_server_is_an_error() {
    for (answer, said) in [
        ("200 OK\r\nContent-Type: text/html\r\n\r\n<html>welcome</html>", "HTTP 200 OK"),
        ("302 Found\r\nContent-Type: text/html\r\nLocation: /login\r\n\r\n<a>here</a>", "HTTP 302 Found"),
        ("404 Not Found\r\nContent-Type: text/html\r\n\r\n<html>404</html>", "HTTP 404 Not Found"),
        ("500 Internal Server Error\r\n\r\n<html>500</html>", "HTTP 500 Internal Server Error"),
        ("502 Bad Gateway\r\nContent-Type: text/html\r\n\r\n<html>502</html>", "HTTP 502 Bad Gateway"),
        (
            "503 Service Unavailable\r\n\r\nno healthy upstream",
            "HTTP 503 Service Unavailable, no healthy upstream",
        ),
    ] {
        let server = serve_response(Box::leak(format!("HTTP/1.1 {answer}").into_boxed_str())).await;
        let file = kubeconfig_for(&server);
        let expected = format!(
            "error: {server} does not respond like an API server: {said}\nhint: is this the address of an API server, "
        );
        let commands = [&["status"][..], &["doctor"], &["version"]].map(|args| plugin_of(file.path(), args));
        for failed in futures::future::join_all(commands).await {
            assert_eq!(failed.code, Some(1), "{answer}: {failed:?}");
            assert!(failed.stderr.contains(&expected), "{answer}: {failed:?}");
            assert!(!failed.stderr.contains("html"), "{failed:?}");
        }
    }
}
