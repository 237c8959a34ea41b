//! The command line.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, Command, CommandFactory, FromArgMatches, Parser, ValueEnum};
use nm_shared::PodReference;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use tracing::level_filters::LevelFilter;

use crate::config::environment::{Surroundings, USUAL_NAMESPACE};
use crate::server::{Address, Place};

/// Puts nodes into maintenance for as long as a `NodeMaintenance` for them exists.
///
/// The cluster is taken as by any Kubernetes client: from KUBECONFIG, from ~/.kube/config, or from the service account
/// of the pod it runs in.
#[derive(Debug, Clone, Parser)]
#[command(name = "nm-reconciler", version)]
pub(crate) struct Flags {
    /// How many evictions may be under way at once in the whole cluster, not counting those whose answer takes over a second;
    /// one node has half of them at most
    #[arg(long, env = "NM_MAX_CONCURRENT_EVICTIONS", value_name = "N", default_value = "32")]
    pub(crate) max_concurrent_evictions: NonZeroUsize,

    /// How many nodes may be unavailable at once, as a number or a share such as 10%; further maintenances wait in line.
    /// Nodes that are not Ready count. No limit if it is not given
    #[arg(long, env = "NM_MAX_UNAVAILABLE", value_name = "N|N%")]
    pub(crate) max_unavailable: Option<MaxUnavailable>,

    /// The pod that this program runs in, as NAMESPACE/NAME: on a node that is drained it goes last
    #[arg(long, env = "NM_OWN_POD", value_name = "NAMESPACE/NAME", value_parser = parse_pod)]
    pub(crate) own_pod: Option<PodReference>,

    /// Tell on the nodes themselves where their maintenance stands, by the conditions `DrainInProgress`, `Drained` and
    /// `MaintenanceInProgress` of KEP-5683. That takes the permission to patch nodes/status, which is granted by `kubectl nm
    /// install --grant node-conditions` or by the component `node_conditions` of the manifests
    #[arg(long, env = "NM_NODE_CONDITIONS")]
    pub(crate) node_conditions: bool,

    /// Stand by while another replica leads. On by default in a pod. Off by default outside, where the program does not
    /// start while one leads, unless this is given as false
    #[arg(
        long, env = "NM_LEADER_ELECT", value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, hide_default_value = true,
    )]
    pub(crate) leader_elect: bool,

    /// Whether not to start while another leads: nobody has said that there is to be no election.
    #[arg(skip)]
    pub(crate) heeds_leader: bool,

    /// For how many seconds a replica leads after each renewal; one that is killed is replaced after so long
    #[arg(
        long, env = "NM_LEASE_DURATION", value_name = "SECONDS", default_value = "15",
        value_parser = clap::value_parser!(u64).range(3..=3600),
    )]
    pub(crate) lease_duration: u64,

    /// The namespace of what belongs to this program. By default the pod's own; outside of a pod, node-maintenance
    #[arg(
        long, env = "NM_NAMESPACE", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
        default_value = USUAL_NAMESPACE, hide_default_value = true,
    )]
    pub(crate) namespace: String,

    /// Where /livez, /readyz, /healthz and /metrics are served, over plain HTTP; an empty address serves them nowhere.
    /// [::]:8080 in a pod, which IPv4 reaches too, or 0.0.0.0:8080 where IPv6 is off; nowhere outside
    #[arg(
        long,
        env = "NM_METRICS_ADDR",
        value_name = "IP:PORT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) metrics_addr: Address,

    /// Where the validating webhook is served, over TLS; an empty address serves it nowhere. [::]:9443 in a pod,
    /// which IPv4 reaches too, or 0.0.0.0:9443 where IPv6 is off; nowhere outside
    #[arg(
        long,
        env = "NM_WEBHOOK_ADDR",
        value_name = "IP:PORT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) webhook_addr: Address,

    /// Serve the webhook with tls.crt and tls.key of this directory, such as cert-manager renews them, and not with
    /// certificates of its own; the caBundle of the webhook configuration is then left alone
    #[arg(
        long,
        env = "NM_WEBHOOK_CERT_DIR",
        value_name = "DIRECTORY",
        conflicts_with = "webhook_cert_lifetime"
    )]
    pub(crate) webhook_cert_dir: Option<PathBuf>,

    /// At which path the API server posts reviews, with --webhook-cert-dir: that of the webhook configuration, which
    /// nobody should be able to guess. Without --webhook-cert-dir it is chosen, kept and written there
    #[arg(
        long, env = "NM_WEBHOOK_PATH", value_name = "PATH", default_value = "/validate", hide_default_value = true,
        hide_env_values = true, requires = "webhook_cert_dir", value_parser = parse_path,
    )]
    pub(crate) webhook_path: String,

    /// For how many seconds the webhook's own certificates are valid; halfway the next one is made. 90 days
    #[arg(
        long, env = "NM_WEBHOOK_CERT_LIFETIME", value_name = "SECONDS", default_value = "7776000",
        hide_default_value = true, value_parser = clap::value_parser!(u32).range(10..),
    )]
    pub(crate) webhook_cert_lifetime: u32,

    /// How log lines are written, to stderr
    #[arg(long, env = "NM_LOG_FORMAT", value_enum, default_value = "json")]
    pub(crate) log_format: LogFormat,

    /// Which log lines are written: error, warn, info, debug, trace or off
    #[arg(long, env = "NM_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LevelFilter,
}

