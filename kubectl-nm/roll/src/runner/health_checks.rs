//! The health checks of a running roll, in rounds.

use std::collections::BTreeMap;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::{CHECK_INTERVAL, Checked, Finished, RollRunner};
use crate::decide::NodeProgress;
use crate::gates::LAST_CHECKS;
use crate::health::{self, NodeCheck};
use crate::health_round::Round;
use crate::record::{DisturbedObject, Roll, Step};

/// How often the DaemonSet pods of a healthy node are checked that must stay Ready for longer than [`LAST_CHECKS`].
const SLOW_CHECK_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

impl RollRunner<'_> {
    /// Starts a round of the checks whose results are not watched, after the one before has ended.
    pub(super) fn check_health(&mut self, roll: &Roll, progress: &[NodeProgress]) {
        let wanted: BTreeMap<&str, (Step, &[DisturbedObject])> = roll
            .checked_nodes()
            .map(|node| (node.node(), (node.record.step, node.record.baseline.healthy.as_slice())))
            .collect();
        // A node that is checked again later has to be healthy then.
        let is_wanted = |node: &str, step: Step| wanted.get(node).is_some_and(|(now, _)| *now == step);
        self.observed.health.retain(|(node, step), _| is_wanted(node, *step));
        self.checks.last.retain(|node, _| wanted.contains_key(node.as_str()));
        let now = self.observed.now;
        let is_early = |node: &str| {
            let waits =
                progress.iter().find(|progress| progress.node == node).and_then(|node| node.ready_time);
            let last = self.checks.last.get(node).map(|(began, _)| *began);
            waits.zip(last).is_some_and(|(waits, last)| {
                waits.left(now) > LAST_CHECKS && now.duration_since(last) < SLOW_CHECK_INTERVAL
            })
        };
        let due = wanted.into_iter().filter(|(node, _)| !is_early(node));
        let due: Vec<_> = due
            .map(|(node, (step, healthy))| {
                let ill = self.checks.last.get(node).map(|(_, ill)| ill.clone()).unwrap_or_default();
                (node.to_owned(), step, healthy.to_vec(), ill)
            })
            .collect();
        if due.is_empty() || self.checks.is_under_way {
            return;
        }
        self.checks.is_under_way = true;
        let (cluster, workloads) = (self.cluster, self.checks.workloads.clone());
        self.tasks.push(Box::pin(async move {
            tokio::time::sleep(CHECK_INTERVAL / 2).await;
            let (began, round) = (Timestamp::now(), Round::new(cluster, &workloads));
            let checks = due.into_iter().map(async |(node, step, healthy, ill)| {
                let health = health::of_node(&round, &node, step, &healthy, &ill).await;
                (node, step, health)
            });
            Finished::Health(began, join_all(checks).await)
        }));
    }

    /// Notes the results of a round that began at this time.
    pub(super) fn take_checked(&mut self, began: Timestamp, checked: Vec<Checked>) {
        self.checks.is_under_way = false;
        for (node, step, health) in checked {
            match health {
                Ok(NodeCheck { health, ill, .. }) => {
                    self.checks.last.insert(node.clone(), (began, ill));
                    self.observed.note_health(node, step, health, began);
                }
                Err(error) if error.is_waited_for() => {}
                Err(error) => {
                    self.fail(&node, &format!("the health of node {node} cannot be checked: {error}"));
                }
            }
        }
    }
}
