//! The words of a budget that can never allow an eviction as it is. The end of other maintenances alone changes nothing about that, so
//! the advice is what does: another budget, a surge, another node for the workload, or that its node stays in service.

use crate::explain::cause::{capitalized, continued, sentence};
use crate::explain::cause_wording::{Told, Words};
use crate::explain::no_node_left::{NoNodeLeft, Selection};
use crate::explain::no_node_wording::{more_nodes, repairs};
use crate::explain::unsatisfiable_budget::{Apart, Demand, NeedsReady, NeverAllows, Replaced, SurgeGrant};
use crate::maintenance::ROLL_LABEL;
use crate::maintenance::roll::RollStanding;
use crate::terminal::command_context::{nm_command, shell_quoted};
use crate::terminal::text::{counted, first_names};

/// A change of the budget with which it allows evictions.
struct Change {
    /// `maxUnavailable to 1`.
    setting: String,
    /// The fields of its spec.
    patch: String,
}

impl Change {
    fn of(never: &NeverAllows) -> Self {
        let fewer = never.pods.saturating_sub(1);
        let (setting, patch) = match &never.demand {
            Demand::MinAvailable(_) => {
                (format!("minAvailable to {fewer}"), format!("{{\"minAvailable\":{fewer}}}"))
            }
            Demand::MinAvailablePercent(_) => {
                ("maxUnavailable to 1".into(), "{\"minAvailable\":null,\"maxUnavailable\":1}".into())
            }
            Demand::MaxUnavailable(_) => ("maxUnavailable to 1".into(), "{\"maxUnavailable\":1}".into()),
        };
        Self { setting, patch }
    }
}

impl NeverAllows {
    /// Whether its pods are replaced first without anything that somebody has to do.
    fn is_surged(&self) -> bool {
        let is_granted = self.surge == Some(SurgeGrant::Granted);
        let may_surge = self.needs_ready.is_none() || self.only_surges();
        self.is_surge_set && is_granted && may_surge && self.no_node.is_none()
    }

    /// Whether no number in the budget helps while its pods are not Ready, and their Deployments replace them all the same.
    pub(super) fn only_surges(&self) -> bool {
        self.surge.is_some() && self.needs_ready.is_some_and(|needed| needed.are_silent)
    }
}

