//! `kubectl nm roll watch`: shows a roll that another program runs.

use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::output::Output;
use nm_core::terminal::signals::interrupted;
use nm_core::terminal::text::Line;
use nm_roll::report::LineReporter;
use nm_roll::runner::RollEnd;
use nm_roll::store;
use nm_roll::view::RollReporter;
use nm_roll::viewer;

use super::args::WatchArgs;
use super::run::{dashboard, report_done, this_runner};

pub(super) async fn run(args: &WatchArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    let roll = store::load(cluster, name).await?;
    let ended = if let Some(format) = args.output.lines(out) {
        let mut reporter = LineReporter::new(out, format).with_leader_check(cluster);
        until_ended(cluster, name, &mut reporter).await
    } else {
        let mut dashboard = dashboard(name, None, &args.output, cluster, out)?.of_another_program();
        let ended = until_ended(cluster, name, &mut dashboard).await;
        for line in dashboard.close() {
            out.message(&line);
        }
        ended
    };
    Ok(match ended? {
        None => Exit::Interrupted,
        Some(RollEnd::Left | RollEnd::TakenOver(_)) => Exit::Done,
        Some(RollEnd::Done(record)) => report_done(&roll, &record, cluster, out).await,
        Some(RollEnd::Halted(halt, _)) => {
            out.error(format!("roll {name} halted: {}", halt.message));
            out.hint(&format!("`kubectl nm roll resume {name}` continues it"));
            Exit::Failed
        }
        Some(RollEnd::Aborted(who, _)) => {
            out.message(&Line::new(format!("{who} aborted roll {name}.")));
            Exit::Lost
        }
    })
}

/// The end of the roll; none if the program was interrupted.
async fn until_ended(
    cluster: &Cluster,
    name: &str,
    reporter: &mut dyn RollReporter,
) -> Result<Option<RollEnd>, Error> {
    let me = this_runner();
    tokio::select! {
        () = interrupted() => Ok(None),
        ended = viewer::show(cluster, name, &me.who, reporter) => ended.map(Some),
    }
}
