//! What the caller's permissions come to: one finding where every command may be run, and otherwise one for each command
//! that lacks some, which names them.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::objects::Right;
use crate::doctor::finding::{Finding, Known, ok, unknown, warn};

const CHECK: &str = "permissions";

/// What there is to say of the permissions that the commands lack.
pub(crate) fn findings(missing: &[(&'static str, Known<Vec<Right>>)]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for (command, lacking) in missing {
        let finding = match lacking {
            Err(why) => unknown(CHECK, why),
            Ok(lacking) if lacking.is_empty() || is_told_already(command, lacking, missing) => continue,
            Ok(lacking) => lacks(command, lacking),
        };
        // What cannot be learnt is the same for many commands.
        if !found.contains(&finding) {
            found.push(finding);
        }
    }
    if found.is_empty() {
        found.push(ok(CHECK, "you have every permission that the commands need"));
    }
    found
}

/// Whether a command with a flag lacks no more than it does without.
fn is_told_already(command: &str, lacking: &[Right], missing: &[(&'static str, Known<Vec<Right>>)]) -> bool {
    let Some((without_flag, _)) = command.split_once(' ') else { return false };
    missing.iter().any(|(other, lacks)| *other == without_flag && lacks.as_deref() == Ok(lacking))
}

fn lacks(command: &str, missing: &[Right]) -> Finding {
    let (what, remedy) = match command {
        "plan" | "doctor" | "gather" | "version" => {
            (format!("{command} does not see everything"), "what you may not read is left out, and named")
        }
        // The API server lets nobody grant what they may not do themselves, or else takes these two verbs.
        "install" if missing.iter().all(|right| ["bind", "escalate"].contains(&right.verb)) => (
            format!("you may run {command} only if you have every permission that it grants"),
            "the permissions of cluster-admin are enough",
        ),
        // What others have in the namespace cannot be known then, so it stays.
        "uninstall" if missing.iter().all(is_to_list_everything) => (
            format!("{command} keeps the namespace"),
            "it removes everything else; who may list everything in the namespace, as cluster-admin may, removes that too",
        ),
        "install" | "uninstall" => {
            (format!("you may not run {command}"), "it needs the permissions of cluster-admin")
        }
        "start -l" | "stop -l" => {
            (format!("you may not run {command}"), "without it, name the nodes or list them in a file for -f")
        }
        _ => (
            format!("you may not run {command}"),
            "an administrator binds the ClusterRole nodemaintenance-editor or nodemaintenance-viewer to you",
        ),
    };
    warn(CHECK, format!("{what}; missing permissions: {}", by_resource(missing)), remedy)
}

fn is_to_list_everything(right: &Right) -> bool {
    (right.verb, right.group.as_str(), right.resource.as_str()) == ("list", "*", "*")
}

/// `create/get nodes, list pods`.
fn by_resource(missing: &[Right]) -> String {
    let mut verbs: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for right in missing {
        verbs.entry(right.object()).or_default().insert(right.verb);
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
    use crate::doctor::finding::Grade;

    fn right(verb: &'static str, kind: &str) -> Right {
        crate::client::objects::right(verb, &json!({"apiVersion": "apps/v1", "kind": kind}))
    }

    fn said(missing: &[(&'static str, Known<Vec<Right>>)]) -> Vec<String> {
        let found = findings(missing);
        assert!(
            found
                .iter()
                .all(|finding| finding.check == CHECK
                    && [Grade::Warn, Grade::Unknown].contains(&finding.result))
        );
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn missing_permissions_are_named_with_the_command_that_needs_them() {
        let deployments =
            || vec![right("get", "Deployment"), right("create", "Deployment"), right("get", "Lease")];
        let named = "missing permissions: create/get deployments.apps, get leases.apps";
        let what = |command: &str| match command {
            "gather" => String::from("gather does not see everything"),
            command => format!("you may not run {command}"),
        };
        for command in ["start", "install", "gather"] {
            assert_eq!(said(&[(command, Ok(deployments()))]), [format!("{}; {named}", what(command))]);
        }
        let fine = ("status", Ok(Vec::new()));
        assert_eq!(said(&[fine, ("stop", Ok(deployments()))]).len(), 1, "what is in order is not listed");
    }

    #[test]
    fn a_flag_that_needs_no_more_is_not_told_again() {
        let (create, list) = (|| right("create", "Deployment"), || right("list", "Node"));
        let told = said(&[
            ("start", Ok(vec![create()])),
            ("start --wait", Ok(vec![create()])),
            ("start -l", Ok(vec![create(), list()])),
        ]);
        assert_eq!(
            told,
            [
                "you may not run start; missing permissions: create deployments.apps",
                "you may not run start -l; missing permissions: create deployments.apps, list nodes.apps",
            ]
        );
        let untold = || Err(String::from("the server does not answer"));
        assert_eq!(
            said(&[("start", untold()), ("plan", untold())]),
            ["nobody can tell: the server does not answer"]
        );
    }

    #[test]
    fn who_may_not_see_what_others_have_may_uninstall_all_but_the_namespace() {
        let everything = || Right { verb: "list", group: "*".into(), resource: "*".into() };
        let found = findings(&[("uninstall", Ok(vec![everything()]))]);
        assert!(found[0].message.starts_with("uninstall keeps the namespace; missing permissions: list *"));
        assert_eq!(found[0].result, Grade::Warn);
        let more = vec![everything(), right("delete", "Deployment")];
        assert!(said(&[("uninstall", Ok(more))])[0].starts_with("you may not run uninstall; "));
    }

    #[test]
    fn who_may_not_grant_may_install_with_all_that_is_granted() {
        let only = "you may run install only if you have every permission that it grants; missing permissions: \
                    bind/escalate roles.apps";
        assert_eq!(said(&[("install", Ok(vec![right("escalate", "Role"), right("bind", "Role")]))]), [only]);
        let more = vec![right("escalate", "Role"), right("get", "Role")];
        assert!(said(&[("install", Ok(more))])[0].starts_with("you may not run install; "));
    }
}
