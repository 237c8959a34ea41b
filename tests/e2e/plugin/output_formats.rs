//! `-o` of the plugin, compared to the real kubectl: the same objects in the same format, which kubectl can apply.

use kube::api::ListParams;
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::maintenance::start;
use nm_tests::programs::{kubectl, plugin};
use nm_tests::skip::has_kubectl;
use nm_tests::wait::wait_until;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn formats_print_what_kubectl_prints() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    for (name, node) in ["e2e-forms-a", "e2e-forms-b"].iter().zip(&nodes) {
        start(&cluster, name, node).await;
    }
    let patch = ["patch", "nm", "e2e-forms-a", "--type=merge", "-p"];
    let reason = r#"{"metadata":{"labels":{"kubectl-nm.dev/e2e":"x"}},"spec":{"reason":"<a & \"b\"> é"}}"#;
    let _ = kubectl(&cluster, &[&patch[..], &[reason]].concat()).await.unwrap().ok();
    wait_until(&cluster.maintenances(), "e2e-forms-a", "patched", |found| {
        found.is_some_and(|it| it.spec.reason.is_some())
    })
    .await;
    // JSON and YAML are compared as values: kubectl orders the fields of YAML differently.
    for args in [&[][..], &[nodes[0].as_str()]] {
        for format in ["json", "yaml"] {
            let named = if args.is_empty() { &[][..] } else { &["e2e-forms-a"] };
            let theirs = [&["get", "nm", "-o", format], named].concat();
            let theirs = document(&kubectl(&cluster, &theirs).await.unwrap().ok().stdout);
            let ours =
                document(&plugin(&cluster, &[&["status", "-o", format], args].concat()).await.ok().stdout);
            assert_eq!(ours, theirs, "{format} {args:?}");
            let kind = if args.is_empty() { "List" } else { "NodeMaintenance" };
            assert_eq!(ours["kind"], kind, "{format}");
        }
    }
    for (named, of_node) in [(&[][..], &[][..]), (&["e2e-forms-a"][..], &[nodes[0].as_str()][..])] {
        let theirs = kubectl(&cluster, &[&["get", "nm", "-o", "name"], named].concat()).await.unwrap().ok();
        let ours = plugin(&cluster, &[&["status", "-o", "name"], of_node].concat()).await.ok();
        assert_eq!(ours.stdout, theirs.stdout, "{named:?}");
    }
}

/// Parses a document. JSON is a subset of YAML.
fn document(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Applies the output of a client-side dry run of the plugin.
async fn apply_dry_run(cluster: &Cluster, line: &str, apply: &[&str]) -> String {
    let args: Vec<&str> = line.split_whitespace().chain(["--dry-run", "client", "-o", "yaml"]).collect();
    let printed = plugin(cluster, &args).await.ok().stdout;
    let file = temp_file(printed);
    let args = [apply, &["-f", file.path().to_str().unwrap()]].concat();
    kubectl(cluster, &args).await.unwrap().ok().stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_client_side_dry_run_can_be_applied() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::bare_sandbox(0, 0, |sandbox| sandbox).await;
    let applied = apply_dry_run(&cluster, "install", &["apply", "--server-side"]).await;
    assert!(applied.contains("deployment.apps/nm-reconciler serverside-applied\n"), "{applied}");

    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await.join(" ");
    let applied = apply_dry_run(&cluster, &format!("start {nodes}"), &["apply"]).await;
    assert_eq!(applied.matches(" created\n").count(), 2, "{applied}");
    assert_eq!(cluster.maintenances().list(&ListParams::default()).await.unwrap().items.len(), 2);
}
