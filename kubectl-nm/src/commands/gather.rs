//! `kubectl nm gather`: what a bug report needs, in one file, with a list of what is in it and what could not be read.
//!
//! What is asked for is written here, and what of it is kept in `scrub`. Secrets are never asked for.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use kube::api::ListParams;
use nm_shared::Group;
use nm_shared::api::names::{LEASE_NAMESPACE, UNDO_ANNOTATION};
use serde_json::{Value, json};

use crate::client::cluster::Cluster;
use crate::client::every_group;
use crate::client::objects::{self, Kind};
use crate::error::Error;
use crate::error::exit::Exit;
use crate::format;
use crate::gather::archive::{Archive, Place};
use crate::gather::logs;
use crate::gather::redact;
use crate::install::installed::Installed;
use crate::install::manifests;
use crate::install::versions::{OWN, Versions};
use crate::interaction::progress;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

const EXAMPLES: &str = "\
Examples:
  # Gather everything in kubectl-nm-TIME.tar.gz
  kubectl nm gather

  # In a file of your choice
  kubectl nm gather -o /tmp/report.tar.gz

Never in it: Secrets, ConfigMaps; commands, arguments and variables of pods, but for nm-reconciler's own
settings; annotations' values, addresses.
In it: names and labels of all nodes, of the pods on nodes in maintenance with the images that they run, and of budgets;
events; the reconciler's log.

Exit codes: 0 gathered, even if something could not be read; 1 nothing could but the versions.";

/// What every cluster tells everybody.
const VERSIONS: &str = "versions.json";

/// Gather what a bug report needs in one file, without secrets
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GatherArgs {
    /// The file to write, which must not exist
    #[arg(long, short = 'o', value_name = "FILE.tar.gz", value_parser = file)]
    output: Option<PathBuf>,
}

/// Reads the name of the file. What `-o` takes elsewhere is none: it would make a file of that name.
fn file(text: &str) -> Result<PathBuf, String> {
    let is_format = text == "-" || format::parse(text).is_ok();
    if is_format || text.is_empty() {
        return Err(format!(
            "a report is a file\nhint: -o names it, such as -o report.tar.gz; a file that is to be called so: -o ./{text}"
        ));
    }
    Ok(PathBuf::from(text))
}

/// Runs the command.
///
/// # Errors
///
/// When the server cannot be asked at all, or the file cannot be written. What it refuses to show is listed in the file.
pub(crate) async fn run(
    args: GatherArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let begun = Timestamp::now();
    let folder = format!("kubectl-nm-{}", begun.strftime("%Y%m%dT%H%M%SZ"));
    let path = args.output.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let unwritable = |source| Error::Unwritable { path: path.display().to_string(), source };
    // Who waits for a minute must not learn then that it was in vain.
    let place = match Place::keep(&path) {
        Ok(place) => place,
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(refuse_existing(&path, &unwritable(source), out));
        }
        Err(source) => return Err(unwritable(source)),
    };
    let asking = || format!("asking {} for everything", cluster.server());
    let report = progress::during(out, asking, Box::pin(gather(namespace, cluster))).await?;
    let seconds = u64::try_from(begun.as_second()).unwrap_or_default();
    let mut archive = Archive::new(folder, seconds);
    archive.add("MANIFEST.txt", report.manifest(begun).as_bytes()).map_err(unwritable)?;
    for (name, content) in &report.files {
        archive.add(name, content.as_bytes()).map_err(unwritable)?;
    }
    archive.write(place).map_err(unwritable)?;
    for missing in &report.missing {
        out.talk(&Line::new(format!("left out: {missing}")));
    }
    out.data(&Line::new(path.display().to_string()))?;
    out.talk(&Line::new("Look at it before you pass it on: it names nodes, pods, namespaces and labels."));
    let is_worth_something = report.files.iter().any(|(name, _)| name != VERSIONS);
    Ok(if is_worth_something { Exit::Done } else { Exit::Error })
}

/// Says that nothing is overwritten, and what to do instead.
fn refuse_existing(path: &Path, error: &Error, out: &mut Output) -> Exit {
    out.talk(&Line::new(error.to_string()));
    let hint = if path.is_dir() {
        format!("it is a folder; -o {} makes a file in it", path.join("report.tar.gz").display())
    } else {
        String::from("nothing is overwritten; -o names another file")
    };
    out.hint(&hint);
    error.exit()
}

