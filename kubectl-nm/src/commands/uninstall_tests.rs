//! What is removed and what is kept.

use std::sync::Mutex;

use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{cluster, failure};

use super::*;

fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(format::name).collect()
}

fn installed(other_operator: Option<&str>) -> Installation {
    Installation {
        namespace: manifests::NAMESPACE.into(),
        other_operator: other_operator.map(str::to_owned),
        ..Installation::default()
    }
}

#[test]
fn the_crd_is_removed_last_and_namespaces_are_kept() {
    let (chosen, notes) = choose(manifests::objects(&Settings::default()), &installed(None));
    let chosen = names(&chosen);
    let crd = "customresourcedefinition.apiextensions.k8s.io/nodemaintenances.nodemaintenance.medik8s.io";
    assert_eq!(chosen[chosen.len() - 2..], ["secret/nm-reconciler-webhook", crd]);
    let at = |wanted: &str| chosen.iter().position(|name| name == wanted).unwrap();
    assert!(at("deployment.apps/nm-reconciler") < at("clusterrole.rbac.authorization.k8s.io/nm-reconciler"));
    assert!(!chosen.iter().any(|name| name.starts_with("namespace/")), "{chosen:?}");
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let why = "others may have objects in it; `kubectl delete namespace node-maintenance` deletes it";
    assert!(notes.contains(&format!("namespace/node-maintenance is kept: {why}")), "{notes:?}");
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert_eq!(choose(Vec::new(), &installed(None)), (Vec::new(), Vec::new()));
    let is_account = |object: &Value| object["kind"] == "ServiceAccount";
    let mut other = manifests::objects(&Settings::default()).into_iter().find(is_account).unwrap();
    other["kind"] = json!("Namespace");
    other["metadata"]["name"] = json!("node-maintenance-rolls");
    let why = reason_to_keep(&other, &installed(None)).unwrap();
    assert!(why.contains("`kubectl delete namespace node-maintenance-rolls`"), "{why}");
}

#[test]
fn objects_of_others_are_kept() {
    let mut objects = manifests::objects(&Settings::default());
    for object in &mut objects {
        if object["kind"] == "Namespace" {
            object["metadata"]["labels"] = Value::Null;
        }
    }
    let (chosen, notes) = choose(objects, &installed(Some("nmo/node-maintenance-operator")));
    let chosen = names(&chosen);
    assert!(!chosen.iter().any(|name| name.starts_with("namespace/") || name.starts_with("customresource")));
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(chosen.contains(&"secret/nm-reconciler-webhook".to_owned()));
    assert!(chosen.contains(&"lease.coordination.k8s.io/nm-reconciler".to_owned()));
    assert!(chosen.contains(&"resourcequota/nm-reconciler".to_owned()));
}

#[test]
fn namespaces_alone_are_not_an_installation() {
    let objects = manifests::objects(&Settings::default()).into_iter();
    let namespaces = objects.filter(|object| object["kind"] == "Namespace").collect();
    assert_eq!(choose(namespaces, &installed(None)), (Vec::new(), Vec::new()));
}

#[test]
fn objects_without_the_label_are_kept() {
    let theirs = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "nm-reconciler"}});
    let (chosen, notes) = choose(vec![theirs.clone()], &installed(None));
    assert_eq!(chosen, Vec::<Value>::new());
    assert!(notes.is_empty(), "{notes:?}");
    let mut ours = manifests::objects(&Settings::default());
    let role = ours.iter_mut().find(|object| format::name(object) == format::name(&theirs)).unwrap();
    *role = theirs.clone();
    let (chosen, notes) = choose(ours, &installed(None));
    assert!(!names(&chosen).contains(&format::name(&theirs)));
    let note = format!("{} is kept: {NOT_OURS}", format::name(&theirs));
    assert!(notes.iter().any(|line| line.to_string() == note), "{notes:?}");
}

