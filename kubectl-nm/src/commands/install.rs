//! `kubectl nm install`: installs nm-reconciler, or updates an installation.
//!
//! First all objects are read and applied in a dry run, so that a missing permission or a conflict stops the command before
//! anything changes. Then the objects are applied one after another, the CRD first, and the command waits until nm-reconciler
//! runs and its webhook works.

use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::api::{DynamicObject, PatchParams};
use nm_core::args::{at_least, duration, parse_boolean};
use nm_core::client::cluster::{Cluster, MAX_CONCURRENT_REQUESTS};
use nm_core::client::objects;
use nm_core::client::reconciler_deployment::{FIELD_MANAGER, MAX_UNAVAILABLE};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format::{self, DataFormat};
use nm_core::interaction::progress;
use nm_core::terminal::docs_url::docs_url;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style};
use nm_shared::Grant;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use serde_json::Value;

use crate::commands::status;
use crate::install::difference::{is_changed, keep_white_space};
use crate::install::error::SetupError;
use crate::install::installation::{Installation, OWN_VERSION, is_older, version_of, version_skew};
use crate::install::manifests::{self, Settings};
use crate::install::preflight;
use crate::install::readiness;

const EXAMPLES: &str = "\
Examples:
  # Install nm-reconciler from your registry, and wait until it is ready
  kubectl nm install --image registry.example.com/you/nm-reconciler:0.1.0

  # Change one setting of an installation and keep the others; without an installation, this is an error
  kubectl nm install --max-unavailable 10%

  # Print the objects, to keep them in git or to apply them with another tool
  kubectl nm install --dry-run=client -o yaml";

const EXIT_CODES: &str = "\
Exit codes: 0 installed and ready, 1 failed, or no installation to change, 2 usage error, 124 applied, but not ready within --timeout.";

const CRD_TIMEOUT: Duration = Duration::from_secs(30);

/// Install nm-reconciler in the cluster, or update it
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct InstallArgs {
    /// Image of nm-reconciler. No image is published: build one and push it to your registry. An update keeps the current
    /// image by default; a new installation uses localhost/nm-reconciler, which must exist on your nodes
    #[arg(long, value_name = "IMAGE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    image: Option<String>,

    /// Number of replicas, one of which is the leader
    #[arg(long, value_name = "N", value_parser = at_least::<u32>(1))]
    replicas: Option<u32>,

    /// How many nodes may be unavailable at the same time, as a number or a percentage such as 10%
    #[arg(long, value_name = "N|N%")]
    max_unavailable: Option<MaxUnavailable>,

    /// Give nm-reconciler a share of its own of the API server's concurrency: a priority level and its flow schemas. An
    /// update keeps what is installed by default; a new installation has them
    #[arg(long, value_name = "BOOL", value_parser = parse_boolean, num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    flow_schemas: Option<bool>,

    /// Optional permissions for nm-reconciler: node-conditions for its flag --node-conditions, pod-deletion for
    /// spec.drain.deleteAfterSeconds (start --delete-after), volume-detach for spec.drain.waitForVolumeDetach (start
    /// --wait-for-volume-detach), surge for spec.drain.surge (start --surge), virtual-machines for keeping virtual machines
    /// of KubeVirt that have not started to migrate, roll for running rolls in the cluster (roll --in-cluster). Permissions
    /// granted before are kept
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = clap::value_parser!(Grant))]
    grant: Vec<Grant>,

    /// With client, only print what would be installed, without contacting the cluster
    #[arg(long, value_name = "HOW", default_value = "none", default_missing_value = "client", num_args = 0..=1, value_parser = ["none", "client"])]
    dry_run: String,

    /// Overwrite fields that other field managers have set
    #[arg(long)]
    force_conflicts: bool,

    /// Wait until nm-reconciler is ready
    #[arg(long, value_name = "BOOL", default_value = "true", value_parser = parse_boolean,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    wait: bool,

    /// Timeout of the wait, such as 30s or 5m; 0 means none
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    timeout: Duration,

    /// Print the objects in this format
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = format::data_formats(["json", "yaml", "name"]))]
    output: Option<DataFormat>,
}

