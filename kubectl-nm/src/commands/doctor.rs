//! `kubectl nm doctor`: checks the installation, and suggests fixes.

use clap::Args;
use jiff::Timestamp;
use kube::api::ListParams;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects::{self, Permission};
use nm_core::client::reconciler_deployment::LABEL_SELECTOR;
use nm_core::client::webhook_probe;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format::{self, DataFormat};
use nm_core::interaction::progress;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style};
use nm_shared::Grant;
use nm_shared::api::names::WEBHOOK_CONFIGURATION;
use serde_json::{Value, json};

use crate::doctor::finding::{CheckResult, Fetched, Finding};
use crate::doctor::health_checks::{ClusterReport, findings};
use crate::doctor::service_account;
use crate::install::installation::Installation;
use crate::install::leadership;
use crate::install::manifests;

const ACCOUNT: &str = "nm-reconciler";

const EXAMPLES: &str = "\
Examples:
  # Run all checks
  kubectl nm doctor

  # Print the findings for a script
  kubectl nm doctor -o json";

const EXIT_CODES: &str = "\
Exit codes: 0 no check failed, 1 a check failed or could not be made, or the cluster cannot be reached, 2 usage error.";

/// Check the installation and your permissions, and suggest fixes
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct DoctorArgs {
    /// Print the findings in this format
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = format::data_formats(["json", "yaml"]))]
    output: Option<DataFormat>,
}

pub(crate) async fn run(
    args: DoctorArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let checking = || format!("checking {}", cluster.server());
    let report = progress::during(out, checking, Box::pin(report(namespace, cluster))).await?;
    let findings = findings(&report, Timestamp::now());
    let of = |result| findings.iter().filter(|finding| finding.result == result).count();
    let (unknown, failed) = (of(CheckResult::Unknown), of(CheckResult::Fail));
    let healthy = unknown == 0 && failed == 0;
    if let Some(format) = args.output {
        format.print(&json!({"healthy": healthy, "findings": findings}), out)?;
    } else {
        for line in findings.iter().flat_map(lines) {
            out.data(&line)?;
        }
        if unknown > 0 {
            let all = findings.len();
            let failed = if failed > 0 { format!(", and {failed} failed") } else { String::new() };
            out.message(&Line::new(format!(
                "{unknown} of {all} checks could not be made{failed}, so the state of the installation is not fully known"
            )));
        }
    }
    Ok(if healthy { Exit::Done } else { Exit::Error })
}

fn lines(finding: &Finding) -> Vec<Line> {
    let (style, word) = match finding.result {
        CheckResult::Ok => (Style::Good, "ok"),
        CheckResult::Warn => (Style::Busy, "warn"),
        CheckResult::Unknown => (Style::Busy, "?"),
        CheckResult::Fail => (Style::Bad, "fail"),
    };
    let gap = " ".repeat(6 - word.len());
    let first =
        Line::default().with(style, word).and(format!("{gap}{:<14}{}", finding.check, finding.message));
    let remedy = finding.remedy.iter().map(|remedy| Line::new(format!("{:20}{remedy}", "")));
    std::iter::once(first).chain(remedy).collect()
}

async fn report(namespace: Option<&str>, cluster: &Cluster) -> Result<ClusterReport, Error> {
    let server = objects::server_version(cluster).await?;
    let installation = Installation::find(cluster, namespace).await;
    let namespace =
        installation.as_ref().map_or(namespace.unwrap_or(manifests::NAMESPACE), |found| &found.namespace);
    let configuration = object(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        WEBHOOK_CONFIGURATION,
        None,
    );
    let (crd, all) = (manifests::crd(), ListParams::default());
    let own = ListParams::default().labels(LABEL_SELECTOR);
    let account = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
    Ok(ClusterReport {
        server,
        flags: cluster.flags().to_owned(),
        pods: fetched(objects::list(cluster, ("v1", "Pod"), Some(namespace), &own)).await,
        crd: fetched(objects::get(cluster, &crd)).await,
        lease: fetched(leadership::observe(cluster, namespace, Timestamp::now())).await,
        webhook_configuration: fetched(objects::get(cluster, &configuration)).await,
        policies: fetched(policies(cluster)).await,
        grants: grants(&account, cluster).await,
        webhook: fetched(webhook_probe::probe(cluster)).await,
        earlier: all_groups::maintenances(cluster).await.unwrap_or_default(),
        nodes: fetched(objects::list(cluster, ("v1", "Node"), None, &all)).await,
        maintenances: fetched(all_groups::maintenances(cluster)).await,
        installation: installation.map_err(Into::into),
    })
}

