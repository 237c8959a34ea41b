//! The webhook's certificates: renewed under load, repaired when damaged, or read from files that another program renews.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::create_dry_run;
use nm_tests::manifests;
use nm_tests::probes::{get, sample, until_served};
use nm_tests::requests::is_by;
use nm_tests::wait::wait_until;
use nm_tests::webhook::{
    configure_webhook, namespace, serve_webhook, serve_webhook_too, start_with_webhook, until_trusted,
};
use serde_json::json;
use tokio::sync::watch;

/// Flags for certificates that are renewed every few seconds.
const SHORT_CERTIFICATES: &[&str] = &["--webhook-cert-lifetime", "12"];

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client.clone(), &namespace())
}

fn configurations(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.client.clone())
}

fn field(secret: Option<&Secret>, name: &str) -> Option<ByteString> {
    secret.and_then(|secret| secret.data.as_ref()).and_then(|data| data.get(name)).cloned()
}

/// Changes the webhook configuration, which makes the API server close its connections to the webhook.
async fn reset_connections(cluster: &Cluster, number: usize) {
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {"kubectl-nm.dev/e2e": number.to_string()}}}));
    configurations(cluster).patch(WEBHOOK_CONFIGURATION, &PatchParams::default(), &patch).await.unwrap();
}

/// Requests that must all be answered, some over new connections.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    count: watch::Sender<usize>,
}

impl Load {
    /// Three clients send one request after another until `done` ends.
    async fn during(&self, cluster: &Cluster, node: &str, done: impl Future<Output = ()>) {
        let send = async || {
            while !self.is_over.load(Ordering::Relaxed) {
                create_dry_run(cluster, node).await.expect("every request is answered");
                self.count.send_modify(|count| *count += 1);
                let number = *self.count.borrow();
                if number.is_multiple_of(10) {
                    reset_connections(cluster, number).await;
                }
            }
        };
        let done = async {
            done.await;
            self.is_over.store(true, Ordering::Relaxed);
        };
        futures::join!(send(), send(), send(), done);
    }

