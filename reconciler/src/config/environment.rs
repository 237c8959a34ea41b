//! Where the program runs: in a pod, or on someone's computer. Some defaults depend on it.

use std::ffi::OsString;
use std::path::Path;

/// Where a pod finds its service account.
const SERVICE_ACCOUNT_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The namespace of the manifests.
pub(crate) const DEFAULT_NAMESPACE: &str = "node-maintenance";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    Pod {
        namespace: String,
    },
    /// Outside of a cluster.
    Local,
}

impl Environment {
    pub(crate) fn detect() -> Self {
        let variables = std::env::vars_os().map(|(name, _)| name);
        Self::of(variables, Path::new(SERVICE_ACCOUNT_DIRECTORY))
    }

    /// That of a process with variables of these names and this directory for its service account.
    fn of(variables: impl IntoIterator<Item = OsString>, service_account: &Path) -> Self {
        let has_api_server = variables.into_iter().any(|name| name == "KUBERNETES_SERVICE_HOST");
        match std::fs::read_to_string(service_account.join("namespace")) {
            Ok(own) if has_api_server => {
                let own = own.trim();
                let namespace = if own.is_empty() { DEFAULT_NAMESPACE } else { own };
                Self::Pod { namespace: namespace.to_owned() }
            }
            _ => Self::Local,
        }
    }
}

/// A unique name for this process: the host's name, which in a pod is the pod's name, and the process id.
pub(crate) fn replica() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    // It is sent in a comment of the User-Agent header, which allows neither control characters nor parentheses.
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let host: String = host.unwrap_or_default().chars().filter(is_plain).collect();
    format!("{}-{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_a_service_account_and_a_variable_with_the_api_server() {
        let folder = std::env::temp_dir().join(format!("nm-environment-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let with = |variable: &str| Environment::of([OsString::from(variable)], &folder);
        let pod = |namespace: &str| Environment::Pod { namespace: namespace.to_owned() };
        assert_eq!(with("KUBERNETES_SERVICE_HOST"), Environment::Local, "there is no service account");
        for (written, expected) in [("apps", "apps"), ("apps\n", "apps"), ("\n", DEFAULT_NAMESPACE)] {
            std::fs::write(folder.join("namespace"), written).unwrap();
            assert_eq!(with("KUBERNETES_SERVICE_HOST"), pod(expected), "{written:?}");
            assert_eq!(with("KUBERNETES_SERVICE_PORT"), Environment::Local);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_name_of_a_replica_fits_into_a_header() {
        let name = replica();
        assert!(name.ends_with(&format!("-{}", std::process::id())), "{name}");
        assert!(http::HeaderValue::from_str(&name).is_ok());
    }
}