/// Runs the command on a cluster with nm-reconciler and its CRD, where a maintenance exists from the given list request on.
/// Returns the error and the deletions.
async fn uninstalled_with_one_from(list: usize) -> (Error, Vec<String>) {
    let lists = Mutex::new(0);
    let answer = move |method: &str, path: &str| match (method, path.rsplit('/').next().unwrap_or_default()) {
        ("DELETE", _) => {
            (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        }
        (_, "deployments") => items(&[object("Deployment")]),
        (_, "nodemaintenances") => {
            let mut lists = lists.lock().unwrap();
            *lists += 1;
            let one = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": {"name": "n1", "uid": "u"}, "spec": {"nodeName": "n1"}});
            if *lists < list { items(&[]) } else { items(&[one]) }
        }
        (_, "nm-reconciler") if path.contains("/deployments/") => (200, object("Deployment")),
        (_, "nodemaintenances.nodemaintenance.medik8s.io") => (200, manifests::crd()),
        _ => failure(404, "NotFound", "x"),
    };
    let (cluster, requests) = cluster(answer);
    let args = UninstallArgs { stop_all: false, yes: true, timeout: Duration::from_secs(1) };
    let error = run(args, None, &cluster, &mut output().0).await.unwrap_err();
    let deleted =
        requests.lock().unwrap().iter().filter(|request| request.starts_with("DELETE")).cloned().collect();
    (error, deleted)
}

fn object(kind: &str) -> Value {
    manifests::objects(&Settings::default()).into_iter().find(|object| object["kind"] == kind).unwrap()
}

fn items(items: &[Value]) -> (u16, Value) {
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
}

#[tokio::test]
async fn a_maintenance_that_starts_during_the_prompt_stops_the_command() {
    for list in [1, 2] {
        let (error, deleted) = uninstalled_with_one_from(list).await;
        assert_eq!(error.to_string(), "1 node is in maintenance: n1");
        assert!(error.hint().unwrap().starts_with("nothing was changed; --stop-all "));
        assert_eq!(deleted, Vec::<String>::new(), "there from list {list}");
    }
}

#[tokio::test]
async fn a_maintenance_that_starts_later_keeps_the_crd() {
    let (error, deleted) = uninstalled_with_one_from(3).await;
    assert_eq!(error.to_string(), "1 node is in maintenance since nm-reconciler was removed: n1");
    let hint = error.hint().unwrap();
    assert!(!hint.contains("nothing was changed") && hint.contains("`kubectl nm install`"), "{hint}");
    assert!(deleted.iter().any(|request| request.ends_with("/deployments/nm-reconciler")), "{deleted:?}");
    assert!(!deleted.iter().any(|request| request.contains("customresourcedefinitions")), "{deleted:?}");
}

#[tokio::test]
async fn with_olm_the_hint_is_to_stop_the_maintenances_before_the_version_is_deleted() {
    for (in_maintenance, hinted) in
        [(true, "1 node is in maintenance (n1)"), (false, "delete its Subscription")]
    {
        let (cluster, requests) = cluster(move |_, path| match path.rsplit('/').next().unwrap_or_default() {
            "deployments" => {
                let mut deployment = object("Deployment");
                deployment["metadata"]["labels"]["olm.owner"] = json!("nm-reconciler.v0.1.0");
                items(&[deployment])
            }
            "nodemaintenances" if in_maintenance && path.contains("/nodemaintenance.medik8s.io/") => {
                items(&[
                    json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                    "metadata": {"name": "n1", "uid": "u"}, "spec": {"nodeName": "n1"}}),
                ])
            }
            "nodemaintenances" => items(&[]),
            _ => failure(404, "NotFound", "x"),
        });
        let args = UninstallArgs { stop_all: true, yes: true, timeout: Duration::from_secs(1) };
        let error = run(args, None, &cluster, &mut output().0).await.unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.starts_with(hinted) && hint.contains("/how-to/install-with-olm.md"), "{error}: {hint}");
        assert_eq!(hint.contains("`kubectl nm stop --all --wait`"), in_maintenance, "{hint}");
        assert!(!requests.lock().unwrap().iter().any(|request| request.starts_with("DELETE")));
    }
}

#[test]
fn the_question_says_that_every_maintenance_is_deleted_with_the_crd() {
    let asked = |objects: Vec<Value>| {
        let (objects, notes) = choose(objects, &installed(None));
        question(&UninstallPlan { namespace: "ns".into(), objects, maintenances: Vec::new(), notes })
    };
    let all = manifests::objects(&Settings::default());
    assert_eq!(
        asked(all.clone()),
        "Remove nm-reconciler from namespace ns with these 28 objects, and with \
         customresourcedefinition.apiextensions.k8s.io/nodemaintenances.nodemaintenance.medik8s.io every \
         NodeMaintenance in the cluster"
    );
    let without = all.into_iter().filter(|object| object["kind"] != "CustomResourceDefinition").collect();
    assert_eq!(asked(without), "Remove nm-reconciler from namespace ns with these 27 objects");
    assert_eq!(
        format::located(&object("Deployment")),
        "deployment.apps/nm-reconciler (namespace node-maintenance)"
    );
}
