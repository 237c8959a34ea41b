//! Where log lines go: stderr, as JSON for machines or as text for a person.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::flags::{Flags, LogFormat};

/// Begins logging. The level is that of this program; the libraries below it say only what is worth a warning.
pub(crate) fn start(flags: &Flags) {
    // kube's client repeats as errors what is told here once, with what it means.
    let client = if flags.log_level >= LevelFilter::DEBUG { LevelFilter::WARN } else { LevelFilter::OFF };
    let filter = Targets::new()
        .with_default(flags.log_level.min(LevelFilter::WARN))
        .with_target("kube_client", client)
        .with_target("nm_reconciler", flags.log_level);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match flags.log_format {
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        }
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
    };
    // A second start, in a test, keeps the first.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}
