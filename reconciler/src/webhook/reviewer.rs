//! Answering a question: what it takes is read live, `nm-shared` decides.
//!
//! Creations are decided one after another, each after a list that was asked for then: together with the reservations
//! that is what lets only one of two pass. The rest, which takes longer, is read before.

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

use crate::webhook::live_reads::{Cluster, Unread};

/// The API server waits for 10 s, as the configuration says; after that nobody hears the answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// What only warnings are made of may take so much of that and no more: the rest is for what decides.
const PATIENCE_FOR_WARNINGS: Duration = Duration::from_secs(2);

/// How often it is looked whether what was allowed has been stored.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers questions about maintenances.
pub(super) struct Reviewer {
    cluster: Cluster,
    reservations: Mutex<Reservations>,
}

impl Reviewer {
    /// A reviewer of what is asked about this cluster.
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, reservations: Mutex::default() }
    }

    /// The answer, in time for a question that was begun then.
    pub(super) async fn answer(&self, question: &ReviewRequest, begun: Instant) -> ReviewAnswer {
        let decided = timeout_at(begun + PATIENCE, self.decide(question)).await;
        match decided {
            Ok(Ok(review)) => {
                tell(question, &review);
                ReviewAnswer::Reviewed(review)
            }
            Ok(Err(unread)) => unknown(question, unread.to_string()),
            Err(_) => unknown(
                question,
                format!("the API server has not told what there is within {} s", PATIENCE.as_secs()),
            ),
        }
    }

    async fn decide(&self, question: &ReviewRequest) -> Result<AdmissionDecision, Unread> {
        match &question.change {
            RequestedChange::Create(maintenance) => self.create(maintenance, question.dry_run).await,
            RequestedChange::Update(both) => Ok(self.update(&both.0, &both.1).await),
            RequestedChange::Other => Ok(AdmissionDecision::default()),
        }
    }

    async fn create(
        &self,
        maintenance: &NodeMaintenance,
        dry_run: bool,
    ) -> Result<AdmissionDecision, Unread> {
        let name = &maintenance.spec.node_name;
        let mut live = LiveState::default();
        let mut unchecked = None;
        if let Some(node) = self.cluster.node(name).await? {
            if node::is_control_plane(&node) {
                (live.nodes, live.guard) =
                    tokio::try_join!(self.cluster.control_plane(), self.cluster.guard())?;
            }
            live.nodes.retain(|other| node::name(other) != name);
            live.nodes.push(node);
            unchecked = self.read_pods(name, &mut live).await;
        }
        let mut review = self.decide_in_turn(maintenance, live, dry_run).await?;
        if review.refusal.is_none() {
            review.warnings.extend(unchecked);
        }
        Ok(review)
    }

    /// Decides a creation when no other is being decided. Whoever would be refused for the sake of one that was allowed
    /// and is not stored yet waits until it is, or until it is clear that it never will be.
    async fn decide_in_turn(
        &self,
        maintenance: &NodeMaintenance,
        mut live: LiveState,
        dry_run: bool,
    ) -> Result<AdmissionDecision, Unread> {
        let own = maintenance.metadata.name.as_deref();
        loop {
            let mut reservations = self.reservations.lock().await;
            // What was reserved when the list was asked for may be stored since, and in no list yet.
            let asked = Timestamp::now();
            let (stored, older) =
                tokio::try_join!(self.cluster.maintenances(), self.cluster.in_older_maintenances())?;
            reservations.settle(&stored, asked);
            let now = Timestamp::now();
            // Of two with one name the API server refuses the second, in words that clients know.
            let others = stored.iter().filter(|other| own.is_none() || other.metadata.name.as_deref() != own);
            let others = others.map(|other| other.spec.node_name.clone());
            live.in_maintenance = others.chain(older).collect();
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
            sleep(PAUSE).await;
        }
    }

    async fn update(&self, before: &NodeMaintenance, after: &NodeMaintenance) -> AdmissionDecision {
        let mut live = LiveState::default();
        let mut unchecked = None;
        if before.spec.drain != after.spec.drain && node::is_valid_name(&after.spec.node_name) {
            unchecked = self.read_pods(&after.spec.node_name, &mut live).await;
        }
        let mut review = admission::update(before, after, &live, Timestamp::now());
        if review.refusal.is_none() {
            review.warnings.extend(unchecked);
        }
        review
    }

    /// What warnings are made of. Nothing is refused for the want of it, nor for its coming late: it is a warning itself
    /// that there are none.
    async fn read_pods(&self, node: &str, live: &mut LiveState) -> Option<String> {
        let both = async { tokio::try_join!(self.cluster.pods(node), self.cluster.daemon_sets()) };
        let why = match timeout(PATIENCE_FOR_WARNINGS, both).await {
            Ok(Ok((pods, daemon_sets))) => {
                live.pods = pods.into_iter().map(Arc::new).collect();
                live.daemon_sets = daemon_sets;
                return None;
            }
            Ok(Err(unread)) => unread.to_string(),
            Err(_) => {
                let seconds = PATIENCE_FOR_WARNINGS.as_secs();
                format!("cannot read the pods of node {node} now: no answer within {seconds} s")
            }
        };
        Some(format!("nobody checked what the drain would lose: {why}"))
    }
}

fn unknown(question: &ReviewRequest, why: String) -> ReviewAnswer {
    let (name, node) = match &question.change {
        RequestedChange::Create(maintenance) => about(maintenance),
        RequestedChange::Update(both) => about(&both.1),
        RequestedChange::Other => ("", ""),
    };
    warn!(maintenance = name, node, "a NodeMaintenance was not reviewed: {why}");
    ReviewAnswer::Unknown(why)
}

/// Its name, as far as it has one yet, and its node's.
fn about(maintenance: &NodeMaintenance) -> (&str, &str) {
    (maintenance.metadata.name.as_deref().unwrap_or_default(), &maintenance.spec.node_name)
}

/// One line for what was refused; what was allowed is told by what becomes of it.
fn tell(question: &ReviewRequest, review: &AdmissionDecision) {
    let (Some(refusal), RequestedChange::Create(maintenance)) = (&review.refusal, &question.change) else {
        return;
    };
    let (name, node) = about(maintenance);
    info!(maintenance = name, node, "refused a NodeMaintenance: {refusal}");
}
