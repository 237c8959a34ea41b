//! When credentials are issued, renewed and shared. Credential programs are scripts that count their starts.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use tempfile::TempDir;

use super::*;
use crate::tls::test_certificates::{params, self_signed};

/// A credential program that appends a line to `starts` and prints what is in `credential`.
struct Program {
    folder: TempDir,
}

impl Program {
    fn new(status: &str) -> Self {
        let program = Self { folder: tempfile::tempdir().unwrap() };
        program.issues(status);
        program
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn issues(&self, status: &str) {
        let credential = format!(
            r#"{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}"#
        );
        std::fs::write(self.file("credential"), credential).unwrap();
    }

    fn fails(&self) {
        std::fs::remove_file(self.file("credential")).unwrap();
    }

    fn starts(&self) -> usize {
        std::fs::read_to_string(self.file("starts")).unwrap_or_default().lines().count()
    }

    fn credentials(&self) -> Credentials {
        let script = "cd \"$0\" && echo started >> starts && cat credential";
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", script, self.folder.path()],
        });
        let user = serde_json::from_value(serde_json::json!({"exec": exec})).unwrap();
        Credentials::new(user, None, || false)
    }
}

fn token(current: &Current) -> &str {
    current.authorization.as_ref().unwrap().to_str().unwrap().strip_prefix("Bearer ").unwrap()
}

