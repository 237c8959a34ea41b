//! The actions of a roll that run: commands on this machine, and Jobs in the cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures::future::{AbortHandle, Abortable, FutureExt, LocalBoxFuture};
use nm_core::client::cluster::Cluster;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::command::{NodeCommand, NodeOutputLine};
use crate::job;
use crate::record::{ActionState, NodeRecord, Roll};
use crate::settings::NodeAction;

/// The actions that run, by node.
#[derive(Default)]
pub(super) struct RunningActions(BTreeMap<String, RunningAction>);

struct RunningAction {
    handle: AbortHandle,
    job: Option<Value>,
}

impl RunningActions {
    /// Starts the command of a node, or follows its Job. The future returns how it ended, or nothing if it was
    /// [ended](Self::end_unless).
    pub(super) fn start<'a>(
        &mut self,
        cluster: &'a Cluster,
        roll: &Roll,
        node: &str,
        record: &NodeRecord,
        log: Option<PathBuf>,
        lines: mpsc::Sender<NodeOutputLine>,
    ) -> LocalBoxFuture<'a, Option<ActionState>> {
        let (name, timeout) = (node.to_owned(), roll.settings.action_timeout());
        let (action, job): (LocalBoxFuture<'a, ActionState>, _) =
            match roll.settings.action_of(record.step).cloned() {
                None => return async { Some(ActionState::Succeeded) }.boxed_local(),
                Some(NodeAction::Run(command)) => {
                    let (roll, node) = (roll.name.clone(), name.clone());
                    let kubeconfig = cluster.kubeconfig().map(Path::to_owned);
                    let command = NodeCommand { command, roll, node, timeout, log, kubeconfig };
                    (command.run(lines).boxed_local(), None)
                }
                Some(NodeAction::Job(template)) => {
                    let job = job::of_node(&template, &roll.name, node, record);
                    let (followed, name) = (job.clone(), name.clone());
                    let follow = async move {
                        let print = async |text: String| {
                            // The receiver ends together with the roll.
                            let _ = lines.send(NodeOutputLine { node: name.clone(), text }).await;
                        };
                        let state = job::finish(cluster, &followed, timeout, print).await;
                        for text in job::log(cluster, &followed).await {
                            print(text).await;
                        }
                        state
                    };
                    (follow.boxed_local(), Some(job))
                }
            };
        let (handle, registration) = AbortHandle::new_pair();
        self.0.insert(name, RunningAction { handle, job });
        Abortable::new(action, registration).map(Result::ok).boxed_local()
    }

    /// The action of a node has ended by itself.
    pub(super) fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Ends the actions of all nodes but those that stay. Returns the others, with their Jobs, which are to be deleted.
    pub(super) fn end_unless(&mut self, stays: impl Fn(&str) -> bool) -> Vec<(String, Option<Value>)> {
        let left: Vec<String> = self.0.keys().filter(|name| !stays(name)).cloned().collect();
        let end = |name: String| {
            let RunningAction { handle, job } = self.0.remove(&name)?;
            handle.abort();
            Some((name, job))
        };
        left.into_iter().filter_map(end).collect()
    }
}
