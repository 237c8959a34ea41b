//! Why a connection to a cluster cannot be made, and what to do about it.

use std::path::PathBuf;

use kube::client::AuthError;
use kube::config::KubeconfigError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("no cluster is configured: there is no kubeconfig at {}", list(.0))]
    NoKubeconfig(Vec<PathBuf>),
    #[error("the kubeconfig {} does not exist", .0.display())]
    MissingFile(PathBuf),
    #[error("the kubeconfig has no current context")]
    NoContext(Vec<String>),
    #[error("{kind} \"{name}\" does not exist in the kubeconfig")]
    Unknown { kind: &'static str, name: String, known: Vec<String> },
    #[error("the kubeconfig has no server address for cluster \"{0}\"")]
    NoServer(String),
    #[error("--as-group, --as-uid and --as-user-extra need --as")]
    ImpersonationWithoutUser,
    #[error("the token of the user has a character that no HTTP header may have, such as a line break")]
    InvalidToken,
    #[error("invalid address \"{address}\": {source}")]
    Address { address: String, source: http::uri::InvalidUri },
    #[error("cannot read the kubeconfig {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("cannot use the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// Credentials or certificates are invalid.
    #[error("{} (for the connection to {server})", reason(.source))]
    Client { server: String, source: Box<kube::Error> },
}

impl ConnectionError {
    /// Takes the error of a request that failed because the credential program did. It runs again when its credentials
    /// expire.
    pub(crate) fn of_credentials(error: kube::Error, server: &str) -> Result<Self, kube::Error> {
        match auth_error(&error) {
            Some(_) => Ok(Self::Client { server: server.to_owned(), source: Box::new(error) }),
            None => Err(error),
        }
    }

    pub(crate) fn is_about_credentials(&self) -> bool {
        matches!(self, Self::Client { source, .. } if auth_error(source).is_some())
    }

    pub(crate) fn hint(&self) -> String {
        let known = |names: &[String]| match names {
            [] => String::from("the kubeconfig has none; is it the right file?"),
            names => format!("the kubeconfig has: {}", names.join(", ")),
        };
        match self {
            Self::NoKubeconfig(_) | Self::MissingFile(_) => String::from(
                "name an existing kubeconfig with --kubeconfig FILE or KUBECONFIG, or a server with --server",
            ),
            Self::NoContext(names) => {
                format!("choose one with --context or `kubectl config use-context`; {}", known(names))
            }
            Self::Unknown { known: names, .. } => known(names),
            Self::NoServer(_) => String::from("set clusters[].cluster.server in it, or pass --server"),
            _ if self.is_about_credentials() => String::from(
                "a program named in the kubeconfig provides the credentials; check that `kubectl version` works",
            ),
            Self::ImpersonationWithoutUser => String::from("name the user too: --as USER"),
            Self::InvalidToken => String::from("correct users[].user.token in the kubeconfig, or --token"),
            Self::Address { .. } => String::from(
                "use an address such as https://HOST:PORT in --server, in the kubeconfig (server, proxy-url) or in HTTPS_PROXY",
            ),
            Self::Unreadable { .. } => {
                String::from("correct the file, or choose another with --kubeconfig FILE or KUBECONFIG")
            }
            Self::Kubeconfig(_) | Self::Client { .. } => String::from(
                "`kubectl config view --minify` shows the settings in use; check that each file in them exists and is valid",
            ),
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Why there is no client. The stdout, arguments and environment of a credential program may contain credentials and are left
/// out; its stderr is meant for people.
fn reason(error: &kube::Error) -> String {
    const PROGRAM: &str = "the kubeconfig's credential program";
    match auth_error(error) {
        Some(AuthError::AuthExecRun { out, .. }) => {
            // Empty where the program printed directly to the terminal.
            let stderr = String::from_utf8_lossy(&out.stderr);
            let stderr =
                if stderr.trim().is_empty() { String::new() } else { format!(": {}", stderr.trim()) };
            format!("{PROGRAM} failed ({}){stderr}", out.status)
        }
        Some(AuthError::AuthExecStart(error)) => format!("{PROGRAM} cannot be started: {error}"),
        _ => error.to_string(),
    }
}

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
    fn a_failed_credential_program_is_reported_without_its_credentials() {
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
                    "the kubeconfig's credential program failed (exit status: 3){ending} \
                     (for the connection to https://c)"
                )
            );
            assert!(error.hint().contains("kubectl version"));
        }
        let other = kube::Error::Service(Box::new(std::io::Error::other("no route")));
        assert!(ConnectionError::of_credentials(other, "https://c").is_err());
    }
}