async fn fetched<T>(read: impl Future<Output = Result<T, Error>>) -> Fetched<T> {
    read.await.map_err(Into::into)
}

/// The policies that limit nm-reconciler's permissions to patch objects.
async fn policies(cluster: &Cluster) -> Result<service_account::Policies, Error> {
    let mut found = Vec::new();
    let surge = match manifests::grant_binding(Grant::Surge) {
        Some(binding) => objects::get(cluster, &binding).await?.map(|_| Grant::Surge),
        None => None,
    };
    for policy in service_account::policies(surge) {
        let there = objects::get(cluster, &policy).await?;
        found.push((policy, there));
    }
    Ok(found)
}

async fn grants(account: &str, cluster: &Cluster) -> Vec<(Grant, Fetched<bool>)> {
    let mut grants = Vec::new();
    for grant in Grant::ALL.into_iter().filter(|grant| !grant.permissions().is_empty()) {
        let mut is_granted = Ok(true);
        for &(verb, group, resource) in grant.permissions() {
            let permission = Permission { verb, group: group.to_owned(), resource: resource.to_owned() };
            if !matches!(is_granted, Ok(true)) {
                break;
            }
            is_granted = objects::is_allowed(cluster, Some(account), &permission).await.map_err(Into::into);
        }
        grants.push((grant, is_granted));
    }
    grants
}

fn object(version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}})
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use nm_core::terminal::output::captured::output;
    use nm_core::testing::fake_server::{cluster, failure, list};
    use nm_core::testing::objects::requested;

    use super::*;

    /// What is found of a marked node whose maintenance exists before, or after the nodes are read.
    async fn found(before: bool, after: bool) -> String {
        let are_nodes_read = Mutex::new(false);
        let (cluster, _) = cluster(move |_, path| {
            let mut are_nodes_read = are_nodes_read.lock().unwrap();
            let exists = if *are_nodes_read { after } else { before };
            match path {
                "/version" => (
                    200,
                    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "",
                    "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
                ),
                "/api/v1/nodes" => {
                    *are_nodes_read = true;
                    let taints = json!([{"key": "medik8s.io/drain", "effect": "NoSchedule"}]);
                    let node = json!({"metadata": {"name": "n1", "annotations": {"kubectl-nm.dev/undo": "{}"}},
                        "spec": {"unschedulable": true, "taints": taints}});
                    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [node]}))
                }
                "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances" => {
                    list(&Vec::from_iter(exists.then(|| requested("n1"))))
                }
                _ => failure(404, "NotFound", ""),
            }
        });
        let (mut out, captured) = output();
        run(DoctorArgs { output: None }, None, &cluster, &mut out).await.unwrap();
        let data = captured.data();
        data.lines().find(|line| line.contains(" nodes ")).unwrap_or(&data).to_owned()
    }

    #[tokio::test]
    async fn a_node_whose_maintenance_ends_or_starts_while_it_is_read_is_no_orphan() {
        let well = "none is cordoned by a deleted maintenance";
        for (before, after) in [(true, false), (false, true), (true, true)] {
            let found = found(before, after).await;
            assert!(found.ends_with(well), "{before} {after}: {found}");
        }
        let orphan = found(false, false).await;
        assert!(orphan.ends_with("1 cordoned by a deleted maintenance: n1"), "{orphan}");
    }
}
