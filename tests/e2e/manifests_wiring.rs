//! The manifests find each other: by names, by labels and by ports.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Resource, ResourceExt};
use nm_shared::NodeMaintenance;
use nm_tests::manifests::{files_of, read, service_account, the_one};
use serde_json::{Value, json};

/// What is installed, with what components add to it.
fn installed() -> Vec<Value> {
    let lists = ["", "components/network_policy/", "components/service_monitor/"];
    let files = lists.iter().flat_map(|folder| files_of(&format!("{folder}kustomization.yaml")));
    files.map(|file| read(&file)).collect()
}

/// The objects of a kind, of which there are so many.
fn of_kind(kind: &str, number: usize) -> Vec<Value> {
    let found: Vec<Value> = installed().into_iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), number, "{kind}");
    found
}

/// The Service that both names tell.
fn service(namespace: &Value, name: &Value) -> Value {
    let is_it = |service: &Value| {
        (&service["metadata"]["namespace"], &service["metadata"]["name"]) == (namespace, name)
    };
    let found = of_kind("Service", 2).into_iter().find(is_it);
    found.unwrap_or_else(|| panic!("no Service is {name} in {namespace}"))
}

/// The labels of the program's pods.
fn pod_labels() -> Value {
    let template = the_one::<Deployment>().spec.unwrap().template;
    json!(template.metadata.unwrap().labels.unwrap())
}

/// The names of the ports of the program's pods.
fn pod_ports() -> BTreeSet<String> {
    let pod = the_one::<Deployment>().spec.unwrap().template.spec.unwrap();
    let ports = pod.containers.into_iter().flat_map(|container| container.ports.unwrap_or_default());
    ports.map(|port| port.name.unwrap()).collect()
}

/// The elements of a list that is there and not empty.
fn each(list: &Value) -> &Vec<Value> {
    list.as_array().filter(|list| !list.is_empty()).expect("a list of something")
}

#[test]
fn the_program_runs_with_the_rights_that_it_was_given() {
    let (deployment, account) = (the_one::<Deployment>(), service_account());
    assert_eq!(deployment.namespace(), account.namespace());
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name, account.metadata.name);
}

#[test]
fn whatever_chooses_pods_chooses_those_of_the_program() {
    let labels = pod_labels();
    let whole = json!({"matchLabels": labels});
    let choosing = [
        ("Deployment", 1, "/spec/selector", &whole),
        ("Deployment", 1, "/spec/template/spec/topologySpreadConstraints/0/labelSelector", &whole),
        ("PodDisruptionBudget", 1, "/spec/selector", &whole),
        ("NetworkPolicy", 1, "/spec/podSelector", &whole),
        ("Service", 2, "/spec/selector", &labels),
    ];
    let namespace = the_one::<Deployment>().namespace().unwrap();
    for (kind, number, path, expected) in choosing {
        for object in of_kind(kind, number) {
            let name = &object["metadata"]["name"];
            assert_eq!(object.pointer(path), Some(expected), "{kind} {name}");
            assert_eq!(object["metadata"]["namespace"], namespace, "{kind} {name}");
        }
    }
}

#[test]
fn every_service_leads_to_the_port_that_it_is_named_after() {
    for service in of_kind("Service", 2) {
        for port in each(&service["spec"]["ports"]) {
            let target = port["targetPort"].as_str().unwrap();
            assert!(pod_ports().contains(target), "{service}");
            assert_eq!(port["name"], target, "{service}");
        }
    }
}

#[test]
fn the_network_policy_opens_every_port_that_there_is_and_no_other() {
    let policy = &of_kind("NetworkPolicy", 1)[0];
    let rules = each(&policy["spec"]["ingress"]).iter();
    let ports = rules.flat_map(|rule| each(&rule["ports"])).map(|port| port["port"].as_str().unwrap());
    assert_eq!(ports.map(str::to_owned).collect::<BTreeSet<_>>(), pod_ports());
}

#[test]
fn prometheus_finds_the_metrics_by_their_service_and_no_other() {
    let monitor = &of_kind("ServiceMonitor", 1)[0];
    let selector = monitor["spec"]["selector"].as_object().unwrap();
    assert_eq!(selector.keys().collect::<Vec<_>>(), ["matchLabels"]);
    let wanted = selector["matchLabels"].as_object().unwrap();
    let is_chosen = |service: &Value| {
        let labels = &service["metadata"]["labels"];
        wanted.iter().all(|(name, value)| labels[name] == *value)
    };
    let chosen: Vec<Value> = of_kind("Service", 2).into_iter().filter(is_chosen).collect();
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    // It looks in its own namespace.
    assert_eq!(chosen[0]["metadata"]["namespace"], monitor["metadata"]["namespace"]);
    let ports = each(&chosen[0]["spec"]["ports"]);
    for endpoint in each(&monitor["spec"]["endpoints"]) {
        assert!(ports.iter().any(|port| port["name"] == endpoint["port"]), "{endpoint}");
    }
}

#[test]
fn the_api_server_finds_the_webhook_by_its_service() {
    let configuration = &of_kind("ValidatingWebhookConfiguration", 1)[0];
    for webhook in each(&configuration["webhooks"]) {
        let asked = &webhook["clientConfig"]["service"];
        let service = service(&asked["namespace"], &asked["name"]);
        let ports = each(&service["spec"]["ports"]);
        let port = ports.iter().find(|port| port["port"] == asked["port"]);
        assert_eq!(port.map(|port| &port["targetPort"]), Some(&json!("webhook")), "{webhook}");
    }
}

#[test]
fn the_api_server_asks_before_a_maintenance_is_made_changed_or_deleted() {
    let webhooks = the_one::<ValidatingWebhookConfiguration>().webhooks.unwrap();
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        list.as_ref().is_some_and(|list| list.iter().any(|item| item == wanted))
    };
    for operation in ["CREATE", "UPDATE", "DELETE"] {
        let rules = webhooks.iter().flat_map(|webhook| webhook.rules.iter().flatten());
        let asked = rules.filter(|rule| {
            has(&rule.operations, operation)
                && has(&rule.api_groups, &NodeMaintenance::group(&()))
                && has(&rule.api_versions, &NodeMaintenance::version(&()))
                && has(&rule.resources, &NodeMaintenance::plural(&()))
                && rule.scope.as_deref() == Some("Cluster")
        });
        assert_eq!(asked.count(), 1, "{operation}");
    }
}
