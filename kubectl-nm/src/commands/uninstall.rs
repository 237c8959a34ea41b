//! `kubectl nm uninstall`: removes what `install` has installed.
//!
//! Only nm-reconciler takes its finalizer off a maintenance and gives the node back. So maintenances go first, while it still
//! runs, then the program, and the definition of `NodeMaintenance` last.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::ResourceExt;
use nm_shared::names::WEBHOOK;
use nm_shared::{NodeMaintenance, leader_lease};
use serde_json::{Value, json};

use crate::cluster::{AT_ONCE, Cluster, Deletion};
use crate::confirm::confirm_this;
use crate::error::Error;
use crate::exit::Exit;
use crate::installed::Installed;
use crate::maintenance::node;
use crate::manifests::{self, Settings};
use crate::node_name::distinct;
use crate::output::Output;
use crate::setup_error::SetupError;
use crate::text::Line;
use crate::{duration, format, objects, progress};

const EXAMPLES: &str = "\
Examples:
  # Remove nm-reconciler and the definition of NodeMaintenance
  kubectl nm uninstall

  # End all maintenances first, which gives their nodes back
  kubectl nm uninstall --stop-all --yes

Exit codes: 0 removed or not there, 1 refused, 2 usage, or nobody confirmed, 124 not gone in time.";

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
        return Err(in_use(&found.maintenances));
    }
    for maintenance in &found.maintenances {
        out.talk(&Line::new(format!("node/{} is in maintenance and will be given back", node(maintenance))));
    }
    let question = format!("Remove nm-reconciler from namespace {} and its objects", found.namespace);
    confirm_this(&question, args.yes, out)?;
    stop(found.maintenances, args.timeout, cluster, out).await?;
    for object in &found.objects {
        if object["kind"] == "CustomResourceDefinition" {
            // Somebody may have begun one meanwhile; it would never end.
            let late = maintenances(cluster).await?;
            if !late.is_empty() {
                return Err(in_use(&late));
            }
        }
        remove(object, args.timeout, cluster, out).await?;
    }
    for note in &found.notes {
        out.talk(note);
    }
    Ok(Exit::Done)
}

/// What there is to remove, in that order.
struct Found {
    namespace: String,
    objects: Vec<Value>,
    maintenances: Vec<NodeMaintenance>,
    notes: Vec<Line>,
}

async fn look(namespace: Option<&str>, cluster: &Cluster) -> Result<Found, Error> {
    let installed = Installed::find(cluster, namespace).await?;
    if let Some(deployment) = installed.by_olm() {
        return Err(SetupError::ManagedByOlm(deployment).into());
    }
    let settings = Settings { namespace: Some(installed.namespace.clone()), ..Settings::default() };
    let existing: Vec<Value> = stream::iter(manifests::objects(&settings))
        .map(async |object| objects::get(cluster, &object).await)
        .buffered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let maintenances = maintenances(cluster).await?;
    let (objects, notes) = choose(existing, &installed);
    Ok(Found { namespace: installed.namespace, objects, maintenances, notes })
}

/// What of it goes, the last installed first, and what stays and why.
fn choose(existing: Vec<Value>, installed: &Installed) -> (Vec<Value>, Vec<Line>) {
    let mut notes = Vec::new();
    let (own, mut chosen): (Vec<Value>, Vec<Value>) =
        existing.into_iter().rev().partition(manifests::is_about_own_namespace);
    chosen.retain(|object| {
        let shared = object["kind"] == "CustomResourceDefinition" && installed.other_operator.is_some();
        if shared {
            notes.push(Line::new(format!("{} stays: the medik8s operator uses it", format::name(object))));
        }
        if manifests::is_lease_namespace(object) {
            notes.push(Line::new(format!("{} stays: other operators use it", format::name(object))));
        }
        !shared && !manifests::is_lease_namespace(object)
    });
    if chosen.is_empty() && own.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let before_definition =
        chosen.iter().position(|object| object["kind"] == "CustomResourceDefinition").unwrap_or(chosen.len());
    let goes = |object: &Value| object["kind"] != "Namespace" || manifests::is_ours(object);
    let (own, kept): (Vec<Value>, Vec<Value>) = own.into_iter().partition(goes);
    notes.extend(
        kept.iter().map(|object| Line::new(format!("{} stays: it is not ours", format::name(object)))),
    );
    let mut last = own;
    if !last.iter().any(|object| object["kind"] == "Namespace") {
        last.splice(0..0, made_at_work(&installed.namespace));
    }
    chosen.splice(before_definition..before_definition, last);
    (chosen, notes)
}

