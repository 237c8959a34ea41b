//! A watch on the whole cluster that runs only while a node needs it.

use std::collections::HashSet;

use crate::runtime::tasks::ScopedTask;

/// What is known while the watch runs. It is forgotten with the watch.
pub(crate) struct OnDemand<T>(Option<Running<T>>);

struct Running<T> {
    /// The nodes that need it.
    nodes: HashSet<String>,
    known: T,
    _task: ScopedTask,
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> OnDemand<T> {
    /// What is known, for a node that needs it from now on. The first node starts the watch.
    pub(crate) fn for_node(&mut self, node: &str, start: impl FnOnce() -> (T, ScopedTask)) -> &mut T {
        let running = self.0.get_or_insert_with(|| {
            let (known, task) = start();
            Running { nodes: HashSet::new(), known, _task: task }
        });
        if !running.nodes.contains(node) {
            running.nodes.insert(node.to_owned());
        }
        &mut running.known
    }

    /// What is known, if the watch runs.
    pub(crate) fn known(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|running| &mut running.known)
    }

    /// Ends the watch unless one of the nodes that need it remains.
    pub(crate) fn retain_nodes(&mut self, stays: impl Fn(&str) -> bool) {
        if let Some(Running { nodes, .. }) = &mut self.0 {
            nodes.retain(|node| stays(node));
            if nodes.is_empty() {
                self.0 = None;
            }
        }
    }
}
