//! Why a connection to a cluster cannot be made, and what to do about it.

use std::path::PathBuf;
use std::sync::Arc;

use kube::config::KubeconfigError;
use nm_connection::CredentialError;

/// Why a cluster cannot be accessed: kubeconfig, flags, certificates or credentials.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// These kubeconfig files are missing or empty, no server is given, and the program does not run in a pod.
    #[error("no cluster is configured: there is no kubeconfig at {}", list(.0))]
    NoKubeconfig(Vec<PathBuf>),
    /// The kubeconfig that `--kubeconfig` names does not exist.
    #[error("the kubeconfig {} does not exist", .0.display())]
    MissingFile(PathBuf),
    /// No context is selected; the contexts of the kubeconfig.
    #[error("the kubeconfig has no current context")]
    NoContext(Vec<String>),
    /// The kubeconfig lacks the selected context, cluster or user.
    #[error("{kind} \"{name}\" does not exist in the kubeconfig")]
    Unknown {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        /// The missing name.
        name: String,
        /// The names that the kubeconfig contains.
        known: Vec<String>,
    },
    /// This cluster of the kubeconfig has no server address.
    #[error("the kubeconfig has no server address for cluster \"{0}\"")]
    NoServer(String),
    /// An impersonation flag is given without the user.
    #[error("--as-group, --as-uid and --as-user-extra need --as")]
    ImpersonationWithoutUser,
    /// The address of the server or of a proxy is not valid.
    #[error("invalid address \"{address}\": {source}")]
    Address {
        /// The address as it is given.
        address: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// A kubeconfig file cannot be read or parsed.
    #[error("cannot read the kubeconfig {}: {why}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system or of the parser.
        why: String,
    },
    /// The kubeconfig contains a setting that kube cannot use.
    #[error("cannot use the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The user of the kubeconfig has no credentials.
    #[error("{source} (for the connection to {server})")]
    Credentials {
        /// Address of the API server.
        server: String,
        /// Why there are no credentials.
        source: Arc<CredentialError>,
    },
    /// Certificates or the proxy are invalid.
    #[error("{source} (for the connection to {server})")]
    Client {
        /// Address of the API server.
        server: String,
        /// The error of kube.
        source: Box<kube::Error>,
    },
    /// The cluster has a certificate authority, and its certificate is not to be verified.
    #[error("the kubeconfig has both certificate-authority and insecure-skip-tls-verify for this cluster")]
    InsecureWithAuthority,
}

impl ConnectionError {
    /// Takes the error of a request that was not sent because its credentials could not be renewed.
    pub(crate) fn of_credentials(error: kube::Error, server: &str) -> Result<Self, kube::Error> {
        let failed = match &error {
            kube::Error::Service(error) => error.downcast_ref::<Arc<CredentialError>>(),
            _ => None,
        };
        match failed {
            Some(source) => Ok(Self::Credentials { server: server.to_owned(), source: source.clone() }),
            None => Err(error),
        }
    }

    pub(crate) fn is_about_credentials(&self) -> bool {
        matches!(self, Self::Credentials { .. })
    }

    /// What to do about it. Commands are in backticks, without connection flags.
    pub fn hint(&self) -> String {
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
            Self::Credentials { source, .. } => source.remedy(),
            Self::InsecureWithAuthority => String::from(
                "kubectl refuses this too: remove one of them, or pass --insecure-skip-tls-verify or --certificate-authority",
            ),
            Self::ImpersonationWithoutUser => String::from("name the user too: --as USER"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_failed_because_of_its_credentials_is_about_them() {
        let missing = Arc::new(CredentialError::EmptyTokenFile("/token".into()));
        let error = kube::Error::Service(Box::new(missing));
        let error = ConnectionError::of_credentials(error, "https://c").unwrap();
        assert!(error.is_about_credentials());
        assert_eq!(error.to_string(), "the token file /token is empty (for the connection to https://c)");
        assert!(error.hint().contains("tokenFile"));
        let other = kube::Error::Service(Box::new(std::io::Error::other("no route")));
        assert!(ConnectionError::of_credentials(other, "https://c").is_err());
    }
}