/// What nm-reconciler makes in its namespace, which otherwise goes with that.
fn made_at_work(namespace: &str) -> [Value; 2] {
    let object = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    [object("coordination.k8s.io/v1", "Lease", leader_lease::NAME), object("v1", "Secret", WEBHOOK)]
}

/// All maintenances; none where nobody knows what that is.
async fn maintenances(cluster: &Cluster) -> Result<Vec<NodeMaintenance>, Error> {
    match cluster.maintenances().await {
        Err(Error::NotInstalled { .. }) => Ok(Vec::new()),
        found => found,
    }
}

fn in_use(maintenances: &[NodeMaintenance]) -> Error {
    let nodes: Vec<String> = maintenances.iter().map(|object| node(object).to_owned()).collect();
    SetupError::InUse(distinct(&nodes)).into()
}

/// Ends all maintenances and waits until they are gone.
async fn stop(
    maintenances: Vec<NodeMaintenance>,
    timeout: Duration,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(), Error> {
    if maintenances.is_empty() {
        return Ok(());
    }
    stream::iter(&maintenances)
        .map(async |object| {
            let uid = object.uid().unwrap_or_default();
            cluster.delete(&object.name_any(), &uid).await.map(drop)
        })
        .buffered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let left = RefCell::new(maintenances);
    let gone = async {
        loop {
            let now = self::maintenances(cluster).await?;
            let done = now.is_empty();
            left.replace(now);
            if done {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let names =
        || -> Vec<String> { left.borrow().iter().map(|object| format!("node/{}", node(object))).collect() };
    let waiting = || format!("waiting until these are given back: {}", names().join(", "));
    match progress::during(out, waiting, Box::pin(progress::within(timeout, gone))).await {
        Some(ended) => ended,
        None => Err(SetupError::NotGone { after: timeout, what: names() }.into()),
    }
}

/// Deletes an object and waits until it is gone.
async fn remove(object: &Value, timeout: Duration, cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let name = format::name(object);
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
mod tests {
    use super::*;

    fn names(objects: &[Value]) -> Vec<String> {
        objects.iter().map(format::name).collect()
    }

    fn installed(other_operator: Option<&str>) -> Installed {
        Installed {
            namespace: manifests::NAMESPACE.into(),
            other_operator: other_operator.map(str::to_owned),
            ..Installed::default()
        }
    }

    #[test]
    fn the_definition_goes_last_after_the_namespace_and_the_leases_stay() {
        let (chosen, notes) = choose(manifests::objects(&Settings::default()), &installed(None));
        let chosen = names(&chosen);
        let crd = "customresourcedefinition.apiextensions.k8s.io/nodemaintenances.nodemaintenance.medik8s.io";
        assert_eq!(chosen[chosen.len() - 2..], ["namespace/node-maintenance", crd]);
        let at = |wanted: &str| chosen.iter().position(|name| name == wanted).unwrap();
        assert!(
            at("deployment.apps/nm-reconciler") < at("clusterrole.rbac.authorization.k8s.io/nm-reconciler")
        );
        assert!(!chosen.contains(&"namespace/medik8s-leases".to_owned()), "{chosen:?}");
        assert_eq!(notes.len(), 1);
        assert_eq!(choose(Vec::new(), &installed(None)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_belongs_to_others_stays() {
        let mut objects = manifests::objects(&Settings::default());
        for object in &mut objects {
            if object["kind"] == "Namespace" {
                object["metadata"]["labels"] = Value::Null;
            }
        }
        let (chosen, notes) = choose(objects, &installed(Some("nmo/node-maintenance-operator")));
        let chosen = names(&chosen);
        assert!(
            !chosen.iter().any(|name| name.starts_with("namespace/") || name.starts_with("customresource"))
        );
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(chosen.contains(&"secret/nm-reconciler-webhook".to_owned()));
        assert!(chosen.contains(&"lease.coordination.k8s.io/nm-reconciler".to_owned()));
        assert!(chosen.contains(&"resourcequota/nm-reconciler".to_owned()));
    }

    #[test]
    fn only_a_namespace_of_others_is_left_alone() {
        // The leases' namespace is none of ours, and nothing is left of it alone to be removed.
        let leases: Vec<Value> = manifests::objects(&Settings::default())
            .into_iter()
            .filter(manifests::is_lease_namespace)
            .collect();
        assert_eq!(choose(leases, &installed(None)), (Vec::new(), Vec::new()));
    }
}
