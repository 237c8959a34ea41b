//! Credential programs, as scripts.

use super::*;

const NEVER: fn() -> bool = || false;

fn exec(script: &str, more: &str) -> ExecConfig {
    let mut config: ExecConfig = serde_saphyr::from_str(&format!(
        "{{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, SCRIPT]{more}}}"
    ))
    .unwrap();
    config.args = Some(vec!["-c".to_owned(), script.to_owned()]);
    config
}

fn credential(status: &str) -> String {
    format!(
        "printf %s '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {status}}}'"
    )
}

async fn failure(config: &ExecConfig, can_prompt: fn() -> bool) -> (String, ProgramError) {
    match run(config, can_prompt).await.unwrap_err() {
        error @ CredentialError::Program { .. } => {
            let text = error.to_string();
            let CredentialError::Program { problem, .. } = error else { unreachable!() };
            (text, problem)
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_program_gets_its_arguments_environment_and_the_cluster_and_prints_a_token() {
    let script = format!(
        "test \"$ROLE\" = admin || exit 3; printf %s \"$KUBERNETES_EXEC_INFO\" >\"$INFO\"; {}",
        credential(r#"{"token": "t1", "expirationTimestamp": "2040-01-01T00:00:00Z"}"#)
    );
    let info = tempfile::NamedTempFile::new().unwrap();
    let env = format!(
        ", provideClusterInfo: true, env: [{{name: ROLE, value: admin}}, {{name: INFO, value: {}}}]",
        info.path().display()
    );
    let mut config = exec(&script, &env);
    config.cluster = Some(kube::config::ExecAuthCluster {
        server: Some("https://c:6443".to_owned()),
        certificate_authority_data: Some(b"pem".to_vec()),
        ..Default::default()
    });
    let issued = run(&config, NEVER).await.unwrap();
    assert_eq!(issued.authorization.unwrap(), "Bearer t1");
    assert_eq!(issued.expires.unwrap().to_string(), "2040-01-01T00:00:00Z");
    let read: serde_json::Value = serde_json::from_slice(&std::fs::read(info.path()).unwrap()).unwrap();
    assert_eq!(
        read,
        json!({
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {
                "interactive": false,
                "cluster": {"server": "https://c:6443", "certificate-authority-data": "cGVt"},
            },
        })
    );
}

#[tokio::test]
async fn a_program_may_print_yaml() {
    let script =
        "printf 'apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\nstatus: {token: t}\n'";
    assert_eq!(run(&exec(script, ""), NEVER).await.unwrap().authorization.unwrap(), "Bearer t");
}

#[tokio::test]
async fn a_missing_program_is_named_with_its_install_hint() {
    for (hint, remedy) in [
        (", installHint: 'brew install login'", "brew install login"),
        ("", "install it, or correct users[].user.exec.command in the kubeconfig"),
    ] {
        let mut config = exec("", hint);
        config.command = Some("no-such-login".to_owned());
        let error = run(&config, NEVER).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the credential program no-such-login is not installed: there is no no-such-login in PATH"
        );
        assert_eq!(error.remedy(), remedy);
    }
}

#[tokio::test]
async fn a_failed_credential_program_is_reported_without_its_credentials() {
    let (text, _) = failure(&exec("echo SECRET; echo no luck >&2; exit 3", ""), NEVER).await;
    assert_eq!(text, "the credential program sh failed (exit status: 3): no luck");
    let (text, _) = failure(&exec("exit 1", ""), NEVER).await;
    assert_eq!(text, "the credential program sh failed (exit status: 1)");
}

#[tokio::test]
async fn output_without_credentials_is_an_error_that_does_not_quote_it() {
    let of = |version: &str| {
        format!(
            "echo '{{\"apiVersion\": \"client.authentication.k8s.io/{version}\", \"kind\": \"ExecCredential\"}}'"
        )
    };
    for (script, why) in [
        ("echo '{SECRET'".to_owned(), "it cannot be parsed"),
        ("echo SECRET".to_owned(), "it cannot be parsed"),
        (of("v1"), "it has no status"),
        (
            of("v1beta1"),
            "it is \"ExecCredential\" of \"client.authentication.k8s.io/v1beta1\" instead of \"client.authentication.k8s.io/v1\"",
        ),
        (credential("{}"), "it has neither a token nor a client certificate"),
        (credential(r#"{"token": ""}"#), "it has neither a token nor a client certificate"),
        (credential(r#"{"clientCertificateData": "SECRET"}"#), "it has a client certificate without its key"),
        (credential(r#"{"clientKeyData": "SECRET"}"#), "it has a client key without its certificate"),
        (
            credential(r#"{"token": "SECRET", "expirationTimestamp": "soon"}"#),
            "its expirationTimestamp is no time",
        ),
    ] {
        let (text, _) = failure(&exec(&script, ""), NEVER).await;
        assert_eq!(text, format!("the credential program sh printed no valid ExecCredential: {why}"));
    }
}

#[tokio::test]
async fn invalid_configurations_start_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let script = format!("touch {}", started.display());
    let with = |change: fn(&mut ExecConfig)| {
        let mut config = exec(&script, "");
        change(&mut config);
        config
    };
    let (_, problem) = failure(&with(|config| config.command = None), NEVER).await;
    assert!(matches!(problem, ProgramError::NoCommand));
    let alpha = with(|config| config.api_version = Some("client.authentication.k8s.io/v1alpha1".to_owned()));
    let (_, problem) = failure(&alpha, NEVER).await;
    assert!(matches!(problem, ProgramError::ApiVersion(version) if version.ends_with("v1alpha1")));
    let (_, problem) = failure(&with(|config| config.interactive_mode = None), NEVER).await;
    assert!(matches!(problem, ProgramError::NoInteractiveMode));
    let always = with(|config| config.interactive_mode = Some(ExecInteractiveMode::Always));
    let (_, problem) = failure(&always, NEVER).await;
    assert!(matches!(problem, ProgramError::NoTerminal));
    assert!(!started.exists());
}

#[tokio::test]
async fn a_program_learns_whether_it_can_ask() {
    let script = format!(
        "case \"$KUBERNETES_EXEC_INFO\" in *'\"interactive\":true'*) T=yes;; *) T=no;; esac; {}",
        credential(r#"{"token": "'$T'"}"#)
    );
    let can: fn() -> bool = || true;
    for (mode, can_prompt, told) in [
        ("Never", can, "no"),
        ("IfAvailable", NEVER, "no"),
        ("IfAvailable", can, "yes"),
        ("Always", can, "yes"),
    ] {
        let mut config = exec(&script, "");
        config.interactive_mode = Some(serde_json::from_value(mode.into()).unwrap());
        let issued = run(&config, can_prompt).await.unwrap();
        assert_eq!(issued.authorization.unwrap(), format!("Bearer {told}"), "{mode}");
    }
}

#[tokio::test]
async fn credentials_expire_with_their_certificate() {
    let issued = crate::tls::test_certificates::Authority::new("ca").client("me", 3600);
    let status = json!({
        "clientCertificateData": issued.certificate,
        "clientKeyData": issued.key,
        "expirationTimestamp": "2060-01-01T00:00:00Z",
    });
    let output = run(&exec(&credential(&status.to_string()), ""), NEVER).await.unwrap();
    assert!(output.authorization.is_none());
    let valid = output.expires.unwrap().duration_since(Timestamp::now()).as_secs();
    assert!((3500..=3600).contains(&valid), "{valid}");
}
