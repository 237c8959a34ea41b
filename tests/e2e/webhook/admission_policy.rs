//! An admission policy limits what the reconciler can change in its webhook configuration.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use nm_shared::api::names::WEBHOOK_CONFIGURATION;
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::wait::in_time;
use serde_json::{Value, json};

/// The webhook configurations, with the permissions of the reconciler's account.
async fn as_reconciler(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    let kubeconfig = Kubeconfig::read_from(cluster.reconciler_kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Api::all(Client::try_from(config).unwrap())
}

async fn patch_dry_run(
    api: &Api<ValidatingWebhookConfiguration>,
    operations: &Value,
) -> kube::Result<ValidatingWebhookConfiguration> {
    let patch = Patch::<()>::Json(serde_json::from_value(operations.clone()).unwrap());
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    api.patch(WEBHOOK_CONFIGURATION, &dry, &patch).await
}

fn set(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_account_can_change_only_the_ca_bundle_of_its_webhooks() {
    let cluster = Cluster::start(0).await;
    let mut configuration = manifests::webhook_configuration();
    configuration.data["webhooks"][0]["failurePolicy"] = json!("Ignore");
    cluster.apply(&configuration).await;
    let (reconciler, admin) = (as_reconciler(&cluster).await, Api::all(cluster.client.clone()));
    let secrets =
        json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["secrets"]});
    // A policy takes effect some time after it was created.
    let rules = set("/webhooks/0/rules/-", &secrets);
    let enforced = async { while patch_dry_run(&reconciler, &rules).await.is_ok() {} };
    in_time("the policy takes effect", enforced).await;

    let certificate = json!("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==");
    for allowed in [set("/webhooks/0/clientConfig/caBundle", &certificate), json!([])] {
        patch_dry_run(&reconciler, &allowed).await.unwrap_or_else(|error| panic!("{allowed}: {error}"));
    }
    let another = json!({"name": "e2e.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://example.com/"}, "rules": [secrets]});
    for refused in [
        rules,
        set("/webhooks/0/clientConfig", &json!({"url": "https://example.com/"})),
        set("/webhooks/0/clientConfig/service/name", &json!("other")),
        set("/webhooks/0/clientConfig/service/namespace", &json!("other")),
        set("/webhooks/0/clientConfig/service/port", &json!(444)),
        set("/webhooks/0/clientConfig/service/path", &json!("/other")),
        set("/webhooks/0/failurePolicy", &json!("Fail")),
        set("/webhooks/0/timeoutSeconds", &json!(1)),
        set("/webhooks/0/objectSelector", &json!({"matchLabels": {"a": "b"}})),
        json!([{"op": "remove", "path": "/webhooks/0/matchConditions"}]),
        set("/webhooks/-", &another),
        set("/webhooks/1", &another),
        json!([{"op": "remove", "path": "/webhooks/1"}]),
        json!([{"op": "remove", "path": "/webhooks"}]),
        set("/metadata/labels/e2e", &json!("x")),
        json!([{"op": "remove", "path": "/metadata/labels"}]),
        set("/metadata/annotations", &json!({"e2e": "x"})),
        set("/metadata/finalizers", &json!(["kubectl-nm.dev/e2e"])),
    ] {
        let answer = patch_dry_run(&reconciler, &refused).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{refused}: {answer:?}") };
        assert_eq!(status.code, 403, "{refused}: {status:?}");
        let by = "ValidatingAdmissionPolicy 'nm-reconciler' with binding 'nm-reconciler' denied request: nm-reconciler may";
        assert!(status.message.contains(by), "{refused}: {}", status.message);
        patch_dry_run(&admin, &refused)
            .await
            .unwrap_or_else(|error| panic!("others may: {refused}: {error}"));
    }
    admin.delete(WEBHOOK_CONFIGURATION, &DeleteParams::default()).await.unwrap();
}
