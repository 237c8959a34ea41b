//! `kubectl nm uninstall`: removes what `install` installed.
//!
//! Only nm-reconciler removes its finalizer from a maintenance and returns the node to service. So maintenances are deleted
//! first, while it still runs, then nm-reconciler, and the CRD last.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::ResourceExt;
use nm_core::args::duration;
use nm_core::args::names::distinct;
use nm_core::client::all_groups;
use nm_core::client::cluster::{Cluster, Deletion, MAX_CONCURRENT_REQUESTS};
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format;
use nm_core::interaction::confirm::Question;
use nm_core::interaction::progress;
use nm_core::maintenance::{State, kept_by_roll, node};
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_roll::store::is_outdated;
use nm_shared::api::names::WEBHOOK;
use nm_shared::cluster::leader_lease;
use nm_shared::{Grant, GroupedMaintenance};
use serde_json::{Value, json};

use crate::commands::stop_warnings;
use crate::install::error::SetupError;
use crate::install::installation::Installation;
use crate::install::manifests::{self, Settings};

const EXAMPLES: &str = "\
Examples:
  # Remove nm-reconciler and the CRD of NodeMaintenance
  kubectl nm uninstall

  # Stop all maintenances first, which returns their nodes to service
  kubectl nm uninstall --stop-all --yes";

const EXIT_CODES: &str = "\
Exit codes: 0 removed or not installed, 1 failed, 2 usage error or not confirmed, 124 not gone within --timeout.";

const NOT_OURS: &str = "it does not have the label of nm-reconciler";

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The arguments of the command.
#[derive(Args, Debug)]
#[command(about = "Remove nm-reconciler and the CRD of NodeMaintenance", before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct UninstallArgs {
    /// Stop all maintenances first, and wait until their nodes are back in service
    #[arg(long)]
    stop_all: bool,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,

    /// How long to wait until each object is gone, and until --stop-all is done, such as 30s or 5m; 0 means forever
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    timeout: Duration,
}

pub(crate) async fn run(
    args: UninstallArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let reading = || format!("reading the installation from {}", cluster.server());
    let plan = progress::during(out, reading, plan(namespace, cluster)).await?;
    if plan.objects.is_empty() {
        out.message(&Line::new("nm-reconciler is not installed."));
        return Ok(Exit::Done);
    }
    if !plan.maintenances.is_empty() && !args.stop_all {
        return Err(SetupError::InUse(nodes(&plan.maintenances)).into());
    }
    for object in &plan.maintenances {
        let (state, end) = match State::of(object) {
            State::Planned => ("has a planned maintenance", "it will be deleted"),
            _ => ("is in maintenance", "it will return to service"),
        };
        out.message(&Line::new(format!("node/{} {state}: {end}", node(object))));
    }
    let all = plan.maintenances.as_slice();
    for warning in stop_warnings::of_rolls(all, all, cluster.kubectl(), Timestamp::now()) {
        out.message_with_commands(&warning);
    }
    if !args.yes {
        out.message(&Line::new("These objects will be deleted:"));
        for object in &plan.objects {
            out.message(&Line::new(format!("  {}", format::located(object))));
        }
    }
    let what = question(&plan);
    Question { what: &what, cluster: cluster.context(), ..Question::default() }.ask(args.yes, out)?;
    if args.stop_all {
        stop_all(args.timeout, cluster, out).await?;
    } else {
        // A maintenance may have been started during the prompt.
        let there = all_groups::maintenances(cluster).await?;
        if !there.is_empty() {
            return Err(SetupError::InUse(nodes(&there)).into());
        }
    }
    // A partial installation would be of no use.
    out.continue_on_stdout_error();
    for object in &plan.objects {
        if object["kind"] == "CustomResourceDefinition" {
            // No reconciler is left to end a maintenance that was started meanwhile. Without its CRD it would never end.
            let late = all_groups::maintenances(cluster).await?;
            if !late.is_empty() {
                return Err(SetupError::StartedMeanwhile(nodes(&late)).into());
            }
        }
        remove(object, args.timeout, cluster, out).await?;
    }
    for note in &plan.notes {
        out.message_with_commands(note);
    }
    out.finish()?;
    Ok(Exit::Done)
}

fn question(plan: &UninstallPlan) -> String {
    let (namespace, count) = (&plan.namespace, plan.objects.len());
    let question = format!("Remove nm-reconciler from namespace {namespace} with these {count} objects");
    match plan.objects.iter().find(|object| object["kind"] == "CustomResourceDefinition") {
        Some(crd) => {
            format!("{question}, and with {} every NodeMaintenance in the cluster", format::name(crd))
        }
        None => question,
    }
}

fn kept(object: &Value, why: &str) -> Line {
    Line::new(format!("{} is kept: {why}", format::name(object)))
}

struct UninstallPlan {
    namespace: String,
    /// In the order of removal.
    objects: Vec<Value>,
    maintenances: Vec<GroupedMaintenance>,
    notes: Vec<Line>,
}

