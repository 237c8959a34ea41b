//! The webhook's certificates: renewed while requests come in, mended when they are damaged, and read from files where
//! somebody else renews them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::until::until;
use nm_tests::webhook::{address, believed, configure, namespace, serving, serving_also, start};
use serde_json::json;
use tokio::sync::watch;

use crate::ha::is_by;
use crate::observability::{get, sample, until_served};
use crate::only_sandbox;
use crate::readiness::probes;

/// Certificates that are renewed every few seconds.
pub(crate) const SHORT: &[&str] = &["--webhook-cert-lifetime", "12"];

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client.clone(), &namespace())
}

fn configurations(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.client.clone())
}

fn field(secret: Option<&Secret>, name: &str) -> Option<ByteString> {
    secret.and_then(|secret| secret.data.as_ref()).and_then(|data| data.get(name)).cloned()
}

/// Asks the webhook, and stores nothing.
async fn ask(cluster: &Cluster, node: &str) -> kube::Result<NodeMaintenance> {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    cluster.maintenances().create(&params, &NodeMaintenance::new("e2e-asked", spec)).await
}

/// Has the API server forget its connections to the webhook, as happens whenever its configuration changes.
async fn begin_anew(cluster: &Cluster, number: usize) {
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {"kubectl-nm.dev/e2e": number.to_string()}}}));
    configurations(cluster).patch(WEBHOOK_CONFIGURATION, &PatchParams::default(), &patch).await.unwrap();
}

/// Requests that are all answered, some of them over connections that are begun anew.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    asked: watch::Sender<usize>,
}

impl Load {
    /// Three who ask one request after another until something is done.
    async fn during(&self, cluster: &Cluster, node: &str, done: impl Future<Output = ()>) {
        let asking = async || {
            while !self.over.load(Ordering::Relaxed) {
                ask(cluster, node).await.expect("every request is answered");
                self.asked.send_modify(|asked| *asked += 1);
                let number = *self.asked.borrow();
                if number.is_multiple_of(10) {
                    begin_anew(cluster, number).await;
                }
            }
        };
        let done = async {
            done.await;
            self.over.store(true, Ordering::Relaxed);
        };
        futures::join!(asking(), asking(), asking(), done);
    }

