//! Opening and closing nodes. In a replay, nodes that are not open are kept, and a model at another time is looked at in the
//! same way.

use crate::model::replay::BackgroundNodes;
use crate::model::tree::Tree;
use crate::model::{Model, OpenNode, RecordingMode};
use crate::objects::watch_state::{WatchKind, WatchState};

impl Model {
    /// The node to which a message belongs: the open one, one that is followed, or in a replay any. None if it was closed meanwhile.
    pub(crate) fn node_of_message<'a>(
        (open, background): (&'a mut Option<OpenNode>, &'a mut BackgroundNodes),
        recording: RecordingMode,
        node: &str,
    ) -> Option<&'a mut OpenNode> {
        match open {
            Some(open) if open.name == node => Some(open),
            _ => match recording {
                RecordingMode::Replay => Some(background.get(node)),
                RecordingMode::Off => background.known_mut(node),
                // What is recorded is not complete here.
                RecordingMode::Recording => None,
            },
        }
    }

    /// Opens a node: with what is known of it if it was followed, and in a replay with what was recorded of it until now.
    pub(crate) fn open_node(&mut self, node: &str) -> &mut OpenNode {
        let is_replay = self.options.is_replay();
        self.first_causes.turn_to(node);
        let mut opened = self.background.take(node).unwrap_or_else(|| OpenNode::new(node));
        if !is_replay && !opened.pods.complete {
            // What a status names is not a list of the pods.
            opened.keep_gone(self.fleet.maintenance_of(node).map(AsRef::as_ref));
        }
        let pods = opened.health.get(&WatchKind::Pods).filter(|_| self.followed.contains(node)).cloned();
        self.open = Some(opened);
        if is_replay {
            self.show_recorded_health();
        } else if let Some(state) = pods {
            self.health.set(WatchKind::Pods, state, self.now);
        }
        self.open.get_or_insert_with(|| OpenNode::new(node))
    }

    /// Closes the open node, if there is one. Returns whether there was.
    pub(crate) fn close_node(&mut self) -> bool {
        let Some(mut open) = self.open.take() else { return false };
        if self.options.is_replay() {
            self.background.keep(open);
        } else if open.pods.complete {
            open.health.clear();
            open.tree = Tree::default();
            self.background.keep(open);
        }
        self.health.close();
        true
    }

    /// Sets the health of the watches on the open node to what was recorded of it.
    fn show_recorded_health(&mut self) {
        let Some(open) = &mut self.open else { return };
        self.health.close();
        for kind in [WatchKind::Pods, WatchKind::Events] {
            let state = open.health.get(&kind).cloned().unwrap_or(WatchState::Unrecorded);
            if kind == WatchKind::Pods && state == WatchState::Unrecorded {
                let maintenance = self.fleet.maintenance_of(&open.name).map(AsRef::as_ref);
                open.pods.hide(maintenance, self.now);
            }
            self.health.set(kind, state, self.now);
        }
    }

    /// Looks at this model, which is at another time, as somebody looked at another one: at the same page and node, with the
    /// same filters and selections.
    pub(crate) fn look_like(&mut self, seen: Self) {
        self.close_node();
        if let Some(seen) = &seen.open {
            let open = self.open_node(&seen.name);
            open.pods.rows.look_like(&seen.pods.rows);
            open.tree.rows.look_like(&seen.tree.rows);
            if open.tree.is_shown != seen.tree.is_shown {
                open.tree.toggle();
            }
        }
        self.fleet.rows.look_like(&seen.fleet.rows);
        self.nodes.rows.look_like(&seen.nodes.rows);
        (self.fleet.marked, self.nodes.marked) = (seen.fleet.marked, seen.nodes.marked);
        (self.options, self.size, self.page) = (seen.options, seen.size, seen.page);
        (self.dialog, self.typing) = (seen.dialog, seen.typing);
        (self.side, self.document, self.notice) = (seen.side, seen.document, seen.notice);
        self.replay = seen.replay;
    }
}
