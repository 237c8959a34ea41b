//! `kubectl nm gather`: collects what a bug report needs in one file, with a manifest of its contents and of what could not
//! be read.
//!
//! This module decides what is read, and `redact` which fields are kept. Secrets are never read.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use kube::api::ListParams;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects::{self, ApiVersionKind};
use nm_core::client::reconciler_deployment::LABEL_SELECTOR;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format;
use nm_core::interaction::progress;
use nm_core::redact;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_shared::Group;
use nm_shared::api::names::{LEASE_NAMESPACE, UNDO_ANNOTATION};
use serde_json::{Value, json};

use crate::gather::archive::{Archive, OutputFile};
use crate::gather::logs;
use crate::install::installation::{Installation, OWN_VERSION, Versions};
use crate::install::manifests;

const EXAMPLES: &str = "\
Examples:
  # Write kubectl-nm-TIME.tar.gz to the current folder
  kubectl nm gather

  # Write another file
  kubectl nm gather -o /tmp/report.tar.gz";

const EXIT_CODES: &str = "\
The file contains: maintenances; names and labels of all nodes; pods on nodes in maintenance, with their images; \
disruption budgets; events; nm-reconciler's settings and log.
It never contains: Secrets, ConfigMaps; commands, arguments and environment variables of pods, except for \
nm-reconciler's own settings; values of annotations; addresses.

Exit codes: 0 written, even if parts could not be read; 1 failed, or only versions could be read; 2 usage error.";

/// The file with the versions, which every user can read.
const VERSIONS: &str = "versions.json";

/// Write an archive for a bug report, without secrets
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct GatherArgs {
    /// The file to write, which must not exist yet; the default is kubectl-nm-TIME.tar.gz
    #[arg(long, short = 'o', value_name = "FILE.tar.gz", value_parser = parse_file_name)]
    output: Option<PathBuf>,
}

/// Parses the name of the file. A format that `-o` accepts in other commands would become a file name.
fn parse_file_name(text: &str) -> Result<PathBuf, String> {
    if [".tar.gz", ".tgz"].iter().any(|extension| text.ends_with(extension)) {
        Ok(PathBuf::from(text))
    } else {
        Err(String::from("the name of the file must end in .tar.gz or .tgz, such as report.tar.gz"))
    }
}

pub(crate) async fn run(
    args: GatherArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let start = Timestamp::now();
    let folder = format!("kubectl-nm-{}", start.strftime("%Y%m%dT%H%M%SZ"));
    let path = args.output.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let unwritable = |source| Error::Unwritable { path: path.display().to_string(), source };
    // Checked before the requests, which may take a minute.
    let file = match OutputFile::reserve(&path) {
        Ok(file) => file,
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(refuse_existing(&path, &unwritable(source), out));
        }
        Err(source) => return Err(unwritable(source)),
    };
    let reading = || format!("reading from {}", cluster.server());
    let bundle = progress::during(out, reading, Box::pin(gather(namespace, cluster))).await?;
    let seconds = u64::try_from(start.as_second()).unwrap_or_default();
    let mut archive = Archive::new(folder, seconds);
    archive.add("MANIFEST.txt", bundle.manifest(start).as_bytes()).map_err(unwritable)?;
    for (name, content) in &bundle.files {
        archive.add(name, content.as_bytes()).map_err(unwritable)?;
    }
    archive.write(&file).map_err(unwritable)?;
    for missing in &bundle.missing {
        out.message(&Line::new(format!("left out: {missing}")));
    }
    out.data(&Line::new(path.display().to_string()))?;
    out.message(&Line::new(
        "Review the file before you share it: it contains names of nodes, pods and namespaces, and labels.",
    ));
    let has_more_than_versions = bundle.files.iter().any(|(name, _)| name != VERSIONS);
    Ok(if has_more_than_versions { Exit::Done } else { Exit::Error })
}

fn refuse_existing(path: &Path, error: &Error, out: &mut Output) -> Exit {
    out.error(error);
    let hint = if path.is_dir() {
        format!("it is a folder; write a file in it with -o {}", path.join("report.tar.gz").display())
    } else {
        String::from("existing files are not overwritten; choose another file with -o")
    };
    out.hint(&hint);
    error.exit()
}

