//! Whether a node in service is left for a pod, apart from its requests, and what its template selects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorTerm, Pod};
use nm_shared::cluster::node;
use nm_shared::cluster::node_fit::{self, Unfit};
use nm_shared::cluster::pod_exclusion::HOSTNAME;
use nm_shared::cluster::volumes::Volumes;

use crate::maintenance::node_in_service::{in_service, ready, recovered};

/// The only nodes that a pod fits, or would fit if they were Ready, are in maintenance, or cordoned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoNodeLeft {
    /// The nodes in maintenance that it fits.
    pub in_maintenance: BTreeSet<String>,
    /// Nodes that were cordoned in another way and that it would fit.
    pub cordoned: BTreeSet<String>,
    /// Nodes in maintenance that it would fit if other pods did not keep it from them.
    pub excluded: BTreeSet<String>,
    /// Nodes in maintenance that are not Ready, such as while they reboot, and that it would fit in service. If there are some, all
    /// nodes in maintenance that it fits may be among them.
    pub away: BTreeSet<String>,
    /// Other nodes that are not Ready, and that it would fit if they were.
    pub unready: BTreeSet<String>,
    /// The other nodes on which it could run if they were Ready, or did not have a taint, by that.
    pub others: BTreeMap<Unfit, BTreeSet<String>>,
    /// What selects these nodes and no other; none if other nodes do not suit it for other reasons, or if there are none.
    pub selection: Option<Selection>,
}

/// What selects nodes for a pod: its template, or its volumes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selection {
    /// Its `nodeSelector`.
    NodeSelector(BTreeMap<String, String>),
    /// Its node affinity, with or without a `nodeSelector`.
    NodeAffinity {
        /// Whether it selects nodes by their names.
        names_nodes: bool,
    },
    /// Its volumes, of which these are local and bind it to a node.
    Volumes(Vec<String>),
}

impl NoNodeLeft {
    /// None if a node is left for the pod, or if none would be even without maintenances.
    pub fn of(
        pod: &Pod,
        nodes: &[Node],
        volumes: &Volumes,
        in_maintenance: &BTreeSet<String>,
    ) -> Option<Self> {
        let accessible = volumes.node_selectors(pod);
        let fits = |node: &Node| node_fit::check(pod, &accessible, node).is_ok();
        let is_ours = |node: &&Node| in_maintenance.contains(node::name(node));
        // A pod that tolerates the taints of a maintenance fits such a node, too; but its own is no other one.
        let own = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if nodes.iter().any(|node| own != Some(node::name(node)) && fits(node)) {
            return None;
        }
        let (fitting, others): (Vec<&Node>, Vec<&Node>) =
            nodes.iter().partition(|node| fits(&in_service(node)));
        let why = |node: &Node| node_fit::check(pod, &accessible, node).err();
        let is_barred = |node: &&Node| !matches!(why(&ready(node)), Some(Unfit::NotSelected | Unfit::Volume));
        let (barred, others): (Vec<&Node>, Vec<&Node>) = others.into_iter().partition(is_barred);
        let is_unselected = |node: &&Node| node_fit::check(pod, &[], &ready(node)) == Err(Unfit::NotSelected);
        let selects_them = !others.is_empty() && others.iter().all(is_unselected);
        let (ours, cordoned): (Vec<&Node>, Vec<&Node>) = fitting.into_iter().partition(is_ours);
        let names = |nodes: Vec<&Node>| -> BTreeSet<String> {
            nodes.into_iter().map(|node| node::name(node).to_owned()).collect()
        };
        let (in_maintenance, cordoned) = (names(ours), names(cordoned));
        let selection = if selects_them {
            Selection::of(pod)
        } else {
            Selection::of_volumes(pod, &others, volumes, &accessible)
        };
        let off = barred.iter().copied().filter(|node| !node::is_ready(node));
        let (ours_off, others_off): (Vec<&Node>, Vec<&Node>) = off.partition(is_ours);
        let away = names(ours_off.into_iter().filter(|node| fits(&ready(node))).collect());
        let unready = names(others_off.into_iter().filter(|node| fits(&recovered(node))).collect());
        let mut reasons: BTreeMap<Unfit, BTreeSet<String>> = BTreeMap::new();
        // Those of the control plane are expected to have a taint.
        let is_told = |node: &&Node| selection.is_some() || !node::is_control_plane(node);
        let is_here = |node: &&Node| !away.contains(node::name(node));
        for node in barred.iter().copied().filter(is_told).filter(is_here) {
            if let Some(unfit) = why(&in_service(node)) {
                reasons.entry(unfit).or_default().insert(node::name(node).to_owned());
            }
        }
        let (others, excluded) = (reasons, BTreeSet::new());
        let left = Self { in_maintenance, cordoned, excluded, away, unready, others, selection };
        (!left.returnable().is_empty()).then_some(left)
    }

