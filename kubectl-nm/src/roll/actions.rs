//! The actions that this program runs: the command or the Job of each drained node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::{AbortHandle, Abortable, LocalBoxFuture};
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::client::cluster::Cluster;
use crate::roll::command::{NodeCommand, OutputLine};
use crate::roll::job;
use crate::roll::observed::ActionState;
use crate::roll::record::RollNode;
use crate::roll::settings::NodeAction;

/// How an action of a node ended; none if it was ended from here.
pub(super) type EndedAction = Option<(String, ActionState)>;

struct RunningAction {
    handle: AbortHandle,
    /// The Job, if it is one.
    job: Option<Value>,
}

pub(super) struct Actions<'a> {
    cluster: &'a Cluster,
    roll: String,
    /// Where the output of commands is kept.
    log_folder: Option<PathBuf>,
    timeout: Duration,
    /// By node.
    running: BTreeMap<String, RunningAction>,
    pub(super) tasks: FuturesUnordered<LocalBoxFuture<'a, EndedAction>>,
    to: mpsc::Sender<OutputLine>,
    pub(super) output: mpsc::Receiver<OutputLine>,
}

impl<'a> Actions<'a> {
    pub(super) fn new(
        cluster: &'a Cluster,
        roll: &str,
        log_folder: Option<PathBuf>,
        timeout: Duration,
    ) -> Self {
        let (to, output) = mpsc::channel(256);
        Self {
            cluster,
            roll: roll.to_owned(),
            log_folder,
            timeout,
            running: BTreeMap::new(),
            tasks: FuturesUnordered::new(),
            to,
            output,
        }
    }

    /// Starts the command of a node, or follows its Job.
    pub(super) fn start(&mut self, node: &RollNode, action: NodeAction) {
        let (cluster, to, timeout) = (self.cluster, self.to.clone(), self.timeout);
        let name = node.node().to_owned();
        let mut running_job = None;
        let ended: LocalBoxFuture<'a, EndedAction> = match action {
            NodeAction::Run(command) => {
                let log = self.log_folder.as_ref().map(|folder| folder.join(format!("{name}.log")));
                let (roll, node) = (self.roll.clone(), name.clone());
                let command = NodeCommand { command, roll, node: node.clone(), timeout, log };
                Box::pin(async move { Some((node, command.run(to).await)) })
            }
            NodeAction::Job(template) => {
                let job = job::of_node(&template, &self.roll, node);
                running_job = Some(job.clone());
                let node = name.clone();
                Box::pin(async move {
                    let state = job::finish(cluster, &job, timeout).await;
                    for text in job::log(cluster, &job).await {
                        let _ = to.send(OutputLine { node: node.clone(), text }).await;
                    }
                    Some((node, state))
                })
            }
        };
        let (handle, registration) = AbortHandle::new_pair();
        self.running.insert(name, RunningAction { handle, job: running_job });
        let ended = Abortable::new(ended, registration);
        self.tasks.push(Box::pin(async move { ended.await.ok().flatten() }));
    }

    /// Takes note that the action of a node has ended.
    pub(super) fn remove(&mut self, node: &str) {
        self.running.remove(node);
    }

    /// Ends the actions of nodes that leave the roll. Returns these nodes.
    pub(super) fn end_all_but(&mut self, stays: impl Fn(&str) -> bool) -> Vec<String> {
        let leaving: Vec<String> = self.running.keys().filter(|node| !stays(node)).cloned().collect();
        for node in &leaving {
            let Some(RunningAction { handle, job }) = self.running.remove(node) else { continue };
            handle.abort();
            let text = String::from("ended: the maintenance of the node was deleted");
            // If the channel is full, the output of the command says enough.
            let _ = self.to.try_send(OutputLine { node: node.clone(), text });
            if let Some(job) = job {
                let cluster = self.cluster;
                self.tasks.push(Box::pin(async move {
                    // Its time to live ends it otherwise.
                    let _ = job::delete(cluster, &job).await;
                    None
                }));
            }
        }
        leaving
    }
}
