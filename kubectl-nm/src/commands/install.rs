//! `kubectl nm install`: installs nm-reconciler, or brings an installation up to date.
//!
//! First everything is looked at and applied for show, so that a missing right or a field which somebody else has set stops
//! it before anything has changed. Then the objects are applied one after another, the definition first, and it is waited
//! until the program runs and its webhook answers.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::api::DynamicObject;
use nm_shared::Grant;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use serde_json::Value;

use crate::args::boolean;
use crate::args::duration;
use crate::args::image_name;
use crate::client::cluster::{AT_ONCE, Cluster};
use crate::client::objects::{self, Manner, Right};
use crate::commands::status;
use crate::error::Error;
use crate::error::doc_links;
use crate::error::exit::Exit;
use crate::error::setup_error::SetupError;
use crate::format::{self, Form};
use crate::install::difference::changes;
use crate::install::installed::Installed;
use crate::install::manifests::{self, Settings};
use crate::install::preflight;
use crate::install::readiness;
use crate::interaction::progress;
use crate::terminal::output::Output;
use crate::terminal::text::{Line, Style};

const EXAMPLES: &str = "\
Examples:
  # Install nm-reconciler with your image, and wait until it is ready
  kubectl nm install --image registry.example.com/you/nm-reconciler:0.1.0

  # Change one thing; what is not named stays as it is
  kubectl nm install --max-unavailable 10%

  # See what would be installed, to keep it in git or to apply it otherwise
  kubectl nm install --dry-run client -o yaml

Exit codes: 0 installed and ready, 1 refused, 2 usage, 124 applied, but not ready in time.";

/// How long a definition takes at most until the API server serves it.
const DEFINED: Duration = Duration::from_secs(30);

/// Install nm-reconciler, or bring it up to date
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InstallArgs {
    /// The image to run; by default the one that runs already, and at first localhost/nm-reconciler, which your nodes
    /// must have: none is published
    #[arg(long, value_name = "IMAGE", value_parser = image_name::parse)]
    image: Option<String>,

    /// How many of it run, of which one leads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,

    /// How many nodes may be unavailable at once, as a number or a share such as 10%
    #[arg(long, value_name = "N|N%")]
    max_unavailable: Option<MaxUnavailable>,

    /// Permissions to grant for what is off by default: node-conditions for the reconciler's --node-conditions, pod-deletion
    /// for spec.drain.deleteAfterSeconds. What is granted already stays
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = clap::value_parser!(Grant))]
    grant: Vec<Grant>,

    /// client: change nothing and ask nobody, only say what would be installed
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = ["none", "client"])]
    dry_run: String,

    /// Take over fields that others have set
    #[arg(long)]
    force_conflicts: bool,

    /// Wait until it is ready
    #[arg(long, value_name = "BOOL", default_value = "true", value_parser = boolean::parse,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    wait: bool,

    /// How long to wait for that, such as 30s or 5m; 0: as long as it takes
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    timeout: Duration,

    /// Print the objects: json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,...
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = format::parse_objects,
        add = format::offered(format::parse_objects))]
    output: Option<Form>,
}

impl InstallArgs {
    /// Whether a cluster is asked.
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
            grants: self.grant.iter().copied().collect(),
            ..Settings::default()
        })
    }
}

/// Says what would be installed on a cluster without anything of it, for which none is needed.
///
/// # Errors
///
/// When it cannot be shown in that form, or stdout is closed.
pub(crate) fn rehearse(args: &InstallArgs, namespace: Option<&str>, out: &mut Output) -> Result<Exit, Error> {
    let objects = manifests::objects(&args.settings(namespace)?);
    if let Some(form) = &args.output {
        status::in_form(&objects, false, form, out)?;
        return Ok(Exit::Done);
    }
    for object in &objects {
        out.data(&Line::new(format!("{} created (dry run)", format::located(object))))?;
    }
    Ok(Exit::Done)
}

