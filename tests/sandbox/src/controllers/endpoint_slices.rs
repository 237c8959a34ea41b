//! The endpoint slice controller: one slice for each Service with a selector, with the pods that it selects.
//!
//! Addresses beyond one slice, topology and the slices of Services without a selector are left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{ENDPOINT_SLICES, PODS, SERVICES};
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::workloads::pod_template::owner_reference;
use crate::model::label_selector::LabelSelector;
use crate::model::pod;

/// The label with the name of the Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The endpoint slice controller.
#[derive(Debug, Default)]
pub(crate) struct EndpointSlices {
    /// The selectors of the Services of each namespace, by name.
    services: HashMap<String, BTreeMap<String, LabelSelector>>,
    dirty: BTreeSet<Key>,
}

impl EndpointSlices {
    fn observe_service(&mut self, change: &Change) {
        let Some(service) = change.after.as_ref().or(change.before.as_ref()) else { return };
        let key = Key::of(service);
        let services = self.services.entry(key.namespace.clone()).or_default();
        if change.after.is_some() {
            services.insert(key.name.clone(), selector(service));
            self.dirty.insert(key);
        } else {
            services.remove(&key.name);
        }
    }

    fn observe_pod(&mut self, change: &Change) {
        for pod in [&change.before, &change.after].into_iter().flatten() {
            let namespace = pod::namespace(pod);
            for (name, selector) in self.services.get(namespace).into_iter().flatten() {
                if selector.matches(&pod["metadata"]["labels"]) {
                    self.dirty.insert(Key::new(namespace, &**name));
                }
            }
        }
    }
}

fn reconcile(ctx: &mut ReconcileContext<'_>, key: &Key) {
    let Some(service) = ctx.get(&SERVICES, key).filter(|service| service["spec"]["selector"].is_object())
    else {
        return;
    };
    let selector = selector(&service);
    let pods = ctx.state.list(&PODS, Some(&key.namespace));
    let selected = pods.filter(|pod| selector.matches(&pod["metadata"]["labels"]));
    let endpoints: Value = selected.filter_map(|pod| endpoint(&pod)).collect();
    let ports = ports(&service);
    let mut slices = ctx.state.list(&ENDPOINT_SLICES, Some(&key.namespace));
    let owned =
        slices.find(|slice| pod::controller(slice).is_some_and(|owner| owner["uid"] == pod::uid(&service)));
    drop(slices);
    if let Some(slice) = owned {
        ctx.edit(&ENDPOINT_SLICES, &slice, |slice| {
            slice["endpoints"] = endpoints;
            slice["ports"] = ports;
        });
    } else {
        let slice = slice(&service, endpoints, ports);
        ctx.create(&ENDPOINT_SLICES, slice);
    }
}

fn selector(service: &Value) -> LabelSelector {
    LabelSelector::parse(&json!({"matchLabels": service["spec"]["selector"]}))
}

fn slice(service: &Object, endpoints: Value, ports: Value) -> Value {
    let name = pod::name(service);
    let labels = json!({
        SERVICE_LABEL: name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    let metadata = json!({
        "namespace": pod::namespace(service), "generateName": format!("{name}-"), "labels": labels,
        "ownerReferences": [owner_reference(service)],
    });
    let fields =
        [("metadata", metadata), ("addressType", json!("IPv4")), ("endpoints", endpoints), ("ports", ports)];
    fields.into_iter().collect()
}

/// The endpoint of a pod that has an address and has not finished.
fn endpoint(pod: &Value) -> Option<Value> {
    let address = pod["status"]["podIP"].as_str().filter(|_| !pod::is_finished(pod))?;
    let (serving, terminating) = (pod::is_ready(pod), pod::is_terminating(pod));
    let target = json!({
        "kind": "Pod", "namespace": pod::namespace(pod), "name": pod::name(pod), "uid": pod::uid(pod),
    });
    Some(json!({
        "addresses": [address], "nodeName": pod::node(pod), "targetRef": target,
        "conditions": {"ready": serving && !terminating, "serving": serving, "terminating": terminating},
    }))
}

fn ports(service: &Value) -> Value {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let port = |port: &Value| {
        let target = port["targetPort"].as_u64().map_or_else(|| port["port"].clone(), |target| json!(target));
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        json!({"name": port["name"].as_str().unwrap_or_default(), "protocol": protocol, "port": target})
    };
    ports.map(port).collect()
}

impl Controller for EndpointSlices {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[SERVICES, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, collection: &Collection) {
        if *collection == SERVICES {
            self.services.clear();
        } else {
            for (namespace, services) in &self.services {
                self.dirty.extend(services.keys().map(|name| Key::new(&**namespace, &**name)));
            }
        }
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == SERVICES {
            self.observe_service(change);
        } else {
            self.observe_pod(change);
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        sync_queue(self, ctx, |this| this.dirty.pop_first(), |_, ctx, key| reconcile(ctx, &key))
    }
}
