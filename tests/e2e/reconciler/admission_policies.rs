//! Admission policies limit which fields the reconciler's account may patch.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, FINALIZER, NODE_UID_ANNOTATION, UNDO_ANNOTATION};
use nm_tests::cluster::{Cluster, client};
use nm_tests::maintenance::start;
use nm_tests::wait::in_time;
use nm_tests::workload::{Workload, parse, pod_spec};
use serde_json::{Value, json};

/// An object that may be patched in part.
struct Patched<'a> {
    group: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    /// The beginning of the policy's message.
    denial: &'a str,
}

impl Patched<'_> {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        let version = if self.kind == "NodeMaintenance" { "v1beta1" } else { "v1" };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, version, self.kind));
        match self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    async fn patch(
        &self,
        client: &Client,
        subresource: Option<&str>,
        operations: &Value,
    ) -> kube::Result<()> {
        let patch = Patch::<()>::Json(serde_json::from_value(operations.clone()).unwrap());
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let api = self.api(client);
        let answer = match subresource {
            Some(subresource) => api.patch_subresource(subresource, self.name, &dry, &patch).await,
            None => api.patch(self.name, &dry, &patch).await,
        };
        answer.map(|_| ())
    }

    /// Verifies what the account may and may not patch. Others may patch it all.
    async fn check(&self, cluster: &Cluster, allowed: &[(&str, Value)], denied: &[(&str, Value)]) {
        let account = client(&cluster.reconciler_kubeconfig()).await;
        let subresource = |at: &str| at.strip_prefix('/').map(str::to_owned);
        // A policy takes effect some time after it was created.
        let (at, operations) = &denied[0];
        let enforced =
            async { while self.patch(&account, subresource(at).as_deref(), operations).await.is_ok() {} };
        in_time("the policy takes effect", enforced).await;
        for (at, operations) in allowed {
            let answer = self.patch(&account, subresource(at).as_deref(), operations).await;
            answer.unwrap_or_else(|error| panic!("{at} {operations}: {error}"));
        }
        for (at, operations) in denied {
            let answer = self.patch(&account, subresource(at).as_deref(), operations).await;
            let Err(kube::Error::Api(status)) = answer else { panic!("{at} {operations} is allowed") };
            assert_eq!(status.code, 403, "{at} {operations}: {status:?}");
            assert!(status.message.contains(self.denial), "{at} {operations}: {}", status.message);
            let answer = self.patch(&cluster.client, subresource(at).as_deref(), operations).await;
            answer.unwrap_or_else(|error| panic!("others may: {at} {operations}: {error}"));
        }
    }
}

