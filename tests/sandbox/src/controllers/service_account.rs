//! Creates the service account `default` in every namespace.

use std::collections::BTreeSet;

use serde_json::json;

use crate::cluster::catalog::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use crate::cluster::store::{Change, Collection, Key};
use crate::model::pod;

use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};

/// The controller of service accounts.
#[derive(Debug, Default)]
pub(crate) struct ServiceAccounts {
    /// Namespaces that may lack the account.
    suspects: BTreeSet<String>,
}

impl Controller for ServiceAccounts {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[NAMESPACES, SERVICE_ACCOUNTS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {}

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let (before, after) = (change.before.as_deref(), change.after.as_deref());
        match (*collection == NAMESPACES, before, after) {
            (true, None, Some(namespace)) => self.suspects.insert(pod::name(namespace).to_owned()),
            (false, Some(account), None) => self.suspects.insert(Key::of(account).namespace),
            _ => false,
        };
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        while !ctx.is_full()
            && let Some(name) = self.suspects.pop_first()
        {
            let namespace = ctx.get(&NAMESPACES, &Key::cluster(&*name));
            let is_active = namespace.is_some_and(|namespace| !pod::is_terminating(&namespace));
            if is_active && ctx.get(&SERVICE_ACCOUNTS, &Key::new(&*name, "default")).is_none() {
                ctx.create(&SERVICE_ACCOUNTS, json!({"metadata": {"namespace": name, "name": "default"}}));
            }
        }
        Requeue::now_if(!self.suspects.is_empty())
    }
}