    /// The nodes that the pod fits once they are back in service: those that are Ready, or if there are none, those that are not.
    pub fn returnable(&self) -> &BTreeSet<String> {
        if self.are_all_off() { &self.away } else { &self.in_maintenance }
    }

    /// Whether no node in maintenance that the pod fits is Ready.
    pub fn are_all_off(&self) -> bool {
        self.in_maintenance.is_empty()
    }

    /// Without nodes that other pods keep the pod from, unless that leaves none: then these pods have to leave first.
    #[must_use]
    pub fn without(self, excluded: &BTreeSet<String>) -> Self {
        let in_maintenance = &self.in_maintenance - excluded;
        if in_maintenance.is_empty() {
            return self;
        }
        let kept_from = &self.in_maintenance & excluded;
        Self { in_maintenance, cordoned: &self.cordoned - excluded, excluded: kept_from, ..self }
    }
}

/// The nodes in maintenance that a pod would fit in service, whatever it requests. Volumes that were not read suit all nodes.
pub fn suitable(
    pod: &Pod,
    nodes: &[Node],
    volumes: &Volumes,
    in_maintenance: &BTreeSet<String>,
) -> BTreeSet<String> {
    let accessible = volumes.node_selectors(pod);
    let ours = nodes.iter().filter(|node| in_maintenance.contains(node::name(node)));
    let suits = ours.filter(|node| node_fit::check(pod, &accessible, &in_service(node)).is_ok());
    suits.map(|node| node::name(node).to_owned()).collect()
}

impl Selection {
    fn of(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
        if let Some(required) = required {
            let names_nodes = required.node_selector_terms.iter().all(names_nodes);
            return Some(Self::NodeAffinity { names_nodes });
        }
        spec.node_selector.clone().filter(|labels| !labels.is_empty()).map(Self::NodeSelector)
    }

    /// The volumes of a pod, if they are local, or if no other node can access them.
    fn of_volumes(
        pod: &Pod,
        others: &[&Node],
        volumes: &Volumes,
        accessible: &[&NodeSelector],
    ) -> Option<Self> {
        let local: Vec<String> = volumes.binding(pod).into_iter().map(str::to_owned).collect();
        let unfit = || others.iter().map(|node| node_fit::check(pod, accessible, &ready(node)));
        let is_out_of_reach = || {
            let is_apart = |unfit| matches!(unfit, Err(Unfit::NotSelected | Unfit::Volume));
            unfit().all(is_apart) && unfit().any(|unfit| unfit == Err(Unfit::Volume))
        };
        let selects = !accessible.is_empty() && (!local.is_empty() || is_out_of_reach());
        selects.then_some(Self::Volumes(local))
    }

    /// Whether no new node is selected, because it has another name.
    pub fn names_nodes(&self) -> bool {
        match self {
            Self::NodeSelector(labels) => labels.contains_key(HOSTNAME),
            Self::NodeAffinity { names_nodes } => *names_nodes,
            Self::Volumes(local) => !local.is_empty(),
        }
    }
}

fn names_nodes(term: &NodeSelectorTerm) -> bool {
    let mut labels = term.match_expressions.iter().flatten();
    term.match_fields.iter().flatten().any(|field| field.operator == "In")
        || labels.any(|label| label.key == HOSTNAME && label.operator == "In")
}
