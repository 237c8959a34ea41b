//! Precedence of flags and kubeconfigs.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct TestCommand {
    #[command(flatten)]
    flags: ConnectionFlags,
}

fn flags(line: &str) -> ConnectionFlags {
    TestCommand::try_parse_from(std::iter::once("nm").chain(line.split_whitespace())).unwrap().flags
}

const FILE: &str = "
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: c1, user: u1, namespace: shop}}
- {name: two, context: {cluster: c2, user: u2}}
- {name: lost, context: {cluster: gone, user: u1}}
clusters:
- {name: c1, cluster: {server: 'https://one:6443', certificate-authority-data: YQ==, tls-server-name: one.internal}}
- {name: c2, cluster: {server: 'https://two:6443', insecure-skip-tls-verify: true}}
- {name: mute, cluster: {}}
users:
- {name: u1, user: {token: secret}}
- {name: u2, user: {client-certificate-data: YQ==, client-key-data: YQ==, exec: {command: login}}}
";

fn outcome(line: &str) -> Result<(Cluster, AuthInfo), ConnectionError> {
    let effective = effective(&Kubeconfig::from_yaml(FILE).unwrap(), &flags(line))?;
    let cluster = effective.clusters[0].cluster.clone().unwrap();
    Ok((cluster, effective.auth_infos[0].auth_info.clone().unwrap()))
}

/// The fields of the user in a kubeconfig, tokens included.
fn fields(user: &AuthInfo) -> serde_json::Value {
    serde_json::to_value(user).unwrap()
}

#[test]
fn flags_override_contexts_clusters_and_users() {
    for (line, server, token) in [
        ("", "https://one:6443", Some("secret")),
        ("--context two", "https://two:6443", None),
        ("--cluster c2", "https://two:6443", Some("secret")),
        ("--context two --user u1", "https://two:6443", Some("secret")),
        ("--server https://three:6443", "https://three:6443", Some("secret")),
        ("-s https://three", "https://three", Some("secret")),
        ("--context lost --server https://three", "https://three", Some("secret")),
    ] {
        let (cluster, user) = outcome(line).unwrap();
        assert_eq!(cluster.server.as_deref(), Some(server), "{line}");
        assert_eq!(fields(&user)["token"].as_str(), token, "{line}");
    }
}

#[test]
fn unknown_names_are_reported_with_the_known_ones() {
    for (line, message, hint) in [
        (
            "--context x",
            "context \"x\" does not exist in the kubeconfig",
            "the kubeconfig has: one, two, lost",
        ),
        ("--cluster x", "cluster \"x\" does not exist in the kubeconfig", "the kubeconfig has: c1, c2, mute"),
        (
            "--context lost",
            "cluster \"gone\" does not exist in the kubeconfig",
            "the kubeconfig has: c1, c2, mute",
        ),
        ("--user x", "user \"x\" does not exist in the kubeconfig", "the kubeconfig has: u1, u2"),
    ] {
        let error = outcome(line).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.hint(), hint);
    }
    assert!(matches!(outcome("--cluster mute"), Err(ConnectionError::NoServer(name)) if name == "mute"));
}

#[test]
fn flags_replace_all_settings_about_trust() {
    let trust = |line| {
        let (cluster, _) = outcome(line).unwrap();
        let data = cluster.certificate_authority_data.is_some();
        (data, cluster.certificate_authority, cluster.insecure_skip_tls_verify, cluster.tls_server_name)
    };
    let internal = Some("one.internal".to_owned());
    assert_eq!(trust(""), (true, None, None, internal.clone()));
    assert_eq!(trust("--insecure-skip-tls-verify"), (false, None, Some(true), internal.clone()));
    assert_eq!(trust("--insecure-skip-tls-verify=true"), (false, None, Some(true), internal.clone()));
    assert_eq!(trust("--insecure-skip-tls-verify=false"), (true, None, Some(false), internal.clone()));
    let ca = Some("/ca.pem".to_owned());
    assert_eq!(trust("--certificate-authority /ca.pem"), (false, ca.clone(), None, internal));
    assert_eq!(trust("--context two --certificate-authority /ca.pem"), (false, ca, None, None));
    assert_eq!(trust("--server https://x").3, None);
    assert_eq!(trust("--server https://x --tls-server-name y").3.as_deref(), Some("y"));
}

