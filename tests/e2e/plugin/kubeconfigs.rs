//! A kubeconfig for each way to connect and to authenticate that the documentation of kubectl names, each tried with kubectl
//! and with the plugin: both succeed or both fail. `docs/reference/kubeconfig.md` has the differences, which no row has.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures::StreamExt;
use futures::stream;
use kube_sandbox::sandbox::Sandbox;
use nm_tests::cluster::Cluster;
use nm_tests::programs::{Outcome, kubectl_at, plugin_of};
use nm_tests::skip::has_kubectl;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What both programs do with a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Works,
    /// With this text in the plugin's message.
    Fails(&'static str),
}

use Expected::{Fails, Works};

/// What kubeconfigs are made of: files in a folder.
struct Files {
    folder: PathBuf,
    token: String,
    server: String,
    authority: String,
    leaf: String,
    /// The authority of another cluster.
    unrelated: String,
}

impl Files {
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn kubeconfig(&self, cluster: &Value, user: &Value) -> Value {
        let mut own =
            json!({"server": self.server, "certificate-authority-data": STANDARD.encode(&self.authority)});
        for (name, value) in cluster.as_object().unwrap() {
            own[name] = value.clone();
        }
        own.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": own}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        })
    }

    /// A user whose credential program prints this token.
    fn exec(&self, change: impl Fn(&mut Value)) -> Value {
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": self.token}});
        let mut exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", format!("printf %s '{credential}'")]});
        change(&mut exec);
        json!({"exec": exec})
    }
}