#[derive(Default)]
struct SupportBundle {
    files: Vec<(String, String)>,
    missing: Vec<String>,
}

impl SupportBundle {
    /// Adds the redacted objects as one List, or records why they are missing.
    fn add(
        &mut self,
        name: &str,
        found: Result<Vec<Value>, Error>,
        redact: fn(&Value) -> Value,
    ) -> Option<Vec<Value>> {
        match found {
            Ok(objects) => {
                let redacted: Vec<Value> = objects.iter().map(redact).collect();
                self.add_json(name, &format::list(&redacted));
                Some(objects)
            }
            Err(error) => {
                self.missing.push(format!("{name}: {error}"));
                None
            }
        }
    }

    fn add_json(&mut self, name: &str, content: &Value) {
        // A `Value` can always be serialized.
        let text = serde_json::to_string_pretty(content).unwrap_or_default();
        self.files.push((name.to_owned(), text + "\n"));
    }

    fn manifest(&self, at: Timestamp) -> String {
        let files = self.files.iter().map(|(name, content)| format!("{name} ({} bytes)", content.len()));
        let missing = self.missing.iter().map(|missing| Line::new(missing).to_string());
        let list = |lines: Vec<String>| match lines.as_slice() {
            [] => String::from("  nothing\n"),
            lines => lines.iter().fold(String::new(), |all, line| all + "  " + line + "\n"),
        };
        let (files, missing) = (list(files.collect()), list(missing.collect()));
        format!(
            "Written by kubectl-nm {OWN_VERSION} at {at}.\n\nFiles:\n{files}\nCould not be read:\n{missing}\nNever read: \
             Secrets, ConfigMaps. Redacted: managed fields, values of annotations, addresses; commands, arguments, environment \
             variables and termination messages of pods, except for nm-reconciler's own settings. Images are included.\n"
        )
    }
}

async fn gather(namespace: Option<&str>, cluster: &Cluster) -> Result<SupportBundle, Error> {
    let server = objects::server_version(cluster).await?;
    let mut bundle = SupportBundle::default();
    let installation = Installation::find(cluster, namespace).await;
    let namespace =
        installation.as_ref().map_or(namespace.unwrap_or(manifests::NAMESPACE), |found| &found.namespace);
    let namespace = namespace.to_owned();
    let deployment = installation.as_ref().ok().and_then(|found| found.deployment.as_ref());
    let container = logs::own_container(deployment).to_owned();
    let mut versions =
        Versions { plugin: OWN_VERSION.to_owned(), server: Some(server), ..Versions::default() };
    match installation {
        Ok(found) => {
            versions.reconciler = found.version();
            versions.reconciler_image = found.image().map(str::to_owned);
            bundle.add("deployments.json", Ok(found.deployment.into_iter().collect()), redact::reconciler);
        }
        Err(error) => bundle.missing.push(format!("deployments.json: {error}")),
    }
    bundle.add_json(VERSIONS, &json!(versions));
    let list_all = |kind: ApiVersionKind| list(cluster, kind, None);
    let maintenances = add_maintenances(&mut bundle, cluster).await;
    let nodes = bundle.add("nodes.json", list_all(("v1", "Node")).await, redact::node);
    let are_nodes_known = maintenances.is_some() || nodes.is_some();
    let nodes = in_maintenance(&maintenances.unwrap_or_default(), &nodes.unwrap_or_default());
    let mut pods = Vec::new();
    if are_nodes_known {
        let found = pods_on(cluster, &nodes).await;
        pods = bundle.add("pods.json", found, redact::pod).unwrap_or_default();
    } else {
        bundle.missing.push(String::from("pods.json: the nodes in maintenance are not known"));
    }
    let pods: HashSet<(&str, &str)> = pods.iter().map(namespace_and_name).collect();
    let budgets = list_all(("policy/v1", "PodDisruptionBudget")).await;
    bundle.add("poddisruptionbudgets.json", budgets, redact::plain);
    let crd = objects::get(cluster, &manifests::crd()).await;
    let crd = crd.map(|found| found.into_iter().collect());
    bundle.add("customresourcedefinitions.json", crd, redact::whole);
    let configurations =
        list_all(("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")).await;
    bundle.add("validatingwebhookconfigurations.json", configurations.map(relevant_webhooks), redact::whole);
    for namespace in [LEASE_NAMESPACE, &namespace] {
        let leases = list(cluster, ("coordination.k8s.io/v1", "Lease"), Some(namespace)).await;
        bundle.add(&format!("leases-{namespace}.json"), leases, redact::plain);
    }
    let events = list_all(("events.k8s.io/v1", "Event")).await;
    let relevant = |events: Vec<Value>| {
        events.into_iter().filter(|event| is_relevant(event, &nodes, &pods, &namespace)).collect()
    };
    bundle.add("events.json", events.map(relevant), redact::event);
    let own = ListParams::default().labels(LABEL_SELECTOR);
    let reconcilers = objects::list(cluster, ("v1", "Pod"), Some(&namespace), &own).await;
    for pod in bundle.add("reconciler-pods.json", reconcilers, redact::reconciler).unwrap_or_default() {
        let logs = logs::read(cluster, &pod, &container).await;
        if logs.is_empty() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            bundle.missing.push(format!("logs/{name}: the pod has no container {container}"));
        }
        for (file, log) in logs {
            match log {
                Ok(text) => bundle.files.push((file, text)),
                Err(error) => bundle.missing.push(format!("{file}: {error}")),
            }
        }
    }
    Ok(bundle)
}

