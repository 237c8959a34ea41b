//! Credential programs (`users[].user.exec`), by the protocol `client.authentication.k8s.io`.
//!
//! kube's own client starts a program once for each of its uses, and does not renew the certificates that a program issues.

use std::fmt;
use std::io;
use std::process::Stdio;

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::error::{CredentialError, ProgramError, TokenOrigin};
use super::header;
use crate::tls::identity::Identity;

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// What a program issued.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) authorization: Option<HeaderValue>,
    pub(super) identity: Option<Identity>,
    /// When the first of them expires.
    pub(super) expires: Option<Timestamp>,
}

/// The part of an `ExecCredential` that programs print.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Starts the program and reads what it prints. `can_prompt` is whether it may use the terminal.
pub(super) async fn run(exec: &ExecConfig, can_prompt: fn() -> bool) -> Result<Issued, CredentialError> {
    let failed = |problem| CredentialError::Program {
        command: exec.command.clone(),
        install_hint: exec.install_hint.clone().filter(|hint| !hint.trim().is_empty()),
        problem,
    };
    let version = version(exec).map_err(failed)?;
    let output = output(exec, version, can_prompt).await.map_err(failed)?;
    match issued(&output, version) {
        Ok(issued) => Ok(issued),
        Err(Unusable::Output(why)) => Err(failed(ProgramError::Output(why))),
        Err(Unusable::Credential(error)) => Err(error),
    }
}

/// The version of the protocol, if the configuration is valid.
fn version(exec: &ExecConfig) -> Result<&str, ProgramError> {
    match exec.api_version.as_deref().unwrap_or_default() {
        V1 if exec.interactive_mode.is_none() => Err(ProgramError::NoInteractiveMode),
        known @ (V1 | V1BETA1) => Ok(known),
        unknown => Err(ProgramError::ApiVersion(unknown.to_owned())),
    }
}

async fn output(exec: &ExecConfig, version: &str, can_prompt: fn() -> bool) -> Result<Vec<u8>, ProgramError> {
    let name = exec.command.as_deref().filter(|name| !name.is_empty()).ok_or(ProgramError::NoCommand)?;
    let is_interactive = match &exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !can_prompt() => return Err(ProgramError::NoTerminal),
        Some(ExecInteractiveMode::Always) => true,
        Some(ExecInteractiveMode::IfAvailable) | None => can_prompt(),
    };
    let mut spec = json!({"interactive": is_interactive});
    if exec.provide_cluster_info
        && let Some(cluster) = &exec.cluster
    {
        spec["cluster"] = json!(cluster);
    }
    let info = json!({"apiVersion": version, "kind": "ExecCredential", "spec": spec});
    let mut command = Command::new(name);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
    // A program that may have to ask, if only for a page to be opened, is read while it runs.
    let is_silent = exec.interactive_mode == Some(ExecInteractiveMode::Never);
    command.stderr(if is_silent { Stdio::piped() } else { Stdio::inherit() });
    let child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().map_err(|error| match error {
        missing if missing.kind() == io::ErrorKind::NotFound => {
            let place = if name.contains(std::path::is_separator) { "" } else { " in PATH" };
            ProgramError::NotInstalled(format!("{name}{place}"))
        }
        other => ProgramError::NotStarted(other),
    })?;
    let output = child.wait_with_output().await.map_err(ProgramError::NotStarted)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(ProgramError::Failed { status: output.status, stderr })
}

enum Unusable {
    Output(String),
    Credential(CredentialError),
}

/// Reads the output. As in client-go, it may be YAML.
fn issued(output: &[u8], version: &str) -> Result<Issued, Unusable> {
    let wrong = |why: &dyn fmt::Display| Unusable::Output(why.to_string());
    // The parser quotes what it cannot parse, which may be a credential.
    let printed: ExecCredential =
        serde_saphyr::from_slice(output).map_err(|_| wrong(&"it cannot be parsed"))?;
    if printed.kind != "ExecCredential" || printed.api_version != version {
        let (kind, api_version) = (&printed.kind, &printed.api_version);
        return Err(wrong(&format_args!("it is {kind:?} of {api_version:?} instead of {version:?}")));
    }
    let status = printed.status.ok_or_else(|| wrong(&"it has no status"))?;
    let set = |value: Option<String>| value.filter(|value| !value.is_empty());
    let identity = match (set(status.client_certificate_data), set(status.client_key_data)) {
        (Some(certificate), Some(key)) => {
            let identity = Identity::from_pem(certificate.as_bytes(), key.as_bytes());
            Some(identity.map_err(|error| Unusable::Credential(error.into()))?)
        }
        (None, None) => None,
        (Some(_), None) => return Err(wrong(&"it has a client certificate without its key")),
        (None, Some(_)) => return Err(wrong(&"it has a client key without its certificate")),
    };
    let authorization = set(status.token).map(|token| header::bearer(&token, TokenOrigin::Program));
    let authorization = authorization.transpose().map_err(Unusable::Credential)?;
    if authorization.is_none() && identity.is_none() {
        return Err(wrong(&"it has neither a token nor a client certificate"));
    }
    let expires = set(status.expiration_timestamp).map(|at| at.parse::<Timestamp>());
    let expires = expires.transpose().map_err(|_| wrong(&"its expirationTimestamp is no time"))?;
    let certificate = identity.as_ref().and_then(Identity::expires);
    let expires = expires.into_iter().chain(certificate).min();
    Ok(Issued { authorization, identity, expires })
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
