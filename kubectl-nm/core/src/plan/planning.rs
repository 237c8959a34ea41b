//! The steps of a plan, for `plan` and the start dialog of the dashboard: read, dry-run the evictions, report.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use nm_shared::DrainSpec;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::forecast::DrainPreview;

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::plan::cluster_snapshot::ClusterSnapshot;
use crate::plan::eviction_dry_run::dry_run_evictions;
use crate::plan::report::{PlanReport, preview};
use crate::plan::surge_workloads;
use crate::plan::time_limit::{NoAnswer, TimeLimit, within};
use crate::plan::unread::Unread;

/// How many evictions a question tries at most.
const MAX_SAMPLES: usize = 200;

/// What was read for a plan of these nodes.
pub struct Planning {
    nodes: Vec<String>,
    drain: Option<DrainSpec>,
    snapshot: ClusterSnapshot,
    preview: Option<DrainPreview>,
    now: Timestamp,
}

impl Planning {
    /// Reads what the plan depends on, and judges the pods.
    ///
    /// # Errors
    ///
    /// If a selector in `spec.drain` is not valid ([`Error::Unplannable`]), or if a request fails for a reason other
    /// than missing permission.
    pub async fn read(
        nodes: Vec<String>,
        drain: Option<DrainSpec>,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<Self, Error> {
        Self::read_within(None, nodes, drain, cluster, now).await
    }

    /// The same within a time limit: what has not been read by then is unknown.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub(crate) async fn read_within(
        limit: Option<TimeLimit>,
        nodes: Vec<String>,
        drain: Option<DrainSpec>,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let mut snapshot = Box::pin(ClusterSnapshot::read_within(limit, &nodes, cluster)).await?;
        let mut preview = preview(&nodes, drain.as_ref(), &snapshot, now)
            .map_err(|error| Error::Unplannable(error.to_string()))?;
        if let Some(preview) = &mut preview {
            match within(limit, Box::pin(surge_workloads::read(preview, &mut snapshot, cluster))).await {
                Ok(workloads) => preview.set_workloads(workloads),
                Err(NoAnswer::Failed(error)) => return Err(error),
                Err(NoAnswer::TooLate(why)) => {
                    snapshot.unknown.push(Unread::too_late("which pods are replaced first", why));
                }
            }
        }
        Ok(Self { nodes, drain, snapshot, preview, now })
    }

    /// How many evictions will be dry-run.
    pub fn evictions(&self) -> usize {
        self.preview.as_ref().map_or(0, |preview| preview.to_evict().count())
    }

    /// The API server's answers to the evictions, by the pods' uids. `done` counts them.
    ///
    /// # Errors
    ///
    /// If the API server does not respond to an eviction. A refusal is not an error.
    pub async fn answers(
        &self,
        cluster: &Cluster,
        done: &Cell<usize>,
    ) -> Result<HashMap<String, EvictionOutcome>, Error> {
        let Some(preview) = &self.preview else { return Ok(HashMap::new()) };
        answers(preview, self.drain.as_ref(), cluster, done).await
    }

    /// Combines what was read with the answers to the evictions.
    pub fn report(&self, answers: &HashMap<String, EvictionOutcome>) -> PlanReport {
        let Self { nodes, drain, snapshot, preview, now } = self;
        PlanReport::new(nodes, drain.as_ref(), preview.as_ref(), snapshot, answers, *now)
    }

    /// One pod of each workload, and every pod without one. Webhooks and policies mostly judge the pods of a workload alike;
    /// what budgets allow is computed.
    pub(crate) fn samples(&self) -> Vec<&Arc<DrainPod>> {
        self.preview.iter().flat_map(samples).collect()
    }

    /// The grace period of the evictions, if it is not that of the pods.
    pub(crate) fn grace(&self) -> Option<i64> {
        grace(self.drain.as_ref())
    }
}

/// The API server's answers to the evictions of a preview, by the pods' uids. `done` counts them.
///
/// # Errors
///
/// If the API server does not respond to an eviction. A refusal is not an error.
pub async fn answers(
    preview: &DrainPreview,
    drain: Option<&DrainSpec>,
    cluster: &Cluster,
    done: &Cell<usize>,
) -> Result<HashMap<String, EvictionOutcome>, Error> {
    dry_run_evictions(cluster, preview.to_evict(), grace(drain), done).await
}

pub(crate) fn grace(drain: Option<&DrainSpec>) -> Option<i64> {
    drain.map(|drain| drain.grace_period_seconds).filter(|seconds| *seconds >= 0)
}

/// One pod of each workload, and every pod without one.
fn samples(preview: &DrainPreview) -> impl Iterator<Item = &Arc<DrainPod>> {
    let mut known = HashSet::new();
    let is_new =
        move |pod: &&Arc<DrainPod>| pod::controller(pod).is_none_or(|owner| known.insert(owner.uid.clone()));
    preview.to_evict().filter(is_new).take(MAX_SAMPLES)
}
