//! The user's permissions: one finding if the user can run every command, or else one for each command that lacks permissions.

use std::collections::{BTreeMap, BTreeSet};

use nm_core::client::objects::Permission;

use crate::doctor::finding::{Fetched, Finding, named, ok, warn};

const CHECK: &str = "permissions";

pub(crate) fn findings(missing: &[(&'static str, Fetched<Vec<Permission>>)]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for (command, lacking) in missing {
        let finding = match lacking {
            Err(why) => Err(why.clone()),
            Ok(lacking) if lacking.is_empty() || is_reported_already(command, lacking, missing) => continue,
            Ok(lacking) => lacks(command, lacking),
        };
        let finding = named(CHECK, finding);
        // What cannot be checked is often the same for many commands.
        if !found.contains(&finding) {
            found.push(finding);
        }
    }
    if found.is_empty() {
        found.push(named(CHECK, ok("you have all permissions that the commands need")));
    }
    found
}

fn is_reported_already(
    command: &str,
    lacking: &[Permission],
    missing: &[(&'static str, Fetched<Vec<Permission>>)],
) -> bool {
    let Some((without_flag, _)) = command.split_once(' ') else { return false };
    missing.iter().any(|(other, lacks)| *other == without_flag && lacks.as_deref() == Ok(lacking))
}

fn lacks(command: &str, missing: &[Permission]) -> Fetched<Finding> {
    let (what, remedy) = match command {
        "plan" | "doctor" | "gather" | "version" => {
            (format!("{command} cannot read everything"), "what you cannot read is left out and listed")
        }
        // Without these two verbs, the API server allows users to grant only permissions that they have.
        "install" if missing.iter().all(|missing| ["bind", "escalate"].contains(&missing.verb)) => (
            format!("you can run {command} only if you have every permission that it grants"),
            "the permissions of cluster-admin are sufficient",
        ),
        "install" | "uninstall" => {
            (format!("you cannot run {command}"), "it needs the permissions of cluster-admin")
        }
        "start -l" | "stop -l" => {
            (format!("you cannot run {command}"), "without -l, name the nodes or list them in a file for -f")
        }
        _ if missing.iter().all(|missing| ["get", "list", "watch"].contains(&missing.verb)) => (
            format!("you cannot run {command}"),
            "ask an administrator to bind the ClusterRole nodemaintenance-viewer to you, or nodemaintenance-editor",
        ),
        _ => (
            format!("you cannot run {command}"),
            "ask an administrator to bind the ClusterRole nodemaintenance-editor to you",
        ),
    };
    warn(format!("{what}; missing permissions: {}", by_resource(missing)), remedy)
}

/// `create/get nodes, list pods`.
fn by_resource(missing: &[Permission]) -> String {
    let mut verbs: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for needed in missing {
        verbs.entry(needed.qualified_resource()).or_default().insert(needed.verb);
    }
    let named = verbs
        .into_iter()
        .map(|(resource, verbs)| format!("{} {resource}", verbs.into_iter().collect::<Vec<_>>().join("/")));
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::{CheckResult, Unavailable};

    fn permission(verb: &'static str, kind: &str) -> Permission {
        nm_core::client::objects::permission(verb, &json!({"apiVersion": "apps/v1", "kind": kind}))
    }

    fn messages(missing: &[(&'static str, Fetched<Vec<Permission>>)]) -> Vec<String> {
        let found = findings(missing);
        assert!(found.iter().all(|finding| finding.check == CHECK
            && [CheckResult::Warn, CheckResult::Unknown].contains(&finding.result)));
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn missing_permissions_are_listed_with_their_command() {
        let deployments = || {
            vec![
                permission("get", "Deployment"),
                permission("create", "Deployment"),
                permission("get", "Lease"),
            ]
        };
        let named = "missing permissions: create/get deployments.apps, get leases.apps";
        let what = |command: &str| match command {
            "gather" => String::from("gather cannot read everything"),
            command => format!("you cannot run {command}"),
        };
        for command in ["start", "install", "gather"] {
            assert_eq!(messages(&[(command, Ok(deployments()))]), [format!("{}; {named}", what(command))]);
        }
        let fine = ("status", Ok(Vec::new()));
        assert_eq!(
            messages(&[fine, ("stop", Ok(deployments()))]).len(),
            1,
            "commands that can be run are not listed"
        );
    }

    #[test]
    fn a_viewer_is_only_suggested_for_what_viewers_can_do() {
        let remedy = |verb| {
            let found = findings(&[("stop", Ok(vec![permission("list", "Node"), permission(verb, "Node")]))]);
            found.into_iter().next().unwrap().remedy.unwrap()
        };
        for verb in ["create", "patch", "delete"] {
            assert!(remedy(verb).contains("-editor") && !remedy(verb).contains("-viewer"), "{verb}");
        }
        assert!(remedy("watch").contains("-viewer"));
    }

    #[test]
    fn a_flag_that_needs_no_more_permissions_is_not_reported() {
        let (create, list) = (|| permission("create", "Deployment"), || permission("list", "Node"));
        let reported = messages(&[
            ("start", Ok(vec![create()])),
            ("start --wait", Ok(vec![create()])),
            ("start -l", Ok(vec![create(), list()])),
        ]);
        assert_eq!(
            reported,
            [
                "you cannot run start; missing permissions: create deployments.apps",
                "you cannot run start -l; missing permissions: create deployments.apps, list nodes.apps",
            ]
        );
        let unavailable = || Err(Unavailable("the server does not respond".into()));
        assert_eq!(
            messages(&[("start", unavailable()), ("plan", unavailable())]),
            ["cannot be checked: the server does not respond"]
        );
    }

    #[test]
    fn without_escalate_the_user_needs_every_granted_permission() {
        let only = "you can run install only if you have every permission that it grants; missing permissions: \
                    bind/escalate roles.apps";
        assert_eq!(
            messages(&[("install", Ok(vec![permission("escalate", "Role"), permission("bind", "Role")]))]),
            [only]
        );
        let more = vec![permission("escalate", "Role"), permission("get", "Role")];
        assert!(messages(&[("install", Ok(more))])[0].starts_with("you cannot run install; "));
    }
}
