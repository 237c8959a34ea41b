//! Where the program runs: in a pod, or on someone's machine. Some defaults depend on it.

use std::ffi::OsString;
use std::path::Path;

/// Where a pod finds what it is told of its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The namespace of the manifests.
pub(crate) const USUAL_NAMESPACE: &str = "node-maintenance";

/// Where the program runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Surroundings {
    /// In a pod with a service account.
    Pod {
        /// The pod's own.
        namespace: String,
    },
    /// On someone's machine.
    Outside,
}

impl Surroundings {
    /// Those of this process.
    pub(crate) fn here() -> Self {
        Self::of(std::env::vars_os().map(|(name, _)| name), Path::new(SERVICE_ACCOUNT))
    }

    /// Those of a process that has variables of these names, and this folder for its service account.
    fn of(variables: impl IntoIterator<Item = OsString>, service_account: &Path) -> Self {
        let is_told_of_cluster = variables.into_iter().any(|name| name == "KUBERNETES_SERVICE_HOST");
        match std::fs::read_to_string(service_account.join("namespace")) {
            Ok(own) if is_told_of_cluster => {
                let own = own.trim();
                let namespace = if own.is_empty() { USUAL_NAMESPACE } else { own };
                Self::Pod { namespace: namespace.to_owned() }
            }
            _ => Self::Outside,
        }
    }
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
    fn a_pod_has_a_service_account_and_is_told_of_the_cluster() {
        let folder = std::env::temp_dir().join(format!("nm-surroundings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let with = |variable: &str| Surroundings::of([OsString::from(variable)], &folder);
        let pod = |namespace: &str| Surroundings::Pod { namespace: namespace.to_owned() };
        assert_eq!(with("KUBERNETES_SERVICE_HOST"), Surroundings::Outside, "nobody gave it an account");
        for (written, expected) in [("apps", "apps"), ("apps\n", "apps"), ("\n", USUAL_NAMESPACE)] {
            std::fs::write(folder.join("namespace"), written).unwrap();
            assert_eq!(with("KUBERNETES_SERVICE_HOST"), pod(expected), "{written:?}");
            assert_eq!(with("KUBERNETES_SERVICE_PORT"), Surroundings::Outside);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_replica_has_a_name_that_a_header_takes() {
        let name = replica();
        assert!(name.ends_with(&format!("-{}", std::process::id())), "{name}");
        assert!(http::HeaderValue::from_str(&name).is_ok());
    }
}