/// Runs the command.
///
/// # Errors
///
/// When the server refuses, others have set fields differently, or it is not ready in time.
pub(crate) async fn run(
    args: InstallArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let asked = args.settings(namespace)?;
    let looking = || format!("asking {} what is installed", cluster.server());
    let plan = Box::pin(plan(asked, args.force_conflicts, cluster));
    let plan = progress::during(out, looking, plan).await?;
    for line in &plan.notes {
        out.talk(line);
    }
    if !plan.lacking.is_empty() {
        return Ok(refuse(&plan.lacking, out));
    }
    // Half an installation would be worse than none, whoever has stopped reading.
    out.go_on_when_closed();
    let mut applied = Vec::new();
    match apply(&plan, &args, &mut applied, cluster, out).await {
        Ok(()) => {}
        Err(error) if applied.is_empty() => return Err(error),
        Err(error) => return Ok(end_midway(&error, applied.len(), plan.steps.len(), out)),
    }
    if let Some(form) = &args.output {
        status::in_form(&applied, false, form, out)?;
        out.only_talk();
    }
    if args.wait {
        let ready = readiness::wait(&plan.namespace, args.timeout, cluster, out).await?;
        out.data(&Line::default().with(Style::Good, ready))?;
    }
    out.finish()?;
    Ok(Exit::Done)
}

/// Says which rights are missing.
fn refuse(lacking: &[Right], out: &mut Output) -> Exit {
    let lacking: Vec<String> =
        lacking.iter().map(|right| format!("{} {}", right.verb, right.object())).collect();
    out.talk(&Line::new(format!("error: you may not {}", lacking.join(", "))));
    out.hint("nothing was changed; `kubectl nm doctor` tells which rights each command needs");
    Exit::Error
}