/// Adds the maintenances of each group in a file of its own, so that an unreadable group does not affect others. Returns
/// `None` if no group can be read.
async fn add_maintenances(bundle: &mut SupportBundle, cluster: &Cluster) -> Option<Vec<Value>> {
    let mut all = None;
    for group in Group::ALL {
        let suffix = if group == Group::default() { "" } else { &format!(".{}", group.name()) };
        let Some(found) = all_groups::list_raw(cluster, group).await.transpose() else { continue };
        let found = bundle.add(&format!("nodemaintenances{suffix}.json"), found, redact::plain);
        if let Some(found) = found {
            all.get_or_insert_with(Vec::new).extend(found);
        }
    }
    all
}

async fn list(cluster: &Cluster, kind: ApiVersionKind, namespace: Option<&str>) -> Result<Vec<Value>, Error> {
    objects::list(cluster, kind, namespace, &ListParams::default()).await
}

async fn pods_on(cluster: &Cluster, nodes: &[String]) -> Result<Vec<Value>, Error> {
    let mut pods = Vec::new();
    for node in nodes {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        pods.extend(objects::list(cluster, ("v1", "Pod"), None, &on_node).await?);
    }
    Ok(pods)
}

/// The nodes that have a maintenance or an undo record.
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

fn relevant_webhooks(configurations: Vec<Value>) -> Vec<Value> {
    const RESOURCES: [&str; 5] = ["nodemaintenances", "pods/eviction", "pods/*", "*", "*/*"];
    let is_relevant = |configuration: &Value| {
        let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
        let rules = webhooks.flat_map(|webhook| webhook["rules"].as_array().into_iter().flatten());
        let mut resources = rules.flat_map(|rule| rule["resources"].as_array().into_iter().flatten());
        resources.any(|resource| resource.as_str().is_some_and(|name| RESOURCES.contains(&name)))
    };
    configurations.into_iter().filter(is_relevant).collect()
}

fn namespace_and_name(pod: &Value) -> (&str, &str) {
    let field = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
    (field("namespace"), field("name"))
}

/// Whether an event is about a maintenance, a node in maintenance, a pod on such a node, or an object in nm-reconciler's
/// namespace.
fn is_relevant(event: &Value, nodes: &[String], pods: &HashSet<(&str, &str)>, namespace: &str) -> bool {
    let about = &event["regarding"];
    let field = |name: &str| about[name].as_str().unwrap_or_default();
    match about["kind"].as_str() {
        Some("NodeMaintenance") => true,
        // They show why a pod does not terminate: FailedPreStopHook, FailedKillPod.
        Some("Pod") if pods.contains(&(field("namespace"), field("name"))) => true,
        Some("Node") => about["name"].as_str().is_some_and(|name| nodes.iter().any(|node| node == name)),
        _ => about["namespace"] == namespace,
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
