//! Log lines: to stderr, as JSON or as text.

use std::io;

use tracing::info;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::flags::{Flags, LogFormat};

/// Logs every setting in effect, by the name of its flag.
pub(crate) fn log_configuration(flags: &Flags, replica: &str) {
    let or_none = |setting: Option<String>| setting.unwrap_or_else(|| "none".to_owned());
    info!(
        version = env!("CARGO_PKG_VERSION"),
        replica,
        max_concurrent_evictions = flags.max_concurrent_evictions,
        max_unavailable = or_none(flags.max_unavailable.map(|limit| limit.to_string())),
        external_etcd = flags.external_etcd,
        own_pod = or_none(flags.own_pod.as_ref().map(ToString::to_string)),
        node_conditions = flags.node_conditions,
        blocked_after = flags.blocked_after,
        migration_start_timeout = flags.migration_start_timeout,
        leader_elect = flags.leader_elect,
        lease_duration = flags.lease_duration,
        namespace = flags.namespace,
        metrics_addr = or_none(flags.metrics_addr.0.map(|address| address.to_string())),
        webhook_addr = or_none(flags.webhook_addr.0.map(|address| address.to_string())),
        webhook_cert_dir = or_none(flags.webhook_cert_dir.as_ref().map(|path| path.display().to_string())),
        webhook_cert_lifetime = flags.webhook_cert_lifetime,
        log_format = <&str>::from(flags.log_format),
        log_level = %flags.log_level,
        "started"
    );
}

/// Starts logging. The level is that of this program; libraries log warnings and errors only.
pub(crate) fn start(flags: &Flags) {
    // kube's client and watcher log each failure, which this program logs once and with its context.
    let client = if flags.log_level >= LevelFilter::DEBUG { LevelFilter::WARN } else { LevelFilter::OFF };
    let filter = Targets::new()
        .with_default(flags.log_level.min(LevelFilter::WARN))
        .with_target("kube_client", client)
        .with_target("kube_runtime::watcher", client)
        .with_target("nm_reconciler", flags.log_level);
    let lines = match flags.log_format {
        LogFormat::Json => json(io::stderr),
        LogFormat::Text => {
            let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
            lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed()
        }
    };
    // A second start, in a test, keeps the first one.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}

/// One object per line, with the message beside its fields.
fn json(
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).json();
    lines.flatten_event(true).with_current_span(true).with_span_list(false).boxed()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs::File;

    use clap::CommandFactory;
    use serde_json::Value;

    use super::*;
    use crate::config::environment::Environment;

    #[test]
    fn the_configuration_is_one_line_with_every_flag_as_a_field() {
        let path = std::env::temp_dir().join(format!("nm-logging-{}", std::process::id()));
        let lines = json(File::create(&path).unwrap());
        let args = ["nm-reconciler", "--max-unavailable", "10%", "--own-pod", "a/b", "--metrics-addr="];
        let flags = Flags::read(args.map(OsString::from), [], Environment::Local).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            log_configuration(&flags, "here-1");
        });
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let line: Value = serde_json::from_str(&written).unwrap();
        for argument in Flags::command().get_arguments() {
            assert!(line.get(argument.get_id().as_str()).is_some(), "{} in {line}", argument.get_id());
        }
        assert_eq!((&line["message"], &line["replica"]), (&"started".into(), &"here-1".into()));
        assert_eq!((&line["max_unavailable"], &line["own_pod"]), (&"10%".into(), &"a/b".into()));
        assert_eq!((&line["metrics_addr"], &line["log_level"]), (&"none".into(), &"info".into()));
        assert_eq!((&line["lease_duration"], &line["node_conditions"]), (&15.into(), &false.into()));
        assert!(!written.contains("Some("), "{written}");
    }
}
