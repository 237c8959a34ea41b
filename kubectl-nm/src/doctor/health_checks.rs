//! The health checks of an installation.
//!
//! Everything here is pure: [`findings`] takes a [`ClusterReport`] and the time. What could not be read is a finding too, and
//! never "ok".

use jiff::{SignedDuration, Timestamp};
use nm_core::args::duration::age;
use nm_core::client::webhook_probe::ProbeResult;
use nm_core::leader::Leadership;
use nm_core::terminal::command_context;
use nm_core::terminal::docs_url::docs_url;
use nm_core::terminal::text::counted;
use nm_shared::cluster::leader_lease::LeaderLeaseState;
use nm_shared::{Grant, GroupedMaintenance};
use serde_json::{Value, json};

use crate::doctor::certificate;
use crate::doctor::finding::{CheckResult, Fetched, Finding, Unavailable, fail, named, ok, read, warn};
use crate::doctor::orphans;
use crate::doctor::service_account;
use crate::install::difference::first_deviation;
use crate::install::installation::{Installation, OWN_VERSION, is_older, version_skew};
use crate::install::leadership::LeaderLease;
use crate::install::manifests;
use crate::install::readiness::{self, available_replicas};

/// The webhook's certificate is renewed halfway through its 90 days. This close to its expiry, the renewal does not work.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

const INSTALL: &str = "run `kubectl nm install` to fix it";

const INSTALL_NEW: &str = "run `kubectl nm install --image IMAGE` to install it";

pub(crate) struct ClusterReport {
    pub(crate) server: String,
    pub(crate) flags: String,
    pub(crate) installation: Fetched<Installation>,
    pub(crate) pods: Fetched<Vec<Value>>,
    pub(crate) crd: Fetched<Option<Value>>,
    pub(crate) lease: Fetched<LeaderLease>,
    pub(crate) webhook_configuration: Fetched<Option<Value>>,
    /// The policies that limit what nm-reconciler may change in it.
    pub(crate) policies: Fetched<service_account::Policies>,
    /// The optional permissions, and whether nm-reconciler has them.
    pub(crate) grants: Vec<(Grant, Fetched<bool>)>,
    pub(crate) webhook: Fetched<ProbeResult>,
    /// The maintenances before the nodes were read: some may have ended since.
    pub(crate) earlier: Vec<GroupedMaintenance>,
    pub(crate) nodes: Fetched<Vec<Value>>,
    /// The maintenances after the nodes were read: some may have started meanwhile.
    pub(crate) maintenances: Fetched<Vec<GroupedMaintenance>>,
}

pub(crate) fn findings(report: &ClusterReport, now: Timestamp) -> Vec<Finding> {
    let mut found = vec![
        named("cluster", ok(format!("Kubernetes {}", report.server))),
        named("definition", crd(report)),
        named("reconciler", reconciler(report)),
        named("leader", leader(report, now)),
        named("webhook", webhook(report, now)),
    ];
    if let Some(deployment) =
        report.installation.as_ref().ok().and_then(|installation| installation.deployment.as_ref())
    {
        // If another installer configures the webhook, nm-reconciler has no permission that needs a limit.
        if !matches!(report.webhook_configuration, Ok(None)) {
            found.push(named(
                "policy",
                service_account::policy(&report.server, &report.policies, &install(report)),
            ));
        }
        let grants = service_account::permissions(deployment, &report.maintenances, &report.grants);
        found.push(named("grants", grants));
    }
    found.push(named("versions", versions(report)));
    found.push(named("nodes", orphans::nodes(&report.nodes, &report.earlier, &report.maintenances)));
    let stopping = orphans::maintenances(&report.maintenances, is_served(report, now), now);
    found.push(named("maintenances", stopping));
    if is_starting(report, now) {
        let is_available = installed(report).is_some_and(is_available);
        found.iter_mut().filter(|found| found.check == "reconciler" || !is_available).for_each(excuse_start);
    }
    for finding in &mut found {
        finding.remedy =
            finding.remedy.as_ref().map(|remedy| command_context::with_flags(remedy, &report.flags));
    }
    found
}

