//! The command line.

use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, Command, CommandFactory, FromArgMatches, Parser, ValueEnum};
use nm_shared::PodReference;
use nm_shared::line::MaxUnavailable;
use tracing::level_filters::LevelFilter;

use crate::server::Address;
use crate::surroundings;

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
    /// `MaintenanceInProgress` of KEP-5683
    #[arg(long, env = "NM_NODE_CONDITIONS")]
    pub(crate) node_conditions: bool,

    /// Stand by while another replica leads. On by default in a pod, off outside
    #[arg(
        long, env = "NM_LEADER_ELECT", value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = surroundings::in_pod(),
    )]
    pub(crate) leader_elect: bool,

    /// For how many seconds a replica leads after each renewal; one that is killed is replaced after so long
    #[arg(
        long, env = "NM_LEASE_DURATION", value_name = "SECONDS", default_value = "15",
        value_parser = clap::value_parser!(u64).range(3..=3600),
    )]
    pub(crate) lease_duration: u64,

    /// The namespace of what belongs to this program. By default the pod's own; outside of a pod, node-maintenance
    #[arg(
        long, env = "NM_NAMESPACE", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
        default_value_t = surroundings::namespace(),
    )]
    pub(crate) namespace: String,

    /// Where /livez, /readyz, /healthz and /metrics are served, over plain HTTP; an empty address serves them nowhere.
    /// 0.0.0.0:8080 in a pod, nowhere outside
    #[arg(
        long, env = "NM_METRICS_ADDR", value_name = "IP:PORT", default_value_t = on_port(8080),
        hide_default_value = true,
    )]
    pub(crate) metrics_addr: Address,

    /// Where the validating webhook is served, over TLS; an empty address serves it nowhere. 0.0.0.0:9443 in a pod,
    /// nowhere outside
    #[arg(
        long, env = "NM_WEBHOOK_ADDR", value_name = "IP:PORT", default_value_t = on_port(9443),
        hide_default_value = true,
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
    /// Reads the command line and the environment, whose variables have these names.
    ///
    /// # Errors
    /// A message for a person, about what is wrong, unknown or contradicts itself; or the help that was asked for.
    pub(crate) fn read(
        args: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = OsString>,
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
        let flags = Self::from_arg_matches(&matches)?;
        let given = |id| {
            matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
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
}

/// Whether a variable looks like a setting and is none: a misspelt limit must not be no limit.
fn is_unknown(command: &Command, variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with(PREFIX)
        && !name.starts_with(OF_SERVICES)
        && !command.get_arguments().any(|argument| argument.get_env() == Some(variable))
}

/// On every address of a pod; nowhere outside, where others may listen.
fn on_port(port: u16) -> Address {
    Address(surroundings::in_pod().then(|| (Ipv4Addr::UNSPECIFIED, port).into()))
}

fn parse_pod(text: &str) -> Result<PodReference, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(PodReference { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("must be NAMESPACE/NAME".to_owned()),
    }
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
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_has_defaults() {
        Flags::command().debug_assert();
        let flags = Flags::parse_from(["nm-reconciler"]);
        assert_eq!((flags.max_concurrent_evictions.get(), flags.log_format), (32, LogFormat::Json));
        assert_eq!(flags.log_level, LevelFilter::INFO);
        assert_eq!((flags.leader_elect, flags.lease_duration), (surroundings::in_pod(), 15));
        assert!(!flags.node_conditions);
        assert!(Flags::parse_from(["nm-reconciler", "--node-conditions"]).node_conditions);
    }

    #[test]
    fn leader_election_is_switched_on_and_off() {
        for (flag, expected) in
            [("--leader-elect", true), ("--leader-elect=true", true), ("--leader-elect=false", false)]
        {
            assert_eq!(Flags::parse_from(["nm-reconciler", flag]).leader_elect, expected, "{flag}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_by_naming_both_and_a_remedy() {
        let read =
            |flags: &str| Flags::read(flags.split(' ').map(OsString::from), []).map_err(|e| e.to_string());
        let error = read("nm-reconciler --leader-elect=false --lease-duration 15").unwrap_err();
        for part in ["--lease-duration", "--leader-elect is off", "leave --lease-duration out"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(read("nm-reconciler --leader-elect --lease-duration 15").is_ok());
        let same = "nm-reconciler --metrics-addr 127.0.0.1:8080 --webhook-addr 0.0.0.0:8080";
        assert!(read(same).unwrap_err().contains("--metrics-addr and --webhook-addr are the same"));
        let nowhere = "nm-reconciler --webhook-addr= --webhook-cert-dir /certs";
        assert!(read(nowhere).unwrap_err().contains("leave --webhook-cert-dir out"));
        let nowhere = "nm-reconciler --webhook-addr= --webhook-cert-lifetime 60";
        assert!(read(nowhere).unwrap_err().contains("leave --webhook-cert-lifetime out"));
        assert!(read("nm-reconciler --leader-elect=false").is_ok());
    }

    #[test]
    fn every_flag_has_a_variable_and_one_that_is_misspelt_is_refused() {
        let command = Flags::command();
        let flags: Vec<_> = command.get_arguments().filter(|flag| flag.get_long().is_some()).collect();
        assert!(flags.len() >= 13, "{flags:?}");
        for flag in &flags {
            let long = flag.get_long().unwrap();
            let variable = format!("NM_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(flag.get_env(), Some(OsStr::new(&variable)), "{long}");
        }
        let read = |variable: &str| {
            let read = Flags::read([OsString::from("nm-reconciler")], [OsString::from(variable)]);
            read.map_err(|error| (error.kind(), error.to_string()))
        };
        for fine in ["NM_MAX_UNAVAILABLE", "NM_RECONCILER_WEBHOOK_PORT_443_TCP", "PATH", "XNM_NODES"] {
            assert!(read(fine).is_ok(), "{fine}");
        }
        for bad in ["NM_MAX_UNAVAILBLE", "NM_", "NM_MAX_UNAVAILABLE_", "NM_max_unavailable"] {
            let (kind, message) = read(bad).unwrap_err();
            assert_eq!(kind, ErrorKind::UnknownArgument);
            assert!(message.contains(&format!("the environment has {bad}, but")), "{message}");
        }
    }

    #[test]
    fn certificates_are_the_programs_own_or_somebody_elses() {
        let given = |flags: &[&str]| Flags::try_parse_from([&["nm-reconciler"], flags].concat());
        let own = given(&[]).unwrap();
        assert_eq!((own.webhook_cert_dir, own.webhook_cert_lifetime), (None, 90 * 24 * 3600));
        assert!(given(&["--webhook-cert-dir", "/certs"]).is_ok());
        assert!(given(&["--webhook-cert-dir", "/certs", "--webhook-cert-lifetime", "60"]).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            ["--max-concurrent-evictions", "0"],
            ["--log-format", "xml"],
            ["--log-level", "loud"],
            ["--own-pod", "a/b/c"],
            ["--max-unavailable", "0"],
            ["--namespace", ""],
            ["--lease-duration", "2"],
            ["--metrics-addr", ":8080"],
            ["--webhook-addr", "9443"],
            ["--webhook-cert-lifetime", "9"],
        ] {
            assert!(Flags::try_parse_from(["nm-reconciler"].into_iter().chain(bad)).is_err(), "{bad:?}");
        }
    }
}
