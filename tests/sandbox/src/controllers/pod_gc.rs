//! Pods whose node is gone: no kubelet will ever confirm their end, so after a while they are removed.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::pod;
use crate::registry::Propagation;
use crate::resource::{NODES, PODS};
use crate::store::{Change, Collection, Key};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;
use super::timeline::Timeline;

/// How long a node must be gone before its pods are: it may be on its way back under the same name.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// The garbage collector of pods.
#[derive(Debug, Default)]
pub(crate) struct PodGc {
    bound: BTreeSet<Key>,
    gone: BTreeSet<String>,
    lost: Timeline<()>,
}

impl PodGc {
    fn suspect(&mut self, desk: &Desk<'_>, key: Key) {
        let Some(pod) = desk.get(&PODS, &key) else {
            return;
        };
        let node = pod::node(&pod).map(Key::cluster);
        if node.is_some_and(|node| desk.get(&NODES, &node).is_none()) {
            let at = desk.now.saturating_add(QUARANTINE).unwrap_or(Timestamp::MAX);
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

    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        for node in std::mem::take(&mut self.gone) {
            self.bound.extend(desk.state.on_node(&PODS, &node).map(|pod| Key::of(&pod)));
        }
        for key in std::mem::take(&mut self.bound) {
            self.suspect(desk, key);
        }
        while !desk.is_full() {
            let Some((key, uid, ())) = self.lost.pop(desk.now) else {
                break;
            };
            let Some(pod) = desk.get(&PODS, &key).filter(|pod| pod::uid(pod) == uid) else {
                continue;
            };
            let node = pod::node(&pod).map(Key::cluster);
            if node.is_some_and(|node| desk.get(&NODES, &node).is_none()) {
                desk.delete(&PODS, &pod, Some(0), Propagation::Background);
            }
        }
        Next::at(self.lost.next_at())
    }
}