/// What installs what is missing. An older plugin would set the rest back.
fn install(report: &ClusterReport) -> String {
    let version = report.installation.as_ref().ok().and_then(Installation::version);
    match version.filter(|version| is_older(OWN_VERSION, version)) {
        Some(newer) => {
            format!("first update the plugin, which is older than nm-reconciler {newer}; then {INSTALL}")
        }
        None => INSTALL.to_owned(),
    }
}

/// Whether nm-reconciler has just been started, scaled or updated, and shows no problem.
fn is_starting(report: &ClusterReport, now: Timestamp) -> bool {
    let pods = report.pods.as_deref().unwrap_or_default();
    installed(report).is_some_and(|deployment| readiness::is_starting(deployment, pods, now))
}

/// The Deployment, if it is known.
fn installed(report: &ClusterReport) -> Option<&Value> {
    report.installation.as_ref().ok().and_then(|found| found.deployment.as_ref())
}

/// Whether a replica is available.
fn is_available(deployment: &Value) -> bool {
    deployment["status"]["availableReplicas"].as_u64() > Some(0)
}

/// What fails only because the replicas are starting is no failure yet.
fn excuse_start(finding: &mut Finding) {
    let is_of_start = matches!(finding.check, "reconciler" | "leader" | "webhook");
    if is_of_start && finding.result == CheckResult::Fail {
        finding.result = CheckResult::Warn;
        finding.message.push_str("; its replicas are starting");
        let later = finding.remedy.take().map(|remedy| format!("; if it still fails: {remedy}"));
        let later = later.unwrap_or_default();
        finding.remedy = Some(format!("wait a moment, then run `kubectl nm doctor` again{later}"));
    }
}

/// The first replica on a node that is not Ready, with that node.
fn on_unready_node(report: &ClusterReport) -> Option<(&str, &str)> {
    let is_ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
        ready.is_none_or(|ready| ready["status"] == "True")
    };
    let nodes = report.nodes.as_deref().unwrap_or_default();
    let unready: Vec<&str> = nodes
        .iter()
        .filter(|node| !is_ready(node))
        .filter_map(|node| node["metadata"]["name"].as_str())
        .collect();
    let pods = report.pods.as_deref().unwrap_or_default().iter();
    pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).find_map(|pod| {
        let node = pod["spec"]["nodeName"].as_str().filter(|node| unready.contains(node))?;
        Some((pod["metadata"]["name"].as_str()?, node))
    })
}

fn crd(report: &ClusterReport) -> Fetched<Finding> {
    let Some(found) = read(&report.crd)? else {
        return fail("the CRD of NodeMaintenance does not exist", install(report));
    };
    let established = found["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    if !established {
        return fail(
            "the CRD of NodeMaintenance exists, but is not served",
            "check the conditions of the CRD",
        );
    }
    match first_deviation(&json!({"spec": manifests::crd()["spec"]}), found) {
        None => ok("the CRD of NodeMaintenance matches this version"),
        Some(field) => warn(
            format!("the CRD of NodeMaintenance comes from another version or operator: {field} differs"),
            install(report),
        ),
    }
}

