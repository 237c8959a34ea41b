use serde_json::json;

use super::*;
use crate::terminal::output::captured::output;

fn parse(words: &[&str]) -> Result<InstallArgs, clap::Error> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: InstallArgs,
    }
    <Line as clap::Parser>::try_parse_from(std::iter::once(&"nm").chain(words)).map(|line| line.args)
}

fn args(line: &str) -> InstallArgs {
    parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_rehearsal_shows_what_the_flags_say_and_asks_nobody() {
    let (mut out, captured) = output();
    let args = args("--dry-run client -o yaml --image r.example.com/nm:1 --replicas 1 --max-unavailable 3");
    assert!(!args.needs_cluster());
    assert_eq!(rehearse(&args, Some("x"), &mut out).unwrap(), Exit::Done);
    let printed: Value = serde_saphyr::from_str(&captured.data()).unwrap();
    let expected = manifests::objects(&args.settings(Some("x")).unwrap());
    assert_eq!((&printed["kind"], &printed["items"]), (&json!("List"), &json!(expected)));
    assert_eq!(printed["items"][0]["kind"], "CustomResourceDefinition");
    let refused = rehearse(&args, Some(LEASE_NAMESPACE), &mut out).unwrap_err();
    assert!(matches!(refused, Error::Setup(SetupError::LeaseNamespace(_))));
}

#[test]
fn what_is_in_the_way_is_told_before_anything_changes() {
    let here = Installed { namespace: "a".into(), ..Installed::default() };
    assert!(check(&here, None).is_ok() && check(&here, Some("a")).is_ok());
    let elsewhere = check(&here, Some("b")).unwrap_err();
    assert!(matches!(elsewhere, Error::Setup(SetupError::Elsewhere { .. })));
    let beside = Installed { other_operator: Some("x/y".into()), ..here.clone() };
    assert!(matches!(check(&beside, None), Err(Error::Setup(SetupError::OtherOperator(_)))));
    let deployment = json!({"metadata": {"name": "nm-reconciler", "labels": {"olm.owner": "csv"}}});
    let by_olm = Installed { deployment: Some(deployment), ..here };
    assert!(matches!(check(&by_olm, None), Err(Error::Setup(SetupError::ManagedByOlm(_)))));
}

#[test]
fn a_step_says_what_it_did() {
    let object = |replicas: u32, version: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "nm-reconciler", "resourceVersion": version}, "spec": {"replicas": replicas}})
    };
    let step = |before: Option<Value>| Step { wanted: object(2, "1"), before };
    let said = |before: Option<Value>, after: &Value| step(before).line(after).to_string();
    assert_eq!(said(None, &object(2, "1")), "deployment.apps/nm-reconciler created");
    assert_eq!(said(Some(object(2, "1")), &object(2, "5")), "deployment.apps/nm-reconciler unchanged");
    assert_eq!(said(Some(object(1, "1")), &object(2, "5")), "deployment.apps/nm-reconciler configured");
    assert_eq!(step(Some(object(1, "1"))).changes(&object(2, "5")), ["spec.replicas: 1 -> 2"]);
}

#[test]
fn a_namespace_of_others_is_known_by_the_missing_label() {
    let namespace = |labels: Value| json!({"kind": "Namespace", "metadata": {"name": "x", "labels": labels}});
    let step = |before: Option<Value>| Step { wanted: namespace(json!({})), before };
    assert!(!is_foreign_namespace(&step(None)));
    assert!(is_foreign_namespace(&step(Some(namespace(json!({"app.kubernetes.io/name": "shop"}))))));
    assert!(!is_foreign_namespace(&step(Some(namespace(json!({"app.kubernetes.io/name": "kubectl-nm"}))))));
    let mut leases = step(Some(namespace(json!({}))));
    leases.wanted["metadata"]["name"] = json!(LEASE_NAMESPACE);
    assert!(!is_foreign_namespace(&leases));
}

#[test]
fn the_image_is_never_a_surprise() {
    let image = |image: Option<&str>| Settings { image: image.map(str::to_owned), ..Settings::default() };
    let said = |asked: Option<&str>, used: Option<&str>| -> Vec<String> {
        notes(&image(asked), &image(used)).iter().map(ToString::to_string).collect()
    };
    assert!(said(None, None)[0].contains("is published nowhere"));
    assert_eq!(said(None, Some("r/nm:1")), ["The image stays r/nm:1; --image names another."]);
    assert_eq!(said(Some("r/nm:2"), Some("r/nm:2")), Vec::<String>::new());
}

#[test]
fn what_is_missing_and_what_is_done_already_is_told() {
    let (mut out, captured) = output();
    let right = |verb| objects::right(verb, &json!({"apiVersion": "apps/v1", "kind": "Deployment"}));
    assert_eq!(refuse(&[right("create"), right("patch")], &mut out), Exit::Error);
    let closing = Error::NotInstalled { server: String::from("s") };
    assert_eq!(end_midway(&closing, 3, 17, &mut out), Exit::Error);
    let said = captured.talk();
    assert!(
        said.starts_with(
            "error: you may not create deployments.apps, patch deployments.apps\nhint: nothing was"
        ),
        "{said}"
    );
    assert!(said.contains("hint: 3 of 17 objects are applied and stay; "), "{said}");
}

#[test]
fn only_a_namespace_that_is_not_there_is_to_come() {
    let step = |kind: &str, name: &str, before: Option<Value>| Step {
        wanted: json!({"kind": kind, "metadata": {"name": name}}),
        before,
    };
    let steps =
        [step("Namespace", "a", None), step("Namespace", "b", Some(json!({}))), step("Service", "c", None)];
    assert_eq!(namespaces_to_come(&steps), ["a"]);
}

#[test]
fn an_image_that_no_node_could_pull_is_refused_at_once() {
    let refused = parse(&["--dry-run", "client", "--image", "a b"]).unwrap_err().to_string();
    assert!(refused.contains("'--image <IMAGE>': it is no image's name"), "{refused}");
}

#[tokio::test]
async fn where_the_api_server_knows_no_policies_it_is_noticed_before_one_is_applied() {
    use crate::client::cluster::tests::{cluster, failure};

    let objects = manifests::objects(&Settings::default());
    let steps: Vec<Step> = objects.into_iter().map(|wanted| Step { wanted, before: None }).collect();
    assert_eq!(steps.iter().filter(|step| is_policy(step)).count(), 2);
    let (old, _) = cluster(|_, _| (404, json!("404 page not found")));
    assert!(!serves_policies(&steps, &old).await.unwrap());
    let (new, _) = cluster(|_, _| failure(404, "NotFound", "nm-reconciler"));
    assert!(serves_policies(&steps, &new).await.unwrap());
}
