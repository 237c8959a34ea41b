//! Answers reviews: reads the cluster live and lets `nm-shared` decide.
//!
//! Creations are decided one after another, each with its own list of the maintenances of its node, and for a node that may run
//! etcd of all such nodes. Together with the reservations this
//! lets only one of two concurrent creations pass. Everything else, which takes longer, is read before.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use nm_shared::admission::reservation::Reservations;
use nm_shared::admission::review::{RequestedChange, ReviewAnswer, ReviewRequest};
use nm_shared::admission::{self, AdmissionDecision, LiveState};
use nm_shared::cluster::node;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::webhook::live_reads::{LiveCluster, ReadError};

/// How long a review may take. The API server waits for 10 s, as the webhook configuration says.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(8);

/// How much of that the reads for warnings may take. The rest is for the decision.
const WARNINGS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait before checking again whether an allowed maintenance has been stored.
const RESERVATION_CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Reviewer {
    cluster: LiveCluster,
    reservations: Mutex<Reservations>,
}

impl Reviewer {
    pub(super) fn new(cluster: LiveCluster) -> Self {
        Self { cluster, reservations: Mutex::default() }
    }

    /// Answers a review in time, counted from when it began.
    pub(super) async fn answer(&self, question: &ReviewRequest, begun: Instant) -> ReviewAnswer {
        let decided = timeout_at(begun + REVIEW_TIMEOUT, self.decide(question)).await;
        match decided {
            Ok(Ok(review)) => {
                log_refusal(question, &review);
                ReviewAnswer::Reviewed(review)
            }
            Ok(Err(unread)) => unknown(question, unread.to_string()),
            Err(_) => unknown(
                question,
                format!("the API server did not answer within {} s", REVIEW_TIMEOUT.as_secs()),
            ),
        }
    }

    async fn decide(&self, question: &ReviewRequest) -> Result<AdmissionDecision, ReadError> {
        match &question.change {
            RequestedChange::Create(maintenance) => self.create(maintenance, question.dry_run).await,
            RequestedChange::Update(both) => self.update(&both.0, &both.1).await,
            RequestedChange::Other => Ok(AdmissionDecision::default()),
        }
    }

    async fn create(
        &self,
        maintenance: &NodeMaintenance,
        dry_run: bool,
    ) -> Result<AdmissionDecision, ReadError> {
        let name = &maintenance.spec.node_name;
        let mut live = LiveState::default();
        if !self.read_node(name, &mut live).await? {
            return Ok(admission::create(maintenance, &live, Timestamp::now()));
        }
        let unchecked = self.read_pods(name, &mut live).await;
        let mut review = self.decide_creation(maintenance, live, dry_run).await?;
        if review.refusal.is_none() {
            review.warnings.extend(unchecked);
        }
        Ok(review)
    }

    /// Decides a creation while no other is being decided. If it would be refused only because of one that was allowed and
    /// is not stored yet, it waits until that one is stored or its reservation expires.
    async fn decide_creation(
        &self,
        maintenance: &NodeMaintenance,
        mut live: LiveState,
        dry_run: bool,
    ) -> Result<AdmissionDecision, ReadError> {
        let own = maintenance.metadata.name.as_deref();
        let nodes: Vec<String> = live.nodes.iter().map(|node| node::name(node).to_owned()).collect();
        loop {
            let mut reservations = self.reservations.lock().await;
            // A reservation may have been stored after the list was requested.
            let requested = Timestamp::now();
            let (stored, older) =
                tokio::try_join!(self.cluster.maintenances_of(&nodes), self.cluster.nodes_of_older_groups())?;
            reservations.settle(&stored, requested);
            let now = Timestamp::now();
            // A second maintenance of the same name is refused by the API server with AlreadyExists.
            let others = stored.iter().filter(|other| own.is_none() || other.metadata.name.as_deref() != own);
            live.set_maintenances(others, older);
            let review = admission::create(maintenance, &live, now);
            if review.refusal.is_some() {
                return Ok(review);
            }
            live.in_maintenance.extend(reservations.of_others(own).map(str::to_owned));
            let review = admission::create(maintenance, &live, now);
            if review.refusal.is_none() {
                if !dry_run {
                    reservations.reserve(maintenance, now);
                }
                return Ok(review);
            }
            drop(reservations);
            sleep(RESERVATION_CHECK_INTERVAL).await;
        }
    }

