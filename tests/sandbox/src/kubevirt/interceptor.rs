//! What the webhooks answer that review evictions before any budget: they deny the eviction of a VM that can be migrated,
//! and mark the instance for evacuation.

use std::sync::Weak;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::admission::Reviewer;
use crate::cluster::catalog::resource::PODS;
use crate::cluster::registry::{self, Effect, Part};
use crate::cluster::store::{Key, State};
use crate::kubevirt::objects::{HOTPLUG, VMIS, domain, is_launcher};
use crate::model::{condition, pod};

/// The webhook.
#[derive(Debug)]
pub(crate) struct Interceptor {
    /// Weak, since the cluster owns its webhooks.
    cluster: Weak<Cluster>,
}

impl Interceptor {
    /// A webhook of a cluster.
    pub(crate) fn new(cluster: Weak<Cluster>) -> Self {
        Self { cluster }
    }
}

impl Reviewer for Interceptor {
    fn review(&self, request: &Value) -> Value {
        let Some(cluster) = self.cluster.upgrade() else {
            return json!({"allowed": true});
        };
        match cluster.store.write(|state| objection(&cluster, state, request)) {
            None => json!({"allowed": true}),
            Some(message) => json!({"allowed": false, "status": {"code": 429, "message": message}}),
        }
    }
}

/// Why an eviction is denied.
fn objection(cluster: &Cluster, state: &mut State, request: &Value) -> Option<String> {
    let text = |field: &str| request[field].as_str().unwrap_or_default();
    let pod = state.get(&PODS, &Key::new(text("namespace"), text("name")))?;
    if pod["metadata"]["labels"]["kubevirt.io"] == HOTPLUG {
        return hotplugged(state, &pod);
    }
    if !is_launcher(&pod) || pod::is_finished(&pod) {
        return None;
    }
    let (namespace, name) = (pod::namespace(&pod), domain(&pod)?);
    let Some(vmi) = state.get(&VMIS, &Key::new(namespace, name)) else {
        return Some(format!(
            "kubevirt failed getting the vmi: virtualmachineinstances.kubevirt.io {name:?} not found"
        ));
    };
    let migratable = condition::is_true(&vmi["status"], "LiveMigratable");
    match vmi["spec"]["evictionStrategy"].as_str() {
        Some("LiveMigrate") if !migratable => {
            return Some(format!(
                "VMI {name} is configured with an eviction strategy but is not live-migratable"
            ));
        }
        Some("LiveMigrate" | "External") => {}
        Some("LiveMigrateIfPossible") if migratable => {}
        _ => return None,
    }
    let triggered = format!("Eviction triggered evacuation of VMI \"{namespace}/{name}\"");
    let node = pod::node(&pod).unwrap_or_default();
    if vmi["status"]["evacuationNodeName"].is_string() {
        return Some(format!("Evacuation in progress: {triggered}"));
    }
    if vmi["status"]["nodeName"] != node {
        return Some("Eviction request for target Pod".into());
    }
    let wishes = &request["object"]["deleteOptions"]["dryRun"][0];
    if request["dryRun"] == true || *wishes == "All" {
        return Some(triggered);
    }
    let mut next = Value::clone(&vmi);
    next["status"]["evacuationNodeName"] = json!(node);
    let resource = cluster.catalog.of(&VMIS)?;
    match registry::update(state, &resource, &next, Part::Main, Effect::Real) {
        Ok(_) => Some(triggered),
        Err(refusal) => Some(format!("kubevirt failed marking the vmi for eviction: {}", refusal.message)),
    }
}

/// A hot-plugged disk stays while its VM runs.
fn hotplugged(state: &State, pod: &Value) -> Option<String> {
    let (namespace, name) = (pod::namespace(pod), pod::name(pod));
    let owner = pod::owners(pod).next()?["name"].as_str()?;
    let owner = state.get(&PODS, &Key::new(namespace, owner))?;
    if !is_launcher(&owner) || pod::is_finished(&owner) {
        return None;
    }
    let vmi = domain(&owner)?;
    state.get(&VMIS, &Key::new(namespace, vmi))?;
    Some(format!(
        "cannot evict hotplug pod: {name} associated with running vmi: {vmi} in namespace {namespace}"
    ))
}
