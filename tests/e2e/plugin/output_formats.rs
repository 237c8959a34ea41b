//! `-o` of the plugin prints the same bytes as kubectl for the same objects and the same format.

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::start;
use nm_tests::programs::{has_kubectl, kubectl, plugin};
use nm_tests::wait::wait_until;
use serde_json::Value;

/// Formats for a List of two maintenances.
const FOR_A_LIST: &[&str] = &[
    "name",
    "jsonpath={.kind}",
    "jsonpath=.kind",
    "jsonpath={.items[*].metadata.name}",
    "jsonpath={.items[*].spec}",
    "jsonpath={.items[0]['metadata.name','spec.nodeName']}",
    "jsonpath={range .items[*]}{.metadata.name}{\"\\t\"}{.spec.nodeName}{\"\\n\"}{end}",
    "jsonpath={range .items[*]}{.metadata.name}: {range .metadata.finalizers[*]}{@},{end}{'\\n'}{end}done",
    "jsonpath={range .items[*]}{.metadata.name} ",
    "jsonpath={range .nope[*]}{.x}{end}|{.nope.deeper}|{.nope[0]}",
    "jsonpath={.items[?(@.metadata.name==\"e2e-forms-b\")].spec.nodeName}",
    "jsonpath={.items[?(@.metadata.name!='e2e-forms-b')].metadata.name}",
    "jsonpath={.items[?(@.metadata.generation>=1)].metadata.name}",
    "jsonpath={.items[?(@.spec.reason)].metadata.name}",
    "jsonpath={.items[-1:].metadata.name} {.items[:1].metadata.name} {.items[0:2:2].metadata.name}",
    "jsonpath={..nodeName}",
    "jsonpath={$.items[0].metadata.generation}{@.kind}{1}{-2.50}{true}",
    "jsonpath={.items[0].metadata.labels.kubectl-nm\\.dev/e2e}",
    "jsonpath={.items[5]}",
    "jsonpath={.kind[0]}",
    "jsonpath={.items[?(@.metadata.name==1)]}",
    "jsonpath={end}",
    "jsonpath={what}",
    "jsonpath={.items[",
    "jsonpath={.items[x]}",
    "jsonpath={\"a}",
    "jsonpath={!}",
    "jsonpath={.a[?(@.b]}",
    "jsonpath",
    "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName",
    "custom-columns=N:{.metadata.name},SPEC:spec,NONE:.nope,X:metadata.generation",
    "custom-columns=NAME",
    "custom-columns",
];

/// Formats for one maintenance. None has a wildcard over an object, whose values kubectl prints in any order.
const FOR_ONE: &[&str] = &[
    "name",
    "jsonpath={.metadata.name}",
    "jsonpath={.spec}",
    "jsonpath={.metadata['name']} is {.spec.reason}",
    "custom-columns=WHY:.spec.reason",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_output_equals_kubectls_byte_by_byte() {
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
    for format in FOR_A_LIST {
        let theirs = kubectl(&cluster, &["get", "nm", "-o", format]).await.unwrap();
        let ours = plugin(&cluster, &["status", "-o", format]).await;
        assert_eq!(ours.stdout, theirs.stdout, "{format}\n{ours:?}\n{theirs:?}");
        assert_eq!(ours.code == Some(0), theirs.code == Some(0), "{format}\n{ours:?}\n{theirs:?}");
    }
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
    for format in FOR_ONE {
        let theirs = kubectl(&cluster, &["get", "nm", "e2e-forms-a", "-o", format]).await.unwrap().ok();
        let ours = plugin(&cluster, &["status", &nodes[0], "-o", format]).await.ok();
        assert_eq!(ours.stdout, theirs.stdout, "{format}");
    }
}

/// Parses a document. JSON is a subset of YAML.
fn document(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}
