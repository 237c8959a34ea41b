//! The permissions that each command needs.

use std::collections::BTreeSet;

use nm_core::client::objects::{self, Permission};
use nm_shared::Group;
use nm_shared::api::names::GROUP;

use crate::install::manifests::{self, Settings};

/// A permission that a command needs: verb, API group and resource.
type Required = (&'static str, &'static str, &'static str);

const LIST: Required = ("list", GROUP, "nodemaintenances");
const WATCH: Required = ("watch", GROUP, "nodemaintenances");
const CREATE: Required = ("create", GROUP, "nodemaintenances");
const DELETE: Required = ("delete", GROUP, "nodemaintenances");
const PATCH: Required = ("patch", GROUP, "nodemaintenances");
const NODES: Required = ("list", "", "nodes");
const PODS: Required = ("list", "", "pods");
const DEPLOYMENTS: Required = ("list", "apps", "deployments");
const BUDGETS: Required = ("list", "policy", "poddisruptionbudgets");
const WEBHOOKS: &str = "admissionregistration.k8s.io";
const CRDS: &str = "customresourcedefinitions";
const CRD: Required = ("get", "apiextensions.k8s.io", CRDS);
const RBAC: &str = "rbac.authorization.k8s.io";

/// To wait until a CRD is established, or gone.
const WATCH_CRDS: [Required; 2] =
    [("list", "apiextensions.k8s.io", CRDS), ("watch", "apiextensions.k8s.io", CRDS)];

/// What `install` needs beside permissions on the installed objects: to check readiness, and to probe the webhook. The API
/// server allows users to grant permissions that they do not have only with `escalate` and `bind`.
const INSTALL: &[Required] = &[
    DEPLOYMENTS,
    PODS,
    CREATE,
    ("escalate", RBAC, "clusterroles"),
    ("escalate", RBAC, "roles"),
    ("bind", RBAC, "clusterroles"),
    ("bind", RBAC, "roles"),
];

/// What `uninstall` needs beside permissions on the installed objects: to stop maintenances, and to remove the objects that
/// nm-reconciler created.
const UNINSTALL: &[Required] =
    &[LIST, DELETE, DEPLOYMENTS, ("delete", "coordination.k8s.io", "leases"), ("delete", "", "secrets")];

/// What each command needs, and what it needs with a flag that needs more.
const REQUIRED: &[(&str, &[Required])] = &[
    ("start", &[LIST, CREATE]),
    ("start --wait", &[LIST, CREATE, WATCH]),
    ("start -l", &[LIST, CREATE, NODES]),
    ("stop", &[LIST, DELETE]),
    ("stop --wait", &[LIST, DELETE, WATCH]),
    ("stop -l", &[LIST, DELETE, NODES]),
    ("pause", &[LIST, PATCH]),
    ("pause -l", &[LIST, PATCH, NODES]),
    ("resume", &[LIST, PATCH]),
    ("resume -l", &[LIST, PATCH, NODES]),
    ("status", &[LIST]),
    (
        "roll",
        &[
            LIST,
            WATCH,
            CREATE,
            PATCH,
            DELETE,
            NODES,
            ("watch", "", "nodes"),
            PODS,
            BUDGETS,
            ("get", "policy", "poddisruptionbudgets"),
            ("get", "apps", "deployments"),
            ("get", "apps", "replicasets"),
            ("get", "apps", "statefulsets"),
        ],
    ),
    (
        "roll --job",
        &[
            ("create", "batch", "jobs"),
            ("get", "batch", "jobs"),
            ("delete", "batch", "jobs"),
            ("get", "", "pods/log"),
        ],
    ),
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
    ("plan --surge", &[("get", "apps", "deployments"), ("get", "apps", "replicasets")]),
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
            CRD,
            ("get", "coordination.k8s.io", "leases"),
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
            CRD,
            ("list", "coordination.k8s.io", "leases"),
            ("list", "events.k8s.io", "events"),
            ("list", WEBHOOKS, "validatingwebhookconfigurations"),
            ("get", "", "pods/log"),
        ],
    ),
    ("version", &[DEPLOYMENTS]),
];

/// The commands that use the maintenances of all groups, and their verbs.
const OF_ALL_GROUPS: &[(&str, &[&str])] =
    &[("doctor", &["list"]), ("gather", &["list"]), ("uninstall", &["list", "delete"])];

pub(crate) fn required_permissions(older: &[Group]) -> Vec<(&'static str, Vec<Permission>)> {
    let permission = |(verb, group, resource): &Required| Permission {
        verb,
        group: (*group).to_owned(),
        resource: (*resource).to_owned(),
    };
    let mut needs: Vec<(&str, Vec<Permission>)> = REQUIRED
        .iter()
        .map(|(command, permissions)| (*command, permissions.iter().map(permission).collect()))
        .collect();
    let objects = manifests::objects(&Settings::default());
    let on_all = |verbs: &[&'static str]| -> Vec<Permission> {
        let each =
            objects.iter().flat_map(|object| verbs.iter().map(|verb| objects::permission(verb, object)));
        each.collect::<BTreeSet<_>>().into_iter().collect()
    };
    let of = |wanted: &[Required]| wanted.iter().chain(&WATCH_CRDS).map(permission).collect::<Vec<_>>();
    needs.push(("install", [on_all(&["get", "create", "patch"]), of(INSTALL)].concat()));
    needs.push(("uninstall", [on_all(&["get", "delete"]), of(UNINSTALL)].concat()));
    for (command, permissions) in &mut needs {
        let verbs = OF_ALL_GROUPS.iter().filter(|(of, _)| of == command).flat_map(|(_, verbs)| *verbs);
        for verb in verbs {
            permissions.extend(older.iter().map(|group| permission(&(*verb, group.name(), LIST.2))));
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
    fn every_command_that_uses_a_cluster_has_required_permissions() {
        let known: Vec<&str> = required_permissions(&[])
            .into_iter()
            .filter_map(|(command, _)| command.split(' ').next())
            .collect();
        for command in crate::cli::Cli::command().get_subcommands() {
            let asks = !["completion", "options"].contains(&command.get_name());
            assert_eq!(known.contains(&command.get_name()), asks, "{}", command.get_name());
        }
    }

    #[test]
    fn an_older_group_adds_permissions_on_its_maintenances() {
        let added: Vec<(&str, &str)> = required_permissions(&[Group::Kubevirt])
            .iter()
            .flat_map(|(command, permissions)| permissions.iter().map(|permission| (*command, permission)))
            .filter(|(_, permission)| permission.qualified_resource() == "nodemaintenances.kubevirt.io")
            .map(|(command, permission)| (command, permission.verb))
            .collect();
        let listed = [("doctor", "list"), ("gather", "list")];
        assert_eq!(added, [&listed[..], &[("uninstall", "list"), ("uninstall", "delete")]].concat());
    }

    #[test]
    fn install_needs_permissions_on_all_installed_objects() {
        let needs = required_permissions(&[]);
        assert!(needs.iter().all(|(_, permissions)| !permissions.is_empty()));
        let (_, install) = needs.iter().find(|(command, _)| *command == "install").unwrap();
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert!(install.contains(&objects::permission("create", &deployment)));
        assert!(!install.contains(&objects::permission("delete", &deployment)));
        // The sandbox does not check escalation, so no other test covers these.
        for kind in ["ClusterRole", "Role"] {
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind});
            assert!(
                ["escalate", "bind"].iter().all(|verb| install.contains(&objects::permission(verb, &role)))
            );
        }
    }
}