    /// Waits until this many more requests are answered.
    async fn more(&self, requests: usize) {
        let enough = *self.count.borrow() + requests;
        self.count.subscribe().wait_for(|count| *count >= enough).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_renew_certificates_under_load_without_a_failed_request() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "two replicas serve one service").await else { return };
    let node = cluster.nodes().await.remove(0);
    let _one = serve_webhook(&cluster, SHORT_CERTIFICATES).await;
    let _other = serve_webhook_too(&cluster, SHORT_CERTIFICATES).await;
    let load = Load::default();
    let renewed = async {
        let mut served = BTreeSet::new();
        let seen = std::sync::Mutex::new(&mut served);
        wait_until(&secrets(&cluster), WEBHOOK, "four certificates were served", |secret| {
            let mut seen = seen.lock().unwrap();
            seen.extend(field(secret, "tls.crt").map(|certificate| certificate.0));
            seen.len() == 4
        })
        .await;
    };
    load.during(&cluster, &node, renewed).await;
    let count = *load.count.borrow();
    assert!(count > 50, "{count} requests are no load");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_deleted_secret_is_repaired_without_a_failed_request() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "others' requests would be refused meanwhile").await
    else {
        return;
    };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serve_webhook(&cluster, &[]).await;
    let api = secrets(&cluster);
    let before = field(api.get_opt(WEBHOOK).await.unwrap().as_ref(), "tls.crt");
    let load = Load::default();
    let steps = async {
        let damage = Patch::Merge(json!({"data": {"tls.key": "aGVsbG8="}}));
        api.patch(WEBHOOK, &PatchParams::default(), &damage).await.unwrap();
        let line = reconciler
            .until_logged("the damage", |line| line.contains("is damaged and will be repaired"))
            .await;
        assert!(line.contains("tls.crt: invalid private key"), "{line}");
        let repaired = wait_until(&api, WEBHOOK, "repaired", |secret| {
            field(secret, "tls.key").is_some_and(|key| key.0 != b"hello")
                && field(secret, "next-tls.crt").is_some()
        });
        assert_eq!(
            field(repaired.await.as_ref(), "tls.crt"),
            before,
            "the old certificate is served until the new one is trusted"
        );
        load.more(20).await;

        api.delete(WEBHOOK, &DeleteParams::default()).await.unwrap();
        let back =
            wait_until(&api, WEBHOOK, "is created again", |secret| field(secret, "next-tls.crt").is_some())
                .await;
        assert_eq!(field(back.as_ref(), "tls.crt"), before);
        load.more(20).await;
    };
    load.during(&cluster, &node, steps).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_ca_bundle_is_restored() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "others' requests would be refused meanwhile").await
    else {
        return;
    };
    let node = cluster.nodes().await.remove(0);
    let _reconciler = serve_webhook(&cluster, &[]).await;
    // An administrator does this who applies the configuration of the manifests.
    let forget = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let forget = Patch::<()>::Json(serde_json::from_value(forget).unwrap());
    configurations(&cluster).patch(WEBHOOK_CONFIGURATION, &PatchParams::default(), &forget).await.unwrap();
    until_trusted(&cluster).await;
    create_dry_run(&cluster, &node).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_access_to_the_secret_reports_it_and_serves_once_access_is_granted() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "permissions are revoked").await else { return };
    let node = cluster.nodes().await.remove(0);
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), &namespace());
    bindings.delete("nm-reconciler", &DeleteParams::default()).await.unwrap();
    let reconciler = start_with_webhook(&cluster, &["--metrics-addr", "127.0.0.1:0"]);
    let server = reconciler.metrics_address().await;
    let expected = format!("cannot watch secret {}/{WEBHOOK}", namespace());
    let line = reconciler.until_logged("what it lacks", |line| line.contains(&expected)).await;
    assert!(line.contains("manifests/ contains the permissions") && line.contains("forbidden"), "{line}");
    let missing = "[-]webhook failed: there is no certificate yet\n";
    until_served(server, "/readyz", |body| body.contains(missing)).await;
    configure_webhook(&cluster, reconciler.webhook_address().await).await;
    assert!(create_dry_run(&cluster, &node).await.is_err(), "nothing is served without a certificate");
    for object in manifests::prerequisites() {
        cluster.apply(&object).await;
    }
    until_trusted(&cluster).await;
    create_dry_run(&cluster, &node).await.unwrap();
    until_served(server, "/readyz", |body| body == "ok").await;
    // This metric family has labels; this sample has none.
    let expiry = "nm_webhook_certificate_expiry_timestamp_seconds{}";
    let expiry = sample(&get(server, "/metrics").await.1, expiry).unwrap();
    let days = (expiry - jiff::Timestamp::now().as_duration().as_secs_f64()) / 86400.0;
    assert!((89.0..=90.0).contains(&days), "{days}");
    let complaints = reconciler.log().into_iter().filter(|line| line.contains(&expected)).count();
    assert_eq!(complaints, 1, "logged once");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_from_files_are_reloaded_and_the_ca_bundle_is_left_alone() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "two replicas serve one service").await else { return };
    let node = cluster.nodes().await.remove(0);
    // This replica renews certificates and writes the CA bundle.
    let renewing = serve_webhook(&cluster, &["--webhook-cert-lifetime", "30"]).await;
    let files = tempfile::tempdir().unwrap();
    let write = |secret: &Secret| {
        for name in ["tls.crt", "tls.key"] {
            std::fs::write(files.path().join(name), field(Some(secret), name).unwrap().0).unwrap();
        }
    };
    let secret = secrets(&cluster).get(WEBHOOK).await.unwrap();
    let flags = ["--webhook-cert-dir", files.path().to_str().unwrap()];
    let following = start_with_webhook(&cluster, &flags);
    following.until_logged("that the files are missing", |line| line.contains("tls.crt: No such file")).await;
    write(&secret);
    let serves = |line: &str| line.contains("serves a new certificate");
    let first = following.until_logged("its certificate", serves).await;
    configure_webhook(&cluster, following.webhook_address().await).await;
    create_dry_run(&cluster, &node).await.unwrap();

    let first_one = field(Some(&secret), "tls.crt");
    let renewed =
        wait_until(&secrets(&cluster), WEBHOOK, "renewed", |secret| field(secret, "tls.crt") != first_one)
            .await;
    write(&renewed.unwrap());
    following.until_logged("the next certificate", |line| serves(line) && *line != first).await;
    create_dry_run(&cluster, &node).await.unwrap();
    let patches_by = |pid: u32| {
        let is_write = |entry: &Entry| {
            is_by(entry, pid) && entry.resource == "validatingwebhookconfigurations" && entry.verb == "patch"
        };
        cluster.sandbox().unwrap().requests().count(is_write)
    };
    assert!(patches_by(renewing.pid()) > 0, "the other replica writes caBundle");
    assert_eq!(patches_by(following.pid()), 0, "caBundle is left alone");
}
