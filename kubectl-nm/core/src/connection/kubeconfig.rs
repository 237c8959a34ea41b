//! Finding, merging and overriding kubeconfigs by kubectl's rules.
//!
//! The result is a kubeconfig with one context, one cluster and one user, with the flags applied. From it, kube reads
//! certificates; `nm-connection` reads tokens and runs credential programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster, NamedContext,
};

use crate::connection::error::ConnectionError;
use crate::connection::flags::ConnectionFlags;

#[derive(Debug, PartialEq)]
pub(super) struct KubeconfigFiles {
    /// In the order of precedence.
    pub(super) paths: Vec<PathBuf>,
    /// Whether a missing file is an error, as it is if a flag names it.
    required: bool,
}

impl KubeconfigFiles {
    pub(super) fn from_process(flags: &ConnectionFlags) -> Self {
        Self::new(flags.kubeconfig.as_deref(), std::env::var_os("KUBECONFIG"), std::env::home_dir())
    }

    fn new(flag: Option<&Path>, variable: Option<OsString>, home: Option<PathBuf>) -> Self {
        if let Some(path) = flag {
            return Self { paths: vec![path.to_owned()], required: true };
        }
        let listed: Vec<PathBuf> = variable
            .map(|list| std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect())
            .unwrap_or_default();
        let paths = if listed.is_empty() {
            vec![home.unwrap_or_default().join(".kube").join("config")]
        } else {
            listed
        };
        Self { paths, required: false }
    }

    /// Reads and merges the files; the first one that sets a value takes precedence. Missing files count as empty.
    pub(super) fn read(&self) -> Result<Kubeconfig, ConnectionError> {
        let mut merged = Kubeconfig::default();
        for path in &self.paths {
            if path.exists() {
                if ends_within_a_character(path) {
                    let why = "it is UTF-16 that ends within a character".to_owned();
                    return Err(ConnectionError::Unreadable { path: path.clone(), why });
                }
                let read = Kubeconfig::read_from(path).map_err(|error| unreadable(path, &error))?;
                merged = merged.merge(read)?;
            } else if self.required {
                return Err(ConnectionError::MissingFile(path.clone()));
            }
        }
        Ok(merged)
    }
}

/// Whether the file is UTF-16, by its byte order mark, and has an odd number of bytes: kube 5.0 panics then.
fn ends_within_a_character(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap_or_default();
    matches!(bytes[..], [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) && bytes.len() % 2 == 1
}

/// Why a file cannot be read, without the parser's excerpt of it, which may contain credentials.
fn unreadable(path: &Path, error: &KubeconfigError) -> ConnectionError {
    let why = match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::Parse(error) => error.to_string(),
        other => other.to_string(),
    };
    let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    ConnectionError::Unreadable { path: path.to_owned(), why }
}

pub(super) fn is_empty(kubeconfig: &Kubeconfig) -> bool {
    kubeconfig.clusters.is_empty() && kubeconfig.contexts.is_empty() && kubeconfig.auth_infos.is_empty()
}

