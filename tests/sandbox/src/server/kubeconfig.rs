//! The kubeconfig with which kubectl and other clients find the server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A kubeconfig with embedded credentials, in YAML.
pub(crate) fn write(url: &str, authority: &str, token: &str) -> String {
    let authority = STANDARD.encode(authority);
    format!(
        "apiVersion: v1
kind: Config
current-context: sandbox
clusters:
- name: sandbox
  cluster:
    server: {url}
    certificate-authority-data: {authority}
contexts:
- name: sandbox
  context:
    cluster: sandbox
    namespace: default
    user: admin
users:
- name: admin
  user:
    token: {token}
"
    )
}