/// What was gathered.
#[derive(Default)]
struct Report {
    files: Vec<(String, String)>,
    missing: Vec<String>,
}

impl Report {
    /// Keeps what of these objects may leave, as one List; or why there is none.
    fn keep(
        &mut self,
        name: &str,
        found: Result<Vec<Value>, Error>,
        scrub: fn(&Value) -> Value,
    ) -> Option<Vec<Value>> {
        match found {
            Ok(objects) => {
                let kept: Vec<Value> = objects.iter().map(scrub).collect();
                self.file(name, &format::list(&kept));
                Some(objects)
            }
            Err(error) => {
                self.missing.push(format!("{name}: {error}"));
                None
            }
        }
    }

    fn file(&mut self, name: &str, content: &Value) {
        // An object of strings as keys can always be written.
        let text = serde_json::to_string_pretty(content).unwrap_or_default();
        self.files.push((name.to_owned(), text + "\n"));
    }

    /// What is inside and what is not.
    fn manifest(&self, at: Timestamp) -> String {
        let inside = self.files.iter().map(|(name, content)| format!("{name} ({} bytes)", content.len()));
        let missing = self.missing.iter().map(|missing| Line::new(missing).to_string());
        let listed = |lines: Vec<String>| match lines.as_slice() {
            [] => String::from("  nothing\n"),
            lines => lines.iter().fold(String::new(), |all, line| all + "  " + line + "\n"),
        };
        let (inside, missing) = (listed(inside.collect()), listed(missing.collect()));
        format!(
            "Gathered by kubectl-nm {OWN} at {at}.\n\nInside:\n{inside}\nCould not be read:\n{missing}\nNever asked for: \
             Secrets, ConfigMaps. Left out: managed fields, values of annotations, addresses; of pods their commands, \
             arguments, variables and what they wrote at their end, but for nm-reconciler's own settings. Images are \
             inside.\n"
        )
    }
}

async fn gather(namespace: Option<&str>, cluster: &Cluster) -> Result<Report, Error> {
    let server = objects::server_version(cluster).await?;
    let mut report = Report::default();
    let installed = Installed::find(cluster, namespace).await;
    let place =
        installed.as_ref().map_or(namespace.unwrap_or(manifests::NAMESPACE), |found| &found.namespace);
    let place = place.to_owned();
    let deployment = installed.as_ref().ok().and_then(|found| found.deployment.as_ref());
    let container = logs::own(deployment).to_owned();
    let mut versions = Versions { plugin: OWN.to_owned(), server: Some(server), ..Versions::default() };
    match installed {
        Ok(installed) => {
            versions.reconciler = installed.version();
            versions.reconciler_image = installed.image().map(str::to_owned);
            report.keep("deployments.json", Ok(installed.deployment.into_iter().collect()), redact::ours);
        }
        Err(error) => report.missing.push(format!("deployments.json: {error}")),
    }
    report.file(VERSIONS, &json!(versions));
    let everywhere = |kind: Kind| list(cluster, kind, None);
    let maintenances = maintenances(&mut report, cluster).await;
    let nodes = report.keep("nodes.json", everywhere(("v1", "Node")).await, redact::node);
    let known = maintenances.is_some() || nodes.is_some();
    let nodes = in_maintenance(&maintenances.unwrap_or_default(), &nodes.unwrap_or_default());
    let mut pods = Vec::new();
    if known {
        let there = pods_on(cluster, &nodes).await;
        pods = report.keep("pods.json", there, redact::pod).unwrap_or_default();
    } else {
        report.missing.push(String::from("pods.json: nobody knows which nodes are in maintenance"));
    }
    let pods: HashSet<(&str, &str)> = pods.iter().map(place_and_name).collect();
    let budgets = everywhere(("policy/v1", "PodDisruptionBudget")).await;
    report.keep("poddisruptionbudgets.json", budgets, redact::plain);
    let definition = objects::get(cluster, &manifests::definition()).await;
    report.keep(
        "customresourcedefinitions.json",
        definition.map(|found| found.into_iter().collect()),
        redact::whole,
    );
    let configurations =
        everywhere(("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")).await;
    report.keep("validatingwebhookconfigurations.json", configurations.map(about_us), redact::webhooks);
    for namespace in [LEASE_NAMESPACE, &place] {
        let leases = list(cluster, ("coordination.k8s.io/v1", "Lease"), Some(namespace)).await;
        report.keep(&format!("leases-{namespace}.json"), leases, redact::plain);
    }
    let events = everywhere(("events.k8s.io/v1", "Event")).await;
    let concerned = |events: Vec<Value>| {
        events.into_iter().filter(|event| concerns(event, &nodes, &pods, &place)).collect()
    };
    report.keep("events.json", events.map(concerned), redact::event);
    let ours = ListParams::default().labels(&manifests::selector());
    let reconcilers = objects::list(cluster, ("v1", "Pod"), Some(&place), &ours).await;
    for pod in report.keep("reconciler-pods.json", reconcilers, redact::ours).unwrap_or_default() {
        let logs = logs::read(cluster, &pod, &container).await;
        if logs.is_empty() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            report.missing.push(format!("logs/{name}: it has no container {container}"));
        }
        for (file, log) in logs {
            match log {
                Ok(text) => report.files.push((file, text)),
                Err(error) => report.missing.push(format!("{file}: {error}")),
            }
        }
    }
    Ok(report)
}

