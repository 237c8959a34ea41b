//! The watches for the tree of replacements, each a task of its own: a namespace without permission hides no other one.

use std::collections::BTreeSet;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Client;
use kube::api::Api;
use nm_core::client::watch_stream::{WatchChange, WatchPolicy, WatchTarget, WatchUpdate, watch};
use nm_core::error::Error;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use crate::message::Message;
use crate::objects::replacement_pod::WatchedReplica;
use crate::objects::replacements::ReplacementChange;
use crate::objects::replacements::ReplacementScope;
use crate::objects::watch_state::WatchState;
use crate::objects::workload::{WatchedWorkload, Workload, WorkloadKind};

/// The watches of one node. They end when this is dropped.
pub(super) struct ReplacementWatches {
    client: Client,
    server: String,
    to: Sender<Message>,
    node: String,
    scopes: BTreeSet<ReplacementScope>,
    tasks: JoinSet<()>,
}

impl ReplacementWatches {
    pub(super) fn new(client: Client, server: &str, to: Sender<Message>, node: &str) -> Self {
        let (server, node) = (server.to_owned(), node.to_owned());
        Self { client, server, to, node, scopes: BTreeSet::new(), tasks: JoinSet::new() }
    }

    /// Watches these scopes, too.
    pub(super) fn extend(&mut self, scopes: &BTreeSet<ReplacementScope>) {
        for scope in scopes {
            if self.scopes.insert(scope.clone()) {
                match scope.kind {
                    None => self.watch_pods(scope),
                    Some(kind) => self.watch_workloads(scope, kind),
                }
            }
        }
    }

    pub(super) fn reconnect(&mut self) {
        self.tasks = JoinSet::new();
        let scopes = std::mem::take(&mut self.scopes);
        self.extend(&scopes);
    }

    fn watch_pods(&mut self, scope: &ReplacementScope) {
        // The pods of the node itself are watched already.
        let selector = Some(format!("spec.nodeName!={}", self.node));
        let api = Api::namespaced(self.client.clone(), &scope.namespace);
        let target = self.target::<WatchedReplica>(api, "pods", selector);
        let pods = watch(target, WatchPolicy::BACKGROUND, WatchedReplica::into_replica);
        self.forward(scope, pods, ReplacementChange::Replicas);
    }

    fn watch_workloads(&mut self, scope: &ReplacementScope, kind: WorkloadKind) {
        let api = Api::namespaced_with(self.client.clone(), &scope.namespace, &kind.api_resource());
        let target = self.target::<WatchedWorkload>(api, kind.resource(), None);
        let workloads = watch(target, WatchPolicy::BACKGROUND, |workload| Some(Workload::from(workload)));
        self.forward(scope, workloads, move |change| ReplacementChange::Workloads(kind, change));
    }

    fn target<K>(&self, api: Api<K>, resource: &'static str, selector: Option<String>) -> WatchTarget<K> {
        WatchTarget { field_selector: selector, ..WatchTarget::all(api, resource, &self.server) }
    }

    /// Sends what a watch reports, until the user turns out to have no permission.
    fn forward<T: Send + Sync + 'static>(
        &mut self,
        scope: &ReplacementScope,
        mut updates: BoxStream<'static, Result<WatchUpdate<T>, Error>>,
        change: impl Fn(WatchChange<T>) -> ReplacementChange + Send + 'static,
    ) {
        let (to, node, scope) = (self.to.clone(), self.node.clone(), scope.clone());
        self.tasks.spawn(async move {
            while let Some(update) = updates.next().await {
                let change = match update {
                    Ok(WatchUpdate::Change(changed)) => change(changed),
                    Ok(WatchUpdate::Live) => ReplacementChange::State(WatchState::Live),
                    Ok(WatchUpdate::Lost { since, error }) => {
                        ReplacementChange::State(WatchState::Lost { since, error: error.to_string() })
                    }
                    Err(error) => ReplacementChange::State(WatchState::Forbidden(error.to_string())),
                };
                // The receiver is gone when the dashboard has ended; then this task ends as well.
                let message = Message::Replacements { node: node.clone(), scope: scope.clone(), change };
                let _ = to.send(message).await;
            }
        });
    }
}
