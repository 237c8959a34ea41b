//! The steps of a plan, for `plan` and the start dialog of the dashboard: read, dry-run the evictions, report.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use nm_shared::cluster::node;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::surge::{WorkloadKey, WorkloadState};
use nm_shared::forecast::DrainPreview;
use nm_shared::{DrainSpec, Grant};

use crate::client::cluster::Cluster;
use crate::client::reconciler_grants;
use crate::client::unread::Unread;
use crate::error::Error;
use crate::plan::cluster_snapshot::ClusterSnapshot;
use crate::plan::eviction_dry_run::dry_run_evictions;
use crate::plan::pods_elsewhere::OWN_LABELS;
use crate::plan::report::{PlanReport, drained_at_once, needed_grants, preview};
use crate::plan::surge_workloads;
use crate::plan::time_limit::{NoAnswer, TimeLimit, within};

/// How many evictions a question tries at most.
const MAX_SAMPLES: usize = 200;

/// Pods that webhooks and policies are taken to judge alike: those of a workload with the same labels. An operator labels the
/// primary of a database, which its webhook keeps, and not its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PodKind {
    owner: String,
    labels: BTreeMap<String, String>,
}

impl PodKind {
    /// None without a workload.
    pub(crate) fn of(pod: &DrainPod) -> Option<Self> {
        let mut labels = (*pod.labels).clone();
        labels.retain(|label, _| !OWN_LABELS.contains(&label.as_str()));
        Some(Self { owner: pod::controller(pod)?.uid.clone(), labels })
    }
}

/// What was read for a plan of these nodes.
pub struct Planning {
    nodes: Vec<String>,
    drain: Option<DrainSpec>,
    /// What was read of the cluster.
    pub snapshot: ClusterSnapshot,
    workloads: HashMap<WorkloadKey, WorkloadState>,
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
        let mut read = Self::read_within(None, nodes, drain, cluster, now).await?;
        let denied = read.denied(cluster).await;
        read.deny(denied)?;
        Ok(read)
    }

    /// The same within a time limit: what has not been read by then is unknown. What nm-reconciler is denied is not read.
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
        let snapshot = Box::pin(ClusterSnapshot::read(limit, &nodes, cluster)).await?;
        let mut read = Self { nodes, drain, snapshot, workloads: HashMap::new(), preview: None, now };
        let Some(mut preview) = read.preview(&read.nodes)? else { return Ok(read) };
        match within(limit, Box::pin(surge_workloads::read(&preview, &mut read.snapshot, cluster))).await {
            Ok(workloads) => read.workloads = workloads,
            Err(NoAnswer::Failed(error)) => return Err(error),
            Err(NoAnswer::TooLate(why)) => {
                read.snapshot.unknown.push(Unread::too_late("which pods are replaced first", why));
            }
        }
        preview.set_workloads(read.workloads(&read.nodes));
        read.preview = Some(preview);
        Ok(read)
    }

    /// What nm-reconciler may not do although the settings of the drains need it, as far as that can be found out.
    pub(crate) async fn denied(&self, cluster: &Cluster) -> BTreeSet<Grant> {
        let mut denied = BTreeSet::new();
        for grant in needed_grants(&self.nodes, self.drain.as_ref(), &self.snapshot) {
            let is_granted = reconciler_grants::is_granted(&self.snapshot.accounts, grant, cluster).await;
            denied.extend((is_granted == Some(false)).then_some(grant));
        }
        denied
    }

    /// Judges the pods anew if nm-reconciler may not do these things.
    ///
    /// # Errors
    ///
    /// If a selector in `spec.drain` is not valid.
    pub(crate) fn deny(&mut self, denied: BTreeSet<Grant>) -> Result<(), Error> {
        if denied.is_empty() {
            return Ok(());
        }
        self.snapshot.denied = denied;
        self.preview = self.preview(&self.nodes)?;
        Ok(())
    }

    /// The pods of some of the nodes; none if pods cannot be read.
    fn preview(&self, nodes: &[String]) -> Result<Option<DrainPreview>, Error> {
        let preview = preview(nodes, self.drain.as_ref(), &self.snapshot, self.now)
            .map_err(|error| Error::Unplannable(error.to_string()))?;
        Ok(preview.map(|mut preview| {
            preview.set_workloads(self.workloads(nodes));
            preview
        }))
    }

    /// What controls the pods that may be replaced first while these nodes are drained, as far as the queue lets them.
    fn workloads(&self, nodes: &[String]) -> HashMap<WorkloadKey, WorkloadState> {
        let drained = drained_at_once(nodes, &self.snapshot, self.now);
        let known = self.snapshot.nodes.iter().flatten();
        let left: Vec<_> = known.filter(|known| !drained.contains(node::name(known))).collect();
        surge_workloads::with_nodes_left(&self.workloads, &left)
    }

    /// The pods whose evictions are dry-run.
    pub fn to_evict(&self) -> Vec<&Arc<DrainPod>> {
        self.preview.iter().flat_map(DrainPreview::to_evict).collect()
    }

    /// Adds the API server's answers to the evictions, by the pods' uids, each as soon as it is there.
    ///
    /// # Errors
    ///
    /// If the API server does not respond to an eviction. A refusal is not an error.
    pub async fn dry_run(
        &self,
        cluster: &Cluster,
        answers: &RefCell<HashMap<String, EvictionOutcome>>,
    ) -> Result<(), Error> {
        dry_run_evictions(cluster, &self.to_evict(), self.grace(), answers).await
    }

    /// Combines what was read with the answers to the evictions.
    pub fn report(&self, answers: &HashMap<String, EvictionOutcome>) -> PlanReport {
        self.report_with(&self.nodes, self.preview.as_ref(), answers)
    }

    /// The report of some of the nodes, drained while the others are in service.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn report_of(
        &self,
        nodes: &[String],
        answers: &HashMap<String, EvictionOutcome>,
    ) -> Result<PlanReport, Error> {
        Ok(self.report_with(nodes, self.preview(nodes)?.as_ref(), answers))
    }

    fn report_with(
        &self,
        nodes: &[String],
        preview: Option<&DrainPreview>,
        answers: &HashMap<String, EvictionOutcome>,
    ) -> PlanReport {
        PlanReport::new(nodes, self.drain.as_ref(), preview, &self.snapshot, answers, self.now)
    }

    /// One pod of each kind, and every pod without a workload. What budgets allow is computed.
    pub(crate) fn samples(&self) -> Vec<&Arc<DrainPod>> {
        let mut known = HashSet::new();
        let is_new = |pod: &&Arc<DrainPod>| PodKind::of(pod).is_none_or(|kind| known.insert(kind));
        self.to_evict().into_iter().filter(is_new).take(MAX_SAMPLES).collect()
    }

    /// The grace period of the evictions, if it is not that of the pods.
    pub(crate) fn grace(&self) -> Option<i64> {
        self.drain.as_ref().map(|drain| drain.grace_period_seconds).filter(|seconds| *seconds >= 0)
    }
}
