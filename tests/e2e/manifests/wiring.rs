//! References between manifests: names, labels and ports match.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Resource, ResourceExt};
use nm_shared::NodeMaintenance;
use nm_shared::api::names::WEBHOOK_PATH;
use nm_tests::manifests::{files_of, read, service_account, the_one};
use serde_json::{Value, json};

/// The installed objects, with those of some components.
fn installed() -> Vec<Value> {
    let lists = ["", "components/network_policy/", "components/service_monitor/"];
    let files = lists.iter().flat_map(|folder| files_of(&format!("{folder}kustomization.yaml")));
    files.map(|file| read(&file)).collect()
}

/// The objects of a kind, of which there must be this number.
fn of_kind(kind: &str, number: usize) -> Vec<Value> {
    let found: Vec<Value> = installed().into_iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), number, "{kind}");
    found
}

/// The Service of this namespace and name.
fn service(namespace: &Value, name: &Value) -> Value {
    let is_it = |service: &Value| {
        (&service["metadata"]["namespace"], &service["metadata"]["name"]) == (namespace, name)
    };
    let found = of_kind("Service", 2).into_iter().find(is_it);
    found.unwrap_or_else(|| panic!("no Service is {name} in {namespace}"))
}

/// The labels of the reconciler's pods.
fn pod_labels() -> Value {
    let template = the_one::<Deployment>().spec.unwrap().template;
    json!(template.metadata.unwrap().labels.unwrap())
}

/// The names of the ports of the reconciler's pods.
fn pod_ports() -> BTreeSet<String> {
    let pod = the_one::<Deployment>().spec.unwrap().template.spec.unwrap();
    let ports = pod.containers.into_iter().flat_map(|container| container.ports.unwrap_or_default());
    ports.map(|port| port.name.unwrap()).collect()
}

/// The elements of a list, which must not be empty.
fn elements(list: &Value) -> &Vec<Value> {
    list.as_array().filter(|list| !list.is_empty()).expect("a list that is not empty")
}

