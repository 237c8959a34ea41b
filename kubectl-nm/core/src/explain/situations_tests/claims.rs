//! Replacements that are Pending because a claim has no volume.

use super::*;
use crate::explain::pending_claim::{NoVolume, PendingClaim};
use crate::explain::read_facts;
use crate::testing::fake_server::{cluster, failure};

/// What is read of the claim `data` of the replacement `web-2` and said about it. `class` and `events` are what the cluster has. The
/// user may not list volumes.
async fn said(claim: Option<Value>, class: Option<Value>, events: Value) -> Option<(String, String)> {
    with_volumes(claim, class, events, Value::Null).await
}

/// The same with these volumes.
async fn with_volumes(
    claim: Option<Value>,
    class: Option<Value>,
    events: Value,
    volumes: Value,
) -> Option<(String, String)> {
    let data = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let (cause, _) = cause_of(data, claim, class, events, volumes).await;
    let about_claim = cause.what.iter().find(|what| what.contains("claim"))?;
    Some((about_claim.clone(), cause.commands.join("\n")))
}

/// The cause of a replacement with these volumes, whose claims are all `claim`, and how often the volumes of the cluster were listed.
async fn cause_of(
    of_pod: Value,
    claim: Option<Value>,
    class: Option<Value>,
    events: Value,
    volumes: Value,
) -> (Cause, usize) {
    let situation = beside(edited(pending("Unschedulable", UNFIT), "/spec/volumes", of_pod));
    let (budget, pods) = (situation.budget.clone(), situation.pods.clone());
    let list =
        |items: &Value| (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}));
    let one = |object: &Option<Value>, name: &str| match object {
        Some(object) => (200, object.clone()),
        None => failure(404, "NotFound", name),
    };
    let (server, requests) = cluster(move |_, path| match path.rsplit('/').next() {
        Some("web") => (200, budget.clone()),
        Some("pods") => list(&json!(pods)),
        Some("fast") => one(&class, "fast"),
        Some("events") => list(&events),
        Some("persistentvolumes") if !volumes.is_null() => list(&volumes),
        Some("persistentvolumes") => failure(403, "Forbidden", "persistentvolumes"),
        Some("nodes") => list(&json!([node("n2", json!({}))])),
        Some(name) if path.contains("/persistentvolumeclaims/") => one(&claim, name),
        other => failure(404, "NotFound", other.unwrap_or_default()),
    });
    let object = with_status("n1", blocked_status("shop"));
    let facts = read_facts::read(&server, [&object], [&object], NOW.parse().unwrap()).await;
    let cause = explained(&object, &facts).remove(0);
    check_harmless(&cause);
    let lists = requests.lock().unwrap().iter().filter(|asked| asked.contains("/persistentvolumes")).count();
    (cause, lists)
}

fn claim(phase: &str, class: Option<&str>, created: &str) -> Value {
    let metadata = json!({"namespace": "shop", "name": "data", "uid": "c", "creationTimestamp": created});
    json!({"metadata": metadata, "spec": {"storageClassName": class}, "status": {"phase": phase}})
}

fn class(provisioner: &str) -> Value {
    json!({"metadata": {"name": "fast"}, "provisioner": provisioner})
}

fn event(reason: &str, message: &str) -> Value {
    json!([{"metadata": {"namespace": "shop", "name": "e"}, "involvedObject": {}, "reason": reason, "message": message}])
}