fn of(sandbox: &Sandbox, other: &Sandbox, folder: &Path) -> Files {
    let kubeconfig: Value = serde_saphyr::from_str(&sandbox.kubeconfig()).unwrap();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let authority = STANDARD.decode(cluster["certificate-authority-data"].as_str().unwrap()).unwrap();
    let other: Value = serde_saphyr::from_str(&other.kubeconfig()).unwrap();
    let unrelated = other["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
    Files {
        folder: folder.to_owned(),
        token: kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned(),
        server: cluster["server"].as_str().unwrap().to_owned(),
        authority: String::from_utf8(authority).unwrap(),
        leaf: sandbox.server_certificate().to_owned(),
        unrelated: String::from_utf8(STANDARD.decode(unrelated).unwrap()).unwrap(),
    }
}

/// The ways to authenticate.
#[expect(clippy::too_many_lines, reason = "a table")]
fn users(files: &Files) -> Vec<(&'static str, Value, Expected)> {
    let token = &files.token;
    let token_file = files.write("token", format!("{token}\n"));
    let windows_file = files.write("token-crlf", format!("{token}\r\n"));
    let empty_file = files.write("token-empty", "\n");
    files.write("token-beside", token);
    let exec = |change: fn(&mut Value)| files.exec(change);
    let expired = URL_SAFE_NO_PAD.encode(r#"{"exp":1000}"#);
    let oidc = json!({"name": "oidc", "config": {"idp-issuer-url": "https://127.0.0.1:1", "client-id": "kubernetes",
        "id-token": format!("e30.{expired}.c2ln")}});
    let other_token = json!({"token": token, "tokenFile": "/no/such/token"});
    let both = json!({"token": token, "username": "me", "password": "p"});
    vec![
        ("token", json!({"token": token}), Works),
        ("a wrong token", json!({"token": "wrong"}), Fails("You must be logged in to the server")),
        (
            "a token with a line break",
            json!({"token": format!("{token}\n")}),
            Fails("no HTTP header may have"),
        ),
        ("no credentials", json!({}), Fails("system:anonymous")),
        ("tokenFile with a line break", json!({"tokenFile": token_file}), Works),
        ("tokenFile with a line break of Windows", json!({"tokenFile": windows_file}), Works),
        ("tokenFile beside the kubeconfig", json!({"tokenFile": "token-beside"}), Works),
        ("an empty tokenFile", json!({"tokenFile": empty_file}), Fails("is empty")),
        ("a missing tokenFile", json!({"tokenFile": "/no/such/token"}), Fails("cannot read the token file")),
        ("tokenFile and a wrong token", json!({"token": "wrong", "tokenFile": token_file}), Works),
        ("a missing tokenFile and a token", other_token, Works),
        ("username and password", json!({"username": "me", "password": "p"}), Fails("system:anonymous")),
        ("username and token", both, Fails("both username and token")),
        ("client certificate without key", json!({"client-certificate-data": "YQ=="}), Fails("client-key")),
        ("client key without certificate", json!({"client-key-data": "YQ=="}), Fails("client-certificate")),
        ("as and as-groups", json!({"token": token, "as": "me", "as-groups": ["system:masters"]}), Works),
        ("as without permission", json!({"token": token, "as": "me"}), Fails("Forbidden")),
        ("as-groups without as", json!({"token": token, "as-groups": ["system:masters"]}), Fails("--as")),
        ("exec", exec(|_| ()), Works),
        (
            "exec of v1beta1",
            exec(|exec| {
                let script = exec["args"][1].as_str().unwrap().replace("k8s.io/v1", "k8s.io/v1beta1");
                exec["args"][1] = json!(script);
                exec["apiVersion"] = json!("client.authentication.k8s.io/v1beta1");
                exec["interactiveMode"] = Value::Null;
            }),
            Works,
        ),
        (
            "exec of v1alpha1",
            exec(|exec| exec["apiVersion"] = json!("client.authentication.k8s.io/v1alpha1")),
            Fails("v1alpha1"),
        ),
        ("exec without apiVersion", exec(|exec| exec["apiVersion"] = Value::Null), Fails("apiVersion")),
        (
            "exec that answers in another version",
            exec(|exec| exec["apiVersion"] = json!("client.authentication.k8s.io/v1beta1")),
            Fails("instead of"),
        ),
        (
            "exec without interactiveMode",
            exec(|exec| exec["interactiveMode"] = Value::Null),
            Fails("interactiveMode"),
        ),
        ("exec: IfAvailable", exec(|exec| exec["interactiveMode"] = json!("IfAvailable")), Works),
        (
            "exec: Always without a terminal",
            exec(|exec| exec["interactiveMode"] = json!("Always")),
            Fails("standard input is not a terminal"),
        ),
        ("exec without command", exec(|exec| exec["command"] = Value::Null), Fails("has no command")),
        (
            "exec of a missing program",
            exec(|exec| exec["command"] = json!("no-such-login")),
            Fails("no-such-login is not installed"),
        ),
        ("exec that fails", exec(|exec| exec["args"][1] = json!("exit 3")), Fails("failed (exit status: 3)")),
        (
            "exec that prints nothing",
            exec(|exec| exec["args"][1] = json!("true")),
            Fails("no valid ExecCredential"),
        ),
        (
            "exec with env",
            exec(|exec| {
                let script = exec["args"][1].as_str().unwrap();
                exec["args"][1] = json!(format!("test \"$ROLE\" = admin && {script}"));
                exec["env"] = json!([{"name": "ROLE", "value": "admin"}]);
            }),
            Works,
        ),
        (
            "exec with the cluster",
            exec(|exec| {
                let script = exec["args"][1].as_str().unwrap();
                exec["args"][1] = json!(format!(
                    "case $KUBERNETES_EXEC_INFO in *certificate-authority-data*) {script};; esac"
                ));
                exec["provideClusterInfo"] = json!(true);
            }),
            Works,
        ),
        (
            "exec with an expired token that the server accepts",
            exec(|exec| {
                let script = exec["args"][1].as_str().unwrap();
                exec["args"][1] = json!(
                    script.replace(r#""token":"#, r#""expirationTimestamp":"2020-01-01T00:00:00Z","token":"#)
                );
            }),
            Works,
        ),
        (
            "exec and token",
            {
                let mut user = exec(|exec| exec["command"] = json!("no-such-login"));
                user["token"] = json!(token);
                user
            },
            Works,
        ),
        ("auth-provider oidc, expired", json!({"auth-provider": oidc}), Fails("kubectl oidc-login")),
        ("auth-provider gcp", json!({"auth-provider": {"name": "gcp"}}), Fails("gke-gcloud-auth-plugin")),
        ("auth-provider azure", json!({"auth-provider": {"name": "azure"}}), Fails("kubelogin")),
    ]
}

/// The ways to find and to trust a server.
fn clusters(files: &Files) -> Vec<(&'static str, Value, Expected)> {
    let authority = files.write("ca.crt", &files.authority);
    let leaf = STANDARD.encode(&files.leaf);
    let both = STANDARD.encode(format!("{}{}", files.authority, files.leaf));
    let garbage = STANDARD.encode(format!("some text\n{}more text\n", files.authority));
    let unrelated = STANDARD.encode(&files.unrelated);
    let port = files.server.rsplit(':').next().unwrap();
    let insecure = json!({"insecure-skip-tls-verify": true});
    let no_authority = json!({"insecure-skip-tls-verify": true, "certificate-authority-data": null});
    vec![
        ("certificate-authority-data", json!({}), Works),
        (
            "certificate-authority",
            json!({"certificate-authority-data": null, "certificate-authority": authority}),
            Works,
        ),
        (
            "certificate-authority beside the kubeconfig",
            json!({"certificate-authority-data": null, "certificate-authority": "ca.crt"}),
            Works,
        ),
        (
            "certificate-authority and empty data",
            json!({"certificate-authority-data": "", "certificate-authority": authority}),
            Works,
        ),
        ("the server's certificate as authority", json!({"certificate-authority-data": leaf}), Works),
        ("the server's certificate and its authority", json!({"certificate-authority-data": both}), Works),
        ("an authority with text around it", json!({"certificate-authority-data": garbage}), Works),
        ("an unrelated authority", json!({"certificate-authority-data": unrelated}), Fails("certificate")),
        ("the authorities of the system", json!({"certificate-authority-data": null}), Fails("certificate")),
        (
            "a missing certificate-authority",
            json!({"certificate-authority-data": null, "certificate-authority": "/no/such"}),
            Fails("/no/such"),
        ),
        ("insecure-skip-tls-verify", no_authority, Works),
        ("insecure-skip-tls-verify and an authority", insecure, Fails("insecure-skip-tls-verify")),
        ("tls-server-name", json!({"tls-server-name": "kubernetes"}), Works),
        ("a wrong tls-server-name", json!({"tls-server-name": "other"}), Fails("certificate")),
        ("a server with a slash", json!({"server": format!("https://127.0.0.1:{port}/")}), Works),
        ("a server by name", json!({"server": format!("https://localhost:{port}")}), Works),
        ("no server", json!({"server": ""}), Fails("")),
        ("a proxy that is not there", json!({"proxy-url": "http://127.0.0.1:1"}), Fails("")),
        ("a proxy of an unknown kind", json!({"proxy-url": "ftp://127.0.0.1:1"}), Fails("proxy")),
        ("disable-compression", json!({"disable-compression": true}), Works),
    ]
}

/// Other forms of a kubeconfig that works.
fn forms(files: &Files) -> Vec<(&'static str, Vec<u8>, Expected)> {
    let kubeconfig = files.kubeconfig(&json!({}), &json!({"token": files.token}));
    let with = |change: fn(&mut Value)| {
        let mut changed = kubeconfig.clone();
        change(&mut changed);
        changed.to_string().into_bytes()
    };
    let text = kubeconfig.to_string();
    let utf_16 = [0xFEFF].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    vec![
        ("a byte order mark", format!("\u{feff}{text}").into_bytes(), Works),
        ("UTF-16", utf_16, Works),
        ("no current context", with(|file| file["current-context"] = json!("")), Fails("no current context")),
        ("a missing context", with(|file| file["current-context"] = json!("gone")), Fails("does not exist")),
        ("a missing user", with(|file| file["users"] = json!([])), Fails("system:anonymous")),
        ("a missing cluster", with(|file| file["clusters"] = json!([])), Fails("does not exist")),
        (
            "extensions",
            with(|file| file["extensions"] = json!([{"name": "x", "extension": {"a": 1}}])),
            Works,
        ),
        ("no YAML", b"{[".to_vec(), Fails("cannot read the kubeconfig")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kubeconfig_works_or_fails_as_in_kubectl() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "the kubeconfig has to carry a token").await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let other = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let files = of(cluster.sandbox().unwrap(), other.sandbox().unwrap(), folder.path());
    let mut cases: Vec<(&str, Vec<u8>, Expected)> = forms(&files);
    let token = json!({"token": files.token});
    for (name, user, expected) in users(&files) {
        cases.push((name, files.kubeconfig(&json!({}), &user).to_string().into_bytes(), expected));
    }
    for (name, cluster, expected) in clusters(&files) {
        cases.push((name, files.kubeconfig(&cluster, &token).to_string().into_bytes(), expected));
    }
    let compares = has_kubectl();
    let tried = cases.into_iter().enumerate().map(|(number, (name, content, expected))| {
        let file = PathBuf::from(files.write(&format!("kubeconfig-{number}"), content));
        async move {
            let own = plugin_of(&file, &["status", "--request-timeout=20s"]).await;
            let kubectl = if compares {
                Some(kubectl_at(&file, &["get", "nodes", "-o", "name", "--request-timeout=20s"]).await)
            } else {
                None
            };
            (name, expected, own, kubectl)
        }
    });
    let tried: Vec<_> = stream::iter(tried).buffered(4).collect().await;
    let mut wrong = Vec::new();
    for (name, expected, own, kubectl) in tried {
        let works = |outcome: &Outcome| outcome.code == Some(0);
        let (here, there) = match expected {
            Works => (works(&own), true),
            Fails(text) => {
                (!works(&own) && own.stderr.contains(text) && own.stderr.contains("hint: "), false)
            }
        };
        if !here {
            wrong.push(format!("{name}: {expected:?} here, but {own:?}"));
        }
        if let Some(kubectl) = kubectl.filter(|kubectl| works(kubectl) != there) {
            wrong.push(format!("{name}: {expected:?}, but kubectl {kubectl:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_not_sent_without_encryption() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let (seen, mut requests) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut bytes = vec![0; 16 * 1024];
            let length = socket.read(&mut bytes).await.unwrap();
            let _ = seen.send(String::from_utf8_lossy(&bytes[..length]).to_lowercase()).await;
            let _ = socket
                .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .await;
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let file = folder.path().join("kubeconfig");
    for user in [
        json!({"token": "s3cr3t", "as": "me"}),
        json!({"username": "me", "password": "s3cr3t", "as": "me"}),
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "touch",
            "args": [started]}, "as": "me"}),
    ] {
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let mut outcomes = vec![plugin_of(&file, &["status"]).await];
        if has_kubectl() {
            outcomes.push(kubectl_at(&file, &["get", "--raw", "/version"]).await);
        }
        for outcome in outcomes {
            assert_eq!(outcome.code, Some(1), "{outcome:?}");
            let request = requests.recv().await.unwrap();
            assert!(!request.contains("authorization:"), "{request}");
            assert!(request.contains("impersonate-user: me"), "{request}");
        }
        while requests.try_recv().is_ok() {}
    }
    assert!(!started.exists());
}
