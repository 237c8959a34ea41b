//! `kubectl nm uninstall`: removes what `install` has installed.
//!
//! Only nm-reconciler takes its finalizer off a maintenance and gives the node back. So maintenances go first, while it still
//! runs, then the program, and the definition of `NodeMaintenance` last.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use nm_shared::api::names::WEBHOOK;
use nm_shared::cluster::leader_lease;
use nm_shared::{Grant, Grouped};
use serde_json::{Value, json};

use crate::args::duration;
use crate::args::node_name::distinct;
use crate::client::cluster::{AT_ONCE, Cluster, Deletion};
use crate::client::every_group;
use crate::client::objects;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::error::setup_error::SetupError;
use crate::format;
use crate::install::installed::Installed;
use crate::install::manifests::{self, Settings};
use crate::install::namespace_content;
use crate::interaction::confirm::confirm_this;
use crate::interaction::progress;
use crate::maintenance::node;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

const EXAMPLES: &str = "\
Examples:
  # Remove nm-reconciler and the definition of NodeMaintenance
  kubectl nm uninstall

  # End all maintenances first, which gives their nodes back
  kubectl nm uninstall --stop-all --yes

Exit codes: 0 removed or not there, 1 refused, 2 usage, or nobody confirmed, 124 not gone in time.";

/// How many objects of others are named.
const NAMED: usize = 10;

/// How often it is looked whether the maintenances are gone.
const LOOK: Duration = Duration::from_millis(500);

/// Remove nm-reconciler and the definition of `NodeMaintenance`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UninstallArgs {
    /// End all maintenances first and wait until their nodes are given back
    #[arg(long)]
    stop_all: bool,

    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,

    /// How long to wait for each that takes its time, such as 30s or 5m; 0: as long as it takes
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    timeout: Duration,
}

/// Runs the command.
///
/// # Errors
///
/// When there are maintenances that are not to be ended, or do not end; when nobody confirms; when the server refuses.
pub(crate) async fn run(
    args: UninstallArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let looking = || format!("asking {} what is installed", cluster.server());
    let found = progress::during(out, looking, look(namespace, cluster)).await?;
    if found.objects.is_empty() {
        out.talk(&Line::new("nm-reconciler is not installed."));
        return Ok(Exit::Done);
    }
    if !found.maintenances.is_empty() && !args.stop_all {
        return Err(SetupError::InUse(nodes(&found.maintenances)).into());
    }
    for object in &found.maintenances {
        out.talk(&Line::new(format!("node/{} is in maintenance and will be given back", node(object))));
    }
    if !args.yes {
        out.talk(&Line::new("These objects will be deleted:"));
        for object in &found.objects {
            out.talk(&Line::new(format!("  {}", format::located(object))));
        }
    }
    confirm_this(&question(&found), args.yes, out)?;
    if args.stop_all {
        stop_all(args.timeout, cluster, out).await?;
    } else {
        // Somebody may have begun one while a person thought about it.
        let there = every_group::maintenances(cluster).await?;
        if !there.is_empty() {
            return Err(SetupError::InUse(nodes(&there)).into());
        }
    }
    // Half an installation is of no use, whoever has stopped reading.
    out.go_on_when_closed();
    for object in &found.objects {
        if object["kind"] == "CustomResourceDefinition" {
            // Nobody is left who would end one that was begun meanwhile; without its definition it would never be.
            let late = every_group::maintenances(cluster).await?;
            if !late.is_empty() {
                return Err(SetupError::BegunMeanwhile(nodes(&late)).into());
            }
        }
        // Somebody may have put something there meanwhile.
        if is_own_namespace(object)
            && let Some(why) = others_in(&found.namespace, cluster).await
        {
            out.talk(&stays(object, &why));
            for object in made_at_work(&found.namespace) {
                remove(&object, args.timeout, cluster, out).await?;
            }
            continue;
        }
        remove(object, args.timeout, cluster, out).await?;
    }
    for note in &found.notes {
        out.talk(note);
    }
    out.finish()?;
    Ok(Exit::Done)
}

/// What a person is asked once everything that goes is listed.
fn question(found: &Found) -> String {
    let (namespace, count) = (&found.namespace, found.objects.len());
    let question = format!("Remove nm-reconciler from namespace {namespace} with these {count} objects");
    match found.objects.iter().find(|object| object["kind"] == "CustomResourceDefinition") {
        Some(definition) => {
            format!("{question}, and with {} every NodeMaintenance of the cluster", format::name(definition))
        }
        None => question,
    }
}

fn is_own_namespace(object: &Value) -> bool {
    object["kind"] == "Namespace" && !manifests::is_lease_namespace(object)
}

/// Why a namespace of ours is not removed: others have something in it, or may have. Nothing if it may go.
async fn others_in(namespace: &str, cluster: &Cluster) -> Option<String> {
    match namespace_content::of_others(cluster, namespace).await {
        Ok(objects) if objects.is_empty() => None,
        Ok(objects) => {
            let named = objects.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = match objects.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Some(format!("others have something in it: {named}{more}"))
        }
        Err(error) => Some(format!("nobody can tell what others have in it: {error}")),
    }
}

fn stays(object: &Value, why: &str) -> Line {
    Line::new(format!("{} stays: {why}", format::name(object)))
}

/// What there is to remove, in that order.
struct Found {
    namespace: String,
    objects: Vec<Value>,
    maintenances: Vec<Grouped>,
    notes: Vec<Line>,
}

