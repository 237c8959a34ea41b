//! The command line.

use std::num::NonZeroUsize;

use clap::{Parser, ValueEnum};
use nm_shared::PodReference;
use nm_shared::line::MaxUnavailable;
use tracing::level_filters::LevelFilter;

/// Puts nodes into maintenance for as long as a `NodeMaintenance` for them exists.
///
/// The cluster is taken as by any Kubernetes client: from KUBECONFIG, from ~/.kube/config, or from the service account
/// of the pod it runs in.
#[derive(Debug, Clone, Parser)]
#[command(name = "nm-reconciler", version)]
pub(crate) struct Flags {
    /// How many evictions may be under way at once, in the whole cluster
    #[arg(long, env = "NM_MAX_CONCURRENT_EVICTIONS", value_name = "N", default_value = "100")]
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

    /// How log lines are written, to stderr
    #[arg(long, env = "NM_LOG_FORMAT", value_enum, default_value = "json")]
    pub(crate) log_format: LogFormat,

    /// Which log lines are written: error, warn, info, debug, trace or off
    #[arg(long, env = "NM_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LevelFilter,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_has_defaults() {
        Flags::command().debug_assert();
        let flags = Flags::parse_from(["nm-reconciler"]);
        assert_eq!((flags.max_concurrent_evictions.get(), flags.log_format), (100, LogFormat::Json));
        assert_eq!(flags.log_level, LevelFilter::INFO);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            ["--max-concurrent-evictions", "0"],
            ["--log-format", "xml"],
            ["--log-level", "loud"],
            ["--own-pod", "a/b/c"],
            ["--max-unavailable", "0"],
        ] {
            assert!(Flags::try_parse_from(["nm-reconciler"].into_iter().chain(bad)).is_err(), "{bad:?}");
        }
    }
}
