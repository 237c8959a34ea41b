//! What of the reconciler's own objects leaves a cluster with `kubectl nm gather`.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{plugin, program};
use nm_tests::until::until;
use nm_tests::webhook;
use serde_json::{Value, json};

use crate::doctor::unpacked;

/// The flags of the built reconciler, as its help tells them.
fn flags() -> Vec<String> {
    let help = std::process::Command::new(program("nm-reconciler")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.strip_prefix("      --"));
    flags.map(|line| format!("--{}", line.split([' ', '[', '=']).next().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_has_the_reconcilers_settings_and_nothing_of_what_runs_beside_it() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let _ = plugin(&cluster, &["install", "--image", "r.example.com/nm:1", "--wait=false"]).await.ok();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), &webhook::namespace());
    let flags = flags();
    assert!(flags.len() > 10, "{flags:?}");
    // Whoever knows the path may ask the webhook.
    let (secret, settings): (Vec<String>, Vec<String>) =
        flags.into_iter().partition(|flag| flag == "--webhook-path");
    assert_eq!(secret.len(), 1);
    let settings: Vec<String> = settings.iter().map(|flag| format!("{flag}=7")).collect();
    let args = [settings.as_slice(), &["--webhook-path=/hunter2".to_owned()]].concat();
    let hidden = json!([{"name": "PASSWORD", "value": "hunter2"}]);
    let secrets = json!({"spec": {"template": {"spec": {
        "initContainers": [{"name": "login", "image": "login:1", "env": hidden}],
        "containers": [
            {"name": "reconciler", "args": args, "env": hidden,
                "lifecycle": {"preStop": {"exec": {"command": ["bye", "hunter2"]}}}},
            {"name": "proxy", "image": "proxy:1", "args": ["--password=hunter2"]},
        ],
    }}}});
    let manner = PatchParams::default();
    deployments.patch("nm-reconciler", &manner, &Patch::Strategic(secrets)).await.unwrap();
    let replaced = |found: Option<&Deployment>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.updated_replicas == Some(2))
    };
    until(&deployments, "nm-reconciler", "its pods replaced", replaced).await;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.gz");
    let _ = plugin(&cluster, &["gather", "-o", path.to_str().unwrap()]).await.ok();
    let files = unpacked(&path);
    let logs: Vec<&str> = files.keys().filter_map(|name| name.strip_prefix("logs/")).collect();
    assert!(logs.iter().any(|name| name.ends_with("/reconciler.log")), "{logs:?}");
    assert!(!logs.iter().any(|name| name.contains("proxy")), "{logs:?}");
    for name in ["deployments.json", "reconciler-pods.json"] {
        let text = &files[name];
        assert!(
            !text.contains("hunter2") && !text.contains("podIP") && !text.contains("hostIP"),
            "{name}: {text}"
        );
        let items = serde_json::from_str::<Value>(text).unwrap()["items"].clone();
        assert!(
            items[0]["metadata"]["name"].as_str().unwrap().starts_with("nm-reconciler"),
            "{name}: {text}"
        );
        for setting in &settings {
            assert!(text.contains(setting), "{name} has {setting}: {text}");
        }
    }
}