fn valid_for(token: &str, seconds: i64) -> String {
    let expires = Timestamp::now() + SignedDuration::from_secs(seconds);
    format!(r#"{{"token": "{token}", "expirationTimestamp": "{expires}"}}"#)
}

/// As if the credentials had been issued earlier: they are due now.
fn make_due(credentials: &Credentials, expires_in: i64) {
    let mut state = lock(&credentials.0.state);
    let now = Timestamp::now();
    let old = state.current.take().unwrap();
    let expires = Some(now + SignedDuration::from_secs(expires_in));
    state.current = Some(Arc::new(Current { renew_at: Some(now), expires, ..old.copy() }));
}

#[tokio::test]
async fn a_program_is_started_once_for_all_requests() {
    let program = Program::new(r#"{"token": "t1"}"#);
    let credentials = program.credentials();
    credentials.prepare().await.unwrap();
    let all = join_all((0..20).map(|_| credentials.current())).await;
    assert!(all.iter().all(|current| token(current.as_ref().unwrap()) == "t1"));
    assert_eq!(program.starts(), 1);
}

#[tokio::test]
async fn concurrent_requests_wait_for_the_same_start() {
    let program = Program::new(r#"{"token": "t1"}"#);
    let credentials = program.credentials();
    join_all((0..20).map(|_| credentials.current())).await;
    assert_eq!(program.starts(), 1);
    // Failures are shared too, and the next request tries again.
    let failing = Program::new("");
    failing.fails();
    let credentials = failing.credentials();
    let all = join_all((0..20).map(|_| credentials.current())).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(failing.starts(), 1);
    failing.issues(r#"{"token": "t1"}"#);
    assert_eq!(token(&credentials.current().await.unwrap()), "t1");
}

#[tokio::test]
async fn a_request_that_gives_up_does_not_end_the_program() {
    let program = Program::new(r#"{"token": "t1"}"#);
    let credentials = program.credentials();
    assert!(credentials.current().now_or_never().is_none());
    assert_eq!(token(&credentials.current().await.unwrap()), "t1");
    assert_eq!(program.starts(), 1);
}

#[tokio::test]
async fn credentials_of_a_request_that_gave_up_are_renewed_when_they_are_refused() {
    let program = Program::new(r#"{"token": "t1"}"#);
    let credentials = program.credentials();
    assert!(credentials.current().now_or_never().is_none());
    while lock(&credentials.0.state).current.is_none() {
        tokio::task::yield_now().await;
    }
    let refused = credentials.current().await.unwrap();
    program.issues(r#"{"token": "t2"}"#);
    let renewed =
        credentials.after_refusal(&refused).await.unwrap().expect("the program issues another token");
    assert_eq!((token(&renewed), program.starts()), ("t2", 2));
}

#[tokio::test]
async fn a_program_is_started_again_when_its_token_is_about_to_expire() {
    let program = Program::new(&valid_for("t1", 3600));
    let credentials = program.credentials();
    assert_eq!(token(&credentials.current().await.unwrap()), "t1");
    program.issues(&valid_for("t2", 3600));
    assert_eq!(token(&credentials.current().await.unwrap()), "t1");
    make_due(&credentials, 20);
    assert_eq!(token(&credentials.current().await.unwrap()), "t2");
    assert_eq!(program.starts(), 2);
}

#[tokio::test]
async fn credentials_that_are_still_valid_are_used_while_the_program_fails() {
    let program = Program::new(&valid_for("t1", 3600));
    let credentials = program.credentials();
    credentials.prepare().await.unwrap();
    program.fails();
    make_due(&credentials, 20);
    assert_eq!(token(&credentials.current().await.unwrap()), "t1");
    assert_eq!(token(&credentials.current().await.unwrap()), "t1");
    assert_eq!(program.starts(), 2, "not for each request");
    make_due(&credentials, -1);
    assert!(credentials.current().await.is_err());
    program.issues(&valid_for("t2", 3600));
    assert_eq!(token(&credentials.current().await.unwrap()), "t2");
}

#[test]
fn credentials_are_renewed_shortly_before_they_expire() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let at = |seconds| due(now + SignedDuration::from_secs(seconds), now).duration_since(now).as_secs();
    for (valid, renewed) in [(3600, 3570), (150, 120), (60, 48), (10, 8), (0, 1), (-3600, 1)] {
        assert_eq!(at(valid), renewed, "{valid}");
    }
}

#[tokio::test]
async fn refused_credentials_are_renewed_by_one_start() {
    let program = Program::new(r#"{"token": "t1"}"#);
    let credentials = program.credentials();
    let refused = credentials.current().await.unwrap();
    program.issues(r#"{"token": "t2"}"#);
    let all = join_all((0..20).map(|_| credentials.after_refusal(&refused))).await;
    assert!(all.iter().all(|renewed| token(renewed.as_ref().unwrap().as_ref().unwrap()) == "t2"));
    assert_eq!(program.starts(), 2);
    let late = credentials.after_refusal(&refused).await.unwrap().unwrap();
    assert_eq!((token(&late), program.starts()), ("t2", 2), "others have renewed them already");
}

#[tokio::test]
async fn a_program_whose_credentials_are_refused_again_is_not_started_for_each_request() {
    let program = Program::new(r#"{"token": "t1"}"#);
    let credentials = program.credentials();
    let mut current = credentials.current().await.unwrap();
    for _ in 0..5 {
        assert!(credentials.after_refusal(&current).await.unwrap().is_none(), "the token is the same");
        current = credentials.current().await.unwrap();
    }
    assert_eq!(program.starts(), 3, "at first, at once after the refusal, and once more");
    program.issues(r#"{"token": "t2"}"#);
    lock(&credentials.0.state).refused_until = Some(Instant::now());
    let renewed = credentials.after_refusal(&current).await.unwrap().unwrap();
    assert_eq!(token(&renewed), "t2");
    credentials.note_accepted();
    assert_eq!(lock(&credentials.0.state).refusals, 0);
}

fn user(fields: serde_json::Value) -> AuthInfo {
    serde_json::from_value(fields).unwrap()
}

async fn header(fields: serde_json::Value) -> Result<Option<String>, String> {
    let current = Credentials::new(user(fields), None, || false).current().await;
    let current = current.map_err(|error| error.to_string())?;
    Ok(current.authorization.as_ref().map(|header| header.to_str().unwrap().to_owned()))
}

#[tokio::test]
async fn fields_of_a_user_take_precedence_as_in_kubectl() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from-file\n").unwrap();
    let exec = serde_json::json!({"command": "/no/such/program"});
    let issued = self_signed(params("me", &[], 3600));
    let (certificate, key) = (STANDARD.encode(issued.certificate), STANDARD.encode(issued.key));
    let certified =
        serde_json::json!({"client-certificate-data": certificate, "client-key-data": key, "exec": exec});
    for (fields, expected) in [
        (certified, Ok(None)),
        (serde_json::json!({}), Ok(None)),
        (serde_json::json!({"token": ""}), Ok(None)),
        (serde_json::json!({"token": "t"}), Ok(Some("Bearer t"))),
        (serde_json::json!({"token": "t", "exec": exec}), Ok(Some("Bearer t"))),
        (serde_json::json!({"tokenFile": file.path()}), Ok(Some("Bearer from-file"))),
        (serde_json::json!({"token": "t", "tokenFile": file.path()}), Ok(Some("Bearer from-file"))),
        (serde_json::json!({"token": "t", "tokenFile": "/no/such/file"}), Ok(Some("Bearer t"))),
        (serde_json::json!({"username": "me", "password": "p:w"}), Ok(Some("Basic bWU6cDp3"))),
        (serde_json::json!({"username": "me"}), Ok(Some("Basic bWU6"))),
        (
            serde_json::json!({"username": "me", "token": "t"}),
            Err("the user has both username and token, and only one of them can be used"),
        ),
        (
            serde_json::json!({"exec": exec, "auth-provider": {"name": "oidc"}}),
            Err("the user has both exec and auth-provider, and only one of them can be used"),
        ),
    ] {
        let found = header(fields.clone()).await;
        let expected = expected.map(|header| header.map(str::to_owned)).map_err(str::to_owned);
        assert_eq!(found, expected, "{fields}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_sent_is_refused() {
    for token in ["s3cr3t\n", "s3cr3t\r\nX-Header: a", "s3cr3t\0", "\u{7f}s3cr3t"] {
        let error = Credentials::new(user(serde_json::json!({"token": token})), None, || false);
        let error = error.prepare().await.unwrap_err();
        assert!(matches!(&*error, CredentialError::Header(TokenOrigin::User)), "{error}");
        assert!(!format!("{error} {}", error.remedy()).contains("s3cr3t"));
    }
}

#[tokio::test]
async fn a_token_file_is_read_again_after_a_refusal_and_from_time_to_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "t1\n").unwrap();
    let credentials = Credentials::new(user(serde_json::json!({"tokenFile": file.path()})), None, || false);
    let first = credentials.current().await.unwrap();
    let until = first.renew_at.unwrap().duration_since(Timestamp::now()).as_secs();
    assert!((50..=60).contains(&until), "{until}");
    std::fs::write(file.path(), "t2\n").unwrap();
    assert_eq!(token(&credentials.current().await.unwrap()), "t1");
    assert_eq!(token(&credentials.after_refusal(&first).await.unwrap().unwrap()), "t2");
    std::fs::write(file.path(), "t3\n").unwrap();
    make_due(&credentials, 3600);
    assert_eq!(token(&credentials.current().await.unwrap()), "t3");
}

#[tokio::test]
async fn a_new_login_in_the_kubeconfig_is_used_after_a_refusal() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    std::fs::write(&path, "t1").unwrap();
    let reread: Reread =
        Box::new(move || Some(user(serde_json::json!({"token": std::fs::read_to_string(&path).ok()?}))));
    let credentials = Credentials::new(user(serde_json::json!({"token": "t1"})), Some(reread), || false);
    let first = credentials.current().await.unwrap();
    assert!(credentials.after_refusal(&first).await.unwrap().is_none());
    std::fs::write(file.path(), "t2").unwrap();
    let current = credentials.current().await.unwrap();
    lock(&credentials.0.state).refused_until = None;
    assert_eq!(token(&credentials.after_refusal(&current).await.unwrap().unwrap()), "t2");
}

#[tokio::test]
async fn unencrypted_connections_get_no_credentials() {
    let mut config = kube::Config::new("http://127.0.0.1:8001".parse().unwrap());
    config.auth_info = user(serde_json::json!({"token": "t", "exec": {"command": "/no/such/program"}}));
    let credentials = crate::credentials(&config, None, || false);
    assert!(credentials.current().await.unwrap().authorization.is_none());
    let refused = credentials.current().await.unwrap();
    assert!(credentials.after_refusal(&refused).await.unwrap().is_none());
    config.cluster_url = "https://127.0.0.1:8001".parse().unwrap();
    assert!(crate::credentials(&config, None, || false).current().await.is_ok());
}
