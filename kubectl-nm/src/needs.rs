//! Which rights each command needs, those that change the installation as well.

use std::collections::BTreeSet;

use nm_shared::names::GROUP;

use crate::manifests::{self, Settings};
use crate::objects::{self, Right};

/// A right that a command needs: verb, API group and resource.
type Need = (&'static str, &'static str, &'static str);

/// What each command needs.
const NEEDS: &[(&str, &[Need])] = &[
    ("start", &[("list", GROUP, "nodemaintenances"), ("create", GROUP, "nodemaintenances")]),
    ("stop", &[("list", GROUP, "nodemaintenances"), ("delete", GROUP, "nodemaintenances")]),
    ("status", &[("list", GROUP, "nodemaintenances")]),
    ("plan", &[("list", "", "nodes"), ("list", "", "pods"), ("create", "", "pods/eviction")]),
    ("explain", &[("list", GROUP, "nodemaintenances")]),
    ("watch", &[("list", GROUP, "nodemaintenances"), ("watch", GROUP, "nodemaintenances")]),
];

/// What each command needs, those that change the installation as well.
pub(crate) fn needs() -> Vec<(&'static str, Vec<Right>)> {
    let right = |(verb, group, resource): &Need| Right {
        verb,
        group: (*group).to_owned(),
        resource: (*resource).to_owned(),
    };
    let mut needs: Vec<(&str, Vec<Right>)> =
        NEEDS.iter().map(|(command, rights)| (*command, rights.iter().map(right).collect())).collect();
    let objects = manifests::objects(&Settings::default());
    let on_all = |verbs: &[&'static str]| -> Vec<Right> {
        let each = objects.iter().flat_map(|object| verbs.iter().map(|verb| objects::right(verb, object)));
        each.collect::<BTreeSet<_>>().into_iter().collect()
    };
    needs.push(("install", on_all(&["get", "create", "patch"])));
    needs.push(("uninstall", on_all(&["get", "delete"])));
    needs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn installing_needs_rights_on_all_that_is_installed() {
        let needs = needs();
        assert!(needs.iter().all(|(_, rights)| !rights.is_empty()));
        let (_, install) = needs.iter().find(|(command, _)| *command == "install").unwrap();
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert!(install.contains(&objects::right("create", &deployment)));
        assert!(!install.contains(&objects::right("delete", &deployment)));
    }
}
