//! Which rights each command needs, those that change the installation as well.

use std::collections::BTreeSet;

use nm_shared::names::GROUP;

use crate::manifests::{self, Settings};
use crate::objects::{self, Right};

/// A right that a command needs: verb, API group and resource.
type Need = (&'static str, &'static str, &'static str);

const LIST: Need = ("list", GROUP, "nodemaintenances");
const WATCH: Need = ("watch", GROUP, "nodemaintenances");
const CREATE: Need = ("create", GROUP, "nodemaintenances");
const DELETE: Need = ("delete", GROUP, "nodemaintenances");
const NODES: Need = ("list", "", "nodes");
const PODS: Need = ("list", "", "pods");
const DEPLOYMENTS: Need = ("list", "apps", "deployments");
const BUDGETS: Need = ("list", "policy", "poddisruptionbudgets");
const WEBHOOKS: &str = "admissionregistration.k8s.io";
const DEFINITION: Need = ("get", "apiextensions.k8s.io", "customresourcedefinitions");

/// What each command needs, and with a flag where that needs more.
const NEEDS: &[(&str, &[Need])] = &[
    ("start", &[LIST, CREATE]),
    ("start --wait", &[LIST, CREATE, WATCH]),
    ("start -l", &[LIST, CREATE, NODES]),
    ("stop", &[LIST, DELETE]),
    ("stop --wait", &[LIST, DELETE, WATCH]),
    ("stop -l", &[LIST, DELETE, NODES]),
    ("status", &[LIST]),
    (
        "plan",
        &[
            LIST,
            NODES,
            PODS,
            BUDGETS,
            DEPLOYMENTS,
            ("list", "apps", "daemonsets"),
            ("list", "", "persistentvolumes"),
            ("create", "", "pods/eviction"),
        ],
    ),
    ("explain", &[LIST]),
    ("watch", &[LIST, WATCH]),
    (
        "doctor",
        &[
            LIST,
            CREATE,
            NODES,
            PODS,
            DEPLOYMENTS,
            DEFINITION,
            ("get", "coordination.k8s.io", "leases"),
            ("get", WEBHOOKS, "validatingwebhookconfigurations"),
        ],
    ),
    (
        "gather",
        &[
            LIST,
            NODES,
            PODS,
            BUDGETS,
            DEPLOYMENTS,
            DEFINITION,
            ("list", "coordination.k8s.io", "leases"),
            ("list", "events.k8s.io", "events"),
            ("list", WEBHOOKS, "validatingwebhookconfigurations"),
            ("get", "", "pods/log"),
        ],
    ),
    ("version", &[DEPLOYMENTS]),
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
    needs.push(("install", [on_all(&["get", "create", "patch"]), vec![right(&DEPLOYMENTS)]].concat()));
    let of = |wanted: &[Need]| wanted.iter().map(right).collect::<Vec<_>>();
    needs.push(("uninstall", [on_all(&["get", "delete"]), of(&[LIST, DELETE, DEPLOYMENTS])].concat()));
    needs
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_command_that_asks_a_cluster_has_its_rights_told() {
        let known: Vec<&str> =
            needs().into_iter().filter_map(|(command, _)| command.split(' ').next()).collect();
        for command in crate::cli::Cli::command().get_subcommands() {
            let asks = !["completion", "man"].contains(&command.get_name());
            assert_eq!(known.contains(&command.get_name()), asks, "{}", command.get_name());
        }
    }

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
