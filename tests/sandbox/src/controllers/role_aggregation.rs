//! Keeps the rules of `ClusterRoles` that are made of others.

use crate::access::aggregation::aggregated;
use crate::resource::CLUSTER_ROLES;
use crate::store::{Change, Collection, Object};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;

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

    /// What is written here is observed in turn, so roles that are made of such roles follow.
    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        if !std::mem::take(&mut self.is_stale) {
            return Next::Change;
        }
        let all: Vec<Object> = desk.state.list(&CLUSTER_ROLES, None).collect();
        for role in &all {
            if let Some(rules) = aggregated(role, &all) {
                desk.edit(&CLUSTER_ROLES, role, |role| role["rules"] = rules);
            }
        }
        Next::Change
    }
}