fn reconciler(report: &ClusterReport) -> Fetched<Finding> {
    let installation = read(&report.installation)?;
    match (&installation.deployment, &installation.other_operator) {
        (Some(_), Some(other)) => {
            return fail(
                format!("the medik8s operator (deployment {other}) serves the same objects"),
                format!("remove one of the two, as described in {}", docs_url("how-to/migrate-from-nmo.md")),
            );
        }
        (None, Some(other)) => {
            return warn(
                format!("not installed; the medik8s operator (deployment {other}) serves the objects"),
                format!("{} describes how to replace it", docs_url("how-to/migrate-from-nmo.md")),
            );
        }
        (None, None) => return fail("nm-reconciler is not installed", INSTALL_NEW),
        (Some(_), None) => {}
    }
    let deployment = installation.deployment.as_ref().unwrap_or(&Value::Null);
    let pods = report.pods.as_deref().unwrap_or_default();
    let runs = deployment["status"]["availableReplicas"].as_u64().unwrap_or_default() > 0;
    let describe = format!("`kubectl -n {} describe pods` shows the cause", installation.namespace);
    match available_replicas(deployment, pods) {
        Ok(0) => {
            let name = deployment["metadata"]["name"].as_str().unwrap_or("nm-reconciler");
            fail(
                format!("deployment {name} is scaled to 0: maintenances are neither started nor stopped"),
                format!(
                    "`kubectl -n {} scale deployment/{name} --replicas 2` starts it",
                    installation.namespace
                ),
            )
        }
        Ok(replicas) => {
            let run = if replicas == 1 { "runs" } else { "run" };
            let replicas = counted(replicas, "replica");
            ok(format!("{replicas} {run} in namespace {}", installation.namespace))
        }
        Err(why) if why.is_only_update() => ok(why.to_string()),
        Err(why) if runs => warn(why.to_string(), describe),
        Err(why) => fail(why.to_string(), describe),
    }
}

fn leader(report: &ClusterReport, now: Timestamp) -> Fetched<Finding> {
    const NO_LEADER: &str = "there is no leader: maintenances are neither started nor stopped";
    let lease = read(&report.lease)?;
    match &lease.state {
        LeaderLeaseState::Held { by, renewed, .. } => {
            let ago = age(now.duration_since(*renewed).as_secs().max(0));
            ok(match lease.skew {
                None => format!("{by} is the leader and renewed its lease {ago} ago"),
                Some(skew) => {
                    let skew = age(skew.as_secs());
                    format!(
                        "{by} is the leader and renews its lease; its clock and the local clock differ by {skew}"
                    )
                }
            })
        }
        LeaderLeaseState::Released | LeaderLeaseState::Expired => {
            if let Some(other) = serving_operator(report) {
                return ok(format!(
                    "not needed: the medik8s operator (deployment {other}) serves the objects"
                ));
            }
            match &report.installation {
                // Another check reports that nm-reconciler is not installed.
                Ok(found) if found.deployment.is_none() && leadership(report, now) == Leadership::Unknown => {
                    let what =
                        if lease.lease.is_none() { "there is no lease" } else { "the lease has no holder" };
                    let why = "either no nm-reconciler is running, or a single one runs outside the cluster";
                    Err(Unavailable(format!("{what}: {why}")))
                }
                Ok(found) if found.deployment.is_none() => fail(NO_LEADER, INSTALL_NEW),
                found => {
                    let is_known_to_run = installed(report).is_none_or(is_available);
                    if !is_known_to_run && on_unready_node(report).is_none() {
                        return fail(
                            NO_LEADER,
                            "start the replicas first, as described for the check of nm-reconciler",
                        );
                    }
                    if let Some((pod, node)) = on_unready_node(report).filter(|_| !is_known_to_run) {
                        return fail(
                            format!("{NO_LEADER}; pod {pod} is on node {node}, which is not Ready"),
                            format!(
                                "power node {node} on, or let another node run nm-reconciler: \
                                 `kubectl describe node {node}` shows since when it is not Ready"
                            ),
                        );
                    }
                    let namespace = found.as_ref().map_or(manifests::NAMESPACE, |found| &found.namespace);
                    let logs =
                        format!("`kubectl -n {namespace} logs deployment/nm-reconciler` shows the cause");
                    fail(NO_LEADER, logs)
                }
            }
        }
    }
}

/// The medik8s operator's Deployment, if that serves the maintenances and nm-reconciler is not installed.
fn serving_operator(report: &ClusterReport) -> Option<&str> {
    let installed =
        report.installation.as_ref().ok().filter(|installation| installation.deployment.is_none())?;
    installed.other_operator.as_deref()
}

