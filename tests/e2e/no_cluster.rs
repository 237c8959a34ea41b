//! What every command says that asks a cluster, where there is none that answers: soon, and on which server.

use std::path::Path;
use std::time::{Duration, Instant};

use kube_sandbox::faults::{Action, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{Outcome, plugin, plugin_of};
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Machines that run tests are busy, and whoever waited twice for five seconds would take ten all the same.
const SOON: Duration = Duration::from_millis(9500);

/// Where nothing has to be waited for, nothing is.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Every command that asks a cluster.
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

/// A kubeconfig for a server.
fn kubeconfig(server: &str) -> NamedTempFile {
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config.to_string()).unwrap();
    file
}

/// What each command says and how long it takes, all at once: with them only the server's time counts.
async fn together(kubeconfig: &Path, flag: &str) -> Vec<(&'static [&'static str], Outcome, Duration)> {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.tar.gz");
    built(kubeconfig).await;
    let asked = COMMANDS.iter().map(|args| {
        // What it gathers is not to lie about.
        let place = ["-o", report.to_str().unwrap()];
        let mut line = if args[0] == "gather" { [args, &place[..]].concat() } else { args.to_vec() };
        line.push(flag);
        async move {
            let begun = Instant::now();
            (*args, plugin_of(kubeconfig, &line).await, begun.elapsed())
        }
    });
    futures::future::join_all(asked).await
}

/// A program that has to be built is built before a clock runs.
async fn built(kubeconfig: &Path) {
    let _ = plugin_of(kubeconfig, &["version", "--client"]).await.ok();
}

/// What a command prints without a cluster: the version of the program itself needs none.
fn own(args: &[&str]) -> String {
    match args {
        ["version"] => format!("Plugin: {}\n", env!("CARGO_PKG_VERSION")),
        _ => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_told_of_by_every_command_and_given_up_in_time() {
    // The system takes connections to it, and nobody ever speaks: of the one no certificate comes, of the other no answer.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for scheme in ["https", "http"] {
        let server = format!("{scheme}://{}", silent.local_addr().unwrap());
        for (args, failed, took) in together(kubeconfig(&server).path(), "--request-timeout=5s").await {
            assert!(took < SOON, "{args:?} took {took:?}");
            assert_eq!(failed.code, Some(1), "{args:?}: {failed:?}");
            let given_up = [
                format!("Unable to connect to the server {server}: it does not answer\nhint: "),
                format!("error: the server {server} did not answer within 5s\nhint: "),
            ];
            assert!(given_up.iter().any(|said| failed.stderr.contains(said)), "{args:?}: {failed:?}");
            // Whoever waits for it is told before what for, and what may be wrong.
            let first = failed.stderr.lines().next().unwrap();
            let is_told = first.contains(&format!(" {server}")) && first.ends_with(" ...");
            assert!(is_told, "{args:?}: {failed:?}");
            assert!(
                failed.stderr.contains(" ... no answer yet\nhint: check the address"),
                "{args:?}: {failed:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_slow_is_waited_for() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let slow = Action::DelayAnswer(Duration::from_secs(5));
    let lists = Target::any().verb("list").resource("nodemaintenances");
    cluster.sandbox().unwrap().faults().add(Rule::new(lists, slow));
    let shown = plugin(&cluster, &["status"]).await.ok();
    assert!(shown.stderr.contains(" ... no answer yet\nhint: check the address"), "{shown:?}");
    assert!(shown.stderr.ends_with("No maintenances found.\n"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_connections_is_told_at_once_by_every_command() {
    // Nobody else takes the port meanwhile.
    let port = unheard();
    let server = format!("https://{}", port.local_addr().unwrap());
    let file = kubeconfig(&server);
    built(file.path()).await;
    for args in COMMANDS.iter().filter(|args| args[0] != "gather") {
        let begun = Instant::now();
        let failed = plugin_of(file.path(), args).await;
        assert!(begun.elapsed() < AT_ONCE, "{args:?} took {:?}", begun.elapsed());
        assert_eq!(failed.code, Some(1), "{args:?}: {failed:?}");
        let said = format!("The connection to the server {server} was refused");
        assert!(failed.stderr.contains(&said), "{args:?}: {failed:?}");
    }
}

/// A socket that has an address and takes no connections.
fn unheard() -> tokio::net::TcpSocket {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_kubeconfig_it_is_said_where_one_was_looked_for_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("kubeconfig");
    let said = format!(
        "error: no cluster to talk to: there is no kubeconfig at {}\nhint: name an existing kubeconfig with --kubeconfig \
         FILE or KUBECONFIG, or the server with --server\n",
        nowhere.display()
    );
    built(&nowhere).await;
    for args in COMMANDS.iter().filter(|args| !args.contains(&"json")) {
        let begun = Instant::now();
        plugin_of(&nowhere, args).await.expect(1, &own(args), &said);
        assert!(begun.elapsed() < AT_ONCE, "{args:?} took {:?}", begun.elapsed());
    }
}

/// A server that answers whatever is asked with the same, and its address.
async fn stubborn(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 16 * 1024];
                let _ = connection.read(&mut request).await;
                let _ = connection.write_all(answer.as_bytes()).await;
                let _ = connection.shutdown().await;
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_answers_and_is_no_api_server_is_told_from_one_without_maintenances() {
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
        let server = stubborn(Box::leak(format!("HTTP/1.1 {answer}").into_boxed_str())).await;
        let file = kubeconfig(&server);
        let expected = format!(
            "error: {server} does not answer as an API server does: {said}\nhint: is that the address of the API server, "
        );
        let asked = [&["status"][..], &["doctor"], &["version"]].map(|args| plugin_of(file.path(), args));
        for failed in futures::future::join_all(asked).await {
            assert_eq!(failed.code, Some(1), "{answer}: {failed:?}");
            assert!(failed.stderr.contains(&expected), "{answer}: {failed:?}");
            assert!(!failed.stderr.contains("html"), "{failed:?}");
        }
    }
}
