//! The limits of the selectors in `spec.drain`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nm_shared::NodeMaintenance;
use nm_shared::api::pod_selector::{MAX_REQUIREMENTS, MAX_VALUES};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{stop, until_drained};
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::in_time;
use serde_json::{Value, json};

/// A maintenance with these selectors.
fn with_selector(name: &str, node: &str, selector: &Value) -> NodeMaintenance {
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"nodeName": node, "drain": {"podSelector": selector, "waitForCompletion": {"podSelector": selector}}},
    }))
    .unwrap()
}

/// A selector with so many expressions, each with so many values.
fn expressions(count: usize, values: usize) -> Value {
    let value = |at: usize| format!("{at:063}");
    let expression = |at: usize| {
        let values: Vec<String> = (0..values).map(value).collect();
        json!({"key": format!("e2e.example.com/{at:03}"), "operator": "NotIn", "values": values})
    };
    json!({"matchExpressions": (0..count).map(expression).collect::<Vec<_>>()})
}

/// A selector with so many labels, each with a name of this length.
fn labels(count: usize, length: usize) -> Value {
    let labels = (0..count).map(|at| (format!("{at:0length$}"), json!("x")));
    json!({"matchLabels": labels.collect::<serde_json::Map<_, _>>()})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_has_at_most_16_requirements_and_an_older_one_is_kept() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |params: &PostParams, selector: &Value| {
        cluster.maintenances().create(params, &with_selector("e2e-selector", node, selector)).await
    };
    for allowed in [expressions(MAX_REQUIREMENTS, MAX_VALUES), labels(MAX_REQUIREMENTS, 63)] {
        create(&dry, &allowed).await.unwrap_or_else(|error| panic!("{allowed}: {error}"));
    }
    let too_many = expressions(MAX_REQUIREMENTS + 1, 1);
    let long = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x".repeat(64)]}]});
    let key = json!({"matchExpressions": [{"key": "x".repeat(318), "operator": "Exists"}]});
    for denied in [
        &too_many,
        &expressions(1, MAX_VALUES + 1),
        &labels(MAX_REQUIREMENTS + 1, 63),
        &labels(1, 318),
        &long,
        &key,
    ] {
        let Err(kube::Error::Api(status)) = create(&dry, denied).await else { panic!("{denied} is allowed") };
        assert_eq!(status.code, 422, "{status:?}");
    }
    // An object from before the limits.
    limit_expressions(&cluster, None).await;
    create(&PostParams::default(), &too_many).await.unwrap();
    limit_expressions(&cluster, Some(MAX_REQUIREMENTS)).await;
    let _reconciler = Reconciler::start(&cluster);
    until_drained(&cluster, "e2e-selector").await;
    let reason = Patch::Merge(json!({"spec": {"reason": "other fields can be changed"}}));
    cluster.maintenances().patch("e2e-selector", &PatchParams::default(), &reason).await.unwrap();
    stop(&cluster, "e2e-selector").await;
}

/// Sets or removes the limits of expressions in the definition, and waits until the API server applies them.
async fn limit_expressions(cluster: &Cluster, limit: Option<usize>) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let drain = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/drain/properties";
    let selectors = ["podSelector", "waitForCompletion/properties/podSelector"];
    let change = |selector: &str| {
        let path = format!("{drain}/{selector}/properties/matchExpressions/maxItems");
        match limit {
            Some(limit) => json!({"op": "add", "path": path, "value": limit}),
            None => json!({"op": "remove", "path": path}),
        }
    };
    let changes: Vec<Value> = selectors.into_iter().map(change).collect();
    let patch = Patch::<()>::Json(serde_json::from_value(json!(changes)).unwrap());
    definitions.patch(&nm_shared::api::crd::crd().name_any(), &PatchParams::default(), &patch).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let applied = async {
        let probe = with_selector("e2e-probe", "n", &expressions(MAX_REQUIREMENTS + 1, 1));
        while cluster.maintenances().create(&dry, &probe).await.is_ok() == limit.is_some() {}
    };
    in_time("the changed definition is served", applied).await;
}