fn is_served(report: &ClusterReport, now: Timestamp) -> bool {
    leadership(report, now) == Leadership::Held || serving_operator(report).is_some()
}

fn leadership(report: &ClusterReport, now: Timestamp) -> Leadership {
    let is_installed = report.installation.as_ref().is_ok_and(|found| found.deployment.is_some());
    report.lease.as_ref().map_or(Leadership::Unknown, |lease| lease.leadership(is_installed, now))
}

fn webhook(report: &ClusterReport, now: Timestamp) -> Fetched<Finding> {
    // The probe needs no permission to read the configuration, and other installers name the configuration differently.
    let configuration = report.webhook_configuration.as_ref().ok().and_then(Option::as_ref);
    let expires = configuration
        .and_then(|found| certificate::expiry(&found["webhooks"][0]["clientConfig"]["caBundle"]));
    let page = docs_url("reference/webhook.md");
    let renew = format!("nm-reconciler should have renewed it; {page} describes how to renew it now");
    match (&report.webhook, expires) {
        (_, Some(expires)) if expires <= now => fail(format!("its certificate expired at {expires}"), renew),
        (Err(why), _) => Err(why.clone()),
        (Ok(ProbeResult::Failed(why)), _) => fail(
            format!("it does not respond, so no maintenance can be started: {why}"),
            "check above whether nm-reconciler runs",
        ),
        (Ok(ProbeResult::Admitted), _) if report.webhook_configuration == Ok(None) => {
            let what =
                "no webhook is configured: invalid maintenances are detected only after they are created";
            warn(what, install(report))
        }
        (Ok(ProbeResult::Admitted), _) => {
            fail("it admits a maintenance of a node that does not exist", install(report))
        }
        (Ok(ProbeResult::RefusedByOther(_)), _) if serving_operator(report).is_some() => {
            ok("the webhook of the medik8s operator works")
        }
        (Ok(ProbeResult::RefusedByOther(message)), _) => warn(
            format!("another webhook refuses maintenances: {message}"),
            "remove that webhook if it is a leftover",
        ),
        (Ok(ProbeResult::Works), Some(expires)) if expires.duration_since(now) < EXPIRES_SOON => {
            warn(format!("it works, but its certificate expires at {expires}"), renew)
        }
        (Ok(ProbeResult::Works), Some(expires)) => {
            ok(format!("it works; its certificate is valid until {expires}"))
        }
        (Ok(ProbeResult::Works), None) => ok("it works"),
    }
}

fn versions(report: &ClusterReport) -> Fetched<Finding> {
    let installation = read(&report.installation)?;
    let deployment = installation.deployment.as_ref();
    let is_run = |found: &Value| found["status"]["availableReplicas"].as_u64().unwrap_or_default() > 0;
    if deployment.is_some_and(|found| !is_run(found)) {
        let image = installation.image().unwrap_or_default();
        return Err(Unavailable(format!("no replica runs {image}")));
    }
    match installation.version() {
        Some(version) if is_older(OWN_VERSION, &version) => {
            let older = format!("plugin {OWN_VERSION} is older than reconciler {version}");
            warn(version_skew(OWN_VERSION, &version).unwrap_or(older), "update the plugin")
        }
        Some(version) => match version_skew(OWN_VERSION, &version) {
            Some(warning) => {
                warn(warning, "`kubectl nm install --image IMAGE` installs another version of nm-reconciler")
            }
            None => ok(format!("plugin {OWN_VERSION}, reconciler {version}")),
        },
        None if installation.deployment.is_none() => ok(format!("plugin {OWN_VERSION}, no reconciler")),
        None => {
            let image = installation.image().unwrap_or_default();
            warn(format!("the version of {image} is not known"), "give the image a tag such as 0.1.0")
        }
    }
}

#[cfg(test)]
#[path = "health_checks_tests.rs"]
mod tests;