/// Every setting has a variable whose name begins so.
const PREFIX: &str = "NM_";

/// Kubernetes tells pods of the Services in their namespace by variables, also of those of this program, whose names
/// begin with its own. The manifests have it not do so.
const OF_SERVICES: &str = "NM_RECONCILER_";

impl Flags {
    /// Reads the command line and the environment, whose variables have these names. What they leave open is as it has
    /// to be in these surroundings.
    ///
    /// # Errors
    /// A message for a person, about what is wrong, unknown or contradicts itself; or the help that was asked for.
    pub(crate) fn read(
        args: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = OsString>,
        surroundings: Surroundings,
    ) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(args)?;
        if let Some(name) = variables.into_iter().find(|name| is_unknown(&command, name)) {
            let why = format!(
                "the environment has {}, but there is no such setting: correct the name, as --help has it, or unset it",
                name.to_string_lossy(),
            );
            return Err(command.error(ErrorKind::UnknownArgument, why));
        }
        let mut flags = Self::from_arg_matches(&matches)?;
        let given = |id: &str| {
            matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        if let Surroundings::Pod { namespace } = surroundings {
            flags.complete_in_pod(namespace, given);
        }
        flags.heeds_leader = !flags.leader_elect && !given("leader_elect");
        if !flags.leader_elect && given("lease_duration") {
            let why = "--lease-duration says for how long a replica leads, but --leader-elect is off and none does: \
                       give --leader-elect as well, or leave --lease-duration out";
            return Err(command.error(ErrorKind::ArgumentConflict, why));
        }
        if flags.metrics_addr.collides(flags.webhook_addr) {
            let why = "--metrics-addr and --webhook-addr are the same, but one speaks plain HTTP and the other TLS: give \
                       them different ports";
            return Err(command.error(ErrorKind::ArgumentConflict, why));
        }
        for (id, flag) in
            [("webhook_cert_dir", "--webhook-cert-dir"), ("webhook_cert_lifetime", "--webhook-cert-lifetime")]
        {
            if flags.webhook_addr.0.is_none() && given(id) {
                let why = format!(
                    "{flag} says with which certificate the webhook is served, but it is served nowhere: give \
                     --webhook-addr as well, or leave {flag} out"
                );
                return Err(command.error(ErrorKind::ArgumentConflict, why));
            }
        }
        Ok(flags)
    }

    /// Fills in what is not given as it is in a pod: one of several, on whose every address nobody else listens.
    fn complete_in_pod(&mut self, namespace: String, given: impl Fn(&str) -> bool) {
        let on_port = |port: u16| Address(Some(Place::Everywhere(port)));
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

/// Whether a variable looks like a setting and is none: a misspelt limit must not be no limit.
fn is_unknown(command: &Command, variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with(PREFIX)
        && !name.starts_with(OF_SERVICES)
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

fn parse_path(text: &str) -> Result<String, String> {
    let path = text.parse::<http::uri::PathAndQuery>().map_err(|error| error.to_string())?;
    if !text.starts_with('/') || path.query().is_some() {
        return Err("must be a path such as /validate/6f1c".to_owned());
    }
    Ok(text.to_owned())
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For a person.
    Text,
}

impl LogFormat {
    /// The word on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
        }
    }
}

#[cfg(test)]
#[path = "flags_tests.rs"]
mod tests;
