//! Generated files are up to date.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use nm_tests::files::replace;
use nm_tests::manifests::{cluster_role, folder, the_one};
use serde_json::{Value, json};

/// Compares a file with its generated content. `NM_UPDATE=1 cargo test -p nm-tests manifests` rewrites it.
fn check(path: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("NM_UPDATE").is_some() {
        replace(&path, generated);
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == generated,
        "{} is out of date: run NM_UPDATE=1 cargo test -p nm-tests manifests",
        path.display()
    );
}

#[test]
fn the_crd_is_generated_from_the_types() {
    let yaml = serde_saphyr::to_string(&nm_shared::api::crd::crd()).unwrap();
    check(
        "manifests/crd.yaml",
        &format!("# Generated from the types in shared/; a test verifies it.\n{yaml}"),
    );
}

#[test]
fn the_olm_bundle_is_generated_from_the_manifests() {
    let files = nm_tests::olm_bundle::files();
    for (file, text) in &files {
        check(&format!("manifests/bundle/{file}"), text);
    }
    let mut found = BTreeSet::new();
    files_below(&folder().join("bundle"), &mut found);
    let written: BTreeSet<PathBuf> =
        files.iter().map(|(file, _)| folder().join("bundle").join(file)).collect();
    assert_eq!(found, written, "manifests/bundle has exactly the generated files");
}

#[test]
fn the_grafana_dashboard_uses_only_documented_metrics() {
    let read = |file: PathBuf| std::fs::read_to_string(file).unwrap();
    let documented = read(folder().join("../docs/reference/metrics.md"));
    let dashboard: Value =
        serde_json::from_str(&read(folder().join("components/dashboard/node_maintenance.json"))).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    let words =
        queries.iter().flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let metrics: BTreeSet<&str> = words.filter(|word| word.starts_with("nm_")).collect();
    assert!(metrics.len() >= panels.len() / 2, "{queries:?}");
    for metric in metrics {
        // A histogram is documented by its name, and queried by its parts.
        let name = metric.trim_end_matches("_bucket");
        assert!(documented.contains(&format!("| `{name}` |")), "{metric}");
    }
}

fn files_below(parent: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(parent).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn the_olm_bundle_grants_the_permissions_of_the_manifests() {
    let files = nm_tests::olm_bundle::files();
    let (_, version) = files.iter().find(|(file, _)| file.ends_with("clusterserviceversion.yaml")).unwrap();
    let version: Value = serde_saphyr::from_str(version).unwrap();
    let install = &version["spec"]["install"]["spec"];
    let cluster_role = serde_json::to_value(cluster_role()).unwrap();
    // OLM writes the webhook configuration itself.
    let configures = |rule: &Value| rule["resources"] == json!(["validatingwebhookconfigurations"]);
    let mut rules = cluster_role["rules"].as_array().unwrap().clone();
    rules.retain(|rule| !configures(rule));
    assert_eq!(rules.len() + 1, cluster_role["rules"].as_array().unwrap().len());
    assert_eq!(install["clusterPermissions"][0]["rules"], json!(rules));
    assert_eq!(install["permissions"], Value::Null, "OLM would grant them in the whole cluster");
    let deployment = serde_json::to_value(the_one::<Deployment>()).unwrap();
    assert_eq!(install["deployments"][0]["name"], deployment["metadata"]["name"]);
    let strategy = &install["deployments"][0]["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(
        strategy["maxUnavailable"], 1,
        "OLM marks a version as failed while more replicas are missing"
    );
    let security = |pod: &Value| pod["template"]["spec"]["containers"][0]["securityContext"].clone();
    assert_eq!(security(&install["deployments"][0]["spec"]), security(&deployment["spec"]));
    let definition = &version["spec"]["customresourcedefinitions"]["owned"][0];
    assert_eq!(definition["name"], nm_shared::api::crd::crd().metadata.name.unwrap());
}