#[tokio::test]
async fn a_claim_without_a_volume_is_named_with_its_class_and_the_reason() {
    const OLD: &str = "2026-01-02T03:00:00Z";
    let (data, pvc) = ("shop/web-2 is Pending: claim shop/data", "kubectl -n shop describe pvc data");
    let none = || json!([]);
    let rows = [
        (
            None,
            None,
            none(),
            format!("{data} does not exist."),
            "kubectl -n shop get pvc\nkubectl get pv".to_owned(),
        ),
        (
            Some(claim("Pending", Some("fast"), OLD)),
            None,
            event("ProvisioningFailed", "storageclass.storage.k8s.io \"fast\" not found"),
            format!("{data} has no volume, because its StorageClass fast does not exist."),
            format!("{pvc}\nkubectl get storageclass"),
        ),
        (
            Some(claim("Pending", Some("fast"), OLD)),
            Some(class("kubernetes.io/no-provisioner")),
            event("WaitForFirstConsumer", "waiting for first consumer"),
            format!(
                "{data} of StorageClass fast has no volume, and this class creates none (kubernetes.io/no-provisioner)."
            ),
            format!("{pvc}\nkubectl get pv"),
        ),
        (
            Some(claim("Pending", Some("fast"), OLD)),
            Some(class("csi.example.com")),
            event("ProvisioningFailed", "quota exceeded"),
            format!("{data} of StorageClass fast has no volume: quota exceeded."),
            format!("{pvc}\nkubectl describe storageclass fast"),
        ),
        (
            Some(claim("Pending", Some("fast"), OLD)),
            Some(class("csi.example.com")),
            event("ExternalProvisioning", "Waiting for csi.example.com."),
            format!("{data} of StorageClass fast has no volume: Waiting for csi.example.com."),
            format!("{pvc}\nkubectl describe storageclass fast"),
        ),
        (
            Some(edited(claim("Bound", Some("fast"), OLD), "/metadata/deletionTimestamp", json!(OLD))),
            Some(class("csi.example.com")),
            none(),
            format!("{data} is being deleted, so no new pod can use it."),
            format!("{pvc}\nkubectl get pv"),
        ),
        (
            Some(claim("Pending", None, OLD)),
            None,
            event(
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set",
            ),
            format!(
                "{data} has no volume: no persistent volumes available for this claim and no storage class is set."
            ),
            format!("{pvc}\nkubectl get pv"),
        ),
    ];
    for (claim, class, events, what, commands) in rows {
        assert_eq!(said(claim, class, events).await, Some((what, commands)));
    }
}

#[tokio::test]
async fn a_claim_that_is_bound_or_waits_for_the_pod_or_is_new_is_not_the_cause() {
    let waits = || event("WaitForFirstConsumer", "waiting for first consumer");
    let provisions = || event("ExternalProvisioning", "Waiting for csi.example.com.");
    for (claim, events) in [
        (Some(claim("Bound", Some("fast"), "2026-01-02T03:00:00Z")), json!([])),
        (Some(claim("Pending", Some("fast"), "2026-01-02T03:00:00Z")), waits()),
        (Some(claim("Pending", Some("fast"), "2026-01-02T03:07:00Z")), provisions()),
        (Some(claim("Pending", Some("fast"), "2026-01-02T03:00:00Z")), {
            let mut just_scheduled = provisions();
            just_scheduled[0]["firstTimestamp"] = json!("2026-01-02T03:07:00Z");
            just_scheduled
        }),
    ] {
        assert_eq!(said(claim, Some(class("csi.example.com")), events).await, None);
    }
}

fn volume(name: &str, phase: &str, claim: &str) -> Value {
    let claim_ref = json!({"kind": "PersistentVolumeClaim", "namespace": "shop", "name": claim, "uid": "old", "resourceVersion": "7"});
    json!({"metadata": {"name": name}, "spec": {"claimRef": claim_ref, "persistentVolumeReclaimPolicy": "Retain"},
        "status": {"phase": phase}})
}

