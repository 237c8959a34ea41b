//! The person who runs the cluster: what they request, and what they do again after a restore of etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube_sandbox::store::{Key, State};
use nm_shared::api::names::{FINALIZER, KEEP_CORDON_ANNOTATION, NO_SCHEDULE, UNSCHEDULABLE_TAINT};
use nm_tests::invariants::NodeMarks;
use serde_json::{Value, json};
use tower::Service as _;

use crate::world::{Done, MAINTENANCES, PATH, World};

/// How long a request waits while the API server is down, before it is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// So many attempts are more than a day: the API server does not come back, because what had to start it panicked.
const MAX_ATTEMPTS: u32 = 1_000_000;

/// The finalizer by which a roll keeps the state of a node that is back in service.
const ROLL_FINALIZER: &str = "kubectl-nm.dev/roll";

/// What the person has done.
#[derive(Debug, Default)]
pub(crate) struct Person {
    /// The fields of `spec.drain` that were set.
    options: Mutex<BTreeSet<String>>,
    /// The revisions that the person wrote.
    revisions: Mutex<Vec<u64>>,
    journal: Mutex<Vec<Requested>>,
    /// The nodes that are to stay cordoned.
    kept_cordons: Mutex<BTreeSet<String>>,
    /// How many restores of etcd are going on, before which nothing else is requested.
    restores: AtomicUsize,
    /// Whether there was a restore of etcd, which may have lost statuses.
    has_restored: AtomicBool,
}

/// A request of the person.
#[derive(Debug, Clone)]
struct Requested {
    /// The revision when it was sent.
    after: u64,
    method: &'static str,
    path: String,
    body: Value,
}

/// Whether only the finalizer of a roll keeps a maintenance.
fn is_kept(maintenance: &Value) -> bool {
    maintenance["metadata"]["deletionTimestamp"].is_string()
        && maintenance["metadata"]["finalizers"] == json!([ROLL_FINALIZER])
}

impl World {
    /// The fields of `spec.drain` that were set.
    pub(crate) fn options(&self) -> BTreeSet<String> {
        self.person.options.lock().unwrap().clone()
    }

    /// Starts a maintenance.
    pub(crate) async fn start(&self, name: &str, node: &str, drain: Value) {
        self.start_annotated(name, node, drain, json!({})).await;
    }

