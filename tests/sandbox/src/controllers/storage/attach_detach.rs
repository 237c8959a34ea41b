//! The attach-detach controller: a volume of a CSI driver is attached to a node while a pod there uses it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{ATTACHMENTS, CLAIMS, PODS, VOLUMES};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::event::{Author, Event};
use crate::model::{pod, volume};

/// The attach-detach controller. It leaves attachments alone that others have created.
#[derive(Debug, Default)]
pub(crate) struct AttachDetach {
    /// Nodes whose volumes may have changed.
    changed: BTreeSet<String>,
    /// All nodes that have had pods with claims.
    nodes: BTreeSet<String>,
}

impl AttachDetach {
    fn reconcile(ctx: &mut ReconcileContext<'_>, node: &str) {
        let pods: Vec<Object> = ctx.state.on_node(&PODS, node).filter(|pod| !pod::is_finished(pod)).collect();
        let mut wanted: BTreeMap<String, (Object, &Object)> = BTreeMap::new();
        for pod in &pods {
            for volume in
                volume::claims(pod).filter_map(|claim| bound_volume(ctx, pod::namespace(pod), &claim))
            {
                if let Some(name) = volume::attachment_name(&volume, node) {
                    wanted.entry(name).or_insert((volume, pod));
                }
            }
        }
        let present: Vec<Object> = ctx.state.on_node(&ATTACHMENTS, node).collect();
        for (name, (volume, pod)) in &wanted {
            if !present.iter().any(|attachment| pod::name(attachment) == name)
                && !is_elsewhere(ctx, volume, node)
            {
                attach(ctx, name, volume, node);
                let message = format!("AttachVolume.Attach succeeded for volume \"{}\" ", pod::name(volume));
                let author = Author::Controller("attachdetach-controller");
                ctx.record(&Event { author, about: pod, reason: "SuccessfulAttachVolume", message });
            }
        }
        for attachment in present {
            let name = pod::name(&attachment);
            if !wanted.contains_key(name)
                && !pod::is_terminating(&attachment)
                && is_own(ctx, &attachment, node)
            {
                ctx.delete(&ATTACHMENTS, &attachment, None, Propagation::Background);
            }
        }
    }
}

fn attach(ctx: &mut ReconcileContext<'_>, name: &str, volume: &Value, node: &str) {
    let attachment = json!({"metadata": {"name": name}, "spec": {"attacher": volume["spec"]["csi"]["driver"],
        "nodeName": node, "source": {"persistentVolumeName": pod::name(volume)}}});
    ctx.create(&ATTACHMENTS, attachment);
}

/// Whether the volume can be attached to one node only, and is attached to another.
fn is_elsewhere(ctx: &ReconcileContext<'_>, volume: &Value, node: &str) -> bool {
    let modes = volume["spec"]["accessModes"].as_array();
    let is_shared = |mode: &Value| mode == "ReadWriteMany" || mode == "ReadOnlyMany";
    !modes.is_some_and(|modes| modes.iter().any(is_shared))
        && ctx.state.list(&ATTACHMENTS, None).any(|attachment| {
            attachment["spec"]["source"]["persistentVolumeName"] == *pod::name(volume)
                && pod::node(&attachment) != Some(node)
        })
}

/// The volume that a claim is bound to.
fn bound_volume(ctx: &ReconcileContext<'_>, namespace: &str, claim: &str) -> Option<Object> {
    let claim = ctx.get(&CLAIMS, &Key::new(namespace, claim))?;
    let name = claim["spec"]["volumeName"].as_str().filter(|_| claim["status"]["phase"] == "Bound")?;
    ctx.get(&VOLUMES, &Key::cluster(name))
}

/// Whether this controller created the attachment. A volume that no longer exists is one that it had attached.
fn is_own(ctx: &ReconcileContext<'_>, attachment: &Value, node: &str) -> bool {
    let name = attachment["spec"]["source"]["persistentVolumeName"].as_str().unwrap_or_default();
    let Some(volume) = ctx.get(&VOLUMES, &Key::cluster(name)) else {
        return pod::name(attachment).starts_with("csi-");
    };
    volume::attachment_name(&volume, node).as_deref() == Some(pod::name(attachment))
}

impl Controller for AttachDetach {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[PODS, CLAIMS, VOLUMES, ATTACHMENTS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {}

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let objects = change.before.iter().chain(&change.after);
        if *collection == PODS {
            let with_claims = objects.filter(|pod| volume::claims(pod).next().is_some());
            let nodes = with_claims.filter_map(|pod| pod::node(pod)).map(str::to_owned);
            for node in nodes {
                self.changed.insert(node.clone());
                self.nodes.insert(node);
            }
        } else if *collection == ATTACHMENTS {
            self.changed.extend(objects.filter_map(|attachment| pod::node(attachment)).map(str::to_owned));
            // Another node may wait for the volume.
            if change.after.is_none() {
                self.changed.extend(self.nodes.iter().cloned());
            }
        } else {
            self.changed.extend(self.nodes.iter().cloned());
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        while !ctx.is_full()
            && let Some(node) = self.changed.pop_first()
        {
            Self::reconcile(ctx, &node);
        }
        Requeue::now_if(!self.changed.is_empty())
    }
}
