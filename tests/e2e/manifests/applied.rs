//! The manifests, installed by kubectl.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_sandbox::sandbox::{Options, Sandbox};
use nm_tests::manifests::{all, files_of, folder};
use nm_tests::programs::{Outcome, kubectl_at};
use nm_tests::skip::has_kubectl;
use nm_tests::wait::wait_until;
use tempfile::TempDir;

/// A sandbox in which nothing is installed.
struct EmptyCluster {
    sandbox: Sandbox,
    files: TempDir,
}

impl EmptyCluster {
    async fn start() -> Self {
        let (start_delay, stop_delay) = (Duration::from_millis(50), Duration::from_millis(50));
        let sandbox =
            Sandbox::start(Options { nodes: 2, pods: 0, start_delay, stop_delay, ..Options::default() })
                .await
                .unwrap();
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("kubeconfig"), sandbox.kubeconfig()).unwrap();
        Self { sandbox, files }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    async fn kubectl(&self, args: &[&str]) -> Outcome {
        kubectl_at(&self.kubeconfig(), args).await.ok()
    }

    async fn client(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::from_yaml(&self.sandbox.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        kube::Client::try_from(config.unwrap()).unwrap()
    }
}

fn path(below: &Path) -> &str {
    below.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_kubectl_apply_installs_everything_and_a_second_changes_nothing() {
    if !has_kubectl() {
        return;
    }
    for (flags, again) in [(&[][..], "unchanged"), (&["--server-side"][..], "serverside-applied")] {
        let cluster = EmptyCluster::start().await;
        let folder = folder();
        let apply = [&["apply", "-k", path(&folder)], flags].concat();
        let first = cluster.kubectl(&apply).await;
        assert_eq!(first.stdout.lines().count(), all().len(), "{first:?}");
        let _ =
            cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await;
        let rolled_out =
            ["-n", "node-maintenance", "rollout", "status", "deployment/nm-reconciler", "--timeout=60s"];
        let _ = cluster.kubectl(&rolled_out).await;
        let generations = [
            "get",
            "deployment,pdb",
            "-n",
            "node-maintenance",
            "-o",
            "jsonpath={.items[*].metadata.generation}",
        ];
        let before = cluster.kubectl(&generations).await.stdout;
        let second = cluster.kubectl(&apply).await;
        // kubectl replaces a budget's selector as a whole, and always prints `configured` for it.
        let is_other = |line: &&str| !line.ends_with(again) && !line.starts_with("poddisruptionbudget");
        assert_eq!(second.stdout.lines().find(is_other), None);
        assert_eq!((second.stderr.as_str(), cluster.kubectl(&generations).await.stdout), ("", before));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_samples_can_be_applied() {
    if !has_kubectl() {
        return;
    }
    let cluster = EmptyCluster::start().await;
    let _ = cluster.kubectl(&["apply", "-f", path(&folder().join("crd.yaml"))]).await;
    let _ = cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await;
    let samples = folder().join("samples");
    let taken = cluster.kubectl(&["apply", "-f", path(&samples)]).await;
    assert_eq!(taken.stdout.lines().count(), std::fs::read_dir(samples).unwrap().count(), "{taken:?}");
    // The comments in the second sample state the defaults, so its fields must equal those that the schema sets.
    let drain =
        cluster.kubectl(&["get", "nm", "nodemaintenance-drain", "-o", "jsonpath={.spec.drain}"]).await.stdout;
    let with_defaults = r#"{"spec":{"drain":{}}}"#;
    let patch = ["patch", "nm", "nodemaintenance-sample", "--type=merge", "-p", with_defaults];
    let _ = cluster.kubectl(&patch).await;
    let filled = cluster
        .kubectl(&["get", "nm", "nodemaintenance-sample", "-o", "jsonpath={.spec.drain}"])
        .await
        .stdout;
    let (mut drain, filled): (serde_json::Value, serde_json::Value) =
        (serde_json::from_str(&drain).unwrap(), serde_json::from_str(&filled).unwrap());
    // The default selects all pods without a selector, so the schema sets none.
    assert_eq!(drain.as_object_mut().unwrap().remove("podSelector"), Some(serde_json::json!({})));
    assert_eq!(drain, filled);
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_can_read_maintenances_and_only_editors_can_create_them() {
    let cluster = EmptyCluster::start().await;
    if !has_kubectl() {
        return;
    }
    let _ = cluster.kubectl(&["apply", "-k", path(&folder())]).await;
    let roles: Api<ClusterRole> = Api::all(cluster.client().await);
    let has_rule = |role: Option<&ClusterRole>| {
        let found = role.and_then(|role| role.rules.as_deref()).unwrap_or_default();
        found
            .iter()
            .any(|rule| rule.resources.iter().flatten().any(|resource| resource == "nodemaintenances"))
    };
    let _ = wait_until(&roles, "view", "has the viewer's rules", has_rule).await;
    // `edit` and `admin` aggregate `view`.
    let _ = wait_until(&roles, "edit", "has the viewer's rules", has_rule).await;
    let _ = wait_until(&roles, "admin", "has the viewer's rules", has_rule).await;
    for (role, verb, expected) in [
        ("view", "list", "yes"),
        ("view", "create", "no"),
        ("edit", "watch", "yes"),
        ("edit", "delete", "no"),
        ("admin", "get", "yes"),
        ("admin", "create", "no"),
        ("nodemaintenance-editor", "create", "yes"),
        ("nodemaintenance-editor", "delete", "yes"),
        ("nodemaintenance-editor", "deletecollection", "no"),
        ("nodemaintenance-viewer", "watch", "yes"),
        ("nodemaintenance-viewer", "patch", "no"),
    ] {
        let (name, role_flag, user) =
            (format!("e2e-{role}"), format!("--clusterrole={role}"), format!("--user={role}"));
        let bind = ["create", "clusterrolebinding", &name, &role_flag, &user];
        let _ = kubectl_at(&cluster.kubeconfig(), &bind).await;
        let may =
            kubectl_at(&cluster.kubeconfig(), &["auth", "can-i", verb, "nodemaintenances", "--as", role])
                .await;
        assert_eq!(may.stdout.trim(), expected, "{role} {verb}: {may:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_can_add_every_component() {
    if !has_kubectl() {
        return;
    }
    let overlay = tempfile::tempdir().unwrap();
    // kustomize accepts relative paths only.
    let overlay_path = overlay.path().canonicalize().unwrap();
    let up = "../".repeat(overlay_path.components().count() - 1);
    let manifests =
        format!("{up}{}", folder().canonicalize().unwrap().display().to_string().trim_start_matches('/'));
    let image = "{name: localhost/nm-reconciler, newName: registry.example.com/nm-reconciler, newTag: mine}";
    let components = [
        "alerts",
        "dashboard",
        "network_policy",
        "node_conditions",
        "pod_deletion",
        "roll",
        "service_monitor",
        "surge",
        "virtual_machines",
        "volume_detach",
    ];
    let listed: Vec<String> =
        components.iter().map(|name| format!("{manifests}/components/{name}")).collect();
    let kustomization =
        format!("resources: [{manifests}]\ncomponents: [{}]\nimages: [{image}]\n", listed.join(", "));
    std::fs::write(overlay_path.join("kustomization.yaml"), kustomization).unwrap();
    let built = kubectl_at(Path::new(""), &["kustomize", path(&overlay_path)]).await.ok().stdout;
    assert!(built.contains("image: registry.example.com/nm-reconciler:mine\n"), "{built}");
    let kinds = ["ConfigMap", "NetworkPolicy", "PrometheusRule", "ServiceMonitor"];
    for kind in kinds {
        assert!(built.contains(&format!("\nkind: {kind}\n")), "{kind}");
    }
    for role in ["node-conditions", "pod-deletion", "volume-detach", "surge", "virtual-machines"] {
        assert!(built.contains(&format!("\n  name: nm-reconciler-{role}\n")), "{role}");
    }
    // What is left out of the installation.
    let flow_schemas = |built: &str| built.matches("\napiVersion: flowcontrol.apiserver.k8s.io/v1\n").count();
    assert_eq!(flow_schemas(&built), 3);
    let without =
        format!("resources: [{manifests}]\ncomponents: [{manifests}/components/without_flow_schema]\n");
    std::fs::write(overlay_path.join("kustomization.yaml"), without).unwrap();
    let built = kubectl_at(Path::new(""), &["kustomize", path(&overlay_path)]).await.ok().stdout;
    assert_eq!((flow_schemas(&built), built.matches("\nkind: ").count()), (0, all().len() - 3));
    let there = std::fs::read_dir(folder().join("components")).unwrap();
    assert_eq!(there.count(), components.len() + 1, "every component is tested");
    let cluster = EmptyCluster::start().await;
    // The ServiceMonitor and the PrometheusRule cannot be applied: their definitions belong to the Prometheus operator.
    let _ = cluster.kubectl(&["apply", "-f", path(&folder().join("namespace.yaml"))]).await;
    for file in files_of("components/network_policy/kustomization.yaml") {
        let _ = cluster.kubectl(&["apply", "-f", path(&folder().join(file))]).await;
    }
}
