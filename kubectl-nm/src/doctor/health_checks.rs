//! What is in order with an installation and what is not, from what is known of a cluster.
//!
//! Everything here is pure: [`findings`] takes [`Facts`] and the time. What could not be learnt is a finding too, never an
//! "ok".

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use nm_shared::cluster::leader_lease::LeaderLeaseState;
use nm_shared::{Grant, Grouped};
use serde_json::{Value, json};

use crate::args::duration::age;
use crate::client::objects::Right;
use crate::client::webhook_probe::Answer;
use crate::doctor::finding::{Finding, Known, fail, ok, unknown, warn};
use crate::doctor::orphans;
use crate::doctor::permissions;
use crate::doctor::service_account;
use crate::error::doc_links;
use crate::install::certificate;
use crate::install::difference::first_deviation;
use crate::install::installed::Installed;
use crate::install::leader_clock::Observed;
use crate::install::leadership::{self, Leadership};
use crate::install::manifests;
use crate::install::rollout;
use crate::install::versions::{OWN, skew};
use crate::terminal::command_context;

/// The webhook's certificate is renewed halfway through its 90 days; this close to its end nobody renews it.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// All that is looked at.
pub(crate) struct Facts {
    /// The API server's version.
    pub(crate) server: String,
    /// The flags that lead to the cluster, each with a blank before it, for commands to paste.
    pub(crate) flags: String,
    /// What is installed.
    pub(crate) installed: Known<Installed>,
    /// The pods of it.
    pub(crate) pods: Known<Vec<Value>>,
    /// The definition of `NodeMaintenance`.
    pub(crate) definition: Known<Option<Value>>,
    /// The lease by which one leads.
    pub(crate) lease: Known<Observed>,
    /// The leases on nodes, which show that somebody is at work.
    pub(crate) node_leases: Known<Vec<Lease>>,
    /// How the API server comes to ask the webhook.
    pub(crate) configuration: Known<Option<Value>>,
    /// What narrows what the reconciler may do with that.
    pub(crate) policies: Known<service_account::Policies>,
    /// The permissions that are granted apart, and whether the reconciler has them.
    pub(crate) granted: Vec<(Grant, Known<bool>)>,
    /// What the webhook says.
    pub(crate) answer: Known<Answer>,
    /// The nodes.
    pub(crate) nodes: Known<Vec<Value>>,
    /// The maintenances of all groups that are served.
    pub(crate) maintenances: Known<Vec<Grouped>>,
    /// For each command the rights that the caller lacks.
    pub(crate) missing: Vec<(&'static str, Known<Vec<Right>>)>,
}

/// What there is to say, in the order in which a person would look.
pub(crate) fn findings(facts: &Facts, now: Timestamp) -> Vec<Finding> {
    let mut found = vec![ok("cluster", format!("Kubernetes {}", facts.server))];
    found.push(definition(facts));
    found.push(reconciler(facts));
    found.push(leader(facts, now));
    found.push(webhook(facts, now));
    if let Some(deployment) =
        facts.installed.as_ref().ok().and_then(|installed| installed.deployment.as_ref())
    {
        // Where another installer configures the webhook, the reconciler has no permission to narrow.
        if !matches!(facts.configuration, Ok(None)) {
            found.push(service_account::policy(&facts.server, &facts.policies, INSTALL));
        }
        found.push(service_account::permissions(deployment, &facts.maintenances, &facts.granted));
    }
    found.push(versions(facts));
    found.extend(permissions::findings(&facts.missing));
    found.push(orphans::nodes(&facts.nodes, &facts.maintenances));
    found.push(orphans::maintenances(&facts.maintenances, are_served(facts, now), now));
    for finding in &mut found {
        finding.remedy =
            finding.remedy.as_ref().map(|remedy| command_context::with_flags(remedy, &facts.flags));
    }
    found
}

fn definition(facts: &Facts) -> Finding {
    const CHECK: &str = "definition";
    let found = match &facts.definition {
        Err(why) => return unknown(CHECK, why),
        Ok(None) => return fail(CHECK, "NodeMaintenance is not defined", INSTALL),
        Ok(Some(found)) => found,
    };
    let established = found["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    if !established {
        return fail(
            CHECK,
            "NodeMaintenance is defined, but not served",
            "look at the conditions of the CRD",
        );
    }
    match first_deviation(&json!({"spec": manifests::definition()["spec"]}), found) {
        None => ok(CHECK, "NodeMaintenance is defined as by this version"),
        Some(field) => warn(
            CHECK,
            format!("NodeMaintenance is defined by another version or another operator: {field} differs"),
            INSTALL,
        ),
    }
}

fn reconciler(facts: &Facts) -> Finding {
    const CHECK: &str = "reconciler";
    let installed = match &facts.installed {
        Err(why) => return unknown(CHECK, why),
        Ok(installed) => installed,
    };
    match (&installed.deployment, &installed.other_operator) {
        (Some(_), Some(other)) => {
            return fail(
                CHECK,
                format!("the medik8s operator (deployment {other}) serves the same objects"),
                format!("remove one of the two: {}", doc_links::address("how-to/migrate-from-nmo.md")),
            );
        }
        (None, Some(other)) => {
            return warn(
                CHECK,
                format!("not installed; the medik8s operator (deployment {other}) serves the objects"),
                format!("{} says how to replace it", doc_links::address("how-to/migrate-from-nmo.md")),
            );
        }
        (None, None) => return fail(CHECK, "nm-reconciler is not installed", INSTALL),
        (Some(_), None) => {}
    }
    let deployment = installed.deployment.as_ref().unwrap_or(&Value::Null);
    let pods = facts.pods.as_deref().unwrap_or_default();
    let runs = deployment["status"]["availableReplicas"].as_u64().unwrap_or_default() > 0;
    let describe = format!("`kubectl -n {} describe pods` tells more", installed.namespace);
    match rollout::ready(deployment, pods) {
        Ok(replicas) => ok(CHECK, format!("{replicas} replicas run in namespace {}", installed.namespace)),
        Err(why) if runs => warn(CHECK, why, describe),
        Err(why) => fail(CHECK, why, describe),
    }
}

fn leader(facts: &Facts, now: Timestamp) -> Finding {
    const CHECK: &str = "leader";
    const NOBODY: &str = "nobody leads: no maintenance is begun, and none is ended";
    let lease = match &facts.lease {
        Err(why) => return unknown(CHECK, why),
        Ok(lease) => lease,
    };
    match lease.tenure(now) {
        LeaderLeaseState::Held { by, renewed, .. } => {
            let ago = age(now.duration_since(renewed).as_secs().max(0));
            ok(
                CHECK,
                match lease.skew() {
                    None => format!("{by} leads and renewed its lease {ago} ago"),
                    Some(skew) => {
                        let skew = age(skew.as_secs());
                        format!(
                            "{by} leads and renews its lease; its clock and that of this machine differ by {skew}"
                        )
                    }
                },
            )
        }
        LeaderLeaseState::Released | LeaderLeaseState::Expired => {
            if let Some(other) = another_serves(facts) {
                return ok(
                    CHECK,
                    format!("none is needed: the medik8s operator (deployment {other}) serves the objects"),
                );
            }
            let leadership = leadership(facts, now);
            match &facts.installed {
                _ if let Leadership::Unelected(seen) = leadership => {
                    let ago = age(now.duration_since(seen).as_secs().max(0));
                    warn(
                        CHECK,
                        format!(
                            "nobody leads, but a reconciler without leader election was at work {ago} ago"
                        ),
                        "run it alone, or run all of them with --leader-elect",
                    )
                }
                // That it is not installed is said already.
                Ok(found) if found.deployment.is_none() && leadership == Leadership::Unknown => {
                    let what =
                        if lease.lease.is_none() { "there is no lease" } else { "nobody holds the lease" };
                    let so = "as where nothing runs, or one reconciler alone outside of a pod";
                    unknown(CHECK, &format!("{what}, {so}"))
                }
                Ok(found) if found.deployment.is_none() => fail(CHECK, NOBODY, INSTALL),
                found => {
                    let namespace = found.as_ref().map_or(manifests::NAMESPACE, |found| &found.namespace);
                    let logs = format!("`kubectl -n {namespace} logs deployment/nm-reconciler` tells why");
                    fail(CHECK, NOBODY, logs)
                }
            }
        }
    }
}

/// The medik8s operator's Deployment, where that serves the maintenances and nm-reconciler is not installed.
fn another_serves(facts: &Facts) -> Option<&str> {
    let installed = facts.installed.as_ref().ok().filter(|installed| installed.deployment.is_none())?;
    installed.other_operator.as_deref()
}

/// Whether somebody begins and ends maintenances.
fn are_served(facts: &Facts, now: Timestamp) -> bool {
    matches!(leadership(facts, now), Leadership::Held | Leadership::Unelected(_))
        || another_serves(facts).is_some()
}

/// Who works on maintenances, by the lease and by what else shows it.
fn leadership(facts: &Facts, now: Timestamp) -> Leadership {
    let lease = facts.lease.as_ref().cloned().unwrap_or_default();
    let is_installed = facts.installed.as_ref().is_ok_and(|found| found.deployment.is_some());
    let maintenances = facts.maintenances.iter().flatten().map(|found| &found.maintenance);
    let node_leases = facts.node_leases.as_deref().unwrap_or_default();
    leadership::of(&lease, is_installed, leadership::last_seen(maintenances, node_leases), now)
}

fn webhook(facts: &Facts, now: Timestamp) -> Finding {
    const CHECK: &str = "webhook";
    // Whoever may not read it may ask still; and other installers give it another name.
    let configuration = facts.configuration.as_ref().ok().and_then(Option::as_ref);
    let expires = configuration
        .and_then(|found| certificate::expiry(&found["webhooks"][0]["clientConfig"]["caBundle"]));
    let page = doc_links::address("reference/webhook.md");
    let renew = format!("its Secret is renewed by nm-reconciler; {page} says how to renew it at once");
    match (&facts.answer, expires) {
        (_, Some(expires)) if expires <= now => {
            fail(CHECK, format!("its certificate has expired at {expires}"), renew)
        }
        (Err(why), _) => unknown(CHECK, why),
        (Ok(Answer::Failed(why)), _) => fail(
            CHECK,
            format!("it does not answer, so nothing can be started: {why}"),
            "see above whether nm-reconciler runs",
        ),
        (Ok(Answer::NotAsked), _) if facts.configuration == Ok(None) => {
            let what = "the API server asks no webhook: mistakes are found only after an object was made";
            warn(CHECK, what, INSTALL)
        }
        (Ok(Answer::NotAsked), _) => {
            fail(CHECK, "it has nothing against a node that does not exist", INSTALL)
        }
        (Ok(Answer::Anothers(_)), _) if another_serves(facts).is_some() => {
            ok(CHECK, "that of the medik8s operator answers")
        }
        (Ok(Answer::Anothers(said)), _) => warn(
            CHECK,
            format!("another webhook refuses maintenances: {said}"),
            "remove that one if it is a leftover",
        ),
        (Ok(Answer::Given), Some(expires)) if expires.duration_since(now) < EXPIRES_SOON => {
            warn(CHECK, format!("it answers, but its certificate expires at {expires}"), renew)
        }
        (Ok(Answer::Given), Some(expires)) => {
            ok(CHECK, format!("it answers; its certificate is good until {expires}"))
        }
        (Ok(Answer::Given), None) => ok(CHECK, "it answers"),
    }
}

fn versions(facts: &Facts) -> Finding {
    const CHECK: &str = "versions";
    let installed = match &facts.installed {
        Err(why) => return unknown(CHECK, why),
        Ok(installed) => installed,
    };
    match installed.version() {
        Some(version) => match skew(OWN, &version) {
            Some(said) => warn(CHECK, said, "`kubectl nm install --image IMAGE` changes the reconciler"),
            None => ok(CHECK, format!("plugin {OWN}, reconciler {version}")),
        },
        None if installed.deployment.is_none() => ok(CHECK, format!("plugin {OWN}, no reconciler")),
        None => {
            let image = installed.image().unwrap_or_default();
            warn(
                CHECK,
                format!("nobody can tell which version {image} is"),
                "give the image a tag such as 0.1.0",
            )
        }
    }
}

const INSTALL: &str = "`kubectl nm install` mends that";

#[cfg(test)]
#[path = "health_checks_tests.rs"]
mod tests;
