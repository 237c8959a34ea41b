//! What is in order with an installation and what is not, from what is known of a cluster.
//!
//! Everything here is pure: [`findings`] takes [`Facts`] and the time. What could not be learnt is a finding too, never an
//! "ok".

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use nm_shared::leader_lease::{Tenure, tenure};
use nm_shared::names::{DRAIN_TAINT, FINALIZER, UNDO_ANNOTATION};
use serde::Serialize;
use serde_json::{Value, json};

use crate::certificate;
use crate::difference::first_deviation;
use crate::duration::age;
use crate::installed::Installed;
use crate::maintenance::node;
use crate::manifests;
use crate::objects::Right;
use crate::rollout;
use crate::versions::{OWN, skew};
use crate::webhook::Answer;

/// The webhook's certificate is renewed halfway through its 90 days; this close to its end nobody renews it.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A maintenance is ended within seconds; after this time something holds it.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// How many nodes are named.
const NAMED: usize = 10;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    /// As it should be.
    Ok,
    /// It works, but not for long or not for all; or nobody can tell.
    Warn,
    /// It does not work.
    Fail,
}

/// What one check found.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) check: &'static str,
    /// How it is.
    pub(crate) result: Grade,
    /// What was found.
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// What is known, or why it is not.
pub(crate) type Known<T> = Result<T, String>;

/// All that is looked at.
pub(crate) struct Facts {
    /// The API server's version.
    pub(crate) server: String,
    /// How kubectl is called, for commands to paste.
    pub(crate) kubectl: String,
    /// What is installed.
    pub(crate) installed: Known<Installed>,
    /// The pods of it.
    pub(crate) pods: Known<Vec<Value>>,
    /// The definition of `NodeMaintenance`.
    pub(crate) definition: Known<Option<Value>>,
    /// The lease by which one leads.
    pub(crate) lease: Known<Option<Lease>>,
    /// How the API server comes to ask the webhook.
    pub(crate) configuration: Known<Option<Value>>,
    /// What the webhook says.
    pub(crate) answer: Known<Answer>,
    /// The nodes.
    pub(crate) nodes: Known<Vec<Value>>,
    /// The maintenances.
    pub(crate) maintenances: Known<Vec<NodeMaintenance>>,
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
    found.push(versions(facts));
    found.extend(facts.missing.iter().map(|(command, missing)| rights(command, missing)));
    found.push(nodes(facts));
    found.push(maintenances(facts, now));
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
                "remove one of the two: docs/from-nmo.md",
            );
        }
        (None, Some(other)) => {
            return warn(
                CHECK,
                format!("not installed; the medik8s operator (deployment {other}) serves the objects"),
                "docs/from-nmo.md says how to replace it",
            );
        }
        (None, None) => return fail(CHECK, "nm-reconciler is not installed", INSTALL),
        (Some(_), None) => {}
    }
    let deployment = installed.deployment.as_ref().unwrap_or(&Value::Null);
    let pods = facts.pods.as_deref().unwrap_or_default();
    let runs = deployment["status"]["availableReplicas"].as_u64().unwrap_or_default() > 0;
    let describe = format!("`{} -n {} describe pods` tells more", facts.kubectl, installed.namespace);
    match rollout::ready(deployment, pods) {
        Ok(replicas) => ok(CHECK, format!("{replicas} replicas run in namespace {}", installed.namespace)),
        Err(why) if runs => warn(CHECK, why, describe),
        Err(why) => fail(CHECK, why, describe),
    }
}

fn leader(facts: &Facts, now: Timestamp) -> Finding {
    const CHECK: &str = "leader";
    let lease = match &facts.lease {
        Err(why) => return unknown(CHECK, why),
        Ok(lease) => lease.as_ref(),
    };
    match tenure(lease, now) {
        Tenure::Held { by, renewed, .. } => {
            let ago = age(now.duration_since(renewed).as_secs().max(0));
            ok(CHECK, format!("{by} leads and renewed its lease {ago} ago"))
        }
        Tenure::Vacant | Tenure::Lapsed => {
            let namespace = facts.installed.as_ref().map_or(manifests::NAMESPACE, |found| &found.namespace);
            fail(
                CHECK,
                "nobody leads: no maintenance is begun, and none is ended",
                format!("`{} -n {namespace} logs deployment/nm-reconciler` tells why", facts.kubectl),
            )
        }
    }
}

