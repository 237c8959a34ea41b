//! The pod garbage collector: it removes pods whose node is gone, since no kubelet will report their termination.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key};
use crate::model::pod;

use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::engine::delay_queue::DelayQueue;

/// How long a node must be gone before its pods are removed: it may come back under the same name.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// The garbage collector of pods.
#[derive(Debug, Default)]
pub(crate) struct PodGc {
    bound: BTreeSet<Key>,
    gone: BTreeSet<String>,
    lost: DelayQueue<()>,
}

impl PodGc {
    fn suspect(&mut self, ctx: &ReconcileContext<'_>, key: Key) {
        let Some(pod) = ctx.get(&PODS, &key) else {
            return;
        };
        let node = pod::node(&pod).map(Key::cluster);
        if node.is_some_and(|node| ctx.get(&NODES, &node).is_none()) {
            let at = ctx.now.saturating_add(QUARANTINE).unwrap_or(Timestamp::MAX);
            self.lost.plan(key, pod::uid(&pod), (), at);
        }
    }
}

impl Controller for PodGc {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[NODES, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {}

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == NODES {
            if let (Some(node), None) = (&change.before, &change.after) {
                self.gone.insert(pod::name(node).to_owned());
            }
        } else if let Some(pod) = &change.after
            && pod::node(pod) != change.before.as_ref().and_then(|before| pod::node(before))
        {
            self.bound.insert(Key::of(pod));
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        for node in std::mem::take(&mut self.gone) {
            self.bound.extend(ctx.state.on_node(&PODS, &node).map(|pod| Key::of(&pod)));
        }
        for key in std::mem::take(&mut self.bound) {
            self.suspect(ctx, key);
        }
        while !ctx.is_full() {
            let Some((key, uid, ())) = self.lost.pop(ctx.now) else {
                break;
            };
            let Some(pod) = ctx.get(&PODS, &key).filter(|pod| pod::uid(pod) == uid) else {
                continue;
            };
            let node = pod::node(&pod).map(Key::cluster);
            if node.is_some_and(|node| ctx.get(&NODES, &node).is_none()) {
                ctx.delete(&PODS, &pod, Some(0), Propagation::Background);
            }
        }
        Requeue::at(self.lost.next_at())
    }
}
