//! The command line.

use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, Command, CommandFactory, FromArgMatches, Parser, ValueEnum};
use nm_shared::PodReference;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use tracing::level_filters::LevelFilter;

use crate::config::environment::{DEFAULT_NAMESPACE, Environment};
use crate::server::AddressFlag;

/// Reconciles `NodeMaintenance` objects: cordons and drains nodes, and returns them to service.
///
/// Connects like any Kubernetes client: with KUBECONFIG, ~/.kube/config, or the service account of its pod.
#[derive(Debug, Clone, Parser)]
#[command(name = "nm-reconciler", version)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(crate) struct Flags {
    /// How many evictions may be in progress at once in the whole cluster, not counting those that take
    /// much longer than the others; one node uses at most half of them
    #[arg(long, env = "NM_MAX_CONCURRENT_EVICTIONS", value_name = "N", default_value = "128")]
    pub(crate) max_concurrent_evictions: NonZeroUsize,

    /// How many nodes may be unavailable at once, as a number or a percentage such as 10%; further maintenances are queued.
    /// Nodes that are not Ready count as unavailable. Without this flag there is no limit
    #[arg(long, env = "NM_MAX_UNAVAILABLE", value_name = "N|N%")]
    pub(crate) max_unavailable: Option<MaxUnavailable>,

    /// etcd runs outside of the cluster: maintenances do not wait for its quorum, and the webhook refuses none because of it.
    /// Without this flag, the members of etcd are the nodes with the role etcd or, without such nodes, the control-plane
    /// nodes, and the arbiters
    #[arg(long, env = "NM_EXTERNAL_ETCD")]
    pub(crate) external_etcd: bool,

    /// The pod that this program runs in, as NAMESPACE/NAME. When its own node is drained, it is evicted last
    #[arg(long, env = "NM_OWN_POD", value_name = "NAMESPACE/NAME", value_parser = parse_pod)]
    pub(crate) own_pod: Option<PodReference>,

    /// Show the state of a maintenance in the conditions of its node: `MaintenancePlanned`, `MaintenanceInProgress`,
    /// `DrainInProgress` and `Drained` of KEP-5683. Requires permission to patch nodes/status, which `kubectl nm install --grant
    /// node-conditions` or the component `node_conditions` of the manifests grants
    #[arg(long, env = "NM_NODE_CONDITIONS")]
    pub(crate) node_conditions: bool,

    /// Stand by while another replica leads. Enabled by default in a pod. Outside of a pod it is disabled by default, and
    /// the program does not start while a replica leads, unless this flag is set to false
    #[arg(
        long, env = "NM_LEADER_ELECT", value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, hide_default_value = true,
    )]
    pub(crate) leader_elect: bool,

    /// Whether to refuse to start while another reconciler leads: leader election is neither enabled nor explicitly
    /// disabled.
    #[arg(skip)]
    pub(crate) refuse_beside_leader: bool,

    /// After how many seconds without progress a pod is blocked that waits for its disruption budget, because pods that were
    /// evicted before have not been replaced. A pod whose budget can never allow its eviction, or not before the node reports
    /// again, is blocked at once
    #[arg(
        long, env = "NM_BLOCKED_AFTER", value_name = "SECONDS", default_value = "30",
        value_parser = clap::value_parser!(u64).range(0..=86_400),
    )]
    pub(crate) blocked_after: u64,

    /// After how many seconds a virtual machine is blocked that KubeVirt is to migrate, if it begins no migration although no
    /// other is under way
    #[arg(
        long, env = "NM_MIGRATION_START_TIMEOUT", value_name = "SECONDS", default_value = "120",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
    )]
    pub(crate) migration_start_timeout: u64,

    /// How many seconds the lease of the leader is valid after each renewal; the leader stops writing after four fifths of
    /// it. A replica that is killed is replaced after this time
    #[arg(
        long, env = "NM_LEASE_DURATION", value_name = "SECONDS", default_value = "15",
        value_parser = clap::value_parser!(u64).range(3..=3600),
    )]
    pub(crate) lease_duration: u64,

    /// The namespace of the program's own objects. Default: that of its pod, or node-maintenance outside of a pod
    #[arg(
        long, env = "NM_NAMESPACE", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
        default_value = DEFAULT_NAMESPACE, hide_default_value = true,
    )]
    pub(crate) namespace: String,

    /// Where /livez, /readyz, /healthz and /metrics are served over plain HTTP; an empty address disables them. Default in
    /// a pod: [::]:8080, which IPv4 reaches too, or 0.0.0.0:8080 if IPv6 is disabled. Outside of a pod: disabled
    #[arg(
        long,
        env = "NM_METRICS_ADDR",
        value_name = "IP:PORT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) metrics_addr: AddressFlag,

    /// Where the validating webhook is served over TLS; an empty address disables it. Default in a pod: [::]:9443, which
    /// IPv4 reaches too, or 0.0.0.0:9443 if IPv6 is disabled. Outside of a pod: disabled
    #[arg(
        long,
        env = "NM_WEBHOOK_ADDR",
        value_name = "IP:PORT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) webhook_addr: AddressFlag,

    /// Serve the webhook with tls.crt and tls.key from this directory, which for example cert-manager renews, instead of
    /// the program's own certificates. The caBundle of the webhook configuration is then not changed
    #[arg(
        long,
        env = "NM_WEBHOOK_CERT_DIR",
        value_name = "DIRECTORY",
        conflicts_with = "webhook_cert_lifetime"
    )]
    pub(crate) webhook_cert_dir: Option<PathBuf>,

    /// How many seconds the program's own webhook certificates are valid. They are renewed after half of this time. Default:
    /// 90 days
    #[arg(
        long, env = "NM_WEBHOOK_CERT_LIFETIME", value_name = "SECONDS", default_value = "7776000",
        hide_default_value = true, value_parser = clap::value_parser!(u32).range(10..),
    )]
    pub(crate) webhook_cert_lifetime: u32,

    /// The format of log lines, which are written to stderr
    #[arg(long, env = "NM_LOG_FORMAT", value_enum, default_value = "json")]
    pub(crate) log_format: LogFormat,

    /// The log level: error, warn, info, debug, trace or off
    #[arg(long, env = "NM_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LevelFilter,
}

