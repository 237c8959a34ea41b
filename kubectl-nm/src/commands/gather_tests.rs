use super::*;

#[test]
fn nodes_are_in_maintenance_by_object_or_by_record() {
    let maintenance = |node: &str| json!({"spec": {"nodeName": node}});
    let node =
        |name: &str, annotations: Value| json!({"metadata": {"name": name, "annotations": annotations}});
    let nodes =
        [node("a", json!({UNDO_ANNOTATION: "{}"})), node("b", Value::Null), node("c", json!({"x": "y"}))];
    assert_eq!(in_maintenance(&[maintenance("c"), maintenance("a")], &nodes), ["a", "c"]);
}

#[test]
fn only_events_and_webhooks_that_concern_us_are_kept() {
    let event = |kind: &str, name: &str, namespace: Value| json!({"regarding": {"kind": kind, "name": name, "namespace": namespace}});
    for (event, kept) in [
        (event("NodeMaintenance", "x", Value::Null), true),
        (event("Node", "n1", Value::Null), true),
        (event("Node", "n2", Value::Null), false),
        (event("Pod", "p", json!("ns")), true),
        (event("Pod", "p", json!("shop")), false),
        (event("Pod", "cart-0", json!("shop")), true),
        (event("Pod", "cart-0", json!("bank")), false),
    ] {
        let pods = HashSet::from([("shop", "cart-0")]);
        assert_eq!(concerns(&event, &["n1".into()], &pods, "ns"), kept, "{event}");
    }
    let configuration = |resource: &str| json!({"webhooks": [{"rules": [{"resources": [resource]}]}]});
    let kept = about_us(vec![
        configuration("nodemaintenances"),
        configuration("pods/eviction"),
        configuration("secrets"),
    ]);
    assert_eq!(kept.len(), 2);
}

#[test]
fn the_manifest_says_what_is_inside_and_what_is_not() {
    let mut report = Report::default();
    report.keep("a.json", Ok(vec![json!({"metadata": {"name": "x"}})]), redact::plain);
    report.keep("b.json", Err(Error::NotInstalled { server: "s".into() }), redact::plain);
    let text = report.manifest(Timestamp::UNIX_EPOCH);
    assert!(
        text.contains("\n  a.json (") && text.contains("Could not be read:\n  b.json: error: "),
        "{text}"
    );
    assert!(Report::default().manifest(Timestamp::UNIX_EPOCH).contains("Could not be read:\n  nothing\n"));
}

#[test]
fn a_format_is_no_file() {
    for text in ["-", "json", "yaml", "name", "wide", "table", "jsonpath={.a}", ""] {
        assert!(file(text).is_err_and(|said| said.contains("hint: -o names it, such as ")), "{text}");
    }
    for text in ["report.tar.gz", "./json", "/tmp/-", "json.tar.gz"] {
        assert_eq!(file(text), Ok(PathBuf::from(text)));
    }
}

#[test]
fn what_exists_is_told_with_another_way() {
    let folder = tempfile::tempdir().unwrap();
    let existing = folder.path().join("there");
    std::fs::write(&existing, "theirs").unwrap();
    for (path, hint) in [
        (existing.as_path(), String::from("nothing is overwritten; -o names another file")),
        (
            folder.path(),
            format!("it is a folder; -o {}/report.tar.gz makes a file in it", folder.path().display()),
        ),
    ] {
        let (mut out, captured) = crate::terminal::output::captured::output();
        let source = Place::keep(path).err().unwrap();
        let error = Error::Unwritable { path: path.display().to_string(), source };
        assert_eq!(refuse_existing(path, &error, &mut out), Exit::Error);
        let said = captured.talk();
        assert!(said.ends_with(&format!("\nhint: {hint}\n")), "{said}");
    }
}