    /// Waits until so many more requests are answered.
    async fn more(&self, requests: usize) {
        let enough = *self.asked.borrow() + requests;
        self.asked.subscribe().wait_for(|asked| *asked >= enough).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_by_two_replicas_under_load_without_one_refused_request() {
    let Some(cluster) = only_sandbox(1, "two replicas serve one service").await else { return };
    let node = cluster.nodes().await.remove(0);
    let _one = serving(&cluster, SHORT).await;
    let _other = serving_also(&cluster, SHORT).await;
    let load = Load::default();
    let renewed = async {
        let mut served = BTreeSet::new();
        let seen = std::sync::Mutex::new(&mut served);
        until(&secrets(&cluster), WEBHOOK, "four generations are served", |secret| {
            let mut seen = seen.lock().unwrap();
            seen.extend(field(secret, "tls.crt").map(|certificate| certificate.0));
            seen.len() == 4
        })
        .await;
    };
    load.during(&cluster, &node, renewed).await;
    let asked = *load.asked.borrow();
    assert!(asked > 50, "{asked} requests are no load");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_damaged_or_removed_is_mended_and_nobody_is_refused_meanwhile() {
    let Some(cluster) = only_sandbox(1, "others' requests would be refused meanwhile").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serving(&cluster, &[]).await;
    let api = secrets(&cluster);
    let before = field(api.get_opt(WEBHOOK).await.unwrap().as_ref(), "tls.crt");
    let load = Load::default();
    let steps = async {
        let damage = Patch::Merge(json!({"data": {"tls.key": "aGVsbG8="}}));
        api.patch(WEBHOOK, &PatchParams::default(), &damage).await.unwrap();
        let line = reconciler
            .until_logged("the damage", |line| line.contains("is damaged and will be mended"))
            .await;
        assert!(line.contains("tls.crt: the key is none"), "{line}");
        let mended = until(&api, WEBHOOK, "mended", |secret| {
            field(secret, "tls.key").is_some_and(|key| key.0 != b"hello")
                && field(secret, "next-tls.crt").is_some()
        });
        assert_eq!(field(mended.await.as_ref(), "tls.crt"), before, "served until its successor is known");
        load.more(20).await;

        api.delete(WEBHOOK, &DeleteParams::default()).await.unwrap();
        let back = until(&api, WEBHOOK, "is back", |secret| field(secret, "next-tls.crt").is_some()).await;
        assert_eq!(field(back.as_ref(), "tls.crt"), before);
        load.more(20).await;
    };
    load.during(&cluster, &node, steps).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_forgets_whom_to_believe_is_told_again() {
    let Some(cluster) = only_sandbox(1, "others' requests would be refused meanwhile").await else { return };
    let node = cluster.nodes().await.remove(0);
    let _reconciler = serving(&cluster, &[]).await;
    // As an administrator does who replaces the configuration by that of the manifests.
    let forget = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let forget = Patch::<()>::Json(serde_json::from_value(forget).unwrap());
    configurations(&cluster).patch(WEBHOOK_CONFIGURATION, &PatchParams::default(), &forget).await.unwrap();
    believed(&cluster).await;
    ask(&cluster, &node).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_rights_on_the_secret_says_so_and_serves_once_it_has_them() {
    let Some(cluster) = only_sandbox(1, "rights are taken away").await else { return };
    let node = cluster.nodes().await.remove(0);
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), &namespace());
    bindings.delete("nm-reconciler", &DeleteParams::default()).await.unwrap();
    let reconciler = start(&cluster, &["--metrics-addr", "127.0.0.1:0"]);
    let server = probes(&reconciler).await;
    let expected = format!("cannot follow secret {}/{WEBHOOK}", namespace());
    let line = reconciler.until_logged("what it lacks", |line| line.contains(&expected)).await;
    assert!(line.contains("manifests/ has the rights for it") && line.contains("forbidden"), "{line}");
    let missing = "[-]webhook failed: there is no certificate yet\n";
    until_served(server, "/readyz", |body| body.contains(missing)).await;
    configure(&cluster, address(&reconciler).await).await;
    assert!(ask(&cluster, &node).await.is_err(), "nothing is served without a certificate");
    for object in manifests::prerequisites() {
        cluster.apply(&object).await;
    }
    believed(&cluster).await;
    ask(&cluster, &node).await.unwrap();
    until_served(server, "/readyz", |body| body == "ok").await;
    // A sample with no labels of a family.
    let expiry = "nm_webhook_certificate_expiry_timestamp_seconds{}";
    let expiry = sample(&get(server, "/metrics").await.1, expiry).unwrap();
    let days = (expiry - jiff::Timestamp::now().as_duration().as_secs_f64()) / 86400.0;
    assert!((89.0..=90.0).contains(&days), "{days}");
    let complaints = reconciler.log().into_iter().filter(|line| line.contains(&expected)).count();
    assert_eq!(complaints, 1, "said once");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_files_are_served_and_read_again_and_nobody_is_told_of_their_authority() {
    let Some(cluster) = only_sandbox(1, "two replicas serve one service").await else { return };
    let node = cluster.nodes().await.remove(0);
    // Somebody who renews certificates, and has the API server believe them.
    let renewing = serving(&cluster, &["--webhook-cert-lifetime", "30"]).await;
    let files = tempfile::tempdir().unwrap();
    let write = |secret: &Secret| {
        for name in ["tls.crt", "tls.key"] {
            std::fs::write(files.path().join(name), field(Some(secret), name).unwrap().0).unwrap();
        }
    };
    let secret = secrets(&cluster).get(WEBHOOK).await.unwrap();
    let path = String::from_utf8(field(Some(&secret), "webhook-path").unwrap().0).unwrap();
    let flags = ["--webhook-cert-dir", files.path().to_str().unwrap(), "--webhook-path", &path];
    let following = start(&cluster, &flags);
    following.until_logged("that there are none", |line| line.contains("tls.crt: No such file")).await;
    write(&secret);
    let serves = |line: &str| line.contains("serves a new certificate");
    let first = following.until_logged("its certificate", serves).await;
    configure(&cluster, address(&following).await).await;
    ask(&cluster, &node).await.unwrap();

    let first_one = field(Some(&secret), "tls.crt");
    let renewed =
        until(&secrets(&cluster), WEBHOOK, "renewed", |secret| field(secret, "tls.crt") != first_one).await;
    write(&renewed.unwrap());
    following.until_logged("the next certificate", |line| serves(line) && *line != first).await;
    ask(&cluster, &node).await.unwrap();
    let told_by = |pid: u32| {
        let is_write = |entry: &Entry| {
            is_by(entry, pid) && entry.resource == "validatingwebhookconfigurations" && entry.verb == "patch"
        };
        cluster.sandbox().unwrap().requests().count(is_write)
    };
    assert!(told_by(renewing.pid()) > 0, "somebody fills in caBundle");
    assert_eq!(told_by(following.pid()), 0, "caBundle is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_replaced_in_two_replicas_under_load_without_one_refused_request() {
    let Some(cluster) = only_sandbox(1, "two replicas serve one service").await else { return };
    let node = cluster.nodes().await.remove(0);
    let _one = serving(&cluster, SHORT).await;
    let _other = serving_also(&cluster, SHORT).await;
    let load = Load::default();
    let path = format!("/validate/{}", "0f".repeat(16));
    let steps = async {
        load.more(20).await;
        // As an administrator does where the path has become known.
        let other = Patch::Merge(json!({"data": {"webhook-path": ByteString(path.clone().into())}}));
        secrets(&cluster).patch(WEBHOOK, &PatchParams::default(), &other).await.unwrap();
        until(&configurations(&cluster), WEBHOOK_CONFIGURATION, "names the path", |found| {
            found.and_then(|found| found.webhooks.as_deref()).is_some_and(|all| {
                let of = |webhook: &ValidatingWebhook| webhook.client_config.service.as_ref()?.path.clone();
                all.iter().all(|webhook| of(webhook).as_deref() == Some(path.as_str()))
            })
        })
        .await;
        load.more(20).await;
    };
    load.during(&cluster, &node, steps).await;
}