async fn plan(namespace: Option<&str>, cluster: &Cluster) -> Result<UninstallPlan, Error> {
    let installation = Installation::find(cluster, namespace).await?;
    if let Some(deployment) = installation.by_olm() {
        let in_maintenance = nodes(&all_groups::maintenances(cluster).await?);
        return Err(SetupError::RemovedWithOlm { deployment, in_maintenance }.into());
    }
    if let Some(wanted) = namespace.filter(|wanted| *wanted != installation.namespace) {
        let there = installation.namespace;
        return Err(SetupError::NotThere { there, wanted: wanted.to_owned() }.into());
    }
    let settings = Settings {
        namespace: Some(installation.namespace.clone()),
        grants: Grant::ALL.into(),
        ..Settings::default()
    };
    let existing: Vec<Value> = stream::iter(manifests::objects(&settings))
        .map(async |object| objects::get(cluster, &object).await)
        .buffered(MAX_CONCURRENT_REQUESTS)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let maintenances = all_groups::maintenances(cluster).await?;
    let (objects, notes) = choose(existing, &installation);
    Ok(UninstallPlan { namespace: installation.namespace, objects, maintenances, notes })
}

/// The objects to remove, the last installed first, and messages about those that are kept.
fn choose(existing: Vec<Value>, installation: &Installation) -> (Vec<Value>, Vec<Line>) {
    let mut notes = Vec::new();
    let mut chosen: Vec<Value> = existing.into_iter().rev().collect();
    chosen.retain(|object| {
        let why = reason_to_keep(object, installation);
        notes.extend(why.as_ref().map(|why| kept(object, why)));
        why.is_none()
    });
    if chosen.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let crd_index =
        chosen.iter().position(|object| object["kind"] == "CustomResourceDefinition").unwrap_or(chosen.len());
    chosen.splice(crd_index..crd_index, runtime_objects(&installation.namespace));
    (chosen, notes)
}

/// Why an object with the name of an installed one is kept; `None` if it can be deleted. The CRD and the namespace of node
/// leases are shared with other operators, and others may have objects in the other namespace. All other objects must have
/// the label.
fn reason_to_keep(object: &Value, installation: &Installation) -> Option<String> {
    let why = match object["kind"].as_str() {
        Some("CustomResourceDefinition") => {
            installation.other_operator.as_ref().map(|_| "the medik8s operator uses it")
        }
        Some("Namespace") if manifests::is_lease_namespace(object) => Some("other operators use it"),
        _ if !manifests::is_ours(object) => Some(NOT_OURS),
        Some("Namespace") => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let delete = format!("kubectl delete namespace {name}");
            return Some(format!("others may have objects in it; `{delete}` deletes it"));
        }
        _ => None,
    };
    why.map(str::to_owned)
}

/// The objects that nm-reconciler creates in its namespace, which is kept.
fn runtime_objects(namespace: &str) -> [Value; 2] {
    let object = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    [object("coordination.k8s.io/v1", "Lease", leader_lease::NAME), object("v1", "Secret", WEBHOOK)]
}

fn nodes(maintenances: &[GroupedMaintenance]) -> Vec<String> {
    let nodes: Vec<String> = maintenances.iter().map(|object| node(object).to_owned()).collect();
    distinct(&nodes)
}

/// Deletes all maintenances, including those that are started meanwhile, and waits until they are gone.
async fn stop_all(timeout: Duration, cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let left = RefCell::new(Vec::new());
    let gone = async {
        loop {
            let there = all_groups::maintenances(cluster).await?;
            left.replace(nodes(&there));
            if there.is_empty() {
                return Ok(());
            }
            stream::iter(there.iter().filter(|object| object.metadata.deletion_timestamp.is_none()))
                .map(async |object| all_groups::delete(cluster, object).await.map(drop))
                .buffered(MAX_CONCURRENT_REQUESTS)
                .try_collect::<()>()
                .await?;
            // Their nodes are back in service, and nothing is left of their rolls.
            for kept in there.iter().filter(|object| kept_by_roll(object).is_some()) {
                let version = &kept.metadata.resource_version;
                let patch = json!({"metadata": {"resourceVersion": version, "finalizers": []}});
                match cluster.patch(&kept.name_any(), &patch, false).await {
                    Err(error) if !is_outdated(&error) => return Err(error),
                    _ => {}
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let names = || -> Vec<String> { left.borrow().iter().map(|node| format!("node/{node}")).collect() };
    let waiting = || format!("waiting until these nodes are back in service: {}", names().join(", "));
    match progress::during(out, waiting, Box::pin(progress::within(timeout, gone))).await {
        Some(result) => result,
        None => Err(SetupError::NotGone { after: timeout, what: names() }.into()),
    }
}

async fn remove(object: &Value, timeout: Duration, cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let name = format::located(object);
    let work = async {
        if objects::delete(cluster, object).await? == Deletion::UnderWay {
            objects::wait_until_gone(cluster, object).await;
        }
        Ok::<_, Error>(())
    };
    let removing = || format!("waiting until {name} is gone");
    match progress::during(out, removing, Box::pin(progress::within(timeout, work))).await {
        Some(result) => result?,
        None => return Err(SetupError::NotGone { after: timeout, what: vec![name] }.into()),
    }
    Ok(out.data(&Line::new(format!("{name} deleted")))?)
}

#[cfg(test)]
#[path = "uninstall_tests.rs"]
mod tests;