#[test]
fn an_authority_for_a_server_that_is_not_verified_is_refused_as_in_kubectl() {
    let file = FILE.replace(
        "insecure-skip-tls-verify: true",
        "insecure-skip-tls-verify: true, certificate-authority: /ca",
    );
    let outcome = |line| effective(&Kubeconfig::from_yaml(&file).unwrap(), &flags(line));
    assert!(matches!(outcome("--context two"), Err(ConnectionError::InsecureWithAuthority)));
    assert!(outcome("--context two --insecure-skip-tls-verify").is_ok());
    assert!(outcome("--context two --certificate-authority /other").is_ok());
    let empty = file.replace("certificate-authority: /ca", "certificate-authority-data: \"\"");
    assert!(effective(&Kubeconfig::from_yaml(&empty).unwrap(), &flags("--context two")).is_ok());
}

#[test]
fn credentials_in_flags_replace_the_others() {
    let (_, user) = outcome("--context two --token t").unwrap();
    assert_eq!(fields(&user)["token"], "t");
    assert!(user.exec.is_none() && user.client_certificate_data.is_some());
    let (_, user) = outcome("--username jane --password p").unwrap();
    assert_eq!((fields(&user)["token"].as_str(), fields(&user)["password"].as_str()), (None, Some("p")));
    let (_, user) = outcome("--context two --client-certificate /c --client-key /k").unwrap();
    assert_eq!((user.client_certificate.as_deref(), user.client_key.as_deref()), (Some("/c"), Some("/k")));
    assert!(user.client_certificate_data.is_none() && user.client_key_data.is_none());
}

#[test]
fn impersonation_needs_a_user() {
    let (_, user) = outcome("--as jane --as-group a --as-group b --as-uid 7 --as-user-extra k=v").unwrap();
    assert_eq!(user.impersonate.as_deref(), Some("jane"));
    assert_eq!(user.impersonate_groups, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(user.impersonate_uid.as_deref(), Some("7"));
    assert_eq!(user.impersonate_user_extra.unwrap()["k"], ["v"]);
    assert!(matches!(outcome("--as-group a"), Err(ConnectionError::ImpersonationWithoutUser)));
}

#[test]
fn a_server_without_scheme_gets_one() {
    for (line, server) in [
        ("--server localhost:8001", "https://localhost:8001"),
        ("--context two --server localhost:8001", "https://localhost:8001"),
        ("--context lost --server localhost:8001", "http://localhost:8001"),
    ] {
        assert_eq!(outcome(line).unwrap().0.server.as_deref(), Some(server), "{line}");
    }
}

#[test]
fn the_flag_overrides_the_variable_which_overrides_the_default_file() {
    let home = Some(PathBuf::from("/home/me"));
    let found = |flag: Option<&str>, variable: Option<&str>| {
        KubeconfigFiles::new(flag.map(Path::new), variable.map(Into::into), home.clone()).paths
    };
    assert_eq!(found(Some("/f"), Some("/a:/b")), [PathBuf::from("/f")]);
    assert_eq!(found(None, Some("/a::/b")), [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(found(None, Some("")), [PathBuf::from("/home/me/.kube/config")]);
    assert_eq!(found(None, None), [PathBuf::from("/home/me/.kube/config")]);
}

#[test]
fn listed_files_are_merged_and_missing_ones_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a"), directory.path().join("b"));
    std::fs::write(
        &first,
        "current-context: two\nclusters: [{name: c1, cluster: {server: 'https://first'}}]",
    )
    .unwrap();
    std::fs::write(&second, FILE).unwrap();
    let missing = directory.path().join("missing");
    let files = KubeconfigFiles { paths: vec![missing.clone(), first, second], required: false };
    let merged = files.read().unwrap();
    assert_eq!(merged.current_context.as_deref(), Some("two"));
    assert_eq!(merged.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://first"));
    assert_eq!(merged.clusters.len(), 3);

    let required = KubeconfigFiles { paths: vec![missing.clone()], required: true };
    assert!(matches!(required.read(), Err(ConnectionError::MissingFile(path)) if path == missing));
    let nothing = KubeconfigFiles { paths: vec![missing], required: false }.read().unwrap();
    assert!(is_empty(&nothing));
}

#[test]
fn an_invalid_kubeconfig_is_reported_in_one_line_without_its_contents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    for broken in
        ["users:\n- name: u\n  user: {token: hush\nclusters: [", "clusters: hush\n", "\t- hush: [\n"]
    {
        std::fs::write(&path, broken).unwrap();
        let error = KubeconfigFiles { paths: vec![path.clone()], required: false }.read().unwrap_err();
        let message = error.to_string();
        let begin = format!("cannot read the kubeconfig {}: ", path.display());
        assert!(message.starts_with(&begin) && message.len() > begin.len(), "{message}");
        assert!(
            !message.contains("error: line") && !message.contains('\n') && !message.contains("hush"),
            "{message}"
        );
    }
}