/// The prefix of the environment variables of all flags.
const ENV_PREFIX: &str = "NM_";

/// The prefix of the variables that Kubernetes sets in pods for this program's own Services, unless the pod disables
/// service links, as the manifests do.
const SERVICE_ENV_PREFIX: &str = "NM_RECONCILER_";

impl Flags {
    /// Parses the command line and the environment, which has variables of these names. Some defaults depend on where the
    /// program runs.
    ///
    /// # Errors
    /// A message about settings that are invalid, unknown or contradictory; or the help that was requested.
    pub(crate) fn read(
        args: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = OsString>,
        environment: Environment,
    ) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(args)?;
        if let Some(name) = variables.into_iter().find(|name| is_unknown(&command, name)) {
            let why = format!(
                "unknown environment variable {}: correct its name (see --help) or unset it",
                name.to_string_lossy(),
            );
            return Err(command.error(ErrorKind::UnknownArgument, why));
        }
        let mut flags = Self::from_arg_matches(&matches)?;
        let given = |id: &str| {
            matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        if let Environment::Pod { namespace } = environment {
            flags.set_pod_defaults(namespace, given);
        }
        flags.refuse_beside_leader = !flags.leader_elect && !given("leader_elect");
        if !flags.leader_elect && given("lease_duration") {
            let why = "--lease-duration has no effect, because --leader-elect is disabled: enable --leader-elect, or \
                       remove --lease-duration";
            return Err(command.error(ErrorKind::ArgumentConflict, why));
        }
        for (id, flag) in
            [("webhook_cert_dir", "--webhook-cert-dir"), ("webhook_cert_lifetime", "--webhook-cert-lifetime")]
        {
            if flags.webhook_addr.0.is_none() && given(id) {
                let why = format!(
                    "{flag} has no effect, because the webhook is disabled: set --webhook-addr, or remove {flag}"
                );
                return Err(command.error(ErrorKind::ArgumentConflict, why));
            }
        }
        Ok(flags)
    }

    /// Sets the defaults in a pod, which is one of several replicas and has a network namespace of its own.
    fn set_pod_defaults(&mut self, namespace: String, given: impl Fn(&str) -> bool) {
        let on_port = |port: u16| AddressFlag(Some((Ipv6Addr::UNSPECIFIED, port).into()));
        self.leader_elect |= !given("leader_elect");
        if !given("namespace") {
            self.namespace = namespace;
        }
        if !given("metrics_addr") {
            self.metrics_addr = on_port(8080);
        }
        if !given("webhook_addr") {
            self.webhook_addr = on_port(9443);
        }
    }
}

/// Whether a variable has our prefix but is not a setting. A misspelt limit must not be ignored.
fn is_unknown(command: &Command, variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with(ENV_PREFIX)
        && !name.starts_with(SERVICE_ENV_PREFIX)
        && !command.get_arguments().any(|argument| argument.get_env() == Some(variable))
}

fn parse_pod(text: &str) -> Result<PodReference, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(PodReference { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("must be NAMESPACE/NAME".to_owned()),
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Plain text.
    Text,
}

#[cfg(test)]
#[path = "flags_tests.rs"]
mod tests;
