//! A stand-in for all CSI drivers and their external attachers: volumes are attached at once, and detached after a delay.
//!
//! Annotations on a persistent volume delay its detachment or make it fail ([`crate::model::volume`]).

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{ATTACHMENTS, VOLUMES};
use crate::cluster::registry;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::engine::delay_queue::DelayQueue;
use crate::model::clock::metav1_time;
use crate::model::{duration, pod, volume};

/// The drivers.
#[derive(Debug, Default)]
pub(crate) struct CsiDrivers {
    changed: BTreeSet<Key>,
    /// Volumes whose annotations may have changed.
    volumes: BTreeSet<String>,
    detaching: DelayQueue<()>,
}

/// The finalizer of the external attacher of a driver.
fn finalizer(attachment: &Value) -> String {
    let driver = attachment["spec"]["attacher"].as_str().unwrap_or_default();
    format!("external-attacher/{}", driver.replace('.', "-"))
}

impl CsiDrivers {
    fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, key: Key) {
        let Some(attachment) = ctx.get(&ATTACHMENTS, &key) else { return self.detaching.cancel(&key) };
        if !pod::is_terminating(&attachment) {
            return attach(ctx, &attachment);
        }
        if !registry::finalizers(&attachment).contains(&&*finalizer(&attachment)) {
            return;
        }
        let annotation = |name| {
            let volume = attachment["spec"]["source"]["persistentVolumeName"].as_str()?;
            let volume = ctx.get(&VOLUMES, &Key::cluster(volume))?;
            pod::annotation(&volume, name).map(str::to_owned)
        };
        let (delay, error) = (annotation(volume::DETACH_DELAY), annotation(volume::DETACH_ERROR));
        if let Some(error) = error {
            self.detaching.cancel(&key);
            return fail(ctx, &attachment, &error);
        }
        if delay.as_deref() == Some(volume::NEVER) {
            return self.detaching.cancel(&key);
        }
        let delay = delay.and_then(|text| duration::parse(&text).ok()).unwrap_or_default();
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        let at = ctx.now.saturating_add(delay).unwrap_or(ctx.now);
        self.detaching.plan(key, pod::uid(&attachment), (), at);
    }
}

fn attach(ctx: &mut ReconcileContext<'_>, attachment: &Object) {
    let own = finalizer(attachment);
    let marked = ctx.edit(&ATTACHMENTS, attachment, |attachment| {
        if !registry::finalizers(attachment).contains(&&*own) {
            let mut all = attachment["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            all.push(json!(own));
            attachment["metadata"]["finalizers"] = json!(all);
        }
    });
    if let Some(attachment) = marked {
        ctx.edit_status(&ATTACHMENTS, &attachment, |attachment| {
            attachment["status"]["attached"] = json!(true);
        });
    }
}

fn fail(ctx: &mut ReconcileContext<'_>, attachment: &Object, error: &str) {
    let now = metav1_time(ctx.now);
    ctx.edit_status(&ATTACHMENTS, attachment, |attachment| {
        if attachment["status"]["detachError"]["message"] != error {
            attachment["status"]["detachError"] = json!({"time": now, "message": error});
        }
    });
}

impl Controller for CsiDrivers {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[ATTACHMENTS, VOLUMES];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {}

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let objects = change.before.iter().chain(&change.after);
        if *collection == ATTACHMENTS {
            self.changed.extend(objects.map(|attachment| Key::of(attachment)));
        } else {
            self.volumes.extend(objects.map(|volume| pod::name(volume).to_owned()));
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        let volumes = std::mem::take(&mut self.volumes);
        if !volumes.is_empty() {
            let of_them = ctx.state.list(&ATTACHMENTS, None).filter(|attachment| {
                let volume = &attachment["spec"]["source"]["persistentVolumeName"];
                volume.as_str().is_some_and(|volume| volumes.contains(volume))
            });
            self.changed.extend(of_them.map(|attachment| Key::of(&attachment)));
        }
        while !ctx.is_full()
            && let Some(key) = self.changed.pop_first()
        {
            self.reconcile(ctx, key);
        }
        while !ctx.is_full() {
            let Some((key, uid, ())) = self.detaching.pop(ctx.now) else { break };
            let Some(attachment) = ctx.get(&ATTACHMENTS, &key).filter(|found| pod::uid(found) == uid) else {
                continue;
            };
            let own = finalizer(&attachment);
            ctx.edit(&ATTACHMENTS, &attachment, |attachment| {
                if let Some(all) = attachment["metadata"]["finalizers"].as_array_mut() {
                    all.retain(|finalizer| *finalizer != own);
                }
            });
        }
        if self.changed.is_empty() { Requeue::at(self.detaching.next_at()) } else { Requeue::Now }
    }
}
