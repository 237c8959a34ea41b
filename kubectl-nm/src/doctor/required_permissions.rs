//! Which rights each command needs, those that change the installation as well.

use std::collections::BTreeSet;

use nm_shared::Group;
use nm_shared::api::names::GROUP;

use crate::client::objects::{self, Right};
use crate::install::manifests::{self, Settings};

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
const DEFINITIONS: &str = "customresourcedefinitions";
const DEFINITION: Need = ("get", "apiextensions.k8s.io", DEFINITIONS);
const RBAC: &str = "rbac.authorization.k8s.io";

/// To see when a definition is established, or gone.
const FOLLOW_DEFINITIONS: [Need; 2] =
    [("list", "apiextensions.k8s.io", DEFINITIONS), ("watch", "apiextensions.k8s.io", DEFINITIONS)];

/// What `install` needs beside the rights on what it installs: to see whether it is ready, and to ask the webhook. The
/// API server lets nobody grant what they may not do themselves, unless they may do that.
const INSTALL: &[Need] = &[
    DEPLOYMENTS,
    PODS,
    CREATE,
    ("escalate", RBAC, "clusterroles"),
    ("escalate", RBAC, "roles"),
    ("bind", RBAC, "clusterroles"),
    ("bind", RBAC, "roles"),
];

/// What `uninstall` needs beside them: to end maintenances, to see what others have in the namespace and when that is gone,
/// and to remove what nm-reconciler has made where its namespace stays.
const UNINSTALL: &[Need] = &[
    LIST,
    DELETE,
    DEPLOYMENTS,
    ("list", "", "namespaces"),
    ("watch", "", "namespaces"),
    ("delete", "coordination.k8s.io", "leases"),
    ("delete", "", "secrets"),
    ("list", "*", "*"),
];

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
            ("list", "coordination.k8s.io", "leases"),
            ("get", WEBHOOKS, "validatingwebhookconfigurations"),
            ("get", WEBHOOKS, "validatingadmissionpolicies"),
            ("get", WEBHOOKS, "validatingadmissionpolicybindings"),
            ("create", "authorization.k8s.io", "subjectaccessreviews"),
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

/// The commands that are about the maintenances of all groups, and what they do with them.
const OF_ALL_GROUPS: &[(&str, &[&str])] =
    &[("doctor", &["list"]), ("gather", &["list"]), ("uninstall", &["list", "delete"])];

/// What each command needs, those that change the installation as well, where these older groups are served.
pub(crate) fn needs(older: &[Group]) -> Vec<(&'static str, Vec<Right>)> {
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
    let of = |wanted: &[Need]| wanted.iter().chain(&FOLLOW_DEFINITIONS).map(right).collect::<Vec<_>>();
    needs.push(("install", [on_all(&["get", "create", "patch"]), of(INSTALL)].concat()));
    needs.push(("uninstall", [on_all(&["get", "delete"]), of(UNINSTALL)].concat()));
    for (command, rights) in &mut needs {
        let verbs = OF_ALL_GROUPS.iter().filter(|(of, _)| of == command).flat_map(|(_, verbs)| *verbs);
        for verb in verbs {
            rights.extend(older.iter().map(|group| right(&(*verb, group.name(), LIST.2))));
        }
    }
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
            needs(&[]).into_iter().filter_map(|(command, _)| command.split(' ').next()).collect();
        for command in crate::cli::Cli::command().get_subcommands() {
            let asks = !["completion", "man"].contains(&command.get_name());
            assert_eq!(known.contains(&command.get_name()), asks, "{}", command.get_name());
        }
    }

    #[test]
    fn an_older_group_adds_the_rights_of_who_ends_or_looks_at_its_maintenances() {
        let added: Vec<(&str, &str)> = needs(&[Group::Kubevirt])
            .iter()
            .flat_map(|(command, rights)| rights.iter().map(|right| (*command, right)))
            .filter(|(_, right)| right.object() == "nodemaintenances.kubevirt.io")
            .map(|(command, right)| (command, right.verb))
            .collect();
        let looked_at = [("doctor", "list"), ("gather", "list")];
        assert_eq!(added, [&looked_at[..], &[("uninstall", "list"), ("uninstall", "delete")]].concat());
    }

    #[test]
    fn installing_needs_rights_on_all_that_is_installed() {
        let needs = needs(&[]);
        assert!(needs.iter().all(|(_, rights)| !rights.is_empty()));
        let (_, install) = needs.iter().find(|(command, _)| *command == "install").unwrap();
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert!(install.contains(&objects::right("create", &deployment)));
        assert!(!install.contains(&objects::right("delete", &deployment)));
        // No sandbox keeps anybody from granting what they may not do, so no other test would miss these.
        for kind in ["ClusterRole", "Role"] {
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind});
            assert!(["escalate", "bind"].iter().all(|verb| install.contains(&objects::right(verb, &role))));
        }
    }
}
