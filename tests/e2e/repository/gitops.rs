//! The health checks of `docs/how-to/use-gitops.md`, on maintenances in every state.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use kube::Api;
use kube_cel::KubeCelExt;
use kube_cel::cel::{Context, Program, Value as Cel};
use kube_sandbox::cluster::admission::cel;
use nm_shared::api::status::BlockReason;
use nm_shared::{NodeMaintenance, Suspension};
use nm_tests::cluster::Cluster;
use nm_tests::files::repository;
use nm_tests::maintenance::{plan, stop, suspend, until_blocked, until_drained, until_suspension};
use nm_tests::reconciler::Reconciler;
use nm_tests::skip::has_program;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

/// A maintenance, its state, and its health for Argo CD and for Flux.
struct Case {
    state: &'static str,
    object: Value,
    argo: &'static str,
    flux: &'static str,
}

/// A condition that was observed at this generation of the object.
fn condition(type_: &str, status: &str, generation: i64) -> Value {
    json!({"type": type_, "status": status, "observedGeneration": generation})
}

/// An object of generation 2.
fn object(status: &Value) -> Value {
    json!({"metadata": {"name": "n", "generation": 2}, "spec": {"nodeName": "n"}, "status": status})
}

/// The states, and then what the states do not distinguish.
fn cases() -> Vec<Case> {
    let case = |state, status: Value, argo, flux| Case { state, object: object(&status), argo, flux };
    let with = |phase: &str, blocked: u32, conditions: &[&Value]| {
        let counts = json!({"blocked": blocked});
        json!({"phase": phase, "podCounts": counts, "conditions": conditions, "lastError": "why"})
    };
    let (not_drained, drained) = (condition("Drained", "False", 2), condition("Drained", "True", 2));
    let (suspended, resumed) = (condition("Suspended", "True", 2), condition("Suspended", "False", 2));
    let degraded = condition("Degraded", "True", 2);
    let mut stopping = case("Stopping", with("Succeeded", 0, &[&drained]), "Progressing", "InProgress");
    stopping.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut requested = case("Requested", json!({}), "Progressing", "InProgress");
    requested.object.as_object_mut().unwrap().remove("status");
    let bare = |phase: &str| json!({"phase": phase});
    vec![
        requested,
        stopping,
        case("Queued", with("Pending", 0, &[&not_drained]), "Progressing", "InProgress"),
        case("Planned", with("Pending", 0, &[&not_drained, &suspended]), "Suspended", "Current"),
        case("Draining", with("Running", 0, &[&not_drained]), "Progressing", "InProgress"),
        case("Blocked", with("Running", 1, &[&not_drained]), "Degraded", "Failed"),
        case("Paused", with("Running", 1, &[&not_drained, &suspended]), "Suspended", "Current"),
        case("Drained", with("Succeeded", 0, &[&drained]), "Healthy", "Current"),
        case("Failed", with("Failed", 0, &[&not_drained, &degraded]), "Degraded", "Failed"),
        // The medik8s operator writes no conditions.
        case("Draining", bare("Running"), "Progressing", "InProgress"),
        case("Drained", bare("Succeeded"), "Healthy", "Current"),
        case("Failed", bare("Failed"), "Degraded", "Failed"),
        // nm-reconciler lacks a permission, before and during a drain.
        case("Queued", with("Pending", 0, &[&not_drained, &degraded]), "Degraded", "Failed"),
        case("Draining", with("Running", 0, &[&not_drained, &degraded]), "Degraded", "Failed"),
        // Its volumes were not detached in time.
        case("Drained", with("Succeeded", 0, &[&drained, &degraded]), "Healthy", "Current"),
        // It continues after a pause, and it was drained for an older spec.
        case("Draining", with("Running", 0, &[&not_drained, &resumed]), "Progressing", "InProgress"),
        case(
            "Draining",
            with("Succeeded", 0, &[&condition("Drained", "True", 1)]),
            "Progressing",
            "InProgress",
        ),
        // Another pod has arrived, and is blocked.
        case("Blocked", with("Succeeded", 1, &[&not_drained]), "Degraded", "Failed"),
    ]
}

/// The YAML block of the page that contains a word.
fn block(word: &str) -> Value {
    let page = std::fs::read_to_string(repository().join("docs/how-to/use-gitops.md")).unwrap();
    let mut blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let (block, _) = blocks.find(|(block, _)| block.contains(word)).expect(word);
    serde_saphyr::from_str(block).unwrap()
}

fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".into(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("[{}] = {}", json!(name), lua(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// What the script for Argo CD says of these objects.
fn argo_health(objects: &[&Value]) -> Vec<String> {
    let config = block("resource.customizations");
    let script = &config["data"]["resource.customizations.health.nodemaintenance.medik8s.io_NodeMaintenance"];
    // Argo CD loads no library of strings.
    let mut program = "string, io, debug, utf8, math = nil\n".to_owned();
    writeln!(program, "local function health(obj)\n{}\nend", script.as_str().unwrap()).unwrap();
    for object in objects {
        writeln!(program, "print(health({}).status)", lua(object)).unwrap();
    }
    let output = Command::new("lua5.4").arg("-e").arg(&program).output().unwrap();
    assert!(output.status.success(), "{}\n{program}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_script_for_argo_cd_knows_the_health_of_every_state() {
    if !has_program("lua5.4", &["-v"]) {
        return;
    }
    let cases = cases();
    let objects: Vec<&Value> = cases.iter().map(|case| &case.object).collect();
    let expected: Vec<&str> = cases.iter().map(|case| case.argo).collect();
    assert_eq!(argo_health(&objects), expected);
}

/// The health of an object: the first of Flux's expressions that is true (RFC 0009 of Flux). While one cannot be evaluated,
/// Flux waits.
fn flux_health(expressions: &Value, object: &Value) -> &'static str {
    let mut context = Context::default().with_all();
    for (name, value) in object.as_object().unwrap() {
        context.add_variable_from_value(name.as_str(), cel(value));
    }
    for (field, health) in [("inProgress", "InProgress"), ("failed", "Failed"), ("current", "Current")] {
        let program = Program::compile(expressions[field].as_str().unwrap()).unwrap();
        match program.execute(&context) {
            Ok(Cel::Bool(true)) => return health,
            Ok(Cel::Bool(false)) => {}
            Ok(other) => panic!("{field}: {other:?}"),
            Err(_) if object["status"].is_null() => return "InProgress",
            Err(error) => panic!("{field} of {object}: {error}"),
        }
    }
    "InProgress"
}

#[test]
fn the_expressions_for_flux_know_the_health_of_every_state() {
    let kustomization = block("healthCheckExprs");
    let expressions = &kustomization["spec"]["healthCheckExprs"][0];
    for case in cases() {
        assert_eq!(flux_health(expressions, &case.object), case.flux, "{} {}", case.state, case.object);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_checks_understand_what_nm_reconciler_writes() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "gitops").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    plan(&cluster, "e2e-gitops", node).await;
    let now = async || {
        let all: Api<NodeMaintenance> = Api::all(cluster.client.clone());
        serde_json::to_value(all.get("e2e-gitops").await.unwrap()).unwrap()
    };
    until_suspension(&cluster, "e2e-gitops", Some(Suspension::Planned)).await;
    let planned = now().await;
    suspend(&cluster, "e2e-gitops", false).await;
    until_blocked(&cluster, "e2e-gitops", BlockReason::DisruptionBudget).await;
    let blocked = now().await;
    suspend(&cluster, "e2e-gitops", true).await;
    until_suspension(&cluster, "e2e-gitops", Some(Suspension::Paused)).await;
    let paused = now().await;
    suspend(&cluster, "e2e-gitops", false).await;
    workload.delete_budget("guarded").await;
    until_drained(&cluster, "e2e-gitops").await;
    let objects = [planned, blocked, paused, now().await];
    let kustomization = block("healthCheckExprs");
    let expressions = &kustomization["spec"]["healthCheckExprs"][0];
    let flux = objects.iter().map(|object| flux_health(expressions, object));
    assert_eq!(flux.collect::<Vec<_>>(), ["Current", "Failed", "Current", "Current"], "{objects:#?}");
    if has_program("lua5.4", &["-v"]) {
        let found = argo_health(&objects.each_ref());
        assert_eq!(found, ["Suspended", "Degraded", "Suspended", "Healthy"], "{objects:#?}");
    }
    stop(&cluster, "e2e-gitops").await;
}

#[test]
fn the_health_checks_are_tested_on_every_state() {
    let page = std::fs::read_to_string(repository().join("docs/reference/nodemaintenance.md")).unwrap();
    let (_, section) = page.split_once("\n## States\n").unwrap();
    let (table, _) = section.split_once("\nThe phase stays").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let states: BTreeSet<&str> = rows.filter(|word| *word != "state").collect();
    assert_eq!(cases().iter().map(|case| case.state).collect::<BTreeSet<_>>(), states);
}