    async fn update(
        &self,
        before: &NodeMaintenance,
        after: &NodeMaintenance,
    ) -> Result<AdmissionDecision, ReadError> {
        let mut live = LiveState::default();
        let mut unchecked = None;
        if admission::begins(before, after) && self.read_node(&after.spec.node_name, &mut live).await? {
            let nodes: Vec<String> = live.nodes.iter().map(|node| node::name(node).to_owned()).collect();
            let (stored, older) =
                tokio::try_join!(self.cluster.maintenances_of(&nodes), self.cluster.nodes_of_older_groups())?;
            let others = stored.iter().filter(|other| other.metadata.uid != after.metadata.uid);
            live.set_maintenances(others, older);
        }
        if before.spec.drain != after.spec.drain && node::is_valid_name(&after.spec.node_name) {
            unchecked = self.read_pods(&after.spec.node_name, &mut live).await;
        }
        let mut review = admission::update(before, after, &live, Timestamp::now());
        if review.refusal.is_none() {
            review.warnings.extend(unchecked);
        }
        Ok(review)
    }

    /// Reads a node and what the quorum of etcd depends on. Returns whether there is such a node.
    async fn read_node(&self, name: &str, live: &mut LiveState) -> Result<bool, ReadError> {
        let Some(node) = self.cluster.node(name).await? else { return Ok(false) };
        if node::may_run_etcd(&node) {
            (live.nodes, live.etcd) = tokio::try_join!(self.cluster.etcd_nodes(), self.cluster.etcd())?;
        }
        live.nodes.retain(|other| node::name(other) != name);
        live.nodes.push(node);
        Ok(true)
    }

    /// Reads what warnings depend on. A failure or timeout refuses nothing; it is returned as a warning.
    async fn read_pods(&self, node: &str, live: &mut LiveState) -> Option<String> {
        let both = async { tokio::try_join!(self.cluster.pods(node), self.cluster.daemon_sets()) };
        let why = match timeout(WARNINGS_TIMEOUT, both).await {
            Ok(Ok((pods, daemon_sets))) => {
                live.pods = pods.into_iter().map(Arc::new).collect();
                live.daemon_sets = daemon_sets;
                return None;
            }
            Ok(Err(unread)) => unread.to_string(),
            Err(_) => {
                let seconds = WARNINGS_TIMEOUT.as_secs();
                format!("cannot read the pods of node {node}: no answer within {seconds} s")
            }
        };
        Some(format!("the drain was not checked for data loss: {why}"))
    }
}

fn unknown(question: &ReviewRequest, why: String) -> ReviewAnswer {
    let (name, node) = match &question.change {
        RequestedChange::Create(maintenance) => names(maintenance),
        RequestedChange::Update(both) => names(&both.1),
        RequestedChange::Other => ("", ""),
    };
    warn!(maintenance = name, node, "a NodeMaintenance was not reviewed: {why}");
    ReviewAnswer::Unknown(why)
}

/// The names of a maintenance, which may be generated later, and of its node.
fn names(maintenance: &NodeMaintenance) -> (&str, &str) {
    (maintenance.metadata.name.as_deref().unwrap_or_default(), &maintenance.spec.node_name)
}

