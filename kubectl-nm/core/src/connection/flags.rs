//! kubectl's connection flags.
//!
//! kubectl passes every flag after the name of a plugin to the plugin, so the plugin must know kubectl's flags. They are
//! accepted before and after the command. `kubectl nm options` shows which of them have no effect.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::{duration, names, parse_boolean, whole_number};
use crate::terminal::command_context::shell_quoted;

const HEADING: &str = "Connection, as in kubectl";

/// The flags that select the cluster and the user.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub struct ConnectionFlags {
    /// Path to the kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,

    /// The kubeconfig cluster to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,

    /// The kubeconfig user to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Address and port of the API server
    #[arg(long, short = 's', global = true, value_name = "URL")]
    pub(crate) server: Option<String>,

    /// User to impersonate, such as system:serviceaccount:NAMESPACE:NAME
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) as_user: Option<String>,

    /// Group to impersonate; may be repeated
    #[arg(long, global = true, value_name = "GROUP")]
    pub as_group: Vec<String>,

    /// UID to impersonate
    #[arg(long, global = true, value_name = "UID")]
    pub(crate) as_uid: Option<String>,

    /// Extra attribute of the user to impersonate; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) as_user_extra: Vec<(String, String)>,

    /// Bearer token for the API server
    #[arg(long, global = true, value_name = "TOKEN", conflicts_with = "username")]
    pub(crate) token: Option<String>,

    /// User name for basic authentication
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) username: Option<String>,

    /// Password for basic authentication
    #[arg(long, global = true, value_name = "PASSWORD")]
    pub(crate) password: Option<String>,

    /// Client certificate file for TLS
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_certificate: Option<PathBuf>,

    /// Client key file for TLS
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,

    /// Certificate file of the certificate authority
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,

    /// Do not verify the server's certificate; this makes the connection insecure
    #[arg(long, global = true, value_name = "BOOL", value_parser = parse_boolean,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) insecure_skip_tls_verify: Option<bool>,

    /// Server name to expect in the server's certificate, if not the host in its address
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,

    /// Timeout of a single request, such as 10s; 0 means none. It does not apply to watches
    #[arg(long, global = true, value_name = "DURATION",
        value_parser = duration::parse_or_seconds)]
    request_timeout: Option<Duration>,

    /// Namespace of nm-reconciler, for commands about it; maintenances are cluster-scoped
    #[arg(long, short = 'n', global = true, value_name = "NAME",
        value_parser = names::parse_namespace)]
    pub namespace: Option<String>,

    /// Accepted without effect: nothing is cached
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,

    /// Accepted without effect: responses are never compressed
    #[arg(long, global = true, value_name = "BOOL", value_parser = parse_boolean,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    disable_compression: Option<bool>,

    /// Accepted without effect: the server version is not checked
    #[arg(long, global = true, value_name = "BOOL", value_parser = parse_boolean,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    match_server_version: Option<bool>,

    /// Report every pod in the lines of a watch and of --wait, not only nodes and blocked pods; any level above 0 does
    #[arg(long = "v", short = 'v', global = true, value_name = "LEVEL", action = ArgAction::Set,
        value_parser = whole_number::<i32>,
        num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    verbosity: Option<i32>,
}

impl ConnectionFlags {
    /// Whether more is reported than people can follow.
    pub fn is_verbose(&self) -> bool {
        self.verbosity.is_some_and(|level| level > 0)
    }

    /// The given flags that select the cluster and the user, quoted for a shell and each with a leading blank, for commands
    /// to paste. Credentials are left out, because messages may be copied anywhere.
    pub fn to_paste(&self) -> String {
        let given = self.given().into_iter();
        given.fold(String::new(), |line, (name, value)| format!("{line} --{name}={}", shell_quoted(&value)))
    }

    /// The given flags for kubectl as a program that is started: those to paste, and the credentials.
    pub(crate) fn for_kubectl(&self) -> Vec<String> {
        let extra = self.as_user_extra.iter().map(|(key, value)| ("as-user-extra", format!("{key}={value}")));
        let credentials = [
            ("token", self.token.clone()),
            ("username", self.username.clone()),
            ("password", self.password.clone()),
            ("client-certificate", shown_path(self.client_certificate.as_ref())),
            ("client-key", shown_path(self.client_key.as_ref())),
        ];
        let credentials = credentials.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let all = self.given().into_iter().chain(extra).chain(credentials);
        all.map(|(name, value)| format!("--{name}={value}")).collect()
    }

    fn given(&self) -> Vec<(&'static str, String)> {
        let single = [
            ("kubeconfig", shown_path(self.kubeconfig.as_ref())),
            ("context", self.context.clone()),
            ("cluster", self.cluster.clone()),
            ("user", self.user.clone()),
            ("server", self.server.clone()),
            ("certificate-authority", shown_path(self.certificate_authority.as_ref())),
            ("tls-server-name", self.tls_server_name.clone()),
            ("insecure-skip-tls-verify", self.insecure_skip_tls_verify.map(|skip| skip.to_string())),
            ("as", self.as_user.clone()),
            ("as-uid", self.as_uid.clone()),
        ];
        let groups = self.as_group.iter().map(|group| ("as-group", group.clone()));
        let given = single.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.chain(groups).collect()
    }

    pub(crate) fn limits_requests(&self) -> bool {
        self.request_timeout.is_some()
    }

    /// The timeout of a single request; `None` means no limit.
    pub(crate) fn request_timeout(&self) -> Option<Duration> {
        self.request_timeout.filter(|timeout| !timeout.is_zero())
    }
}

fn shown_path(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(String::from("expected KEY=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_to_paste_name_the_cluster_and_no_secret() {
        assert_eq!(ConnectionFlags::default().to_paste(), "");
        let flags = ConnectionFlags {
            context: Some("prod eu's".into()),
            server: Some("https://c:6443".into()),
            as_group: vec!["a".into(), "b".into()],
            token: Some("secret".into()),
            ..ConnectionFlags::default()
        };
        assert_eq!(
            shlex::split(&flags.to_paste()).unwrap(),
            ["--context=prod eu's", "--server=https://c:6443", "--as-group=a", "--as-group=b"]
        );
        assert_eq!(
            flags.for_kubectl(),
            [
                "--context=prod eu's",
                "--server=https://c:6443",
                "--as-group=a",
                "--as-group=b",
                "--token=secret"
            ]
        );
    }
}
