//! Why there are no credentials for a request.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use jiff::Timestamp;

use crate::tls::identity::IdentityError;

/// Why a user of a kubeconfig has no credentials.
///
/// The output, the arguments and the environment of a credential program may contain credentials and are in no message. Its
/// standard error is meant for people.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file of `tokenFile` cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of `tokenFile` has only white space.
    #[error("the token file {} is empty", .0.display())]
    EmptyTokenFile(PathBuf),
    /// A token or password has a character that no HTTP header may have.
    #[error("the {0} has a character that no HTTP header may have, such as a line break")]
    Header(TokenOrigin),
    /// The user has more than one way to authenticate.
    #[error("the user has both {0} and {1}, and only one of them can be used")]
    Ambiguous(&'static str, &'static str),
    /// The client certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// `auth-provider` names a provider that kubectl has no longer, or never had.
    #[error("the auth-provider \"{0}\" is not supported")]
    AuthProvider(String),
    /// The `id-token` of `auth-provider: oidc` has expired, and only kubectl may use the refresh token.
    #[error("the id-token of auth-provider \"oidc\" {}", id_token(.0.as_ref()))]
    IdToken(Option<Timestamp>),
    /// The credential program cannot provide credentials.
    #[error("the credential program {} {problem}", name(command.as_deref()))]
    Program {
        /// The program, as the kubeconfig names it.
        command: Option<String>,
        /// `installHint` in the kubeconfig.
        install_hint: Option<String>,
        /// What it failed with.
        problem: ProgramError,
    },
}

/// Where a token or password comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum TokenOrigin {
    /// `token`.
    #[strum(to_string = "token of the user")]
    User,
    /// `tokenFile`.
    #[strum(to_string = "token in the token file")]
    File,
    /// `username` and `password`.
    #[strum(to_string = "user name or password")]
    Password,
    /// The output of a credential program.
    #[strum(to_string = "token of the credential program")]
    Program,
    /// `auth-provider`.
    #[strum(to_string = "id-token of the auth-provider")]
    AuthProvider,
}

/// Why a credential program provides no credentials.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// `command` is missing.
    #[error("has no command")]
    NoCommand,
    /// `apiVersion` is none that kubectl supports.
    #[error("has the unsupported apiVersion \"{0}\"")]
    ApiVersion(String),
    /// `interactiveMode` is missing, which `client.authentication.k8s.io/v1` requires.
    #[error("has no interactiveMode, which client.authentication.k8s.io/v1 requires")]
    NoInteractiveMode,
    /// The program asks a person (`interactiveMode: Always`), and nobody can answer.
    #[error("needs a person to log in, and standard input is not a terminal that it can use")]
    NoTerminal,
    /// There is no such file.
    #[error("is not installed: there is no {0}")]
    NotInstalled(String),
    /// It cannot be started.
    #[error("cannot be started: {0}")]
    NotStarted(#[source] io::Error),
    /// It ended with a failure.
    #[error("failed ({status}){}", detail(stderr))]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// What it printed for people, unless that went to the terminal.
        stderr: String,
    },
    /// Its output is not an `ExecCredential`.
    #[error("printed no valid ExecCredential: {0}")]
    Output(String),
    /// This process ends.
    #[error("was ended")]
    Ended,
}

impl CredentialError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::TokenFile { .. } | Self::EmptyTokenFile(_) => {
                String::from("correct users[].user.tokenFile in the kubeconfig, or write a token to the file")
            }
            Self::Header(TokenOrigin::User | TokenOrigin::Password) => {
                String::from("correct users[].user.token in the kubeconfig, or --token")
            }
            Self::Header(TokenOrigin::File) => String::from("write a single token to the file"),
            Self::Header(TokenOrigin::Program | TokenOrigin::AuthProvider) => {
                String::from("log in again; check that `kubectl version` works")
            }
            Self::Ambiguous(..) => String::from("remove one of them from the user in the kubeconfig"),
            Self::Identity(error) => error.remedy(),
            Self::AuthProvider(name) => replacement(name).to_owned(),
            Self::IdToken(_) => String::from(
                "`kubectl version` renews it in the kubeconfig, if it has a refresh token; to renew it here too, replace the \
                 auth-provider by a credential program such as `kubectl oidc-login` (https://github.com/int128/kubelogin)",
            ),
            Self::Program { install_hint, problem, .. } => match problem {
                ProgramError::NotInstalled(_) => install_hint.clone().unwrap_or_else(|| {
                    String::from("install it, or correct users[].user.exec.command in the kubeconfig")
                }),
                ProgramError::NoCommand | ProgramError::ApiVersion(_) | ProgramError::NoInteractiveMode => {
                    String::from(
                        "correct users[].user.exec in the kubeconfig: it needs a command, \
                         apiVersion: client.authentication.k8s.io/v1 and an interactiveMode",
                    )
                }
                ProgramError::NoTerminal => String::from(
                    "run `kubectl version` on a terminal to log in, or set interactiveMode: IfAvailable if the program can log \
                     in without a person",
                ),
                _ => String::from(
                    "a program named in the kubeconfig provides the credentials; check that `kubectl version` works",
                ),
            },
        }
    }
}

fn id_token(expired: Option<&Timestamp>) -> String {
    match expired {
        Some(at) => format!("expired at {}", at.strftime("%Y-%m-%dT%H:%M:%SZ")),
        None => String::from("is missing"),
    }
}

/// The program without its folders.
fn name(command: Option<&str>) -> Cow<'_, str> {
    let name = command.and_then(|command| Path::new(command).file_name());
    name.map_or(Cow::Borrowed("of the kubeconfig"), OsStr::to_string_lossy)
}

fn detail(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// What replaces an auth-provider that kubectl has no longer.
fn replacement(name: &str) -> &'static str {
    match name {
        "gcp" => {
            "use the credential program gke-gcloud-auth-plugin: `gcloud container clusters get-credentials CLUSTER`"
        }
        "azure" => "use the credential program kubelogin: `kubelogin convert-kubeconfig`",
        _ => {
            "replace users[].user.auth-provider in the kubeconfig by a credential program (users[].user.exec)"
        }
    }
}
