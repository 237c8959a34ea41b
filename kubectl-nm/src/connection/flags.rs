//! kubectl's connection flags.
//!
//! A plugin gets every flag after its name unseen by kubectl, so it has to know them itself. They are accepted
//! before and after the verb, and those that mean nothing here say so in their help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::boolean;
use crate::args::duration;
use crate::args::namespace_name;

const HEADING: &str = "Connection, as in kubectl";

/// The flags that say which cluster to talk to, and as whom.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub(crate) struct ConnectionFlags {
    /// Path to the kubeconfig file
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The kubeconfig cluster to use
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) cluster: Option<String>,

    /// The kubeconfig user to use
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) user: Option<String>,

    /// Address and port of the API server
    #[arg(long, short = 's', global = true, value_name = "URL", hide_short_help = true)]
    pub(crate) server: Option<String>,

    /// User to impersonate, such as system:serviceaccount:NAMESPACE:NAME
    #[arg(long = "as", global = true, value_name = "USER", hide_short_help = true)]
    pub(crate) as_user: Option<String>,

    /// Group to impersonate; may be repeated
    #[arg(long, global = true, value_name = "GROUP", hide_short_help = true)]
    pub(crate) as_group: Vec<String>,

    /// UID to impersonate
    #[arg(long, global = true, value_name = "UID", hide_short_help = true)]
    pub(crate) as_uid: Option<String>,

    /// Extra attribute of the user to impersonate; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = key_value, hide_short_help = true)]
    pub(crate) as_user_extra: Vec<(String, String)>,

    /// Bearer token for the API server
    #[arg(long, global = true, value_name = "TOKEN", hide_short_help = true, conflicts_with = "username")]
    pub(crate) token: Option<String>,

    /// User name for basic authentication
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) username: Option<String>,

    /// Password for basic authentication
    #[arg(long, global = true, value_name = "PASSWORD", hide_short_help = true)]
    pub(crate) password: Option<String>,

    /// Client certificate file for TLS
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) client_certificate: Option<PathBuf>,

    /// Client key file for TLS
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) client_key: Option<PathBuf>,

    /// Certificate file of the certificate authority
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) certificate_authority: Option<PathBuf>,

    /// Do not check the server's certificate, which makes the connection insecure
    #[arg(long, global = true, value_name = "BOOL", hide_short_help = true, value_parser = boolean::parse,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) insecure_skip_tls_verify: Option<bool>,

    /// Name to expect in the server's certificate, if not that of its address
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) tls_server_name: Option<String>,

    /// How long a single request may take, such as 10s; 0: as long as it likes. Watches are not limited
    #[arg(long, global = true, value_name = "DURATION", hide_short_help = true,
        value_parser = duration::parse_or_seconds)]
    request_timeout: Option<Duration>,

    /// Where nm-reconciler is, for commands about it; maintenances are in no namespace
    #[arg(long, short = 'n', global = true, value_name = "NAME", hide_short_help = true,
        value_parser = namespace_name::parse)]
    pub(crate) namespace: Option<String>,

    /// Accepted without effect: nothing is cached
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    cache_dir: Option<PathBuf>,

    /// Accepted without effect: responses are never compressed
    #[arg(long, global = true, value_name = "BOOL", hide_short_help = true, value_parser = boolean::parse,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    disable_compression: Option<bool>,

    /// Accepted without effect: any supported server will do
    #[arg(long, global = true, value_name = "BOOL", hide_short_help = true, value_parser = boolean::parse,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    match_server_version: Option<bool>,

    /// Accepted without effect: there is no log
    #[arg(long = "v", short = 'v', global = true, value_name = "LEVEL", hide_short_help = true,
        action = ArgAction::Set, allow_negative_numbers = true)]
    verbosity: Option<i32>,
}

impl ConnectionFlags {
    /// The flags that lead to the same cluster, each with a blank before it and quoted for a shell: for commands that
    /// people paste. Credentials are left out: what is shown may be copied anywhere.
    pub(crate) fn to_paste(&self) -> String {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let single = [
            ("kubeconfig", path(&self.kubeconfig)),
            ("context", self.context.clone()),
            ("cluster", self.cluster.clone()),
            ("user", self.user.clone()),
            ("server", self.server.clone()),
            ("certificate-authority", path(&self.certificate_authority)),
            ("tls-server-name", self.tls_server_name.clone()),
            ("insecure-skip-tls-verify", self.insecure_skip_tls_verify.map(|skip| skip.to_string())),
            ("as", self.as_user.clone()),
            ("as-uid", self.as_uid.clone()),
        ];
        let groups = self.as_group.iter().map(|group| ("as-group", group.clone()));
        let given = single.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given
            .chain(groups)
            .fold(String::new(), |line, (name, value)| format!("{line} --{name}={}", quoted(&value)))
    }

    /// Whether it is said how long a single request may take.
    pub(crate) fn limits_requests(&self) -> bool {
        self.request_timeout.is_some()
    }

    /// How long a single request may take; `None` is unlimited.
    pub(crate) fn request_timeout(&self) -> Option<Duration> {
        self.request_timeout.filter(|timeout| !timeout.is_zero())
    }
}

/// A word that a shell takes for exactly this text.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Reads `key=value`.
fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(String::from("it is not of the form KEY=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_paste_name_the_cluster_and_no_secret() {
        assert_eq!(ConnectionFlags::default().to_paste(), "");
        let flags = ConnectionFlags {
            context: Some("prod eu's".into()),
            server: Some("https://c:6443".into()),
            as_group: vec!["a".into(), "b".into()],
            token: Some("secret".into()),
            ..ConnectionFlags::default()
        };
        let said = r" --context='prod eu'\''s' --server=https://c:6443 --as-group=a --as-group=b";
        assert_eq!(flags.to_paste(), said);
    }
}
