//! The reconciler's Deployment: its security, scheduling, availability and probes.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Namespace, Pod, PodSpec, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use nm_shared::Group;
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, KUBEVIRT_DRAIN_TAINT, UNSCHEDULABLE_TAINT};
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::returning::tolerates_cordon;
use nm_tests::manifests::{all_of, read, service_account, the_one};
use nm_tests::programs::program;
use nm_tests::reconciler::without_settings;
use serde_json::json;

fn deployment() -> Deployment {
    the_one()
}

fn pod() -> PodSpec {
    deployment().spec.unwrap().template.spec.unwrap()
}

fn container() -> Container {
    let mut containers = pod().containers;
    assert_eq!(containers.len(), 1);
    containers.remove(0)
}

#[test]
fn the_pod_meets_the_restricted_pod_security_standard() {
    let (pod, container) = (pod(), container());
    let pod_context = pod.security_context.unwrap();
    assert_eq!(pod_context.run_as_non_root, Some(true));
    assert_eq!(pod_context.seccomp_profile.unwrap().type_, "RuntimeDefault");
    let context = container.security_context.unwrap();
    assert_eq!(context.run_as_group, Some(65532), "not the group 0");
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let capabilities = context.capabilities.unwrap();
    assert_eq!((capabilities.drop, capabilities.add), (Some(vec!["ALL".to_owned()]), None));
    assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc, pod.volumes), (None, None, None, None));
    let namespace = namespace(&service_account().namespace().unwrap());
    assert_eq!(namespace.labels()["pod-security.kubernetes.io/enforce"], "restricted");
}

fn namespace(name: &str) -> Namespace {
    all_of::<Namespace>().into_iter().find(|namespace| namespace.name_any() == name).unwrap()
}

#[test]
fn the_pod_tolerates_a_drained_node_but_prefers_others() {
    let tolerated = pod().tolerations.unwrap();
    for taint in [UNSCHEDULABLE_TAINT, DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT] {
        let found = tolerated.iter().find(|toleration| toleration.key.as_deref() == Some(taint)).unwrap();
        assert_eq!(
            (found.operator.as_deref(), found.effect.as_deref()),
            (Some("Exists"), Some("NoSchedule"))
        );
    }
    let object = Pod { spec: Some(pod()), ..Pod::default() };
    for group in Group::ALL {
        let stays = tolerates_cordon(&DrainPod::from(&object), group.drain_taint());
        assert!(
            stays,
            "where it returns to the node of a {group:?} maintenance, the drain does not wait for it"
        );
    }
    let everything = tolerated.iter().any(|toleration| toleration.key.is_none());
    assert!(!everything, "it does not tolerate a node that is not ready");
    let affinity = pod().affinity.unwrap();
    assert!(affinity.pod_anti_affinity.is_none(), "it would have the same weight as the node affinity");
    let affinity = affinity.node_affinity.unwrap();
    assert!(affinity.required_during_scheduling_ignored_during_execution.is_none());
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.unwrap();
    let expressions = preferred[0].preference.match_expressions.as_ref().unwrap();
    assert_eq!(
        (expressions[0].key.as_str(), expressions[0].operator.as_str()),
        (EXCLUDE_LABEL, "DoesNotExist")
    );
    let spread = pod().topology_spread_constraints.unwrap();
    let spread: Vec<(&str, &str)> = spread
        .iter()
        .map(|constraint| (constraint.topology_key.as_str(), constraint.when_unsatisfiable.as_str()))
        .collect();
    assert_eq!(spread, [("kubernetes.io/hostname", "ScheduleAnyway")], "both replicas can run on one node");
}

