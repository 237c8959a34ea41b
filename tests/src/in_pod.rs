//! Runs a program as in a pod: with the files of its service account, and without a kubeconfig.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use serde_json::Value;
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::programs::{Outcome, outcome};
use crate::skip::has_program;

/// Where a pod finds its credentials. The folder exists only for the program.
const MOUNT: &str = r#"
mount -t tmpfs none /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
cp "$0"/* /var/run/secrets/kubernetes.io/serviceaccount
exec "$@""#;

/// Whether this system lets users mount folders in a namespace of their own. Where it does not, the test is reported as skipped.
pub fn is_possible() -> bool {
    has_program("unshare", &["-rm", "mount", "-t", "tmpfs", "none", "/var/run"])
}

/// Runs a program in a pod of this service account.
pub async fn run(cluster: &Cluster, account: &ServiceAccount, program: &Path, args: &[&str]) -> Outcome {
    let kubeconfig = std::fs::read_to_string(cluster.kubeconfig_of(account).await).unwrap();
    let kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    let server = &kubeconfig["clusters"][0]["cluster"];
    let authority = STANDARD.decode(server["certificate-authority-data"].as_str().unwrap()).unwrap();
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(files.path().join(name), content).unwrap();
    write("ca.crt", &authority);
    write("token", kubeconfig["users"][0]["user"]["token"].as_str().unwrap().as_bytes());
    write("namespace", account.namespace().unwrap().as_bytes());
    let address = server["server"].as_str().unwrap().strip_prefix("https://").unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-ec", MOUNT]).arg(files.path()).arg(program).args(args);
    command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
    outcome(command.env_remove("KUBECONFIG").env("HOME", files.path())).await.without_progress()
}
