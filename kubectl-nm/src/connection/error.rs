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
    /// A kubeconfig cannot be read.
    #[error("error: cannot read the kubeconfig {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The kubeconfig, or a file that it names, cannot be used.
    #[error("error: the kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// Credentials or certificates cannot be used.
    #[error("error: {} (for the connection to {server})", reason(.source))]
    Client {
        /// The address of the server.
        server: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
}

impl ConnectionError {
    /// The error of a request, if what it lacks is credentials that a program was to bring: it runs again when they expire.
    ///
    /// # Errors
    ///
    /// With the error as it was, if it is another.
    pub(crate) fn of_credentials(error: kube::Error, server: &str) -> Result<Self, kube::Error> {
        match auth_error(&error) {
            Some(_) => Ok(Self::Client { server: server.to_owned(), source: Box::new(error) }),
            None => Err(error),
        }
    }

    /// Whether credentials are missing that a program was to bring.
    pub(crate) fn is_about_credentials(&self) -> bool {
        matches!(self, Self::Client { source, .. } if auth_error(source).is_some())
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        let known = |names: &[String]| match names {
            [] => String::from("the kubeconfig has none; is it the right file?"),
            names => format!("there are: {}", names.join(", ")),
        };
        match self {
            Self::NoKubeconfig(_) | Self::MissingFile(_) => String::from(
                "name an existing kubeconfig with --kubeconfig FILE or KUBECONFIG, or the server with --server",
            ),
            Self::NoContext(names) => {
                format!("choose one with --context or `kubectl config use-context`; {}", known(names))
            }
            Self::Unknown { known: names, .. } => known(names),
            Self::NoServer(_) => String::from("set clusters[].cluster.server in it, or pass --server"),
            _ if self.is_about_credentials() => String::from(
                "the kubeconfig gets its credentials from a program: does `kubectl version` work?",
            ),
            Self::ImpersonationWithoutUser => String::from("name the user too: --as USER"),
            Self::Address { .. } => String::from(
                "such as https://HOST:PORT: in --server, in the kubeconfig as server or proxy-url, or in HTTPS_PROXY",
            ),
            Self::Unreadable { .. } => {
                String::from("correct the file, or choose another with --kubeconfig FILE or KUBECONFIG")
            }
            Self::Kubeconfig(_) | Self::Client { .. } => String::from(
                "`kubectl config view --minify` shows what is used: does each file that it names exist, and hold what it should?",
            ),
        }
    }
}

/// The files by name.
fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What keeps a client from being made. What a credential program printed on stdout may be a credential, so it is not
/// repeated, nor are its arguments and environment; its stderr is meant for people.
fn reason(error: &kube::Error) -> String {
    const PROGRAM: &str = "the kubeconfig's credential program";
    match auth_error(error) {
        Some(AuthError::AuthExecRun { out, .. }) => {
            // Empty where it spoke for itself.
            let said = String::from_utf8_lossy(&out.stderr);
            let said = if said.trim().is_empty() { String::new() } else { format!(": {}", said.trim()) };
            format!("{PROGRAM} failed ({}){said}", out.status)
        }
        Some(AuthError::AuthExecStart(error)) => format!("{PROGRAM} cannot be run: {error}"),
        _ => error.to_string(),
    }
}

/// What is wrong with credentials, when a client is made or when they are to be renewed for a request.
fn auth_error(error: &kube::Error) -> Option<&AuthError> {
    match error {
        kube::Error::Auth(error) => Some(error),
        kube::Error::Service(error) => error.downcast_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_credential_program_that_fails_is_quoted_without_its_credentials() {
        use std::os::unix::process::ExitStatusExt;

        let failed = |stderr: &str| {
            let output = std::process::Output {
                status: std::process::ExitStatus::from_raw(3 << 8),
                stdout: b"SECRET".to_vec(),
                stderr: stderr.as_bytes().to_vec(),
            };
            AuthError::AuthExecRun { cmd: "TOKEN=SECRET login".into(), out: Box::new(output) }
        };
        for (error, ending) in [
            (kube::Error::Auth(failed("no luck\n")), ": no luck"),
            (kube::Error::Service(Box::new(failed("no luck"))), ": no luck"),
            (kube::Error::Service(Box::new(failed(""))), ""),
        ] {
            let error = ConnectionError::of_credentials(error, "https://c").unwrap();
            assert_eq!(
                error.to_string(),
                format!(
                    "error: the kubeconfig's credential program failed (exit status: 3){ending} \
                     (for the connection to https://c)"
                )
            );
            assert!(error.hint().contains("kubectl version"));
        }
        let other = kube::Error::Service(Box::new(std::io::Error::other("no route")));
        assert!(ConnectionError::of_credentials(other, "https://c").is_err());
    }
}