/// Keeps the maintenances, each group's in a file of its own, so that one that may not be read hides no other; nothing if
/// none could be read.
async fn maintenances(report: &mut Report, cluster: &Cluster) -> Option<Vec<Value>> {
    let mut kept = None;
    for group in Group::ALL {
        let older = if group == Group::default() { "" } else { &format!(".{}", group.name()) };
        let Some(found) = every_group::raw(cluster, group).await.transpose() else { continue };
        let found = report.keep(&format!("nodemaintenances{older}.json"), found, redact::plain);
        if let Some(found) = found {
            kept.get_or_insert_with(Vec::new).extend(found);
        }
    }
    kept
}

async fn list(cluster: &Cluster, kind: Kind, namespace: Option<&str>) -> Result<Vec<Value>, Error> {
    objects::list(cluster, kind, namespace, &ListParams::default()).await
}

async fn pods_on(cluster: &Cluster, nodes: &[String]) -> Result<Vec<Value>, Error> {
    let mut pods = Vec::new();
    for node in nodes {
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        pods.extend(objects::list(cluster, ("v1", "Pod"), None, &there).await?);
    }
    Ok(pods)
}

/// The nodes that are in maintenance, or say so.
fn in_maintenance(maintenances: &[Value], nodes: &[Value]) -> Vec<String> {
    let wanted = maintenances.iter().filter_map(|object| object["spec"]["nodeName"].as_str());
    let marked = nodes
        .iter()
        .filter(|node| node["metadata"]["annotations"].get(UNDO_ANNOTATION).is_some())
        .filter_map(|node| node["metadata"]["name"].as_str());
    let mut names: Vec<String> = wanted.chain(marked).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// The configurations of webhooks that are asked about maintenances or evictions.
fn about_us(configurations: Vec<Value>) -> Vec<Value> {
    const ASKED: [&str; 5] = ["nodemaintenances", "pods/eviction", "pods/*", "*", "*/*"];
    let is_asked = |configuration: &Value| {
        let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
        let rules = webhooks.flat_map(|webhook| webhook["rules"].as_array().into_iter().flatten());
        let mut resources = rules.flat_map(|rule| rule["resources"].as_array().into_iter().flatten());
        resources.any(|resource| resource.as_str().is_some_and(|name| ASKED.contains(&name)))
    };
    configurations.into_iter().filter(is_asked).collect()
}

fn place_and_name(pod: &Value) -> (&str, &str) {
    let field = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
    (field("namespace"), field("name"))
}

/// Whether an event is about a maintenance, a node in maintenance or a pod on one, or something in the reconciler's
/// namespace.
fn concerns(event: &Value, nodes: &[String], pods: &HashSet<(&str, &str)>, namespace: &str) -> bool {
    let about = &event["regarding"];
    let field = |name: &str| about[name].as_str().unwrap_or_default();
    match about["kind"].as_str() {
        Some("NodeMaintenance") => true,
        // Why a pod does not end is told there: FailedPreStopHook, FailedKillPod.
        Some("Pod") if pods.contains(&(field("namespace"), field("name"))) => true,
        Some("Node") => about["name"].as_str().is_some_and(|name| nodes.iter().any(|node| node == name)),
        _ => about["namespace"] == namespace,
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
