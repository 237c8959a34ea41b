//! What every command says that asks a cluster, where there is none that answers: soon, and on which server.

use std::time::{Duration, Instant};

use nm_tests::programs::plugin_of;
use serde_json::json;

/// A person waits for less than five seconds, of which four are the server's. Machines that run tests are busy; whoever waits
/// twice takes eight all the same.
const SOON: Duration = Duration::from_millis(7500);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_given_up_soon_by_every_command() {
    // The system takes connections to it, and nobody ever speaks.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{address}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), config.to_string()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.tar.gz");
    let commands = [
        &["start", "n1"][..],
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
        &["gather", "-o", report.to_str().unwrap()],
        &["version"],
        &["version", "-o", "json"],
    ];
    // A program that has to be built is built before the clock runs.
    let _ = plugin_of(kubeconfig.path(), &["version", "--client"]).await.ok();
    let asked = commands.map(|args| {
        let kubeconfig = kubeconfig.path();
        async move {
            let begun = Instant::now();
            (args, plugin_of(kubeconfig, args).await, begun.elapsed())
        }
    });
    for (args, failed, took) in futures::future::join_all(asked).await {
        assert!(took < SOON, "{args:?} took {took:?}");
        assert_eq!(failed.code, Some(1), "{args:?}: {failed:?}");
        let said = format!("Unable to connect to the server https://{address}: it does not answer\nhint: ");
        assert!(failed.stderr.contains(&said), "{args:?}: {failed:?}");
        // Whoever waits for it is told before what for.
        let first = failed.stderr.lines().next().unwrap();
        let is_told = first.contains(&format!(" https://{address}")) && first.ends_with(" ...");
        assert!(is_told, "{args:?}: {failed:?}");
    }
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
    for args in [
        &["start", "n1"][..],
        &["stop", "n1"],
        &["status"],
        &["plan", "n1"],
        &["explain", "n1"],
        &["watch"],
        &["install"],
        &["uninstall", "-y"],
        &["doctor"],
        &["gather"],
        &["version"],
    ] {
        plugin_of(&nowhere, args).await.expect(1, "", &said);
    }
}
