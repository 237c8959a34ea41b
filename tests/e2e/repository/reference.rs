//! The pages in `docs/reference`: what can be generated is generated, and what is written by hand is complete.
//!
//! `NM_UPDATE=1 cargo test -p nm-tests --test e2e reference` rewrites the generated sections.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use kube::api::DynamicObject;
use nm_tests::cluster::Cluster;
use nm_tests::files::{replace, repository};
use nm_tests::maintenance::{start, until_drained, until_status};
use nm_tests::manifests;
use nm_tests::programs::{Outcome, plugin, program};
use nm_tests::reconciler::{Reconciler, without_settings};
use nm_tests::workload::Workload;
use serde_json::{Value, json};

use crate::repository::command_reference::{Command, pages};

fn page(name: &str) -> PathBuf {
    repository().join("docs/reference").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(page(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Compares the generated section of a page with what it has to be, or rewrites it.
fn check(name: &str, section: &str, generated: &str) {
    let (begin, end) =
        (format!("<!-- generated: {section} -->\n"), format!("<!-- end of generated: {section} -->\n"));
    let text = read(name);
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{name} has no section {section}"));
    let (_, after) =
        rest.split_once(&end).unwrap_or_else(|| panic!("{name}: the section {section} has no end"));
    let expected = format!("{before}{begin}\n{}\n\n{end}{after}", generated.trim());
    if std::env::var_os("NM_UPDATE").is_some() {
        replace(&page(name), &expected);
    }
    let found = read(name);
    assert!(
        found == expected,
        "{name} is out of date: run NM_UPDATE=1 cargo test -p nm-tests --test e2e reference"
    );
}

/// The help of a program or one of its commands.
fn help(program_name: &str, arguments: &[&str]) -> String {
    printed(program_name, &[arguments, &["--help"]].concat())
}

/// What a program prints, 100 columns wide.
fn printed(program_name: &str, arguments: &[&str]) -> String {
    let mut command = without_settings(&program(program_name));
    let output = command.args(arguments).env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // Git and editors remove blanks at the end of a line.
    text.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n").trim().to_owned()
}

/// The sections of a help text: each begins with a line at the margin that ends in a colon, except the first.
fn sections(help: &str) -> Vec<String> {
    let mut sections = vec![String::new()];
    for line in help.lines() {
        if line.ends_with(':') && line.starts_with(|first: char| first.is_ascii_uppercase()) {
            sections.push(String::new());
        }
        let last = sections.last_mut().unwrap();
        let _ = writeln!(last, "{line}");
    }
    sections
}

/// A command and its own commands.
fn with_subcommands(command: &str) -> Vec<String> {
    let sections = sections(&help("kubectl-nm", &[command]));
    let listed =
        sections.iter().filter(|section| section.starts_with("Commands:")).flat_map(|all| all.lines());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let own = names.filter(|name| !["", "help"].contains(name)).map(|name| format!("{command} {name}"));
    [command.to_owned()].into_iter().chain(own).collect()
}

#[test]
fn every_flag_of_the_plugin_is_listed() {
    let overview = help("kubectl-nm", &[]);
    let (_, commands) = overview.split_once("\n\n  ").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let commands = commands.lines().filter_map(|line| line.split_whitespace().next());
    let commands = commands.filter(|command| *command != "help").flat_map(with_subcommands);
    let described = commands
        .map(|command| Command::of(&command, &help("kubectl-nm", &command.split(' ').collect::<Vec<_>>())));
    check("kubectl-nm.md", "commands", &pages(&described.collect::<Vec<_>>()));
    check("kubectl-nm.md", "options", &format!("```text\n{}\n```", printed("kubectl-nm", &["options"])));
}

#[test]
fn every_flag_of_the_reconciler_is_listed() {
    check("nm-reconciler.md", "flags", &format!("```text\n{}\n```", help("nm-reconciler", &[])));
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Fields of types that Kubernetes documents: their own fields are not listed.
const STANDARD_TYPES: [&str; 3] =
    ["spec.drain.podSelector", "spec.drain.waitForCompletion.podSelector", "status.conditions[]"];

/// Adds a row for each field below `schema`.
fn fields(schema: &Value, path: &str, rows: &mut String) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let mut path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let mut kind = field["type"].as_str().unwrap_or("any").to_owned();
        let items = &field["items"];
        if !items.is_null() {
            path += "[]";
            kind = format!("{} list", items["type"].as_str().unwrap_or("any"));
        }
        let values = field["enum"].as_array().or_else(|| items["enum"].as_array());
        let values = values.into_iter().flatten().filter_map(Value::as_str).map(|value| format!("`{value}`"));
        let values = values.collect::<Vec<_>>().join(", ");
        let mut meaning = cell(field["description"].as_str().unwrap_or_default());
        if !values.is_empty() {
            let _ = write!(meaning, " One of {values}.");
        }
        if !field["default"].is_null() {
            let _ = write!(meaning, " Default: `{}`.", field["default"]);
        }
        let _ = writeln!(rows, "| `{path}` | {kind} | {} |", meaning.trim());
        if !STANDARD_TYPES.contains(&path.as_str()) {
            fields(if items.is_null() { field } else { items }, &path, rows);
        }
    }
}

#[test]
fn every_field_of_the_object_is_listed() {
    let definition = json!(nm_shared::api::crd::crd());
    let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap();
    for part in ["spec", "status"] {
        let mut rows = String::from("| field | type | meaning |\n|---|---|---|\n");
        fields(&schema[part], part, &mut rows);
        check("nodemaintenance.md", part, &rows);
    }
}

/// Which requests need a permission of nm-reconciler: the first row whose resource and verb match, and whose name or
/// namespace is in the rule, if it has one.
const REQUESTS: [(&str, &str, &str); 24] = [
    (
        "nodemaintenances list",
        "",
        "watches the maintenances; gets one before it takes or releases its node; the webhook lists them for each creation; adds and removes its finalizer, and the owner reference to the node",
    ),
    ("nodemaintenances/status patch", "", "writes the status"),
    ("customresourcedefinitions list", "", "watches whether the definition of an older group is installed"),
    (
        "nodes patch",
        "",
        "watches the nodes; cordons and uncordons; gets one before it releases it; the webhook gets the node of a creation",
    ),
    (
        "pods list",
        "",
        "watches the pods of each node in maintenance; the webhook lists them for its warnings",
    ),
    ("pods/eviction create", "", "evicts"),
    ("daemonsets list", "", "watches which pods belong to a DaemonSet and stay"),
    (
        "poddisruptionbudgets list",
        "",
        "watches which evictions are allowed, and the guard of etcd on OpenShift",
    ),
    (
        "virtualmachineinstances list",
        "",
        "watches the virtual machines on nodes in maintenance, and which of them are migrating",
    ),
    (
        "virtualmachineinstancemigrations delete",
        "",
        "watches the migrations of virtual machines, and deletes those that have not begun when a maintenance is deleted",
    ),
    (
        "virtualmachineinstances/evacuate update",
        "",
        "asks KubeVirt to cancel the evacuations of a maintenance that is deleted",
    ),
    (
        "validatingwebhookconfigurations patch",
        "",
        "writes the certificate authority of its webhooks, and watches that it stays",
    ),
    ("events create", "default", "publishes events, and counts those that repeat"),
    (
        "leases create",
        "medik8s-leases",
        "takes, renews and releases the lease of each node in maintenance, and watches the leases of others",
    ),
    ("leases create", "", "creates the lease of the leader election"),
    ("leases patch", "nm-reconciler", "takes, renews and watches the lease of the leader election"),
    ("secrets create", "", "creates the Secret of the webhook"),
    ("secrets update", "nm-reconciler-webhook", "renews the certificate of the webhook, and watches it"),
    ("nodes/status patch", "", "writes node conditions"),
    ("deployments patch", "", "watches the Deployment of a pod that is replaced first, and restarts it"),
    ("replicasets get", "", "reads which Deployment a pod belongs to, and at which revision"),
    ("pods delete", "", "deletes a pod that was refused for longer than `deleteAfterSeconds`"),
    ("volumeattachments list", "", "watches which volumes are attached, while a maintenance waits for them"),
    ("persistentvolumes get", "", "gets the claims of volumes that are attached to such a node"),
];

/// What a rule of nm-reconciler is for.
fn requests(rule: &Value, namespace: &str) -> &'static str {
    let has = |field: &str, wanted: &str| {
        rule[field].as_array().into_iter().flatten().any(|word| word.as_str() == Some(wanted))
    };
    let found = REQUESTS.iter().find(|(access, place, _)| {
        let (resource, verb) = access.split_once(' ').unwrap();
        let is_place = place.is_empty() || *place == namespace || has("resourceNames", place);
        has("resources", resource) && has("verbs", verb) && is_place
    });
    found.unwrap_or_else(|| panic!("no request is known that needs {rule}")).2
}

/// The rules of roles, as a table; for nm-reconciler with the requests that need them.
fn rules(roles: &[DynamicObject], are_of_reconciler: bool) -> String {
    let mut rows =
        String::from("| where | API group | resources | only named | verbs |\n|---|---|---|---|---|\n");
    if are_of_reconciler {
        rows = rows
            .replace(" verbs |\n", " verbs | requests that need it |\n")
            .replace("|---|\n", "|---|---|\n");
    }
    for role in roles {
        let namespace = role.metadata.namespace.as_deref();
        let place = namespace.map_or("cluster".into(), |name| format!("namespace `{name}`"));
        for rule in role.data["rules"].as_array().unwrap() {
            let words = |field: &str| {
                let words = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
                words
                    .map(|word| if word.is_empty() { "core".into() } else { format!("`{word}`") })
                    .collect::<Vec<String>>()
            };
            let [groups, resources, names, verbs] =
                ["apiGroups", "resources", "resourceNames", "verbs"].map(|field| words(field).join(", "));
            let _ = write!(rows, "| {place} | {groups} | {resources} | {names} | {verbs} |");
            if are_of_reconciler {
                let _ = write!(rows, " {} |", requests(rule, namespace.unwrap_or_default()));
            }
            rows.push('\n');
        }
    }
    rows
}

#[test]
fn every_permission_is_listed() {
    let is_role = |object: &DynamicObject| {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        matches!(kind, Some("Role" | "ClusterRole"))
    };
    let is_for_people = |object: &DynamicObject| {
        object.metadata.name.as_deref().is_some_and(|name| name.starts_with("nodemaintenance-"))
    };
    let roles: Vec<DynamicObject> = manifests::all().into_iter().filter(is_role).collect();
    let (people, program): (Vec<_>, Vec<_>) = roles.into_iter().partition(is_for_people);
    check("permissions.md", "reconciler", &rules(&program, true));
    for role in people {
        let name = role.metadata.name.clone().unwrap();
        check("permissions.md", &name, &rules(&[role], false));
    }
    for component in manifests::PERMISSION_COMPONENTS {
        let roles: Vec<DynamicObject> = manifests::component(component).into_iter().filter(is_role).collect();
        check("permissions.md", component, &rules(&roles, true));
    }
}

/// The part of a crate's sources from `begin` to `end`.
fn source_between(folder: &str, begin: &str, end: &str) -> String {
    let mut sources = vec![repository().join(folder)];
    while let Some(path) = sources.pop() {
        if path.is_dir() {
            sources.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if let Some((_, rest)) = text.split_once(begin) {
            return rest.split_once(end).unwrap().0.to_owned();
        }
    }
    panic!("no {begin:?} in {folder}")
}

/// The words of an enum of the shared crate, which are the names of its variants.
fn variants(name: &str) -> BTreeSet<String> {
    let body = source_between("shared/src", &format!("pub enum {name} {{\n"), "\n}\n");
    let lines = body.lines().map(|line| line.trim().trim_end_matches(','));
    lines.filter(|line| !line.starts_with("//")).map(str::to_owned).collect()
}

/// The exit codes of the plugin: what follows each `=>`.
fn exit_codes() -> BTreeSet<String> {
    let body = source_between("kubectl-nm/core/src", "\nimpl Exit {", "\n    }\n");
    let codes = body.lines().filter_map(|line| line.split_once(" => "));
    codes.map(|(_, code)| code.trim_matches([',', '"']).to_owned()).collect()
}

/// The first cells of the rows below the heading of a page.
fn first_cells(name: &str, heading: &str) -> BTreeSet<String> {
    let text = read(name);
    let (_, section) =
        text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{name}: {heading}"));
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

#[test]
fn every_event_condition_reason_and_exit_code_is_listed() {
    assert_eq!(first_cells("events.md", "## The events"), variants("EventReason"));
    assert_eq!(first_cells("conditions.md", "## Types"), variants("ConditionType"));
    assert_eq!(first_cells("conditions.md", "## Reasons"), variants("ConditionReason"));
    assert_eq!(first_cells("exit-codes.md", "## kubectl nm"), exit_codes());
    let definition = json!(nm_shared::api::crd::crd());
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let reasons = definition.pointer(&format!("{status}/blockedPods/items/properties/reason/enum")).unwrap();
    let reasons = reasons.as_array().unwrap().iter().map(|reason| reason.as_str().unwrap().to_owned());
    assert_eq!(first_cells("nodemaintenance.md", "### Why a pod is blocked"), reasons.collect());
}

/// The names of all fields in JSON.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            found.extend(object.keys().cloned());
            object.values().for_each(|value| names(value, found));
        }
        Value::Array(array) => array.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_the_json_outputs_is_listed() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, "the outputs are the same on every cluster").await else {
        return;
    };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "outputs").await;
    workload.pod_on(&nodes[0], "cart", json!({})).await;
    workload.budget("cart", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    for node in &nodes[..2] {
        let _ = start(&cluster, node, node).await;
    }
    let is_blocked = |status: &nm_shared::NodeMaintenanceStatus| !status.blocked_pods.is_empty();
    until_status(&cluster, &nodes[0], "blocked", is_blocked).await;
    let _ = until_drained(&cluster, &nodes[1]).await;

    let mut found = BTreeSet::new();
    let lines =
        |outcome: Outcome| outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let watched: Vec<Value> = lines(plugin(&cluster, &["watch", "-o", "json", "--timeout", "2s"]).await);
    for line in &watched {
        names(line, &mut found);
    }
    for arguments in [&["plan", nodes[2].as_str()][..], &["doctor"], &["version"]] {
        let printed = plugin(&cluster, &[arguments, &["-o", "json"]].concat()).await.stdout;
        names(&serde_json::from_str(&printed).unwrap(), &mut found);
    }
    let roll = ["roll", nodes[2].as_str(), "--name", "outputs", "--run", "echo x; false", "-y", "-o", "json"];
    let rolled: Vec<Value> = lines(plugin(&cluster, &roll).await);
    let status = plugin(&cluster, &["roll", "status", "outputs", "-o", "json"]).await.stdout;
    for line in rolled.iter().chain([&serde_json::from_str(&status).unwrap()]) {
        names(line, &mut found);
    }
    let page = read("output.md");
    let missing: Vec<&String> = found.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/output.md does not mention {missing:?}");
    assert!(found.len() > 30, "{found:?}");
}

#[test]
fn every_page_is_in_the_index() {
    let index = std::fs::read_to_string(repository().join("docs/README.md")).unwrap();
    for path in crate::repository::links::pages_below(&repository().join("docs")) {
        let relative = path.strip_prefix(repository().join("docs")).unwrap().display().to_string();
        let is_index = ["README.md", "SUMMARY.md"].contains(&relative.as_str());
        assert!(is_index || index.contains(&format!("]({relative})")), "{relative} is not in the index");
    }
}