/// The kubeconfig with the flags applied: one context, one cluster, one user.
pub(super) fn effective(
    kubeconfig: &Kubeconfig,
    flags: &ConnectionFlags,
) -> Result<Kubeconfig, ConnectionError> {
    let context = context(kubeconfig, flags)?;
    let name = flags.cluster.as_ref().unwrap_or(&context.cluster);
    let mut cluster = match find("cluster", name, &kubeconfig.clusters, |named| {
        (named.name.as_str(), named.cluster.as_ref())
    }) {
        // --server alone is enough.
        Err(_) if flags.cluster.is_none() && flags.server.is_some() => Cluster::default(),
        found => found?,
    };
    drop_empty(&mut cluster);
    override_cluster(&mut cluster, flags);
    let has_authority =
        cluster.certificate_authority.is_some() || cluster.certificate_authority_data.is_some();
    if has_authority && cluster.insecure_skip_tls_verify == Some(true) {
        return Err(ConnectionError::InsecureWithAuthority);
    }
    match cluster.server.as_deref() {
        None | Some("") => return Err(ConnectionError::NoServer(name.clone())),
        Some(server) => cluster.server = Some(with_scheme(server, &cluster)),
    }
    let mut user = user(kubeconfig, flags, &context)?;
    override_user(&mut user, flags)?;

    let only = String::from("effective");
    Ok(Kubeconfig {
        current_context: Some(only.clone()),
        contexts: vec![NamedContext {
            name: only.clone(),
            context: Some(Context { cluster: only.clone(), user: Some(only.clone()), ..context }),
            ..NamedContext::default()
        }],
        clusters: vec![NamedCluster {
            name: only.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo { name: only, auth_info: Some(user), ..NamedAuthInfo::default() }],
        ..Kubeconfig::default()
    })
}

pub(super) fn proxy_url(effective: &Kubeconfig) -> Option<String> {
    let cluster = effective.clusters.first()?.cluster.as_ref()?;
    cluster.proxy_url.clone()
}

fn context(kubeconfig: &Kubeconfig, flags: &ConnectionFlags) -> Result<Context, ConnectionError> {
    let chosen =
        flags.context.as_ref().or(kubeconfig.current_context.as_ref()).filter(|name| !name.is_empty());
    match chosen {
        Some(name) => {
            find("context", name, &kubeconfig.contexts, |named| (named.name.as_str(), named.context.as_ref()))
        }
        None if flags.server.is_some() || flags.cluster.is_some() => Ok(Context::default()),
        None => {
            let known = kubeconfig.contexts.iter().map(|named| named.name.clone()).collect();
            Err(ConnectionError::NoContext(known))
        }
    }
}

fn user(
    kubeconfig: &Kubeconfig,
    flags: &ConnectionFlags,
    context: &Context,
) -> Result<AuthInfo, ConnectionError> {
    let find = |name| {
        find("user", name, &kubeconfig.auth_infos, |named| (named.name.as_str(), named.auth_info.as_ref()))
    };
    match (&flags.user, &context.user) {
        (Some(name), _) => find(name),
        // As in client-go, a context may name a user that does not exist; requests are then anonymous.
        (None, Some(name)) => Ok(find(name).unwrap_or_default()),
        (None, None) => Ok(AuthInfo::default()),
    }
}

/// The value with this name in a list of a kubeconfig.
fn find<N, T: Clone>(
    kind: &'static str,
    name: &str,
    list: &[N],
    entry: fn(&N) -> (&str, Option<&T>),
) -> Result<T, ConnectionError> {
    let found = list.iter().map(entry).find(|(known, _)| *known == name);
    found.and_then(|(_, value)| value.cloned()).ok_or_else(|| ConnectionError::Unknown {
        kind,
        name: name.to_owned(),
        known: list.iter().map(|named| entry(named).0.to_owned()).collect(),
    })
}

/// As in kubectl, an empty value is as good as none.
fn drop_empty(cluster: &mut Cluster) {
    let values = [
        &mut cluster.certificate_authority,
        &mut cluster.certificate_authority_data,
        &mut cluster.tls_server_name,
        &mut cluster.proxy_url,
    ];
    for value in values {
        value.take_if(|value| value.is_empty());
    }
}

fn override_cluster(cluster: &mut Cluster, flags: &ConnectionFlags) {
    if flags.server.is_some() {
        cluster.server.clone_from(&flags.server);
    }
    // The server name in the kubeconfig belongs to the other server.
    if flags.server.is_some() || flags.tls_server_name.is_some() {
        cluster.tls_server_name.clone_from(&flags.tls_server_name);
    }
    // Skipping verification and trusting an authority exclude each other, so either flag replaces both settings.
    if flags.insecure_skip_tls_verify == Some(true) || flags.certificate_authority.is_some() {
        cluster.insecure_skip_tls_verify = flags.insecure_skip_tls_verify;
        cluster.certificate_authority = flags.certificate_authority.as_deref().map(text);
        cluster.certificate_authority_data = None;
    } else if flags.insecure_skip_tls_verify == Some(false) {
        cluster.insecure_skip_tls_verify = Some(false);
    }
}

pub(super) fn override_user(user: &mut AuthInfo, flags: &ConnectionFlags) -> Result<(), ConnectionError> {
    if flags.token.is_some() || flags.username.is_some() {
        // As in kubectl, they replace all other credentials except certificates.
        (user.token, user.token_file, user.username, user.password) = (None, None, None, None);
        (user.exec, user.auth_provider) = (None, None);
        user.token = flags.token.as_deref().map(Into::into);
        user.username.clone_from(&flags.username);
        user.password = flags.username.as_ref().map(|_| flags.password.as_deref().unwrap_or_default().into());
    }
    if let Some(file) = &flags.client_certificate {
        (user.client_certificate, user.client_certificate_data) = (Some(text(file)), None);
    }
    if let Some(file) = &flags.client_key {
        (user.client_key, user.client_key_data) = (Some(text(file)), None);
    }
    if let Some(name) = &flags.as_user {
        user.impersonate = Some(name.clone());
    }
    if let Some(uid) = &flags.as_uid {
        user.impersonate_uid = Some(uid.clone());
    }
    if !flags.as_group.is_empty() {
        user.impersonate_groups = Some(flags.as_group.clone());
    }
    for (key, value) in &flags.as_user_extra {
        let extra = user.impersonate_user_extra.get_or_insert_default();
        extra.entry(key.clone()).or_default().push(value.clone());
    }
    let impersonates_more = user.impersonate_uid.is_some()
        || user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
        || user.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
    if impersonates_more && user.impersonate.is_none() {
        return Err(ConnectionError::ImpersonationWithoutUser);
    }
    Ok(())
}

/// The address with a scheme: as in client-go, https if TLS is configured, else http.
fn with_scheme(server: &str, cluster: &Cluster) -> String {
    let tls = cluster.certificate_authority.is_some()
        || cluster.certificate_authority_data.is_some()
        || cluster.insecure_skip_tls_verify == Some(true);
    match server {
        _ if server.contains("://") => server.to_owned(),
        _ if tls => format!("https://{server}"),
        _ => format!("http://{server}"),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