#[tokio::test]
async fn a_retained_volume_that_may_have_the_former_data_of_a_claim_is_named() {
    const OLD: &str = "2026-01-02T03:00:00Z";
    let waits = || claim("Pending", Some("fast"), OLD);
    let local = || Some(class("kubernetes.io/no-provisioner"));
    let awaited = event("ExternalProvisioning", "Waiting for csi.example.com.");
    let one = json!([
        volume("pv-other", "Released", "else"),
        volume("pv-used", "Bound", "data"),
        volume("pv-1", "Released", "data")
    ]);
    let pvc = "kubectl -n shop describe pvc data\nkubectl describe pv pv-1";
    let bound = "; the retained volume pv-1 was bound to a claim of this name, and may have its former data.";
    let (what, commands) = with_volumes(Some(waits()), local(), json!([]), one.clone()).await.unwrap();
    assert!(what.ends_with(bound), "{what}");
    assert_eq!(commands, pvc);
    let csi = Some(class("csi.example.com"));
    let (what, commands) = with_volumes(Some(waits()), csi, awaited, one.clone()).await.unwrap();
    assert!(what.ends_with(bound), "{what}");
    assert_eq!(commands, format!("{pvc}\nkubectl describe storageclass fast"));
    let (what, commands) = with_volumes(None, None, json!([]), one.clone()).await.unwrap();
    assert_eq!(what, format!("shop/web-2 is Pending: claim shop/data does not exist{bound}"));
    assert_eq!(commands, "kubectl -n shop get pvc\nkubectl describe pv pv-1");
    // Which of several has the latest data is not known.
    let several = json!([volume("pv-1", "Released", "data"), volume("pv-2", "Released", "data")]);
    let (what, commands) = with_volumes(Some(waits()), local(), json!([]), several).await.unwrap();
    let bound = "; the retained volumes pv-1, pv-2 were bound to claims of this name, and may have their former data.";
    assert!(what.ends_with(bound), "{what}");
    assert_eq!(commands, format!("{pvc} pv-2"));
    // The volume of a class that deletes volumes is about to be deleted.
    let mut deleted = volume("pv-1", "Released", "data");
    deleted["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    let (what, _) = with_volumes(Some(waits()), local(), json!([]), json!([deleted])).await.unwrap();
    assert!(!what.contains("pv-1"), "{what}");
    // An ephemeral volume has no former data.
    let ephemeral = json!([{"name": "ata", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    let of_pod = json!([volume("pv-1", "Released", "web-2-ata")]);
    let cause = cause_of(ephemeral, None, None, json!([]), of_pod).await.0;
    assert!(
        cause.what.iter().any(|what| what.contains("claim shop/web-2-ata does not exist.")),
        "{cause:#?}"
    );
}

#[tokio::test]
async fn volumes_are_listed_once_for_all_claims_and_only_if_one_has_waited_for_a_while() {
    let claims = |names: &[&str]| -> Value {
        names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect()
    };
    let listed = async |names: &[&str], events: Value, created: &str| {
        let claim = Some(claim("Pending", Some("fast"), created));
        cause_of(claims(names), claim, Some(class("csi.example.com")), events, json!([])).await.1
    };
    let provisions = || event("ExternalProvisioning", "Waiting for csi.example.com.");
    assert_eq!(listed(&["data", "logs", "cache"], provisions(), "2026-01-02T03:00:00Z").await, 1);
    assert_eq!(listed(&["data"], provisions(), "2026-01-02T03:07:00Z").await, 0);
}

#[tokio::test]
async fn a_class_that_volumes_have_needs_no_storage_class() {
    let mut free = volume("pv-1", "Available", "else");
    free["spec"]["storageClassName"] = json!("fast");
    let waits = claim("Pending", Some("fast"), "2026-01-02T03:00:00Z");
    let (what, commands) = with_volumes(Some(waits), None, json!([]), json!([free])).await.unwrap();
    assert_eq!(
        what,
        "shop/web-2 is Pending: claim shop/data has no volume: none of the volumes of its class fast is bound to it."
    );
    assert_eq!(commands, "kubectl -n shop describe pvc data\nkubectl get pv");
}

#[test]
fn a_claim_without_a_class_waits_for_a_volume_and_not_for_a_provisioner() {
    let advice = |class: Option<&str>| {
        let claim = PodReference { namespace: "shop".into(), name: "data".into() };
        PendingClaim {
            claim,
            class: class.map(str::to_owned),
            why: NoVolume::Failed("m".into()),
            is_ephemeral: false,
            retained: vec![],
        }
        .advice()
    };
    assert!(advice(Some("fast")).contains("whether the provisioner of the StorageClass runs"));
    assert!(advice(None).starts_with("Create a PersistentVolume without a StorageClass"), "{}", advice(None));
}