#[test]
fn the_flow_schemas_select_the_service_account_and_the_lease_comes_first() {
    let account =
        json!({"name": service_account().metadata.name, "namespace": service_account().namespace()});
    let objects: Vec<Value> =
        ["flow_schema.yaml", "lease_flow_schema.yaml", "priority_level.yaml"].map(read).into();
    let one = |name: &str, kind: &str| {
        let found =
            objects.iter().find(|object| object["metadata"]["name"] == name && object["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
    };
    let schemas = ["nm-reconciler-lease", "nm-reconciler"].map(|name| one(name, "FlowSchema"));
    for schema in &schemas {
        let rule = &schema["spec"]["rules"][0];
        assert_eq!(rule["subjects"], json!([{"kind": "ServiceAccount", "serviceAccount": account}]));
    }
    let [lease, others] = schemas.map(|schema| schema["spec"].clone());
    let precedence = |spec: &Value| spec["matchingPrecedence"].as_u64().unwrap();
    // `service-accounts` has 9000.
    assert!(precedence(&lease) < precedence(&others) && precedence(&others) < 9000);
    let _ = one(others["priorityLevelConfiguration"]["name"].as_str().unwrap(), "PriorityLevelConfiguration");
    assert_ne!(lease["priorityLevelConfiguration"], others["priorityLevelConfiguration"]);
    assert_eq!(lease["rules"][0]["resourceRules"][0]["namespaces"], json!([account["namespace"]]));
}

#[test]
fn the_deployment_uses_the_service_account() {
    let (deployment, account) = (the_one::<Deployment>(), service_account());
    assert_eq!(deployment.namespace(), account.namespace());
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name, account.metadata.name);
}

#[test]
fn every_selector_matches_the_reconcilers_pods() {
    let labels = pod_labels();
    let whole = json!({"matchLabels": labels});
    let selectors = [
        ("Deployment", 1, "/spec/selector", &whole),
        ("Deployment", 1, "/spec/template/spec/topologySpreadConstraints/0/labelSelector", &whole),
        ("PodDisruptionBudget", 1, "/spec/selector", &whole),
        ("NetworkPolicy", 1, "/spec/podSelector", &whole),
        ("Service", 2, "/spec/selector", &labels),
    ];
    let namespace = the_one::<Deployment>().namespace().unwrap();
    for (kind, number, path, expected) in selectors {
        for object in of_kind(kind, number) {
            let name = &object["metadata"]["name"];
            assert_eq!(object.pointer(path), Some(expected), "{kind} {name}");
            assert_eq!(object["metadata"]["namespace"], namespace, "{kind} {name}");
        }
    }
}

#[test]
fn every_service_port_is_named_after_its_target() {
    for service in of_kind("Service", 2) {
        for port in elements(&service["spec"]["ports"]) {
            let target = port["targetPort"].as_str().unwrap();
            assert!(pod_ports().contains(target), "{service}");
            assert_eq!(port["name"], target, "{service}");
        }
    }
}

#[test]
fn the_network_policy_allows_exactly_the_ports_of_the_pods() {
    let policy = &of_kind("NetworkPolicy", 1)[0];
    let rules = elements(&policy["spec"]["ingress"]).iter();
    let ports = rules.flat_map(|rule| elements(&rule["ports"])).map(|port| port["port"].as_str().unwrap());
    assert_eq!(ports.map(str::to_owned).collect::<BTreeSet<_>>(), pod_ports());
}

#[test]
fn the_service_monitor_selects_only_the_metrics_service() {
    let monitor = &of_kind("ServiceMonitor", 1)[0];
    let selector = monitor["spec"]["selector"].as_object().unwrap();
    assert_eq!(selector.keys().collect::<Vec<_>>(), ["matchLabels"]);
    let wanted = selector["matchLabels"].as_object().unwrap();
    let is_selected = |service: &Value| {
        let labels = &service["metadata"]["labels"];
        wanted.iter().all(|(name, value)| labels[name] == *value)
    };
    let selected: Vec<Value> = of_kind("Service", 2).into_iter().filter(is_selected).collect();
    assert_eq!(selected.len(), 1, "{selected:?}");
    // A ServiceMonitor selects services in its own namespace.
    assert_eq!(selected[0]["metadata"]["namespace"], monitor["metadata"]["namespace"]);
    let ports = elements(&selected[0]["spec"]["ports"]);
    for endpoint in elements(&monitor["spec"]["endpoints"]) {
        assert!(ports.iter().any(|port| port["name"] == endpoint["port"]), "{endpoint}");
    }
}

#[test]
fn the_webhook_configuration_refers_to_its_service() {
    let configuration = &of_kind("ValidatingWebhookConfiguration", 1)[0];
    for webhook in elements(&configuration["webhooks"]) {
        let reference = &webhook["clientConfig"]["service"];
        assert_eq!(reference["path"], WEBHOOK_PATH, "{webhook}");
        let service = service(&reference["namespace"], &reference["name"]);
        let ports = elements(&service["spec"]["ports"]);
        let port = ports.iter().find(|port| port["port"] == reference["port"]);
        assert_eq!(port.map(|port| &port["targetPort"]), Some(&json!("webhook")), "{webhook}");
    }
}

#[test]
fn the_webhook_configuration_is_left_alone_by_the_admissions_enforcer_of_aks() {
    let labels = the_one::<ValidatingWebhookConfiguration>().metadata.labels.unwrap();
    assert_eq!(labels.get("admissions.enforcer/disabled").map(String::as_str), Some("true"));
}

#[test]
fn the_webhook_reviews_creations_updates_and_deletions() {
    let webhooks = the_one::<ValidatingWebhookConfiguration>().webhooks.unwrap();
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        list.as_ref().is_some_and(|list| list.iter().any(|item| item == wanted))
    };
    for operation in ["CREATE", "UPDATE", "DELETE"] {
        let rules = webhooks.iter().flat_map(|webhook| webhook.rules.iter().flatten());
        let reference = rules.filter(|rule| {
            has(&rule.operations, operation)
                && has(&rule.api_groups, &NodeMaintenance::group(&()))
                && has(&rule.api_versions, &NodeMaintenance::version(&()))
                && has(&rule.resources, &NodeMaintenance::plural(&()))
                && rule.scope.as_deref() == Some("Cluster")
        });
        assert_eq!(reference.count(), 1, "{operation}");
    }
}