#[test]
fn the_pod_can_run_on_control_planes_and_system_pools_when_the_workers_are_drained() {
    let tolerations = pod().tolerations.unwrap();
    for (key, effect) in [
        ("node-role.kubernetes.io/control-plane", "NoSchedule"),
        ("node-role.kubernetes.io/master", "NoSchedule"),
        ("CriticalAddonsOnly", "NoSchedule"),
        ("CriticalAddonsOnly", "NoExecute"),
    ] {
        let is_tolerated = tolerations.iter().any(|toleration| {
            toleration.key.as_deref() == Some(key)
                && toleration.operator.as_deref() == Some("Exists")
                && toleration.effect.as_deref().is_none_or(|one| one == effect)
        });
        assert!(is_tolerated, "{key}:{effect}");
    }
}

#[test]
fn one_replica_always_runs() {
    let spec = deployment().spec.unwrap();
    assert_eq!(spec.replicas, Some(2));
    let rolling = spec.strategy.unwrap().rolling_update.unwrap();
    let numbers = (rolling.max_unavailable, rolling.max_surge);
    assert_eq!(numbers, (Some(IntOrString::Int(0)), Some(IntOrString::Int(1))));
    let budget = the_one::<PodDisruptionBudget>().spec.unwrap();
    assert_eq!(budget.max_unavailable, Some(IntOrString::Int(1)), "one replica may be disrupted at a time");
    assert_eq!(budget.unhealthy_pod_eviction_policy.as_deref(), Some("AlwaysAllow"));
    let labels = spec.template.metadata.unwrap().labels.unwrap();
    assert_eq!(budget.selector.unwrap().match_labels.unwrap(), labels);
    assert_eq!(spec.selector.match_labels.unwrap(), labels);
}

#[test]
fn the_priority_class_has_the_quota_that_some_clusters_require() {
    let quota = the_one::<ResourceQuota>();
    assert_eq!(quota.namespace(), deployment().namespace());
    let scope = quota.spec.unwrap().scope_selector.unwrap().match_expressions.unwrap().remove(0);
    assert_eq!(scope.scope_name, "PriorityClass");
    assert_eq!(scope.values.unwrap(), [pod().priority_class_name.unwrap()]);
}

#[test]
fn the_container_has_probes_and_resource_requests() {
    let container = container();
    let ports: Vec<(String, i32)> =
        container.ports.unwrap().into_iter().map(|port| (port.name.unwrap(), port.container_port)).collect();
    assert_eq!(ports, [("metrics".to_owned(), 8080), ("webhook".to_owned(), 9443)]);
    for (probe, path) in [(container.liveness_probe, "/livez"), (container.readiness_probe, "/readyz")] {
        let request = probe.unwrap().http_get.unwrap();
        assert_eq!(
            (request.path.as_deref(), request.port),
            (Some(path), IntOrString::String("metrics".to_owned()))
        );
    }
    let resources = container.resources.unwrap();
    let requests = resources.requests.unwrap();
    let limits = resources.limits.unwrap();
    assert!(requests.contains_key("cpu"));
    assert_eq!((requests["memory"].0.as_str(), limits["memory"].0.as_str()), ("64Mi", "512Mi"));
    assert!(!limits.contains_key("cpu"), "a throttled leader renews its lease too late");
}

#[test]
fn the_image_tag_is_the_version() {
    let image = container().image.unwrap();
    let output = without_settings(&program("nm-reconciler")).arg("--version").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        image,
        format!("localhost/nm-reconciler:{}", version.trim().strip_prefix("nm-reconciler ").unwrap())
    );
}

#[test]
fn every_variable_of_the_pod_is_a_setting_of_the_program() {
    let container = container();
    let output = without_settings(&program("nm-reconciler")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let variables: Vec<String> = container.env.unwrap().into_iter().map(|variable| variable.name).collect();
    for variable in variables.iter().filter(|name| name.starts_with("NM_")) {
        assert!(help.contains(&format!("[env: {variable}=]")), "{variable}");
    }
    let own_pod = read("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["env"][2].clone();
    assert_eq!(own_pod, json!({"name": "NM_OWN_POD", "value": "$(NM_NAMESPACE)/$(POD_NAME)"}));
    assert_eq!(variables[..2], ["NM_NAMESPACE", "POD_NAME"], "a variable can refer only to those before it");
}
