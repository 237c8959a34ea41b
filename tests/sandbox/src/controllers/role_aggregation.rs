//! Updates the rules of aggregated `ClusterRoles`.

use crate::access::aggregation::aggregated;
use crate::cluster::catalog::resource::CLUSTER_ROLES;
use crate::cluster::store::{Change, Collection, Object};

use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};

/// The controller of aggregated roles.
#[derive(Debug, Default)]
pub(crate) struct RoleAggregation {
    is_stale: bool,
}

impl Controller for RoleAggregation {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[CLUSTER_ROLES];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {
        self.is_stale = true;
    }

    fn observe(&mut self, _: &Collection, _: &Change) {
        self.is_stale = true;
    }

    /// The writes are observed in turn, so roles that aggregate aggregated roles follow.
    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        if !std::mem::take(&mut self.is_stale) {
            return Requeue::Change;
        }
        let all: Vec<Object> = ctx.state.list(&CLUSTER_ROLES, None).collect();
        for role in &all {
            if let Some(rules) = aggregated(role, &all) {
                ctx.edit(&CLUSTER_ROLES, role, |role| role["rules"] = rules);
            }
        }
        Requeue::Change
    }
}
