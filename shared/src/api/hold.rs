//! What a maintenance waits for as a whole: hooks, as Cluster API has them, and load balancers.
//!
//! A hook is an annotation of the maintenance, `pre-drain.hook.kubectl-nm.dev/NAME: OWNER` or
//! `pre-return.hook.kubectl-nm.dev/NAME: OWNER`. Whoever sets it does some work, such as moving the primary of a database, and
//! then removes it.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::condition::ConditionReason;
use crate::api::names::{HOOK_DOMAIN, PRE_DRAIN_HOOK, PRE_RETURN_HOOK};

/// How many hooks a status lists at most; all of them are waited for.
pub(crate) const MAX_HOOKS: usize = 10;

/// The length of the owner in a status, in characters.
const MAX_OWNER_LENGTH: usize = 100;

/// What a maintenance waits for before its first eviction or before it returns the node. What is over is written too, or a merge
/// patch would leave it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Since when it waits.
    pub since: Time,
    /// The hooks that are set, sorted by name; at most 10.
    #[schemars(length(max = 10))]
    #[serde(default)]
    pub hooks: Vec<Hook>,
    /// When load balancers have had time to stop using the node (`spec.drain.loadBalancers`).
    pub load_balancers_until: Option<Time>,
}

/// A hook on a maintenance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name: the annotation without its domain.
    pub name: String,
    /// Who has set it and removes it: the value of the annotation, cut to 100 characters.
    #[serde(default)]
    pub owner: String,
}

impl Hook {
    /// The annotation that sets the hook before the first eviction.
    pub fn annotation(&self) -> String {
        format!("{PRE_DRAIN_HOOK}/{}", self.name)
    }

    /// The hooks that a maintenance has before its first eviction.
    pub fn before_eviction(metadata: &ObjectMeta) -> Vec<Self> {
        Self::of(metadata, PRE_DRAIN_HOOK)
    }

    /// The hooks that a maintenance has before it returns its node.
    pub fn before_return(metadata: &ObjectMeta) -> Vec<Self> {
        Self::of(metadata, PRE_RETURN_HOOK)
    }

    fn of(metadata: &ObjectMeta, domain: &str) -> Vec<Self> {
        let annotations = metadata.annotations.iter().flatten();
        let hooks = annotations.filter_map(|(key, owner)| {
            let name = key.strip_prefix(domain)?.strip_prefix('/')?;
            Some(Self { name: name.to_owned(), owner: owner.chars().take(MAX_OWNER_LENGTH).collect() })
        });
        hooks.take(MAX_HOOKS).collect()
    }

    /// A warning about annotations that look like hooks and are none.
    pub fn warning(metadata: &ObjectMeta) -> Option<String> {
        let annotations = metadata.annotations.iter().flatten();
        let wrong = annotations.map(|(key, _)| key).find(|key| {
            let (domain, name) = key.split_once('/').unwrap_or((key, ""));
            let is_hook = [PRE_DRAIN_HOOK, PRE_RETURN_HOOK].contains(&domain) && !name.is_empty();
            domain.ends_with(HOOK_DOMAIN) && !is_hook
        })?;
        Some(format!(
            "annotation {wrong} is not a hook, and nothing waits for it: hooks are {PRE_DRAIN_HOOK}/NAME and \
             {PRE_RETURN_HOOK}/NAME"
        ))
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner.as_str() {
            "" => f.write_str(&self.name),
            owner => write!(f, "{} (owner: {owner})", self.name),
        }
    }
}

impl Hold {
    /// Why the maintenance waits.
    pub fn reason(&self) -> ConditionReason {
        if self.hooks.is_empty() {
            ConditionReason::WaitingForLoadBalancers
        } else {
            ConditionReason::WaitingForHooks
        }
    }
}

/// What it waits for, as the end of "waiting for".
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, hook) in self.hooks.iter().enumerate() {
            f.write_str(match (index, self.hooks.len()) {
                (0, 1) => "hook ",
                (0, _) => "hooks ",
                _ => ", ",
            })?;
            hook.fmt(f)?;
        }
        if let Some(until) = &self.load_balancers_until {
            f.write_str(if self.hooks.is_empty() { "" } else { ", and for " })?;
            write!(f, "load balancers until {}", until.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(annotations: &serde_json::Value) -> ObjectMeta {
        serde_json::from_value(json!({"name": "m", "annotations": annotations})).unwrap()
    }

    #[test]
    fn hooks_are_the_annotations_of_their_domain() {
        let all = metadata(&json!({
            "pre-drain.hook.kubectl-nm.dev/primary": "postgres", "pre-drain.hook.kubectl-nm.dev/cache": "",
            "pre-return.hook.kubectl-nm.dev/heal": "ceph", "kubectl-nm.dev/keep-cordon": "true",
        }));
        let words = |hooks: Vec<Hook>| hooks.iter().map(Hook::to_string).collect::<Vec<_>>();
        assert_eq!(words(Hook::before_eviction(&all)), ["cache", "primary (owner: postgres)"]);
        assert_eq!(words(Hook::before_return(&all)), ["heal (owner: ceph)"]);
        assert_eq!(Hook::warning(&all), None);
        let long = metadata(&json!({"pre-drain.hook.kubectl-nm.dev/a": "x".repeat(5_000)}));
        assert!(Hook::before_eviction(&long)[0].owner.len() <= MAX_OWNER_LENGTH);
    }

    #[test]
    fn an_annotation_that_only_looks_like_a_hook_has_a_warning() {
        for wrong in [
            "pre-drian.hook.kubectl-nm.dev/a",
            "post-drain.hook.kubectl-nm.dev/a",
            "pre-drain.hook.kubectl-nm.dev",
        ] {
            let warning = Hook::warning(&metadata(&json!({wrong: "x"}))).unwrap();
            assert!(warning.starts_with(&format!("annotation {wrong} is not a hook")), "{warning}");
        }
    }

    #[test]
    fn what_is_over_is_written_so_that_a_merge_patch_removes_it() {
        let since = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let hold = Hold { since, hooks: Vec::new(), load_balancers_until: None };
        let written = json!(hold);
        assert_eq!((&written["hooks"], written.get("loadBalancersUntil")), (&json!([]), Some(&json!(null))));
    }

    #[test]
    fn a_hold_says_what_is_waited_for() {
        let at = |text: &str| Time(text.parse().unwrap());
        let since = at("2026-01-01T00:00:00Z");
        let hook = |name: &str, owner: &str| Hook { name: name.to_owned(), owner: owner.to_owned() };
        let until = Some(at("2026-01-01T00:00:30Z"));
        let said = |hooks: Vec<Hook>, load_balancers_until: Option<Time>| {
            Hold { since: since.clone(), hooks, load_balancers_until }.to_string()
        };
        assert_eq!(said(vec![], until.clone()), "load balancers until 2026-01-01T00:00:30Z");
        assert_eq!(said(vec![hook("a", "b")], None), "hook a (owner: b)");
        assert_eq!(
            said(vec![hook("a", "b"), hook("c", "")], until),
            "hooks a (owner: b), c, and for load balancers until 2026-01-01T00:00:30Z"
        );
    }
}
