use nm_core::terminal::output::captured::output;
use serde_json::{Value, json};

use super::*;

fn parse(words: &[&str]) -> Result<InstallArgs, clap::Error> {
    #[derive(clap::Parser)]
    struct TestCommand {
        #[command(flatten)]
        args: InstallArgs,
    }
    <TestCommand as clap::Parser>::try_parse_from(std::iter::once(&"nm").chain(words)).map(|line| line.args)
}

fn args(line: &str) -> InstallArgs {
    parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_client_dry_run_prints_the_objects_without_a_cluster() {
    let (mut out, captured) = output();
    let args = args("--dry-run client -o yaml --image r.example.com/nm:1 --replicas 1 --max-unavailable 3");
    assert!(!args.needs_cluster());
    assert_eq!(run_client_dry_run(&args, Some("x"), &mut out).unwrap(), Exit::Done);
    let printed: Value = serde_saphyr::from_str(&captured.data()).unwrap();
    let expected = manifests::objects(&args.settings(Some("x")).unwrap());
    assert_eq!((&printed["kind"], &printed["items"]), (&json!("List"), &json!(expected)));
    assert_eq!(printed["items"][0]["kind"], "CustomResourceDefinition");
    let refused = run_client_dry_run(&args, Some(LEASE_NAMESPACE), &mut out).unwrap_err();
    assert!(matches!(refused.above(), Some(SetupError::LeaseNamespace(_))));
}

#[test]
fn conflicts_are_reported_before_anything_changes() {
    let here = Installation { namespace: "a".into(), ..Installation::default() };
    assert!(check(&here, None).is_ok() && check(&here, Some("a")).is_ok());
    let elsewhere = check(&here, Some("b")).unwrap_err();
    assert!(matches!(elsewhere.above(), Some(SetupError::Elsewhere { .. })));
    let beside = Installation { other_operator: Some("x/y".into()), ..here.clone() };
    assert!(matches!(check(&beside, None).unwrap_err().above(), Some(SetupError::OtherOperator(_))));
    let deployment = json!({"metadata": {"name": "nm-reconciler", "labels": {"olm.owner": "csv"}}});
    let by_olm = Installation { deployment: Some(deployment), ..here };
    assert!(matches!(check(&by_olm, None).unwrap_err().above(), Some(SetupError::ManagedByOlm(_))));
}

#[test]
fn an_older_plugin_changes_no_newer_reconciler_unless_the_image_is_named() {
    let of = |image: &str| {
        let container = json!({"name": "reconciler", "image": image});
        let deployment = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        Installation { deployment: Some(deployment), ..Installation::default() }
    };
    let refused = |installed: &Installation, line: &str| {
        let refused = check_change(installed, &args(line).settings(None).unwrap()).err();
        matches!(refused.as_ref().and_then(Error::above), Some(SetupError::OlderPlugin { .. }))
    };
    let (same, newer) = (of("r/nm-reconciler:0.1.0"), of("r/nm-reconciler:9.0.0"));
    for (installed, line, expected) in [
        (&same, "--grant surge", false),
        (&same, "--image r/nm-reconciler:9.0.0", false),
        (&newer, "--grant surge", true),
        (&newer, "--image r/nm-reconciler:0.1.0", false),
    ] {
        assert_eq!(refused(installed, line), expected, "{line}");
    }
}

#[test]
fn a_setting_is_not_changed_where_nothing_is_installed() {
    let settings = |line: &str| args(line).settings(None).unwrap();
    let nowhere = Installation::default();
    let there = Installation { deployment: Some(json!({})), ..Installation::default() };
    for (line, flags) in [
        ("--dry-run client", None),
        ("--image r/nm:1 --grant surge --max-unavailable 3", None),
        ("--grant surge,pod-deletion", Some("--grant pod-deletion,surge")),
        ("--replicas 3 --max-unavailable 10%", Some("--replicas 3 --max-unavailable 10%")),
        ("--flow-schemas=false", Some("--flow-schemas=false")),
    ] {
        assert!(check_change(&there, &settings(line)).is_ok(), "{line}");
        let refused = check_change(&nowhere, &settings(line)).err();
        let named = match refused.as_ref().and_then(Error::above) {
            Some(SetupError::NothingToChange(named)) => Some(named.as_str()),
            _ => None,
        };
        assert_eq!((refused.is_some(), named), (flags.is_some(), flags), "{line}: {refused:?}");
    }
}

#[test]
fn applied_objects_are_reported_as_created_unchanged_or_configured() {
    let object = |replicas: u32, version: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "nm-reconciler", "resourceVersion": version}, "spec": {"replicas": replicas}})
    };
    let step = |before: Option<Value>| PlannedObject { wanted: object(2, "1"), before };
    let line = |before: Option<Value>, after: &Value| step(before).line(after).to_string();
    assert_eq!(line(None, &object(2, "1")), "deployment.apps/nm-reconciler created");
    assert_eq!(line(Some(object(2, "1")), &object(2, "5")), "deployment.apps/nm-reconciler unchanged");
    assert_eq!(line(Some(object(1, "1")), &object(2, "5")), "deployment.apps/nm-reconciler configured");
}