fn set(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

/// A path below a map with a name that has slashes.
fn below(map: &str, name: &str) -> String {
    format!("{map}/{}", name.replace('/', "~1"))
}

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "NoSchedule"})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_account_can_change_only_the_marks_and_conditions_of_a_maintenance_on_a_node() {
    let cluster = Cluster::start(1).await;
    cluster.grant("node_conditions").await;
    let name = &cluster.nodes().await[0];
    let theirs = json!({"metadata": {"labels": {"tier": "gold"}, "annotations": {"owner": "them"}},
        "spec": {"taints": [taint("dedicated")]}});
    cluster.patch_node(name, theirs).await;
    let denial = "with binding 'nm-reconciler-nodes' denied request: nm-reconciler may";
    let node = Patched { group: "", kind: "Node", namespace: None, name, denial };
    let condition = |type_: &str| json!({"type": type_, "status": "True"});
    let both = json!([taint("dedicated"), taint(DRAIN_TAINT), taint("node.kubernetes.io/unschedulable")]);
    let allowed = [
        ("", set("/spec/unschedulable", &json!(true))),
        ("", set("/spec/taints", &both)),
        ("", set(&below("/metadata/labels", EXCLUDE_LABEL), &json!("true"))),
        ("", set(&below("/metadata/annotations", UNDO_ANNOTATION), &json!("{}"))),
        ("/status", set("/status/conditions/-", &condition("Drained"))),
        ("", json!([])),
    ];
    let denied = [
        ("", set("/metadata/labels/tier", &json!("lead"))),
        ("", set("/metadata/labels/e2e", &json!("x"))),
        ("", json!([{"op": "remove", "path": "/metadata/labels/tier"}])),
        ("", json!([{"op": "remove", "path": "/metadata/labels"}])),
        ("", set("/metadata/annotations/e2e", &json!("x"))),
        ("", json!([{"op": "remove", "path": "/metadata/annotations/owner"}])),
        ("", set("/metadata/finalizers", &json!(["kubectl-nm.dev/e2e"]))),
        ("", set("/spec/taints", &json!([]))),
        ("", set("/spec/taints", &json!([{"key": "dedicated", "effect": "NoExecute"}]))),
        ("", set("/spec/taints/-", &taint("e2e"))),
        ("", set("/spec/taints/-", &json!({"key": DRAIN_TAINT, "effect": "NoExecute"}))),
        ("/status", set("/status/conditions", &json!([condition("Ready")]))),
        ("/status", set("/status/conditions/-", &condition("MemoryPressure"))),
        ("/status", set("/status/capacity/e2e.example.com~1gpu", &json!("8"))),
        ("/status", set("/metadata/labels/tier", &json!("lead"))),
    ];
    node.check(&cluster, &allowed, &denied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_account_can_change_nothing_that_was_requested_of_a_maintenance() {
    let cluster = Cluster::start(1).await;
    let name = "e2e-policy";
    start(&cluster, name, &cluster.nodes().await[0]).await;
    let given = json!({"metadata": {"annotations": {"kubectl-nm.dev/roll": "pool"}, "labels": {"tier": "gold"},
        "finalizers": [FINALIZER, "kubectl-nm.dev/e2e"]}});
    let maintenances = cluster.maintenances();
    maintenances.patch(name, &PatchParams::default(), &Patch::Merge(given)).await.unwrap();
    let denial = "with binding 'nm-reconciler-maintenances' denied request: nm-reconciler may";
    let group = "nodemaintenance.medik8s.io";
    let maintenance = Patched { group, kind: "NodeMaintenance", namespace: None, name, denial };
    let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "n", "uid": "u"}]);
    let allowed = [
        ("", set("/metadata/finalizers", &json!(["kubectl-nm.dev/e2e"]))),
        ("", set("/metadata/ownerReferences", &owner("Node"))),
        ("", set(&below("/metadata/annotations", NODE_UID_ANNOTATION), &json!("u"))),
        ("/status", set("/status", &json!({"phase": "Running"}))),
        ("", json!([])),
    ];
    let denied = [
        ("", set("/spec/drain", &json!({"gracePeriodSeconds": 0}))),
        ("", set("/spec/suspend", &json!(true))),
        ("", set("/spec/reason", &json!("x"))),
        ("", set(&below("/metadata/annotations", "kubectl-nm.dev/override-quorum"), &json!("true"))),
        ("", set(&below("/metadata/annotations", "kubectl-nm.dev/roll"), &json!("other"))),
        ("", json!([{"op": "remove", "path": "/metadata/annotations"}])),
        ("", set("/metadata/labels/tier", &json!("lead"))),
        ("", set("/metadata/finalizers", &json!([FINALIZER]))),
        ("", set("/metadata/finalizers/-", &json!("kubectl-nm.dev/other"))),
        ("", set("/metadata/ownerReferences", &owner("ConfigMap"))),
    ];
    maintenance.check(&cluster, &allowed, &denied).await;
    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maintenances.patch(name, &PatchParams::default(), &without).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_account_can_only_restart_a_deployment() {
    let cluster = Cluster::start(1).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "policy").await;
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels, "annotations": {"owner": "them"}}, "spec": pod_spec()});
    let deployment = json!({"metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}});
    workload.deployments().create(&PostParams::default(), &parse(deployment)).await.unwrap();
    let denial = "with binding 'nm-reconciler-surge' denied request: nm-reconciler may";
    let namespace = Some(workload.namespace());
    let web = Patched { group: "apps", kind: "Deployment", namespace, name: "web", denial };
    let annotations = "/spec/template/metadata/annotations";
    let restart = below(annotations, "kubectl.kubernetes.io/restartedAt");
    let allowed = [("", set(&restart, &json!("2026-01-01T00:00:00Z"))), ("", json!([]))];
    let denied = [
        ("", set("/spec/replicas", &json!(0))),
        ("", set("/spec/template/spec/serviceAccountName", &json!("admin"))),
        ("", set("/spec/template/spec/containers/0/image", &json!("evil"))),
        ("", set("/spec/template/spec/hostPID", &json!(true))),
        ("", set("/spec/template/metadata/labels/tier", &json!("x"))),
        ("", set(&format!("{annotations}/owner"), &json!("us"))),
        ("", set(&format!("{annotations}/e2e"), &json!("x"))),
        ("", json!([{"op": "remove", "path": annotations}])),
        ("", set("/spec/paused", &json!(true))),
        ("", set("/metadata/annotations/e2e", &json!("x"))),
        ("", set("/metadata/labels", &json!({"e2e": "x"}))),
    ];
    // The API server adds the revision as an annotation.
    let revision = json!({"metadata": {"annotations": {"e2e": "before"}}});
    workload.deployments().patch("web", &PatchParams::default(), &Patch::Merge(revision)).await.unwrap();
    web.check(&cluster, &allowed, &denied).await;
}