    /// Starts a maintenance with these annotations.
    pub(crate) async fn start_annotated(&self, name: &str, node: &str, drain: Value, annotations: Value) {
        let options = drain.as_object().into_iter().flatten().map(|(name, _)| name.clone());
        self.person.options.lock().unwrap().extend(options);
        let object = json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": name, "annotations": annotations}, "spec": {"nodeName": node, "drain": drain},
        });
        self.post(PATH, object).await;
    }

    /// Deletes what is left: people delete again what a restore of etcd has brought back.
    pub(crate) async fn stop_all(&self) -> Done {
        let names: Vec<String> =
            self.read(|state| state.list(&MAINTENANCES, None).map(|one| Key::of(&one).name).collect());
        for name in names {
            self.stop(&name).await?;
        }
        Ok(())
    }

    /// Deletes a maintenance and waits until it is gone. One that only a roll keeps is released.
    pub(crate) async fn stop(&self, name: &str) -> Done {
        self.delete(&format!("{PATH}/{name}")).await;
        let is_released =
            |state: &State| state.get(&MAINTENANCES, &Key::cluster(name)).is_none_or(|found| is_kept(&found));
        self.until(&format!("{name} is gone, or only a roll keeps it"), is_released).await?;
        // After a restore of etcd, the reconciler has to release it once more, so this is not done again.
        if self.read(|state| state.get(&MAINTENANCES, &Key::cluster(name)).is_some()) {
            let released = json!({"metadata": {"finalizers": null}});
            while self.send("PATCH", &format!("{PATH}/{name}"), released.clone()).await.is_none() {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
        self.until_gone(name).await
    }

    /// Deletes a maintenance whose node is to stay cordoned.
    pub(crate) async fn stop_and_keep_cordon(&self, name: &str, node: &str) -> Done {
        self.person.kept_cordons.lock().unwrap().insert(node.to_owned());
        let keep = json!({"metadata": {"annotations": {KEEP_CORDON_ANNOTATION: "true"}}});
        self.patch(&format!("{PATH}/{name}"), keep).await;
        self.stop(name).await
    }

    /// What the marks on each node have to be in the end: those before the first maintenance, and a cordon where it is kept.
    pub(crate) fn at_end(&self) -> BTreeMap<String, NodeMarks> {
        let mut marks = self.before();
        for node in &*self.person.kept_cordons.lock().unwrap() {
            let marks = marks.entry(node.clone()).or_default();
            marks.unschedulable = true;
            marks.taints.insert(format!("{UNSCHEDULABLE_TAINT}:{NO_SCHEDULE}"));
        }
        marks
    }

    /// A roll keeps a maintenance.
    pub(crate) async fn keep(&self, name: &str) {
        let finalizers = json!({"metadata": {"finalizers": [FINALIZER, ROLL_FINALIZER]}});
        self.patch(&format!("{PATH}/{name}"), finalizers).await;
    }

    /// Waits until only a roll keeps a maintenance.
    pub(crate) async fn until_kept(&self, name: &str) -> Done {
        self.until(&format!("only a roll keeps {name}"), |state| {
            state.get(&MAINTENANCES, &Key::cluster(name)).is_some_and(|found| is_kept(&found))
        })
        .await
    }

    pub(crate) async fn post(&self, path: &str, object: Value) {
        self.request("POST", path, object).await;
    }

    pub(crate) async fn patch(&self, path: &str, change: Value) {
        self.request("PATCH", path, change).await;
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.request("DELETE", path, json!({})).await;
    }

    async fn request(&self, method: &'static str, path: &str, body: Value) {
        let mut attempts = 0;
        let (code, answer) = loop {
            attempts += 1;
            assert!(attempts < MAX_ATTEMPTS, "{method} {path}: the API server stays away");
            if self.person.restores.load(Ordering::Relaxed) == 0
                && let Some(answered) = self.try_request(method, path, body.clone()).await
            {
                break answered;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        };
        assert!((200..300).contains(&code), "{method} {path}: {answer}");
    }

    /// Sends a request, which may be refused; the answer is none if the API server is down.
    pub(crate) async fn try_request(
        &self,
        method: &'static str,
        path: &str,
        body: Value,
    ) -> Option<(u16, Value)> {
        let after = self.read(State::revision);
        let answered = self.send(method, path, body.clone()).await?;
        let requested = Requested { after, method, path: path.to_owned(), body };
        self.person.journal.lock().unwrap().push(requested);
        Some(answered)
    }

    /// Sends a request that is not done again after a restore of etcd.
    async fn send(&self, method: &'static str, path: &str, body: Value) -> Option<(u16, Value)> {
        let after = self.read(State::revision);
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let answer = self.sandbox.service().call(request).await.ok()?;
        let code = answer.status().as_u16();
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let version: Option<u64> =
            answer["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        // A request that changes nothing is answered with the revision that somebody else has made.
        self.person.revisions.lock().unwrap().extend(version.filter(|version| *version > after));
        Some((code, answer))
    }

    /// The revisions that the person wrote.
    pub(crate) fn by_person(&self) -> Vec<u64> {
        self.person.revisions.lock().unwrap().clone()
    }

    /// Whether there was a restore of etcd.
    pub(crate) fn has_restored(&self) -> bool {
        self.person.has_restored.load(Ordering::Relaxed)
    }

    /// Begins a restore of etcd: the person waits.
    pub(crate) fn restore_begins(&self) {
        self.person.restores.fetch_add(1, Ordering::Relaxed);
        self.person.has_restored.store(true, Ordering::Relaxed);
    }

    /// Ends a restore of a backup of this revision: the person does again what it has undone.
    pub(crate) async fn restore_ends(&self, revision: u64) {
        let journal = std::mem::take(&mut *self.person.journal.lock().unwrap());
        for Requested { after, method, path, body } in journal {
            if after >= revision {
                self.try_request(method, &path, body).await;
            }
        }
        self.person.restores.fetch_sub(1, Ordering::Relaxed);
    }
}