fn webhook(facts: &Facts, now: Timestamp) -> Finding {
    const CHECK: &str = "webhook";
    let configuration = match &facts.configuration {
        // Whoever may not read it may ask still.
        Err(_) => None,
        Ok(None) => {
            let what = "the API server asks no webhook: mistakes are found only after an object was made";
            return warn(CHECK, what, INSTALL);
        }
        Ok(found) => found.as_ref(),
    };
    let expires = configuration
        .and_then(|found| certificate::expiry(&found["webhooks"][0]["clientConfig"]["caBundle"]));
    let renew = "its Secret is renewed by nm-reconciler; docs/webhook.md says how to renew it at once";
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
        (Ok(Answer::NotAsked), _) => {
            fail(CHECK, "it has nothing against a node that does not exist", INSTALL)
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
            Some(said) => warn(CHECK, said, "`kubectl nm install --image` changes the reconciler"),
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

fn rights(command: &str, missing: &Known<Vec<Right>>) -> Finding {
    const CHECK: &str = "rights";
    match missing {
        Err(why) => unknown(CHECK, why),
        Ok(missing) => match missing.as_slice() {
            [] => ok(CHECK, format!("you may {command}")),
            [first, rest @ ..] => {
                let more =
                    if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
                let remedy = match command {
                    "install" | "uninstall" => "it takes the rights of cluster-admin",
                    _ => {
                        "an administrator binds the ClusterRole nodemaintenance-editor or nodemaintenance-viewer to you"
                    }
                };
                let lacks = format!("{} {}{more}", first.verb, first.object());
                warn(CHECK, format!("you may not {command}: the right to {lacks} is missing"), remedy)
            }
        },
    }
}

/// Nodes that say they are in maintenance, for which there is no maintenance.
fn nodes(facts: &Facts) -> Finding {
    const CHECK: &str = "nodes";
    let (nodes, maintenances) = match (&facts.nodes, &facts.maintenances) {
        (Err(why), _) | (_, Err(why)) => return unknown(CHECK, why),
        (Ok(nodes), Ok(maintenances)) => (nodes, maintenances),
    };
    let wanted: BTreeSet<&str> = maintenances.iter().map(node).collect();
    let name = |found: &Value| found["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let forgotten = nodes.iter().filter(|found| {
        found["metadata"]["annotations"].get(UNDO_ANNOTATION).is_some()
            && !wanted.contains(name(found).as_str())
    });
    let (drained, marked): (Vec<&Value>, Vec<&Value>) = forgotten.partition(|found| has_drain_taint(found));
    let list = |nodes: &[&Value]| nodes.iter().take(NAMED).map(|found| name(found)).collect::<Vec<_>>();
    if let Some(first) = drained.first() {
        return warn(
            CHECK,
            format!(
                "{} cordoned by a maintenance that is gone: {}",
                drained.len(),
                list(&drained).join(", ")
            ),
            format!(
                "`kubectl nm start {0}` and then `kubectl nm stop {0}` gives it back as it was",
                name(first)
            ),
        );
    }
    if let Some(first) = marked.first() {
        return warn(
            CHECK,
            format!(
                "{} with a note of a maintenance that is gone: {}",
                marked.len(),
                list(&marked).join(", ")
            ),
            format!("`{} annotate node {} {UNDO_ANNOTATION}-`", facts.kubectl, name(first)),
        );
    }
    ok(CHECK, "none is cordoned by a maintenance that is gone")
}

fn has_drain_taint(found: &Value) -> bool {
    found["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == DRAIN_TAINT)
}

/// Maintenances that are being deleted and are not gone.
fn maintenances(facts: &Facts, now: Timestamp) -> Finding {
    const CHECK: &str = "maintenances";
    let maintenances = match &facts.maintenances {
        Err(why) => return unknown(CHECK, why),
        Ok(maintenances) => maintenances,
    };
    let since = |object: &NodeMaintenance| object.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let ending: Vec<&NodeMaintenance> =
        maintenances.iter().filter(|object| since(object).is_some()).collect();
    let names = |objects: &[&NodeMaintenance]| {
        objects.iter().take(NAMED).map(|object| object.name_any()).collect::<Vec<_>>().join(", ")
    };
    let led =
        facts.lease.as_ref().is_ok_and(|lease| matches!(tenure(lease.as_ref(), now), Tenure::Held { .. }));
    let ours =
        |object: &&&NodeMaintenance| object.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    let waiting: Vec<&NodeMaintenance> = ending.iter().filter(ours).copied().collect();
    if !waiting.is_empty() && !led {
        return fail(
            CHECK,
            format!("{} wait to be ended, and nobody leads: {}", waiting.len(), names(&waiting)),
            "get nm-reconciler to run: it gives their nodes back. Do not take the finalizer off: the nodes would stay cordoned",
        );
    }
    let long: Vec<&NodeMaintenance> = ending
        .into_iter()
        .filter(|object| since(object).is_some_and(|at| now.duration_since(at) > ENDS_WITHIN))
        .collect();
    if let Some(first) = long.first() {
        return warn(
            CHECK,
            format!("{} have been ending for more than 5 minutes: {}", long.len(), names(&long)),
            format!("`{} get nm {} -o yaml` shows whose finalizers hold it", facts.kubectl, first.name_any()),
        );
    }
    ok(CHECK, format!("{} there, none of which is stuck ending", maintenances.len()))
}

const INSTALL: &str = "`kubectl nm install` mends that";

fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { check, result: Grade::Ok, message: message.into(), remedy: None }
}

fn warn(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, result: Grade::Warn, message: message.into(), remedy: Some(remedy.into()) }
}

fn fail(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { result: Grade::Fail, ..warn(check, message, remedy) }
}

fn unknown(check: &'static str, why: &str) -> Finding {
    Finding { check, result: Grade::Warn, message: format!("nobody can tell: {why}"), remedy: None }
}

#[cfg(test)]
#[path = "checkup_tests.rs"]
mod tests;
