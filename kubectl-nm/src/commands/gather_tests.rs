use super::*;

#[test]
fn nodes_in_maintenance_have_an_object_or_an_undo_record() {
    let maintenance = |node: &str| json!({"spec": {"nodeName": node}});
    let node =
        |name: &str, annotations: Value| json!({"metadata": {"name": name, "annotations": annotations}});
    let nodes =
        [node("a", json!({UNDO_ANNOTATION: "{}"})), node("b", Value::Null), node("c", json!({"x": "y"}))];
    assert_eq!(in_maintenance(&[maintenance("c"), maintenance("a")], &nodes), ["a", "c"]);
}

#[test]
fn only_relevant_events_and_webhooks_are_kept() {
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
        assert_eq!(is_relevant(&event, &["n1".into()], &pods, "ns"), kept, "{event}");
    }
    let configuration = |resource: &str| json!({"webhooks": [{"rules": [{"resources": [resource]}]}]});
    let kept = relevant_webhooks(vec![
        configuration("nodemaintenances"),
        configuration("pods/eviction"),
        configuration("secrets"),
    ]);
    assert_eq!(kept.len(), 2);
}

#[test]
fn the_manifest_lists_files_and_what_could_not_be_read() {
    let mut bundle = SupportBundle::default();
    bundle.add("a.json", Ok(vec![json!({"metadata": {"name": "x"}})]), redact::plain);
    bundle.add("b.json", Err(Error::NotInstalled { server: "s".into() }), redact::plain);
    let text = bundle.manifest(Timestamp::UNIX_EPOCH);
    assert!(
        text.contains("\n  a.json (") && text.contains("Could not be read:\n  b.json: the cluster at s "),
        "{text}"
    );
    assert!(
        SupportBundle::default().manifest(Timestamp::UNIX_EPOCH).contains("Could not be read:\n  nothing\n")
    );
}

#[test]
fn formats_are_refused_as_file_names() {
    for text in ["-", "json", "yaml", "name", "wide", "table", "jsonpath={.a}", "", "report.zip"] {
        assert!(parse_file_name(text).is_err(), "{text}");
    }
    for text in ["report.tar.gz", "/tmp/-.tar.gz", "json.tar.gz"] {
        assert_eq!(parse_file_name(text), Ok(PathBuf::from(text)));
    }
}

#[test]
fn existing_files_are_reported_with_an_alternative() {
    let folder = tempfile::tempdir().unwrap();
    let existing = folder.path().join("there");
    std::fs::write(&existing, "theirs").unwrap();
    for (path, hint) in [
        (existing.as_path(), String::from("existing files are not overwritten; choose another file with -o")),
        (
            folder.path(),
            format!("it is a folder; write a file in it with -o {}/report.tar.gz", folder.path().display()),
        ),
    ] {
        let (mut out, captured) = nm_core::terminal::output::captured::output();
        let source = OutputFile::reserve(path).err().unwrap();
        let error = Error::Unwritable { path: path.display().to_string(), source };
        assert_eq!(refuse_existing(path, &error, &mut out), Exit::Error);
        let printed = captured.messages();
        assert!(printed.ends_with(&format!("\nhint: {hint}\n")), "{printed}");
    }
}