#[test]
fn a_namespace_without_the_label_belongs_to_others() {
    let namespace = |labels: Value| json!({"kind": "Namespace", "metadata": {"name": "x", "labels": labels}});
    let step = |before: Option<Value>| PlannedObject { wanted: namespace(json!({})), before };
    assert!(!is_foreign_namespace(&step(None)));
    assert!(is_foreign_namespace(&step(Some(namespace(json!({"app.kubernetes.io/name": "shop"}))))));
    assert!(!is_foreign_namespace(&step(Some(namespace(json!({"app.kubernetes.io/name": "kubectl-nm"}))))));
    let mut leases = step(Some(namespace(json!({}))));
    leases.wanted["metadata"]["name"] = json!(LEASE_NAMESPACE);
    assert!(!is_foreign_namespace(&leases));
}

#[test]
fn the_image_is_reported_unless_it_is_given() {
    let image = |image: Option<&str>| Settings { image: image.map(str::to_owned), ..Settings::default() };
    let noted = |asked: Option<&str>, used: Option<&str>| -> Vec<String> {
        image_notes(&image(asked), &image(used)).iter().map(ToString::to_string).collect()
    };
    assert!(noted(None, None)[0].contains("is not published"));
    assert!(noted(None, Some("r/nm:1"))[0].contains("r/nm:1"));
    assert_eq!(noted(Some("r/nm:2"), Some("r/nm:2")), Vec::<String>::new());
    assert_eq!(noted(Some("r/nm:0.1.9"), Some("r/nm:0.1.9")), Vec::<String>::new());
    let warning =
        "warning: nm-reconciler 9.0.0 gets the CRD and the permissions of this older plugin (0.1.0)";
    assert_eq!(noted(Some("r/nm:9.0.0"), Some("r/nm:9.0.0")), [warning]);
}

#[test]
fn a_partial_installation_is_reported_with_its_progress() {
    let error = Error::NotInstalled { server: String::from("s") };
    let printed = |before: Option<Value>| {
        let (mut out, captured) = output();
        let deployment = PlannedObject { wanted: json!({"kind": "Deployment"}), before };
        let role = PlannedObject { wanted: json!({"kind": "Role"}), before: None };
        let plan = InstallPlan {
            namespace: String::from("ops"),
            objects: vec![role, deployment],
            removed: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(report_partial(&error, 1, &plan, &mut out), Exit::Error);
        captured.messages()
    };
    let hint = "\nhint: 1 of 2 objects are applied; run the same command again to continue";
    let new = printed(None);
    assert!(new.ends_with(&format!("{hint}, or `kubectl nm uninstall` to remove them\n")), "{new}");
    let update = printed(Some(json!({})));
    assert!(
        update.ends_with(&format!("{hint}\n")),
        "an uninstallation would remove what was there: {update}"
    );
}

#[test]
fn only_missing_namespaces_are_new() {
    let step = |kind: &str, name: &str, before: Option<Value>| PlannedObject {
        wanted: json!({"kind": kind, "metadata": {"name": name}}),
        before,
    };
    let steps =
        [step("Namespace", "a", None), step("Namespace", "b", Some(json!({}))), step("Service", "c", None)];
    assert_eq!(new_namespaces(&steps), ["a"]);
}

#[test]
fn an_empty_image_is_refused() {
    let refused = parse(&["--dry-run", "client", "--image", ""]).unwrap_err();
    assert!(refused.use_stderr() && refused.to_string().contains("--image <IMAGE>"), "{refused}");
    assert!(
        parse(&["--image", "Any.Thing:5000/else"]).is_ok(),
        "the API server and the kubelet validate images"
    );
}

#[tokio::test]
async fn an_api_server_without_policies_is_detected() {
    use nm_core::testing::fake_server::{cluster, failure};

    let objects = manifests::objects(&Settings::default());
    let steps: Vec<PlannedObject> =
        objects.into_iter().map(|wanted| PlannedObject { wanted, before: None }).collect();
    assert_eq!(steps.iter().filter(|step| manifests::is_policy(&step.wanted)).count(), 6);
    let (old, _) = cluster(|_, _| (404, json!("404 page not found")));
    assert!(!serves(&steps, manifests::is_policy, &old).await.unwrap());
    let (new, _) = cluster(|_, _| failure(404, "NotFound", "nm-reconciler"));
    assert!(serves(&steps, manifests::is_policy, &new).await.unwrap());
}

#[test]
fn an_older_api_server_gets_a_definition_without_selectable_fields() {
    let objects = manifests::objects(&Settings::default());
    let changed: Vec<Value> = objects
        .iter()
        .filter_map(|object| {
            let mut older = object.clone();
            manifests::remove_selectable_fields(&mut older);
            (older != *object).then_some(older)
        })
        .collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0]["kind"], "CustomResourceDefinition");
    assert!(!changed[0].to_string().contains("selectableFields"));
}
