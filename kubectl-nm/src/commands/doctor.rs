//! `kubectl nm doctor`: what is in order with the installation, and what to do about the rest.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use kube::api::ListParams;
use nm_shared::Grant;
use nm_shared::api::names::WEBHOOK_CONFIGURATION;
use nm_shared::cluster::leader_lease;
use serde_json::{Value, json};

use crate::client::cluster::{AT_ONCE, Cluster};
use crate::client::every_group;
use crate::client::objects::{self, Right};
use crate::client::webhook_probe;
use crate::doctor::finding::{Finding, Grade, Known};
use crate::doctor::health_checks::{Facts, findings};
use crate::doctor::required_permissions::needs;
use crate::doctor::service_account;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::format::{self, Form};
use crate::install::installed::Installed;
use crate::install::leader_clock;
use crate::install::leadership;
use crate::install::manifests;
use crate::interaction::progress;
use crate::terminal::output::Output;
use crate::terminal::text::{Line, Style};

/// The name of the reconciler's service account.
const ACCOUNT: &str = "nm-reconciler";

const EXAMPLES: &str = "\
Examples:
  # Look at everything
  kubectl nm doctor

  # What does not work, for a script
  kubectl nm doctor -o json

Exit codes: 0 nothing fails, 1 something does or could not be checked, or the cluster cannot be asked.";

/// Check the installation and say what to do about it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print the findings as json, yaml or jsonpath=TEMPLATE
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = format::parse_data,
        add = format::offered(format::parse_data))]
    output: Option<Form>,
}

/// Runs the command.
///
/// # Errors
///
/// When the server cannot be asked at all. What it refuses to tell is a finding.
pub(crate) async fn run(
    args: DoctorArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let looking = || format!("looking at {}", cluster.server());
    let facts = progress::during(out, looking, Box::pin(facts(namespace, cluster))).await?;
    let findings = findings(&facts, Timestamp::now());
    let unknown = findings.iter().filter(|finding| finding.result == Grade::Unknown).count();
    // What could not be checked may be anything.
    let healthy = unknown == 0 && !findings.iter().any(|finding| finding.result == Grade::Fail);
    if let Some(form) = &args.output {
        form.print(&json!({"healthy": healthy, "findings": findings}), out)?;
    } else {
        for line in findings.iter().flat_map(lines) {
            out.data(&line)?;
        }
        if unknown > 0 {
            let all = findings.len();
            out.talk(&Line::new(format!(
                "{unknown} of {all} checks could not be made: what these would find, nobody knows"
            )));
        }
    }
    Ok(if healthy { Exit::Done } else { Exit::Error })
}

fn lines(finding: &Finding) -> Vec<Line> {
    let (style, word) = match finding.result {
        Grade::Ok => (Style::Good, "ok"),
        Grade::Warn => (Style::Busy, "warn"),
        Grade::Unknown => (Style::Busy, "?"),
        Grade::Fail => (Style::Bad, "fail"),
    };
    let gap = " ".repeat(6 - word.len());
    let first =
        Line::default().with(style, word).and(format!("{gap}{:<14}{}", finding.check, finding.message));
    let remedy = finding.remedy.iter().map(|remedy| Line::new(format!("{:20}{remedy}", "")));
    std::iter::once(first).chain(remedy).collect()
}

/// Learns all that can be learnt, at once.
async fn facts(namespace: Option<&str>, cluster: &Cluster) -> Result<Facts, Error> {
    let server = objects::server_version(cluster).await?;
    let installed = Installed::find(cluster, namespace).await;
    let place =
        installed.as_ref().map_or(namespace.unwrap_or(manifests::NAMESPACE), |found| &found.namespace);
    let lease = object("coordination.k8s.io/v1", "Lease", leader_lease::NAME, Some(place));
    let configuration = object(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        WEBHOOK_CONFIGURATION,
        None,
    );
    let (definition, ours, all) = (manifests::definition(), manifests::selector(), ListParams::default());
    let ours = ListParams::default().labels(&ours);
    let account = format!("system:serviceaccount:{place}:{ACCOUNT}");
    let (
        pods,
        definition,
        lease,
        node_leases,
        configuration,
        policies,
        granted,
        answer,
        nodes,
        maintenances,
        missing,
    ) = futures::join!(
        objects::list(cluster, ("v1", "Pod"), Some(place), &ours),
        objects::get(cluster, &definition),
        leader_clock::observe(cluster, &lease, Timestamp::now()),
        leadership::node_leases(cluster),
        objects::get(cluster, &configuration),
        policies(cluster),
        granted(&account, cluster),
        webhook_probe::ask(cluster),
        objects::list(cluster, ("v1", "Node"), None, &all),
        every_group::maintenances(cluster),
        missing_rights(cluster),
    );
    Ok(Facts {
        server,
        flags: cluster.flags().to_owned(),
        installed: known(installed),
        pods: known(pods),
        definition: known(definition),
        lease: known(lease),
        node_leases: known(node_leases),
        configuration: known(configuration),
        policies: known(policies),
        granted,
        answer: known(answer),
        nodes: known(nodes),
        maintenances: known(maintenances),
        missing,
    })
}

/// What there is of what narrows the reconciler's permission to patch its webhook configuration.
async fn policies(cluster: &Cluster) -> Result<service_account::Policies, Error> {
    let mut found = Vec::new();
    for policy in service_account::policies() {
        let there = objects::get(cluster, &policy).await?;
        found.push((policy, there));
    }
    Ok(found)
}

/// Which of the permissions that are granted apart the reconciler has.
async fn granted(account: &str, cluster: &Cluster) -> Vec<(Grant, Known<bool>)> {
    let mut granted = Vec::new();
    for grant in Grant::ALL {
        let may = objects::may_account(cluster, account, grant.permission()).await;
        granted.push((grant, known(may)));
    }
    granted
}

/// Asks about each right once, however many commands need it.
async fn missing_rights(cluster: &Cluster) -> Vec<(&'static str, Known<Vec<Right>>)> {
    // Whether it cannot be told is a finding of its own: that maintenances cannot be listed.
    let needs = needs(&every_group::older(cluster).await.unwrap_or_default());
    let rights: BTreeSet<Right> = needs.iter().flat_map(|(_, rights)| rights).cloned().collect();
    let answers: BTreeMap<Right, Known<bool>> = stream::iter(rights)
        .map(async |right| {
            let may = known(objects::may(cluster, &right).await);
            (right, may)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let missing = |rights: Vec<Right>| -> Known<Vec<Right>> {
        let judged = rights.into_iter().filter_map(|right| match answers.get(&right)? {
            Ok(true) => None,
            Ok(false) => Some(Ok(right)),
            Err(why) => Some(Err(why.clone())),
        });
        judged.collect()
    };
    needs.into_iter().map(|(command, rights)| (command, missing(rights))).collect()
}

fn object(version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}})
}

fn known<T>(answer: Result<T, Error>) -> Known<T> {
    answer.map_err(|error| error.to_string())
}