impl InstallArgs {
    pub(crate) fn needs_cluster(&self) -> bool {
        self.dry_run == "none"
    }

    fn settings(&self, namespace: Option<&str>) -> Result<Settings, Error> {
        if let Some(namespace) = namespace.filter(|namespace| *namespace == LEASE_NAMESPACE) {
            return Err(SetupError::LeaseNamespace(namespace.to_owned()).into());
        }
        Ok(Settings {
            namespace: namespace.map(str::to_owned),
            image: self.image.clone(),
            replicas: self.replicas,
            max_unavailable: self.max_unavailable,
            flow_schemas: self.flow_schemas,
            grants: self.grant.iter().copied().collect(),
        })
    }
}

pub(crate) fn run_client_dry_run(
    args: &InstallArgs,
    namespace: Option<&str>,
    out: &mut Output,
) -> Result<Exit, Error> {
    let objects = manifests::objects(&args.settings(namespace)?);
    if let Some(format) = args.output {
        status::in_form(&objects, false, format, out)?;
        return Ok(Exit::Done);
    }
    for object in &objects {
        out.data(&Line::new(format!("{} created (dry run)", format::located(object))))?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn run(
    args: InstallArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let asked = args.settings(namespace)?;
    let reading = || format!("reading the installation from {}", cluster.server());
    let plan = Box::pin(plan(asked, args.force_conflicts, cluster));
    let plan = progress::during(out, reading, plan).await?;
    for note in &plan.notes {
        out.message(note);
    }
    // A partial installation would be worse than none.
    out.continue_on_stdout_error();
    let mut applied = Vec::new();
    match apply(&plan, &args, &mut applied, cluster, out).await {
        Ok(()) => {}
        Err(error) if applied.is_empty() => return Err(error),
        Err(error) => return Ok(report_partial(&error, applied.len(), &plan, out)),
    }
    for object in &plan.removed {
        if let Err(error) = objects::delete(cluster, object).await {
            return Ok(report_partial(&error, applied.len(), &plan, out));
        }
        out.message(&Line::new(format!("{} deleted", format::located(object))));
    }
    if let Some(format) = args.output {
        status::in_form(&applied, false, format, out)?;
        out.end_data();
    }
    if args.wait {
        let ready = readiness::wait(&plan.namespace, args.timeout, cluster, out).await?;
        out.data(&Line::default().with(Style::Good, ready))?;
    }
    out.finish()?;
    Ok(Exit::Done)
}

async fn apply(
    plan: &InstallPlan,
    args: &InstallArgs,
    applied: &mut Vec<Value>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(), Error> {
    for object in &plan.objects {
        let doing = || format!("applying {}", format::name(&object.wanted));
        let after = progress::during(out, doing, object.apply(args.force_conflicts, cluster)).await?;
        let line = object.line(&after);
        applied.push(after);
        if args.output.is_some() {
            out.message(&line);
        } else {
            out.data(&line)?;
        }
    }
    Ok(())
}

fn report_partial(error: &Error, applied: usize, plan: &InstallPlan, out: &mut Output) -> Exit {
    error.print(out);
    let is_update =
        plan.objects.iter().any(|object| object.wanted["kind"] == "Deployment" && object.before.is_some());
    // Of an installation that was there before, that would remove everything.
    let or = if is_update { "" } else { ", or `kubectl nm uninstall` to remove them" };
    out.hint(&format!(
        "{applied} of {} objects are applied; run the same command again to continue{or}",
        plan.objects.len()
    ));
    error.exit()
}

struct InstallPlan {
    namespace: String,
    objects: Vec<PlannedObject>,
    /// What is installed and not wanted any more.
    removed: Vec<Value>,
    notes: Vec<Line>,
}

struct PlannedObject {
    wanted: Value,
    before: Option<Value>,
}

impl PlannedObject {
    async fn apply(&self, force: bool, cluster: &Cluster) -> Result<Value, Error> {
        let params = PatchParams { force, ..PatchParams::apply(FIELD_MANAGER) };
        let after = objects::apply(cluster, &self.wanted, &params).await?;
        if after["kind"] == "CustomResourceDefinition" {
            // The webhook probe needs the CRD.
            let established = objects::wait_until(cluster, &after, is_established);
            let _ = tokio::time::timeout(CRD_TIMEOUT, established).await;
        }
        Ok(after)
    }

    fn line(&self, after: &Value) -> Line {
        let line = Line::new(format!("{} ", format::located(after)));
        match &self.before {
            None => line.with(Style::Good, "created"),
            Some(before) if !is_changed(before, after) => line.and("unchanged"),
            Some(_) => line.with(Style::Busy, "configured"),
        }
    }
}

/// Reads the existing objects, and checks in a dry run that all objects can be applied.
async fn plan(asked: Settings, force: bool, cluster: &Cluster) -> Result<InstallPlan, Error> {
    let installation = Installation::find(cluster, asked.namespace.as_deref()).await?;
    check(&installation, asked.namespace.as_deref())?;
    check_change(&installation, &asked)?;
    let deployment = installation.deployment.clone().unwrap_or_default();
    let mut settings = Settings { namespace: Some(installation.namespace.clone()), ..asked.clone() }
        .or_installed(&deployment);
    settings.grants.extend(granted(cluster).await?);
    let mut removed = installed_flow_schemas(cluster).await?;
    if installation.deployment.is_some() && settings.flow_schemas.is_none() {
        settings.flow_schemas = Some(!removed.is_empty());
    }
    if settings.flow_schemas != Some(false) {
        removed.clear();
    }
    let with_existing = async |wanted| {
        Ok::<_, Error>(PlannedObject { before: objects::get(cluster, &wanted).await?, wanted })
    };
    let mut planned: Vec<PlannedObject> = stream::iter(manifests::objects(&settings))
        .map(with_existing)
        .buffered(MAX_CONCURRENT_REQUESTS)
        .try_collect()
        .await?;
    for object in &mut planned {
        if let Some(before) = &object.before {
            keep_white_space(&mut object.wanted, before);
        }
    }
    let mut notes = image_notes(&asked, &settings);
    if !serves(&planned, manifests::is_flow_schema, cluster).await? {
        planned.retain(|object| !manifests::is_flow_schema(&object.wanted));
        notes.push(Line::new(
            "Kubernetes before 1.29 does not serve flowcontrol.apiserver.k8s.io/v1, so nm-reconciler gets no priority level \
             of its own.",
        ));
    }
    if !serves(&planned, manifests::is_policy, cluster).await? {
        planned.retain(|object| !manifests::is_policy(&object.wanted));
        for object in &mut planned {
            manifests::remove_selectable_fields(&mut object.wanted);
        }
        notes.push(Line::new(
            "Kubernetes before 1.30 has no ValidatingAdmissionPolicy, so nm-reconciler gets permission to patch all fields of \
             nodes, maintenances and its webhook configuration.",
        ));
    }
    if planned.iter().any(is_foreign_namespace) {
        planned.retain(|object| !manifests::is_about_own_namespace(&object.wanted));
        notes.push(Line::new(format!(
            "namespace/{} was created by others: it is not changed and gets no quota",
            installation.namespace
        )));
    }
    let wanted: Vec<&Value> = planned.iter().map(|object| &object.wanted).collect();
    preflight::check(&wanted, &new_namespaces(&planned), force, cluster).await?;
    Ok(InstallPlan { namespace: installation.namespace, objects: planned, removed, notes })
}

async fn granted(cluster: &Cluster) -> Result<Vec<Grant>, Error> {
    let mut granted = Vec::new();
    for grant in Grant::ALL {
        let Some(binding) = manifests::grant_binding(grant) else { continue };
        if objects::get(cluster, &binding).await?.is_some_and(|found| manifests::is_ours(&found)) {
            granted.push(grant);
        }
    }
    Ok(granted)
}

/// The flow schemas and the priority level of an installation.
async fn installed_flow_schemas(cluster: &Cluster) -> Result<Vec<Value>, Error> {
    let mut installed = Vec::new();
    for object in manifests::flow_schemas() {
        installed.extend(objects::get(cluster, &object).await?.filter(manifests::is_ours));
    }
    Ok(installed)
}

/// Whether the cluster serves the objects of a kind. What exists is served.
async fn serves(
    objects: &[PlannedObject],
    is_kind: fn(&Value) -> bool,
    cluster: &Cluster,
) -> Result<bool, Error> {
    for object in objects.iter().filter(|object| is_kind(&object.wanted) && object.before.is_none()) {
        if !objects::is_served(cluster, &object.wanted).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check(installation: &Installation, wanted: Option<&str>) -> Result<(), Error> {
    if let Some(deployment) = installation.by_olm() {
        return Err(SetupError::ManagedByOlm(deployment).into());
    }
    if let Some(deployment) = &installation.other_operator {
        return Err(SetupError::OtherOperator(deployment.clone()).into());
    }
    match wanted.filter(|wanted| *wanted != installation.namespace) {
        Some(wanted) => {
            let there = installation.namespace.clone();
            Err(SetupError::Elsewhere { there, wanted: wanted.to_owned() }.into())
        }
        None => Ok(()),
    }
}

/// A flag of the Deployment would take precedence over the variable that is set. Without an image, flags for settings change
/// an installation. Where there is none, the image that is not published would be
/// installed, probably in the wrong cluster.
fn check_change(installation: &Installation, asked: &Settings) -> Result<(), Error> {
    let is_flag = |deployment: &Value| MAX_UNAVAILABLE.is_flag_of(deployment);
    if asked.max_unavailable.is_some() && installation.deployment.as_ref().is_some_and(is_flag) {
        return Err(SetupError::LimitIsFlag(installation.namespace.clone()).into());
    }
    // Who names an image, decides about the version.
    if asked.image.is_some() {
        return Ok(());
    }
    if let Some(version) = installation.version().filter(|version| is_older(OWN_VERSION, version)) {
        return Err(SetupError::OlderPlugin { plugin: OWN_VERSION, version }.into());
    }
    if installation.deployment.is_some() {
        return Ok(());
    }
    let grants: Vec<&str> = asked.grants.iter().map(|grant| grant.as_str()).collect();
    let flags = [
        asked.replicas.map(|replicas| format!("--replicas {replicas}")),
        asked.max_unavailable.map(|limit| format!("--max-unavailable {limit}")),
        asked.flow_schemas.map(|wanted| format!("--flow-schemas={wanted}")),
        (!grants.is_empty()).then(|| format!("--grant {}", grants.join(","))),
    ];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    if flags.is_empty() { Ok(()) } else { Err(SetupError::NothingToChange(flags.join(" ")).into()) }
}

fn image_notes(asked: &Settings, settings: &Settings) -> Vec<Line> {
    let default = manifests::default_image();
    match &settings.image {
        None => vec![Line::new(format!(
            "The image {default} is not published. It must exist on your nodes, or choose another with --image; see {}",
            docs_url("how-to/build-the-image.md")
        ))],
        Some(image) if asked.image.is_none() && *image != default => {
            vec![Line::new(format!("Keeping the image {image}; choose another with --image."))]
        }
        Some(image) => {
            let is_skewed = |version: &&str| {
                is_older(OWN_VERSION, version) && version_skew(OWN_VERSION, version).is_some()
            };
            let newer = version_of(image).filter(is_skewed);
            let warn = |version| {
                Line::new(format!(
                    "warning: nm-reconciler {version} gets the CRD and the permissions of this older plugin ({OWN_VERSION})"
                ))
            };
            newer.map(warn).into_iter().collect()
        }
    }
}

fn is_foreign_namespace(object: &PlannedObject) -> bool {
    object.wanted["kind"] == "Namespace"
        && manifests::is_about_own_namespace(&object.wanted)
        && object.before.as_ref().is_some_and(|before| !manifests::is_ours(before))
}

fn new_namespaces(objects: &[PlannedObject]) -> Vec<&str> {
    let is_new = |object: &&PlannedObject| object.wanted["kind"] == "Namespace" && object.before.is_none();
    objects.iter().filter(is_new).filter_map(|object| object.wanted["metadata"]["name"].as_str()).collect()
}

fn is_established(crd: Option<&DynamicObject>) -> bool {
    let conditions = crd.and_then(|crd| crd.data["status"]["conditions"].as_array());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
