//! `kubectl nm plan`: what putting nodes into maintenance would come to. Nothing is changed.

use std::cell::Cell;
use std::collections::HashMap;

use clap::{ArgGroup, Args};
use jiff::Timestamp;

use crate::args::drain_flags::DrainFlags;
use crate::client::cluster::Cluster;
use crate::client::nodes::{Selection, check_exist};
use crate::error::Error;
use crate::error::exit::Exit;
use crate::format::{self, Form, Format};
use crate::interaction::progress;
use crate::plan::cluster_snapshot::Readings;
use crate::plan::document::document;
use crate::plan::eviction_dry_run::answers;
use crate::plan::outlook::{Outlook, draft};
use crate::plan::text;
use crate::terminal::output::Output;

const EXAMPLES: &str = "\
Examples:
  # What would become of each pod, and what would block
  kubectl nm plan node-1

  # All nodes of a pool together: they share budgets, and room elsewhere
  kubectl nm plan -l pool=blue

  # As it would be with other drain settings
  kubectl nm plan node-1 --force=false --delete-emptydir-data=false

  # As it would be if pods that are refused were deleted after ten minutes
  kubectl nm plan node-1 --delete-after 10m

  # The pods that would block, by jq
  kubectl nm plan node-1 -o json | jq -r '.pods[] | select(.would == \"block\") | .name'

It asks the API server to evict each pod without doing so, so that webhooks are heard as well. What you
may not read is named and left out. --timeout and --order change when pods go, not which: they are taken,
so that a line for `start` can be planned as it is, and change nothing here.

Exit codes: 0 nothing blocks and everything fits elsewhere, 1 nobody knows, 2 usage, 3 something blocks,
or pods have no room elsewhere.";

/// Say what putting nodes into maintenance would come to, pod by pod
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename"]).required(true).multiple(true))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    nodes: Selection,

    /// How to show it: table, json, yaml, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,...
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "table", value_parser = parse_format,
        add = format::offered(parse_format))]
    output: Format,

    // Last, because what follows them would stand under their heading.
    #[command(flatten)]
    drain: DrainFlags,

    #[command(flatten)]
    _started: StartFlags,
}

/// What a line for `start` says beside what a plan depends on.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted without effect, so that a line for start can be planned as it is")]
struct StartFlags {
    /// Why
    #[arg(long, short = 'r', hide_short_help = true)]
    reason: Option<String>,

    /// Nobody is asked
    #[arg(long, short = 'y', hide_short_help = true)]
    yes: bool,

    /// There is nothing to wait for
    #[arg(long, hide_short_help = true)]
    wait: bool,

    /// There is nothing to follow
    #[arg(long, hide_short_help = true)]
    watch: bool,

    /// Nothing is changed in any case
    #[arg(long, value_name = "HOW", hide_short_help = true, value_parser = ["none", "client", "server"])]
    dry_run: Option<String>,
}

/// A plan is no object: it has no name, and its table is as wide as it is.
fn parse_format(text: &str) -> Result<Format, String> {
    match format::parse(text)? {
        Format::Wide | Format::Form(Form::Name) => Err(String::from(
            "allowed formats are: table, json, yaml, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,...",
        )),
        format => Ok(format),
    }
}

/// Runs the command.
///
/// # Errors
///
/// When a node does not exist, or the server cannot be asked.
pub(crate) async fn run(args: PlanArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let looking = || format!("asking {} about nodes and pods", cluster.server());
    let look = async {
        let nodes = args.nodes.resolve(cluster).await?;
        if !args.nodes.are_known() {
            check_exist(cluster, &nodes).await?;
        }
        let readings = Box::pin(Readings::of(&nodes, cluster)).await?;
        Ok::<_, Error>((nodes, readings))
    };
    let (nodes, readings) = progress::during(out, looking, look).await?;
    let (spec, now) = (args.drain.spec(), Timestamp::now());
    let draft = draft(&nodes, spec.as_ref(), &readings, now)
        .map_err(|error| Error::Unplannable(error.to_string()))?;

    let asked = match &draft {
        None => HashMap::new(),
        Some(draft) => {
            let (all, done) = (draft.to_evict().count(), Cell::new(0));
            let asking = || format!("{} of {all} evictions judged by the server", done.get());
            let grace = spec.as_ref().map(|spec| spec.grace_period_seconds).filter(|seconds| *seconds >= 0);
            progress::during(out, asking, answers(cluster, draft.to_evict(), grace, &done)).await?
        }
    };
    let outlook = Outlook::of(&nodes, spec.as_ref(), draft.as_ref(), readings, &asked, now);
    match &args.output {
        Format::Form(form) => form.print(&document(&outlook), out)?,
        Format::Table | Format::Wide => {
            for line in text::lines(&outlook) {
                out.data(&line)?;
            }
        }
    }
    Ok(match (outlook.is_blocked() || outlook.lacks_room(), &outlook.forecast) {
        (true, _) => Exit::Failed,
        (false, None) => Exit::Error,
        (false, Some(_)) => Exit::Done,
    })
}
