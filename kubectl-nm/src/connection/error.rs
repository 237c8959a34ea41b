//! Why there is no way to a cluster, and what to do about it.

use std::path::PathBuf;

use kube::client::AuthError;
use kube::config::KubeconfigError;

/// Why there is no way to a cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// Nothing says where the cluster is.
    #[error("error: no cluster to talk to: there is no kubeconfig at {}", list(.0))]
    NoKubeconfig(Vec<PathBuf>),
    /// The file named by `--kubeconfig` does not exist.
    #[error("error: no such kubeconfig: {}", .0.display())]
    MissingFile(PathBuf),
    /// There are contexts, but none is the current one.
    #[error("error: the kubeconfig has no current context")]
    NoContext(Vec<String>),
    /// A context, cluster or user that the kubeconfig does not have.
    #[error("error: {kind} \"{name}\" does not exist in the kubeconfig")]
    Unknown {
        /// What was looked for.
        kind: &'static str,
        /// By which name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The cluster has no address.
    #[error("error: the kubeconfig gives no server address for cluster \"{0}\"")]
    NoServer(String),
    /// `--as-group` and its like without `--as`.
    #[error("error: --as-group, --as-uid and --as-user-extra need --as")]
    ImpersonationWithoutUser,
    /// The address of the server or of the proxy is none.
    #[error("error: \"{address}\" is no address: {source}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// The kubeconfig, or a file that it names, cannot be used.
    #[error("error: the kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// Credentials or certificates cannot be used.
    #[error("error: cannot prepare the connection to {server}: {}", reason(.source))]
    Client {
        /// The address of the server.
        server: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
}

impl ConnectionError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        let known = |names: &[String]| match names {
            [] => String::from("the kubeconfig has none; is it the right file?"),
            names => format!("there are: {}", names.join(", ")),
        };
        Some(match self {
            Self::NoKubeconfig(_) | Self::MissingFile(_) => String::from(
                "name an existing kubeconfig with --kubeconfig FILE or KUBECONFIG, or the server with --server",
            ),
            Self::NoContext(names) => {
                format!("choose one with --context or `kubectl config use-context`; {}", known(names))
            }
            Self::Unknown { known: names, .. } => known(names),
            Self::NoServer(_) => String::from("set clusters[].cluster.server in it, or pass --server"),
            Self::Client { source, .. } if matches!(**source, kube::Error::Auth(_)) => String::from(
                "the kubeconfig gets its credentials from a program: does `kubectl version` work?",
            ),
            Self::ImpersonationWithoutUser
            | Self::Address { .. }
            | Self::Kubeconfig(_)
            | Self::Client { .. } => return None,
        })
    }
}

/// The files by name.
fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What keeps a client from being made. What a credential program printed on stdout may be a credential, so it is not
/// repeated; its stderr is meant for people.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(AuthError::AuthExecRun { out, .. }) => {
            let said = String::from_utf8_lossy(&out.stderr);
            format!("the program that the kubeconfig names for credentials failed ({}): {said}", out.status)
        }
        kube::Error::Auth(AuthError::AuthExecStart(error)) => {
            format!("the program that the kubeconfig names for credentials cannot be run: {error}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_credential_program_that_fails_is_quoted_without_its_credentials() {
        use std::os::unix::process::ExitStatusExt;

        let output = std::process::Output {
            status: std::process::ExitStatus::from_raw(3 << 8),
            stdout: b"SECRET".to_vec(),
            stderr: b"no luck".to_vec(),
        };
        let failed = AuthError::AuthExecRun { cmd: "TOKEN=SECRET login".into(), out: Box::new(output) };
        let source = Box::new(kube::Error::Auth(failed));
        let error = ConnectionError::Client { server: "https://c".into(), source };
        assert_eq!(
            error.to_string(),
            "error: cannot prepare the connection to https://c: \
             the program that the kubeconfig names for credentials failed (exit status: 3): no luck"
        );
        assert!(error.hint().is_some_and(|hint| hint.contains("kubectl version")));
    }
}