async fn look(namespace: Option<&str>, cluster: &Cluster) -> Result<Found, Error> {
    let installed = Installed::find(cluster, namespace).await?;
    if let Some(deployment) = installed.by_olm() {
        return Err(SetupError::ManagedByOlm(deployment).into());
    }
    if let Some(wanted) = namespace.filter(|wanted| *wanted != installed.namespace) {
        let there = installed.namespace;
        return Err(SetupError::NotThere { there, wanted: wanted.to_owned() }.into());
    }
    let settings = Settings {
        namespace: Some(installed.namespace.clone()),
        grants: Grant::ALL.into(),
        ..Settings::default()
    };
    let existing: Vec<Value> = stream::iter(manifests::objects(&settings))
        .map(async |object| objects::get(cluster, &object).await)
        .buffered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let maintenances = every_group::maintenances(cluster).await?;
    let others = match existing.iter().find(|object| is_own_namespace(object) && manifests::is_ours(object)) {
        Some(_) => others_in(&installed.namespace, cluster).await,
        None => None,
    };
    let (objects, notes) = choose(existing, &installed, others.as_deref());
    Ok(Found { namespace: installed.namespace, objects, maintenances, notes })
}

/// What of it goes, the last installed first, and what stays and why. `others` says why our namespace is not to go, if it
/// is not.
fn choose(existing: Vec<Value>, installed: &Installed, others: Option<&str>) -> (Vec<Value>, Vec<Line>) {
    let mut notes = Vec::new();
    let (own, mut chosen): (Vec<Value>, Vec<Value>) =
        existing.into_iter().rev().partition(manifests::is_about_own_namespace);
    chosen.retain(|object| {
        let why = is_kept(object, installed);
        notes.extend(why.map(|why| stays(object, why)));
        why.is_none()
    });
    if chosen.is_empty() && own.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let before_definition =
        chosen.iter().position(|object| object["kind"] == "CustomResourceDefinition").unwrap_or(chosen.len());
    let (own, kept): (Vec<Value>, Vec<Value>) = own.into_iter().partition(manifests::is_ours);
    notes.extend(kept.iter().map(|object| stays(object, "it is not ours")));
    let mut last = own;
    last.retain(|object| {
        let why = others.filter(|_| is_own_namespace(object));
        notes.extend(why.map(|why| stays(object, why)));
        why.is_none()
    });
    if !last.iter().any(|object| object["kind"] == "Namespace") {
        last.splice(0..0, made_at_work(&installed.namespace));
    }
    chosen.splice(before_definition..before_definition, last);
    (chosen, notes)
}

/// Why an object that is called as ours is does not go; nothing if it does. The definition and the leases' namespace are
/// known by their names, which all operators share; everything else of ours bears our label.
fn is_kept(object: &Value, installed: &Installed) -> Option<&'static str> {
    if object["kind"] == "CustomResourceDefinition" {
        return installed.other_operator.as_ref().map(|_| "the medik8s operator uses it");
    }
    if manifests::is_lease_namespace(object) {
        return Some("other operators use it");
    }
    (!manifests::is_ours(object)).then_some("it is not ours")
}

/// What nm-reconciler makes in its namespace, which otherwise goes with that.
fn made_at_work(namespace: &str) -> [Value; 2] {
    let object = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    [object("coordination.k8s.io/v1", "Lease", leader_lease::NAME), object("v1", "Secret", WEBHOOK)]
}

/// The nodes that are in maintenance, each once.
fn nodes(maintenances: &[Grouped]) -> Vec<String> {
    let nodes: Vec<String> = maintenances.iter().map(|object| node(object).to_owned()).collect();
    distinct(&nodes)
}

/// Ends all maintenances, also those that begin meanwhile, and waits until they are gone.
async fn stop_all(timeout: Duration, cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let left = RefCell::new(Vec::new());
    let gone = async {
        loop {
            let there = every_group::maintenances(cluster).await?;
            left.replace(nodes(&there));
            if there.is_empty() {
                return Ok(());
            }
            stream::iter(there.iter().filter(|object| object.metadata.deletion_timestamp.is_none()))
                .map(async |object| every_group::end(cluster, object).await)
                .buffered(AT_ONCE)
                .try_collect::<()>()
                .await?;
            tokio::time::sleep(LOOK).await;
        }
    };
    let names = || -> Vec<String> { left.borrow().iter().map(|node| format!("node/{node}")).collect() };
    let waiting = || format!("waiting until these are given back: {}", names().join(", "));
    match progress::during(out, waiting, Box::pin(progress::within(timeout, gone))).await {
        Some(ended) => ended,
        None => Err(SetupError::NotGone { after: timeout, what: names() }.into()),
    }
}

/// Deletes an object and waits until it is gone.
async fn remove(object: &Value, timeout: Duration, cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let name = format::located(object);
    let work = async {
        if objects::delete(cluster, object).await? == Deletion::UnderWay {
            objects::until_gone(cluster, object).await;
        }
        Ok::<_, Error>(())
    };
    let removing = || format!("waiting until {name} is gone");
    match progress::during(out, removing, Box::pin(progress::within(timeout, work))).await {
        Some(ended) => ended?,
        None => return Err(SetupError::NotGone { after: timeout, what: vec![name] }.into()),
    }
    Ok(out.data(&Line::new(format!("{name} deleted")))?)
}

#[cfg(test)]
#[path = "uninstall_tests.rs"]
mod tests;
