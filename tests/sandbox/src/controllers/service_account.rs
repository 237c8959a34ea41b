//! Every namespace has a service account `default`, which its pods run as unless they say otherwise.

use std::collections::BTreeSet;

use serde_json::json;

use crate::pod;
use crate::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use crate::store::{Change, Collection, Key};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;

/// The controller of service accounts.
#[derive(Debug, Default)]
pub(crate) struct ServiceAccounts {
    /// Namespaces that may have none.
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

    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        while !desk.is_full()
            && let Some(name) = self.suspects.pop_first()
        {
            let namespace = desk.get(&NAMESPACES, &Key::cluster(&*name));
            let is_active = namespace.is_some_and(|namespace| !pod::is_terminating(&namespace));
            if is_active && desk.get(&SERVICE_ACCOUNTS, &Key::new(&*name, "default")).is_none() {
                desk.create(&SERVICE_ACCOUNTS, json!({"metadata": {"namespace": name, "name": "default"}}));
            }
        }
        Next::now_if(!self.suspects.is_empty())
    }
}
