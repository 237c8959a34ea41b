//! Pods whose volumes bind them to nodes in maintenance.

use k8s_openapi::api::core::v1::PersistentVolume;
use nm_shared::cluster::volumes::Volumes;
use serde_json::{Value, json};

use super::*;

/// A volume of the claim `data` that these zones or names of nodes can access.
fn volume(key: &str, values: &[&str], source: &str) -> Volumes {
    let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]);
    let spec = json!({"claimRef": {"namespace": "shop", "name": "data"}, source: {"path": "/d"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
    Volumes::new([parse::<PersistentVolume>(&json!({"metadata": {"name": "lq1"}, "spec": spec}))])
}

fn with_claim(pod: Value) -> Value {
    let claims = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut pod = edited(pod, "/spec/volumes", claims);
    pod["metadata"]["ownerReferences"][0] = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web",
        "uid": "s", "controller": true});
    pod
}

fn in_zone(node: Value, zone: &str) -> Value {
    let name = node["metadata"]["name"].clone();
    edited(node, "/metadata/labels", json!({"zone": zone, "kubernetes.io/hostname": name}))
}

fn only_pod(nodes: Vec<Value>, volumes: Volumes) -> Cause {
    let situation = Situation {
        nodes,
        pods: vec![with_claim(ready("web-0", "n1"))],
        ..never("minAvailable", json!(1), 1)
    };
    let facts = ClusterFacts { volumes, ..situation.facts() };
    let object = with_status("n1", blocked_status("shop"));
    let [cause] = <[Cause; 1]>::try_from(explained(&object, &facts)).unwrap();
    check_harmless(&cause);
    cause
}

const COMMANDS: [&str; 2] = ["kubectl -n shop edit pdb web", "kubectl nm stop n1"];

#[test]
fn the_only_pod_with_a_local_volume_is_unavailable_until_the_maintenance_is_stopped() {
    let nodes = vec![in_zone(cordoned("n1"), "a"), in_zone(node("n2", json!({})), "a")];
    let cause = only_pod(nodes, volume("kubernetes.io/hostname", &["n1"], "local"));
    assert!(
        cause.what.last().unwrap().ends_with(
            "A replacement fits on no other node: its local volume lq1 is accessible only from n1, which is in maintenance."
        ),
        "{cause:#?}"
    );
    assert_eq!(
        cause.advice,
        "Agree on a time with the owner of the pod, then set minAvailable to 0: the only pod is unavailable from its \
         eviction until the maintenance is stopped; or stop the maintenance and keep the pod"
    );
    assert_eq!(cause.commands, COMMANDS);
}

#[test]
fn the_only_pod_with_a_volume_of_a_zone_moves_within_the_zone_if_a_node_is_left_there() {
    let zone = || volume("zone", &["a"], "csi");
    let nodes = |second: &str| vec![in_zone(cordoned("n1"), "a"), in_zone(node("n2", json!({})), second)];
    let moves = only_pod(nodes("a"), zone());
    assert!(
        moves.advice.ends_with("unavailable from its eviction until its replacement is Ready"),
        "{moves:#?}"
    );
    let stays = only_pod(nodes("b"), zone());
    assert!(
        stays.advice.ends_with(
            "until there is a node for its replacement; or add a node that can access its volumes; or stop the \
             maintenance and keep the pod"
        ),
        "{stays:#?}"
    );
    assert_eq!(stays.commands, COMMANDS);
}

#[test]
fn a_volume_of_a_path_is_not_said_to_bind_a_pod_that_a_zone_binds() {
    let of_claim = |name: &str, claim: &str, spec: Value| {
        let mut spec = spec;
        spec["claimRef"] = json!({"namespace": "shop", "name": claim});
        parse::<PersistentVolume>(&json!({"metadata": {"name": name}, "spec": spec}))
    };
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]);
    let volumes = Volumes::new([
        of_claim("pv-path", "data", json!({"hostPath": {"path": "/d"}})),
        of_claim(
            "disk",
            "more",
            json!({"csi": {"driver": "d", "volumeHandle": "h"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}),
        ),
    ]);
    let claims =
        ["data", "more"].map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let third = edited(with_claim(pending("Unschedulable", UNFIT)), "/spec/volumes", json!(claims));
    let nodes = vec![in_zone(cordoned("n1"), "a"), in_zone(node("n3", json!({})), "b")];
    let situation = Situation { nodes, ..beside(third) };
    let facts = ClusterFacts { volumes, ..situation.facts() };
    let object = with_status("n1", blocked_status("shop"));
    let [cause] = <[Cause; 1]>::try_from(explained(&object, &facts)).unwrap();
    assert!(cause.what.last().unwrap().contains(": its volumes are accessible only from n1"), "{cause:#?}");
    assert!(cause.advice.starts_with("Add a node that can access the volumes"), "{cause:#?}");
}

#[test]
fn a_pending_pod_with_a_local_volume_returns_with_its_node() {
    let local = || volume("kubernetes.io/hostname", &["n2"], "local");
    let third = with_claim(pending("Unschedulable", UNFIT));
    let nodes = ["n1", "n2"].map(|name| in_zone(cordoned(name), "a"));
    let nodes = nodes.into_iter().chain([in_zone(node("n3", json!({})), "a")]).collect();
    let situation = Situation { nodes, in_maintenance: vec!["n1", "n2"], ..beside(third) };
    let facts = ClusterFacts { volumes: local(), ..situation.facts() };
    let object = with_status("n1", blocked_status("shop"));
    let [cause] = <[Cause; 1]>::try_from(explained(&object, &facts)).unwrap();
    assert_eq!(
        cause.what.last().unwrap(),
        "No node is left for the replacement shop/web-2: its local volume lq1 is accessible only from n2, which is in \
         maintenance."
    );
    assert_eq!(
        cause.advice,
        "To make the pod available again, stop the maintenance, unless its machine is being worked on"
    );
    assert_eq!(cause.commands, ["kubectl nm stop n2"]);
}