impl Words<'_> {
    pub(super) fn never_allows(&self, never: &NeverAllows) -> Told {
        let pods = counted(never.pods, "pod");
        let demand = match &never.demand {
            Demand::MinAvailable(number) => format!("minAvailable is {number}"),
            Demand::MinAvailablePercent(percent) => format!("minAvailable is {percent}"),
            Demand::MaxUnavailable(value) => format!("maxUnavailable is {value}"),
        };
        let what = sentence(&format!("The budget can never allow an eviction: {demand}, and it has {pods}"));
        let what = match &never.no_node {
            Some(left) => {
                format!("{what} A replacement fits on no other node: {}.", self.why_no_node_is_left(left))
            }
            None => what,
        };
        if never.is_surged() {
            let its = if never.pods > 1 { "pods before they leave" } else { "pod before it leaves" };
            let replace = if never.with_one_pod.len() > 1 {
                "its Deployments replace"
            } else {
                "its Deployment replaces"
            };
            let replaced = format!("While the drain goes on, {replace} its {its} (spec.drain.surge).");
            return Told {
                what: Some(format!("{what} {replaced}")),
                advice: String::new(),
                commands: Vec::new(),
                passes: true,
            };
        }
        if let Some(manager) = &never.manager {
            return Told {
                what: Some(format!("The budget allows no eviction as it is: {demand}, and it has {pods}.")),
                advice: format!(
                    "{manager} manages the budget or its pods, and may allow evictions by itself: find out what it waits for \
                     before you change the budget"
                ),
                commands: self.each_budget(|namespace, _| {
                    format!("-n {namespace} describe {}", shell_quoted(&manager.argument()))
                }),
                passes: false,
            };
        }
        if !never.are_pods_seen {
            return Told {
                what: Some(what),
                advice: "Find out whose pods it guards before you change anything".into(),
                commands: self.describe_budgets(),
                passes: false,
            };
        }
        if never.replaced == Replaced::OnSameNode {
            return self.assigned(&what);
        }
        let (advice, commands) = match &never.no_node {
            Some(left) => self.without_a_node(never, left),
            None if !never.with_one_pod.is_empty() => self.only_pods(never),
            None if never.pods > 1 && never.only_surges() => self.all_replaced(never),
            None if never.pods > 1 => self.one_of_several(never),
            None => self.only_pod(never),
        };
        let (what, advice) = match never.needs_ready.filter(|_| !never.only_surges()) {
            Some(NeedsReady { pods: needed, are_starting, .. }) => {
                let of_them = match needed {
                    all if all == never.pods && all > 1 => "all of them are".to_owned(),
                    1 => "1 of them is".to_owned(),
                    several => format!("{several} of them are"),
                };
                let are = if never.pods == 1 { "pod is" } else { "pods are" };
                let first = if are_starting {
                    format!("Wait until its {are} Ready")
                } else {
                    String::from("First make its pods Ready")
                };
                (
                    format!("{what} Even with another number, it allows one only once {of_them} Ready."),
                    format!("{first}. Then {}", continued(&advice)),
                )
            }
            None => (what, advice),
        };
        Told { what: Some(what), advice, commands, passes: false }
    }

    /// As long as their template assigns the pods to the node, their replacements start there too.
    fn assigned(&self, what: &str) -> Told {
        let (returns, pods, assigns) = match self.subjects {
            [_] => ("An evicted pod would return", "the pod", "its pod template assigns it"),
            _ => ("Evicted pods would return", "the pods", "their pod templates assign them"),
        };
        let (keep, stop) = self.keep_own();
        let (advice, edit) = if self.are_all_of_jobs() {
            let fixed = "the template of a Job cannot be changed";
            (format!("{} and keep {pods}: {fixed}", capitalized(&keep)), Vec::new())
        } else {
            let remove = format!(
                "Remove nodeName from the pod template, so that the scheduler chooses a node: if a Deployment or \
                 StatefulSet updates its pods on its own, that moves {pods}, whatever the budget allows"
            );
            (format!("{remove}; or {keep} and keep {pods}"), self.edited_owners())
        };
        Told {
            what: Some(format!("{what} {returns}: {assigns} to this node (nodeName).")),
            advice,
            commands: edit.into_iter().chain([stop]).collect(),
            passes: false,
        }
    }

    /// One pod at a time may be unavailable, or its Deployment replaces it first.
    fn one_of_several(&self, never: &NeverAllows) -> (String, Vec<String>) {
        let (setting, mut commands) = self.changed_budgets(never);
        let mut advice =
            format!("Set {setting}: one of its {} pods at a time may then be unavailable", never.pods);
        advice.push_str(match never.apart {
            Apart::Enough => "",
            Apart::TooFewNodes => {
                ", and may be missing until its node is back in service: there are too few other nodes for all pods"
            }
            Apart::AllTaken => {
                ", and is missing until its node is back in service: pods on the other nodes keep its replacement away"
            }
        });
        if never.replaced == Replaced::Nowhere {
            advice = format!(
                "Set {setting}: one of its {} pods may then leave, and no controller replaces it",
                never.pods
            );
        }
        if let Some(grant) = never.surge {
            advice = format!(
                "{advice}; or let the Deployment replace its pods before they leave, which restarts all of them{}",
                self.surge_terms(never, grant)
            );
            commands.extend(self.surge(never));
        }
        (advice, commands)
    }

    /// Its Deployment replaces pods that nobody may be able to make Ready.
    fn all_replaced(&self, never: &NeverAllows) -> (String, Vec<String>) {
        let terms = never.surge.map(|grant| self.surge_terms(never, grant)).unwrap_or_default();
        let advice = format!(
            "Let the Deployment replace its pods before they leave, which restarts all of them{terms}"
        );
        (advice, self.surge(never))
    }

    /// Of some of several workloads, an eviction leaves no pod.
    fn only_pods(&self, never: &NeverAllows) -> (String, Vec<String>) {
        if let Some(grant) = never.surge {
            let terms = self.surge_terms(never, grant);
            let advice = format!(
                "Let the Deployments replace their pods before they leave, which restarts all of them{terms}"
            );
            return (advice, self.surge(never));
        }
        let names: Vec<String> = never.with_one_pod.iter().map(ToString::to_string).collect();
        let have = if names.len() == 1 { "has only one pod" } else { "have only one pod each" };
        let advice = format!(
            "Agree on a time with the owners of the pods, then set {}: {} {have}, which is unavailable from its eviction until \
             its replacement is Ready",
            Change::of(never).setting,
            first_names(&names)
        );
        (advice, self.edited_budgets())
    }

    fn only_pod(&self, never: &NeverAllows) -> (String, Vec<String>) {
        if let Some(grant) = never.surge {
            let terms = self.surge_terms(never, grant);
            let advice = format!("Let the Deployment replace its only pod before the pod leaves{terms}");
            return (advice, self.surge(never));
        }
        let cost = if never.replaced == Replaced::Nowhere {
            "no controller replaces the only pod after its eviction"
        } else {
            "the only pod is unavailable from its eviction until its replacement is Ready"
        };
        let advice = format!(
            "Agree on a time with the owner of the pod, then set {}: {cost}",
            Change::of(never).setting
        );
        (advice, self.edited_budgets())
    }

    /// Without a node for its replacement, no Deployment can replace the pod first.
    fn without_a_node(&self, never: &NeverAllows, left: &NoNodeLeft) -> (String, Vec<String>) {
        let (setting, patches) = self.changed_budgets(never);
        let is_bound = matches!(&left.selection, Some(Selection::Volumes(local)) if !local.is_empty());
        let cost = if is_bound {
            "until the maintenance is stopped"
        } else {
            "until there is a node for its replacement"
        };
        let (keep, stop) = self.keep_own();
        let stays = if never.pods > 1 {
            format!("{keep} and keep the pods")
        } else {
            format!("{keep} and keep the pod")
        };
        let stop = [stop];
        let (change, commands) = if never.only_surges() {
            (None, Vec::new())
        } else if never.pods > 1 {
            let change = format!(
                "set {setting}: one of its {} pods may then leave, and is unavailable {cost}",
                never.pods
            );
            (Some(change), patches)
        } else {
            let change = format!(
                "agree on a time with the owner of the pod, then set {setting}: the only pod is unavailable from its eviction \
                 {cost}"
            );
            (Some(change), self.edited_budgets())
        };
        let ways = |ways: [Option<String>; 3]| ways.into_iter().flatten().collect::<Vec<_>>().join("; or ");
        let stays = Some(stays);
        if let Some(selection) = &left.selection {
            let selector = match selection {
                Selection::NodeSelector(_) => "nodeSelector",
                Selection::NodeAffinity { .. } => "node affinity",
                Selection::Volumes(local) => {
                    let new_node =
                        local.is_empty().then(|| String::from("add a node that can access its volumes"));
                    let advice = capitalized(&ways([change, new_node, stays]));
                    return (advice, commands.into_iter().chain(stop).collect());
                }
            };
            if self.are_all_of_jobs() {
                let advice = capitalized(&ways([change, stays, None]));
                return (advice, commands.into_iter().chain(stop).collect());
            }
            let edit = self.edited_owners();
            let select = format!(
                "change the {selector} of its workload, so that it selects other nodes too: that replaces its pods, whatever the \
                 budget allows, so agree on a time with their owner"
            );
            let add = (!selection.names_nodes()).then(|| format!("add a node that the {selector} selects"));
            // Without an outage first.
            let surge = never.surge.and_then(|grant| {
                let added: Vec<String> = add.clone().into_iter().chain(repairs(left)).collect();
                self.surge_with_a_node(never, left, &added, grant)
            });
            if let Some((advice, first)) = surge {
                let advice = format!("{advice}. Otherwise, {select}; or {}", ways([stays, change, None]));
                let commands = first.into_iter().chain(edit).chain(stop).chain(commands).collect();
                return (advice, commands);
            }
            let commands = edit.into_iter().chain(commands).chain(stop).collect();
            let advice = capitalized(&format!("{select}; or {}", ways([change, add, stays])));
            return (advice, commands);
        }
        let Some(grant) = never.surge else {
            let advice = capitalized(&ways([change, stays, None]));
            return (advice, commands.into_iter().chain(stop).collect());
        };
        // Without an outage first.
        let (advice, first) =
            self.surge_with_a_node(never, left, &[more_nodes(left)], grant).unwrap_or_default();
        let advice = format!("{advice}. Otherwise, {}", ways([stays, change, None]));
        (advice, first.into_iter().chain(stop).chain(commands).collect())
    }

    /// What provides a node, one that is `added` or one in maintenance, so that the Deployment can replace the pods first; none if
    /// nothing does.
    fn surge_with_a_node(
        &self,
        never: &NeverAllows,
        left: &NoNodeLeft,
        added: &[String],
        grant: SurgeGrant,
    ) -> Option<(String, Vec<String>)> {
        let mut others = left.in_maintenance.clone();
        others.remove(self.node);
        let (add, ways) = (added.join(", "), self.ways_back(&others));
        let one = format!("return {} to service", ways.one_of_stoppable());
        let (node, mut commands) = match (add.is_empty(), others.is_empty()) {
            (true, true) => return None,
            (false, true) => (capitalized(&add), self.uncordon(left)),
            (true, false) => (capitalized(&ways.words(&one, &one)), ways.commands(self)),
            (false, false) => (ways.after(&add, &one, &one), ways.commands_after(self.uncordon(left), self)),
        };
        let pods =
            if never.pods > 1 { "its pods before they leave" } else { "its only pod before the pod leaves" };
        if never.is_surge_set {
            return Some((
                format!("{node}; then the Deployment replaces {pods} (spec.drain.surge)"),
                commands,
            ));
        }
        if !commands.is_empty() {
            commands.extend(self.surge(never));
        }
        let terms = self.surge_terms(never, grant);
        Some((format!("{node}; then let the Deployment replace {pods}{terms}"), commands))
    }

    /// The setting that each budget needs, and the commands that set it.
    fn changed_budgets(&self, never: &NeverAllows) -> (String, Vec<String>) {
        let Change { setting, patch } = Change::of(never);
        let commands = self.each_budget(|namespace, budget| {
            format!("-n {namespace} patch pdb {budget} --type=merge -p '{{\"spec\":{patch}}}'")
        });
        (setting, commands)
    }

    fn edited_budgets(&self) -> Vec<String> {
        self.each_budget(|namespace, budget| format!("-n {namespace} edit pdb {budget}"))
    }

    /// What else a surge does, and what it needs, after an advice.
    fn surge_terms(&self, never: &NeverAllows, grant: SurgeGrant) -> String {
        let also = match self.restarts {
            [] => String::new(),
            others => {
                format!(". The setting is that of the whole drain: it also restarts {}", first_names(others))
            }
        };
        let needs = match grant {
            SurgeGrant::Granted => "",
            SurgeGrant::Missing => "; this needs `kubectl nm install --grant surge` first",
            SurgeGrant::Unknown => {
                "; unless it is granted already, this needs `kubectl nm install --grant surge`"
            }
        };
        let quota = never.full_quota.as_ref();
        let quota = quota.map(|quota| format!("; but {quota}: raise it first")).unwrap_or_default();
        let plan = nm_command("kubectl", &format!("plan {} --surge", shell_quoted(self.node)));
        let roll = self.whole_roll().map(|roll| {
            format!(". A pod may move to a node that roll {roll} drains later: this sets it for all nodes of the roll")
        });
        let roll = roll.unwrap_or_default();
        format!(", if other nodes have room (`{plan}` shows that){quota}{needs}{also}{roll}")
    }

    /// The command that lets Deployments replace pods first in this maintenance, and in the others of its roll: otherwise a pod
    /// that moves to a node of the roll blocks the roll again there. Before it, that which raises a quota.
    fn surge(&self, never: &NeverAllows) -> Vec<String> {
        let kubectl = self.kubectl;
        let raise = never.full_quota.as_ref().map(|quota| {
            let (namespace, name) = (shell_quoted(&quota.namespace), shell_quoted(&quota.name));
            format!("{kubectl} -n {namespace} edit resourcequota {name}")
        });
        let patch = "--type=merge -p '{\"spec\":{\"drain\":{\"surge\":\"WhenBlocked\"}}}'";
        let surge = match self.whole_roll() {
            Some(roll) => {
                let all = format!("{kubectl} get nm -l {ROLL_LABEL}={} -o name", shell_quoted(roll));
                format!("{all} | xargs {kubectl} patch {patch}")
            }
            None => format!("{kubectl} patch nm {} {patch}", shell_quoted(self.maintenance)),
        };
        raise.into_iter().chain([surge]).collect()
    }

    /// The roll of the maintenance, if other nodes of it are still to be drained.
    fn whole_roll(&self) -> Option<&str> {
        let standing = |roll: &str| self.facts.rolls.standing(roll, self.now);
        let is_aborted =
            |roll: &str| matches!(standing(roll), Some(RollStanding::Ending(_) | RollStanding::Over));
        let has_others = |roll: &str| self.facts.undrained.get(roll).is_some_and(|left| *left > 1);
        self.roll.filter(|roll| has_others(roll) && !is_aborted(roll))
    }
}