/// Applies the objects one after another, and puts what came of each into `applied`.
async fn apply(
    plan: &Plan,
    args: &InstallArgs,
    applied: &mut Vec<Value>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(), Error> {
    let doing = RefCell::new(String::new());
    for step in &plan.steps {
        doing.replace(format!("applying {}", format::name(&step.wanted)));
        let work = step.take(args.force_conflicts, cluster);
        let after = progress::during(out, || doing.borrow().clone(), work).await?;
        let (line, changes) = (step.line(&after), step.changes(&after));
        applied.push(after);
        if args.output.is_some() {
            out.talk(&line);
        } else {
            out.data(&line)?;
        }
        for change in changes {
            out.talk(&Line::new(format!("  {change}")));
        }
    }
    Ok(())
}

/// Says what went wrong when some objects were applied and others not.
fn end_midway(error: &Error, applied: usize, of: usize, out: &mut Output) -> Exit {
    error.tell(out);
    out.hint(&format!(
        "{applied} of {of} objects are applied and stay; the same command goes on from there, \
         `kubectl nm uninstall` removes them"
    ));
    error.exit()
}

/// What is to be done.
struct Plan {
    namespace: String,
    steps: Vec<Step>,
    notes: Vec<Line>,
    /// Without which it would end midway.
    lacking: Vec<Right>,
}

/// An object that is applied.
struct Step {
    wanted: Value,
    before: Option<Value>,
}

impl Step {
    async fn take(&self, force: bool, cluster: &Cluster) -> Result<Value, Error> {
        let manner = Manner { dry_run: false, force };
        let after = match objects::apply(cluster, &self.wanted, manner).await {
            Err(error) if preflight::only_command_line(&error) => {
                objects::apply(cluster, &self.wanted, Manner { force: true, ..manner }).await?
            }
            applied => applied?,
        };
        if after["kind"] == "CustomResourceDefinition" {
            // What comes next may be about its objects.
            let _ = tokio::time::timeout(DEFINED, objects::until(cluster, &after, is_established)).await;
        }
        Ok(after)
    }

    fn line(&self, after: &Value) -> Line {
        let line = Line::new(format!("{} ", format::located(after)));
        match &self.before {
            None => line.with(Style::Good, "created"),
            Some(before) if changes(before, after).is_empty() => line.and("unchanged"),
            Some(_) => line.with(Style::Busy, "configured"),
        }
    }

    fn changes(&self, after: &Value) -> Vec<String> {
        self.before.as_ref().map(|before| changes(before, after)).unwrap_or_default()
    }
}

/// Looks at what there is, and has the server say what it would make of the objects.
async fn plan(asked: Settings, force: bool, cluster: &Cluster) -> Result<Plan, Error> {
    let installed = Installed::find(cluster, asked.namespace.as_deref()).await?;
    check(&installed, asked.namespace.as_deref())?;
    let deployment = installed.deployment.clone().unwrap_or_default();
    let mut settings =
        Settings { namespace: Some(installed.namespace.clone()), ..asked.clone() }.or_as_in(&deployment);
    settings.grants.extend(granted(cluster).await?);
    let mut steps: Vec<Step> = stream::iter(manifests::objects(&settings))
        .map(async |wanted| Ok::<_, Error>(Step { before: objects::get(cluster, &wanted).await?, wanted }))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    for step in &mut steps {
        if let Some(before) = &step.before {
            manifests::keep_path(&mut step.wanted, before);
        }
    }
    let mut notes = notes(&asked, &settings);
    if !serves_policies(&steps, cluster).await? {
        steps.retain(|step| !is_policy(step));
        notes.push(Line::new(
            "This Kubernetes has no ValidatingAdmissionPolicy (1.30 has): nothing narrows the permission of nm-reconciler to \
             patch its webhook configuration to the fields that it writes.",
        ));
    }
    if steps.iter().any(is_foreign_namespace) {
        steps.retain(|step| !manifests::is_about_own_namespace(&step.wanted));
        notes.push(Line::new(format!(
            "namespace/{} is not ours: it stays as it is, and gets no quota",
            installed.namespace
        )));
    }
    let wanted: Vec<&Value> = steps.iter().map(|step| &step.wanted).collect();
    let lacking = preflight::rehearse(&wanted, &namespaces_to_come(&steps), force, cluster).await?;
    Ok(Plan { namespace: installed.namespace, steps, notes, lacking })
}

/// The permissions that have been granted by their components.
async fn granted(cluster: &Cluster) -> Result<Vec<Grant>, Error> {
    let mut granted = Vec::new();
    for grant in Grant::ALL {
        let [_, binding] = manifests::granting(grant);
        if objects::get(cluster, &binding).await?.is_some_and(|found| manifests::is_ours(&found)) {
            granted.push(grant);
        }
    }
    Ok(granted)
}

fn is_policy(step: &Step) -> bool {
    step.wanted["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
}

/// Whether the API server knows the kinds of all policies.
async fn serves_policies(steps: &[Step], cluster: &Cluster) -> Result<bool, Error> {
    for step in steps.iter().filter(|step| is_policy(step) && step.before.is_none()) {
        if !objects::is_served(cluster, &step.wanted).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether something else is in the way.
fn check(installed: &Installed, wanted: Option<&str>) -> Result<(), Error> {
    if let Some(deployment) = installed.by_olm() {
        return Err(SetupError::ManagedByOlm(deployment).into());
    }
    if let Some(deployment) = &installed.other_operator {
        return Err(SetupError::OtherOperator(deployment.clone()).into());
    }
    match wanted.filter(|wanted| *wanted != installed.namespace) {
        Some(wanted) => {
            let there = installed.namespace.clone();
            Err(SetupError::Elsewhere { there, wanted: wanted.to_owned() }.into())
        }
        None => Ok(()),
    }
}

/// What a person should know of the image.
fn notes(asked: &Settings, settings: &Settings) -> Vec<Line> {
    let default = manifests::default_image();
    match &settings.image {
        None => vec![Line::new(format!(
            "The image {default} is published nowhere: your nodes must have it, or --image names one that they can pull: {}",
            doc_links::address("how-to/build-the-image.md")
        ))],
        Some(image) if asked.image.is_none() && *image != default => {
            vec![Line::new(format!("The image stays {image}; --image names another."))]
        }
        Some(_) => Vec::new(),
    }
}

fn is_foreign_namespace(step: &Step) -> bool {
    step.wanted["kind"] == "Namespace"
        && manifests::is_about_own_namespace(&step.wanted)
        && step.before.as_ref().is_some_and(|before| !manifests::is_ours(before))
}

/// The namespaces that will be made.
fn namespaces_to_come(steps: &[Step]) -> Vec<&str> {
    let will_be_made = |step: &&Step| step.wanted["kind"] == "Namespace" && step.before.is_none();
    let made = steps.iter().filter(will_be_made);
    made.filter_map(|step| step.wanted["metadata"]["name"].as_str()).collect()
}

fn is_established(definition: Option<&DynamicObject>) -> bool {
    let conditions = definition.and_then(|definition| definition.data["status"]["conditions"].as_array());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
