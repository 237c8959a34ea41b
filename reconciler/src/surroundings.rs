//! Where the program runs: in a pod, or on someone's machine. Some defaults depend on it.

use std::path::Path;

/// Where a pod finds the namespace that it is in.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace of the manifests.
const USUAL_NAMESPACE: &str = "node-maintenance";

/// Whether this is a pod with a service account.
pub(crate) fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(NAMESPACE_FILE).exists()
}

/// The pod's own namespace, else that of the manifests.
pub(crate) fn namespace() -> String {
    let own = if in_pod() { std::fs::read_to_string(NAMESPACE_FILE).ok() } else { None };
    own.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| USUAL_NAMESPACE.to_owned())
}

/// A name for this process that no other has at the same time: the host, which in a pod is the pod's name, and the
/// process.
pub(crate) fn replica() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    // It travels in a header, which takes no control characters, and no parentheses in a comment.
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let host: String = host.unwrap_or_default().chars().filter(is_plain).collect();
    format!("{}-{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_has_a_name_that_a_header_takes() {
        let name = replica();
        assert!(name.ends_with(&format!("-{}", std::process::id())), "{name}");
        assert!(http::HeaderValue::from_str(&name).is_ok());
    }
}