/// Logs a refusal, except that of a probe. What is allowed is logged when it is reconciled.
fn log_refusal(question: &ReviewRequest, review: &AdmissionDecision) {
    let Some(refusal) = review.refusal.as_ref().filter(|_| !question.is_probe()) else { return };
    let (what, (name, node)) = match &question.change {
        RequestedChange::Create(maintenance) => ("a NodeMaintenance", names(maintenance)),
        RequestedChange::Update(both) => ("the change of a NodeMaintenance", names(&both.1)),
        RequestedChange::Other => return,
    };
    info!(maintenance = name, node, "refused {what}: {refusal}");
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    use kube::Client;
    use nm_shared::NodeMaintenanceSpec;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that stores maintenances, and whose definition may let their nodes be selected.
    struct Server {
        stored: Mutex<Vec<NodeMaintenance>>,
        /// How many maintenances it has sent.
        sent: AtomicUsize,
        selects: bool,
    }

    impl Server {
        fn reviewer(selects: bool) -> (Arc<Self>, Reviewer) {
            let server = Arc::new(Self { stored: Mutex::default(), sent: AtomicUsize::default(), selects });
            let answering = server.clone();
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let (code, body) = answering.answer(request.uri());
                let answer = http::Response::builder().status(code);
                std::future::ready(Ok::<_, Infallible>(
                    answer.body(axum::body::Body::from(body.to_string())).unwrap(),
                ))
            });
            (server, Reviewer::new(LiveCluster::new(Client::new(service, "default"), false)))
        }

        fn answer(&self, uri: &http::Uri) -> (u16, Value) {
            let status = |code: u16| {
                (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": ""}))
            };
            let path = uri.path();
            if let Some(name) = path.strip_prefix("/api/v1/nodes/") {
                return (200, json!({"metadata": {"name": name}}));
            }
            if !path.starts_with("/apis/nodemaintenance.medik8s.io/") {
                let is_older = path.contains("kubevirt");
                return if is_older { status(404) } else { (200, json!({"metadata": {}, "items": []})) };
            }
            let wanted =
                uri.query().and_then(|query| query.split_once("spec.nodeName%3D")).map(|(_, node)| node);
            if wanted.is_some() && !self.selects {
                return status(400);
            }
            let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
            let is_found = |found: &&NodeMaintenance| wanted.is_none_or(|node| found.spec.node_name == node);
            let items: Vec<&NodeMaintenance> = stored.iter().filter(is_found).collect();
            self.sent.fetch_add(items.len(), Ordering::Relaxed);
            (200, json!({"metadata": {}, "items": items}))
        }

        /// Creates a planned maintenance for a node. Returns why that is denied.
        async fn create(&self, reviewer: &Reviewer, name: &str, node: &str) -> Option<String> {
            let spec =
                NodeMaintenanceSpec { node_name: node.to_owned(), suspend: true, ..Default::default() };
            let mut maintenance = NodeMaintenance::new(name, spec);
            maintenance.metadata.uid = Some(name.to_owned());
            let review = reviewer.create(&maintenance, false).await.unwrap();
            if review.refusal.is_none() {
                self.stored.lock().unwrap_or_else(PoisonError::into_inner).push(maintenance);
            }
            review.refusal
        }
    }

    #[tokio::test]
    async fn the_maintenances_of_other_nodes_are_not_read_for_a_creation() {
        for created in [10, 100, 500, 1_000] {
            let (server, reviewer) = Server::reviewer(true);
            for at in 0..created {
                assert_eq!(server.create(&reviewer, &format!("m{at}"), &format!("n{at}")).await, None);
            }
            assert_eq!(server.sent.load(Ordering::Relaxed), 0, "{created}");
        }
    }

    #[tokio::test]
    async fn a_second_maintenance_of_a_node_is_denied_whether_nodes_can_be_selected_or_not() {
        for selects in [true, false] {
            let (server, reviewer) = Server::reviewer(selects);
            assert_eq!(server.create(&reviewer, "a", "n1").await, None);
            assert_eq!(server.create(&reviewer, "b", "n2").await, None);
            let exists = "invalid nodeName, a NodeMaintenance for node n1 already exists";
            assert_eq!(server.create(&reviewer, "c", "n1").await.as_deref(), Some(exists), "{selects}");
        }
    }

    #[tokio::test]
    #[ignore = "it measures"]
    async fn the_processor_time_of_creations_is_measured() {
        for count in [125, 250, 500, 1_000] {
            for selects in [true, false] {
                let (server, reviewer) = Server::reviewer(selects);
                let began = crate::runtime::thread_time::used();
                for at in 0..count {
                    assert_eq!(server.create(&reviewer, &format!("m{at}"), &format!("n{at}")).await, None);
                }
                let took = crate::runtime::thread_time::used().saturating_sub(began);
                let sent = server.sent.load(Ordering::Relaxed);
                println!("{count} creations, nodes selected: {selects}: {took:.3?}, {sent} objects read");
            }
        }
    }
}
