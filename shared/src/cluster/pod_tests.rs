//! What is read of a pod.

use serde_json::{Value, json};

use super::*;

/// A pod with everything that a decision reads, and more.
fn pod(extra: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "cart-0", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:01:00Z",
            "deletionGracePeriodSeconds": 30, "labels": {"app": "cart"}, "finalizers": ["a/b"],
            "annotations": {"kubernetes.io/config.mirror": "x", "kubevirt.io/domain": "vm", "other": "y"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "o",
                "controller": true}],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "nodeName": "n1", "priority": 1000, "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}],
            "volumes": [{"name": "s", "secret": {"secretName": "s"}}, {"name": "t", "emptyDir": {}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
                {"key": "a", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"},
            ],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]},
    });
    for (part, fields) in extra.as_object().into_iter().flatten() {
        for (name, value) in fields.as_object().into_iter().flatten() {
            pod[part][name] = value.clone();
        }
    }
    pod
}

#[test]
fn a_pod_is_decoded_as_it_would_be_reduced() {
    let finished = json!({"status": {"phase": "Succeeded", "conditions": null}});
    let bare = json!({"spec": {"volumes": null, "tolerations": null, "priority": null}, "metadata": {"annotations": null}});
    let served = |source: Value| json!({"spec": {"volumes": [source]}});
    let claim = served(json!({"name": "c", "persistentVolumeClaim": {"claimName": "c"}}));
    let inline = served(json!({"name": "i", "csi": {"driver": "d"}}));
    let ephemeral = served(json!({"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}));
    let plugin = served(json!({"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry/"}}));
    for extra in [json!({}), finished, bare, claim, inline, ephemeral, plugin] {
        let json = pod(&extra);
        let whole: Pod = serde_json::from_value(json.clone()).unwrap();
        let text = json.to_string();
        assert_eq!(serde_json::from_str::<DrainPod>(&text).unwrap(), DrainPod::from(&whole), "{text}");
    }
}

#[test]
fn a_volume_that_a_driver_serves_and_the_plugin_of_a_driver_are_recognised() {
    let check = |volume: Value, expected: (bool, bool)| {
        let pod: DrainPod = serde_json::from_value(pod(&json!({"spec": {"volumes": [volume]}}))).unwrap();
        assert_eq!((pod.mounts_served_volume, pod.registers_plugin), expected, "{volume}");
    };
    check(json!({"persistentVolumeClaim": {"claimName": "c"}}), (true, false));
    check(json!({"ephemeral": {}}), (true, false));
    check(json!({"csi": {"driver": "secrets-store.csi.k8s.io"}}), (true, false));
    check(json!({"emptyDir": {}}), (false, false));
    check(json!({"hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}), (false, true));
    check(json!({"hostPath": {"path": "/var/lib/k0s/kubelet/plugins_registry/"}}), (false, true));
    check(json!({"hostPath": {"path": "/var/lib/kubelet/plugins/d"}}), (false, false));
    check(json!({"hostPath": {"path": "/my_plugins_registry"}}), (false, false));
}

#[test]
fn what_a_decision_reads_is_kept_and_nothing_else() {
    let pod: DrainPod = serde_json::from_value(pod(&json!({}))).unwrap();
    assert_eq!((&*pod.node, pod.priority, pod.has_empty_dir), ("n1", 1000, true));
    assert_eq!((pod.phase, pod.ready), (PodPhase::Other, Some(ConditionStatus::True)));
    assert_eq!(pod.tolerations.len(), 2);
    assert_eq!(*pod.claims, ["data".into(), "cart-0-scratch".into()]);
    assert_eq!((&*pod.namespace, &*pod.name, &*pod.uid), ("shop", "cart-0", "u"));
    assert_eq!(
        (pod.is_mirror, pod.domain.as_deref(), &*pod.finalizers),
        (true, Some("vm"), &["a/b".to_owned()][..])
    );
    assert_eq!(*pod.labels, [("app".to_owned(), "cart".to_owned())].into());
    let deadline = "2026-01-01T00:01:00Z".parse().unwrap();
    assert_eq!(pod.deletion, Some(Deletion { deadline, grace_seconds: Some(30) }));
    assert_eq!(controller(&pod).map(|owner| owner.name.as_str()), Some("cart"));
}

#[test]
fn a_client_receives_the_names_and_the_version_of_a_pod_beside_it() {
    let received: ReceivedPod = serde_json::from_value(pod(&json!({}))).unwrap();
    let metadata = serde_json::to_value(received.meta()).unwrap();
    assert_eq!(metadata, json!({"namespace": "shop", "name": "cart-0", "uid": "u", "resourceVersion": "7"}));
    assert_eq!(received.pod, serde_json::from_value(pod(&json!({}))).unwrap());
}
