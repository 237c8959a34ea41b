//! The order of the nodes of a roll, and the waves in which they begin.
//!
//! - The zones follow one another, and a wave never has nodes of two zones: what goes wrong takes down one zone at most, and
//!   pods that spread over zones keep the others.
//! - The node with the fewest pods is first, in the pool and in each zone: the zone that has it is the first zone. While
//!   no node is done yet, pods move to nodes where they are drained again. Later, each node that returned to service
//!   has capacity for the pods of the next, and the other nodes are planned, so that the scheduler avoids them. So most
//!   pods move once. After a roll its last node is empty, and the next roll begins with it.
//! - Control-plane nodes and then members of etcd are last and alone: the quorum of etcd allows for one at a time, and what
//!   fails on workers does not reach them.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::iter::from_fn;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Node;
use nm_shared::cluster::node;
use nm_shared::gate::etcd::EtcdRole;
use nm_shared::gate::max_unavailable_queue::{InvalidLimit, MaxUnavailable};

/// A node of the pool that is rolled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolNode {
    /// Name of the node.
    pub name: String,
    /// The value of `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Role of the node in the cluster.
    pub role: NodeRole,
    /// How many pods a drain moves from it.
    pub pods: usize,
}

/// What a node is to the cluster, in the order of a roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeRole {
    /// Neither of the control plane nor a member of etcd.
    Worker,
    /// Of the control plane, and no member of etcd.
    ControlPlane,
    /// A member of etcd, whose quorum allows one such node at a time.
    EtcdMember,
}

impl NodeRole {
    /// The role of a node of a cluster in which etcd's members have this role.
    pub fn of(node: &Node, etcd: EtcdRole) -> Self {
        if etcd.is_member(node) {
            Self::EtcdMember
        } else if node::is_control_plane(node) {
            Self::ControlPlane
        } else {
            Self::Worker
        }
    }
}

/// The nodes that follow one another: workers before the control plane, those without a zone last.
type NodeGroup = (NodeRole, bool, Option<String>);

impl PoolNode {
    fn group(&self) -> NodeGroup {
        (self.role, self.zone.is_none(), self.zone.clone())
    }

    /// `fewest_pods` has, of each group, the number of pods on the node with the fewest.
    fn order(&self, other: &Self, fewest_pods: &HashMap<NodeGroup, usize>) -> Ordering {
        let of_group = |node: &Self| {
            let group = node.group();
            (group.0, group.1, fewest_pods.get(&group).copied())
        };
        let zones = || by_numbers(self.zone.as_deref().unwrap_or(""), other.zone.as_deref().unwrap_or(""));
        (of_group(self).cmp(&of_group(other)))
            .then_with(zones)
            .then_with(|| self.pods.cmp(&other.pods))
            .then_with(|| by_numbers(&self.name, &other.name))
    }

    fn may_share_wave(&self, other: &Self) -> bool {
        self.role == NodeRole::Worker && other.role == NodeRole::Worker && self.zone == other.zone
    }
}

/// The sizes of waves, such as `1,3,10%`. The last one repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveSizes(Vec<MaxUnavailable>);

impl WaveSizes {
    /// How many nodes the wave with this index, from zero, has at most. A percentage is of all `nodes` and is rounded up.
    fn of(&self, wave: usize, nodes: usize) -> usize {
        match self.0.get(wave).or(self.0.last()) {
            Some(MaxUnavailable::Nodes(size)) => *size,
            Some(MaxUnavailable::Percent(percent)) => (nodes * percent).div_ceil(100),
            None => nodes,
        }
    }
}

/// Invalid sizes of waves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{size:?} {reason}; expected sizes such as '1,3,10%'")]
pub struct InvalidWaveSizes {
    size: String,
    reason: InvalidLimit,
}

impl FromStr for WaveSizes {
    type Err = InvalidWaveSizes;

    fn from_str(text: &str) -> Result<Self, InvalidWaveSizes> {
        let parse =
            |size: &str| size.parse().map_err(|reason| InvalidWaveSizes { size: size.to_owned(), reason });
        text.split(',').map(|size| parse(size.trim())).collect::<Result<_, _>>().map(Self)
    }
}

/// The waves of a roll: of these sizes, or one for each zone. At the end of a zone a wave may be smaller than its size, and the
/// next wave has the next size.
pub fn waves(mut nodes: Vec<PoolNode>, sizes: Option<&WaveSizes>) -> Vec<Vec<PoolNode>> {
    let total = nodes.len();
    let mut fewest_pods: HashMap<NodeGroup, usize> = HashMap::new();
    for node in &nodes {
        let fewest = fewest_pods.entry(node.group()).or_insert(node.pods);
        *fewest = node.pods.min(*fewest);
    }
    nodes.sort_by(|a, b| a.order(b, &fewest_pods));
    let mut waves: Vec<Vec<PoolNode>> = Vec::new();
    for node in nodes {
        let current = waves.len().saturating_sub(1);
        let size = sizes.map_or(total, |sizes| sizes.of(current, total));
        match waves.last_mut() {
            Some(wave) if wave.len() < size && wave[0].may_share_wave(&node) => wave.push(node),
            _ => waves.push(vec![node]),
        }
    }
    waves
}

/// The order of names in which `n2` is before `n10`.
fn by_numbers(a: &str, b: &str) -> Ordering {
    name_parts(a).cmp(name_parts(b)).then_with(|| a.cmp(b))
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum NamePart<'a> {
    /// By how many digits follow leading zeros, and those.
    Number(usize, &'a str),
    Text(&'a str),
}

fn name_parts(mut name: &str) -> impl Iterator<Item = NamePart<'_>> {
    from_fn(move || {
        let is_number = name.chars().next()?.is_ascii_digit();
        let end = name.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(name.len());
        let (part, rest) = name.split_at(end);
        name = rest;
        let digits = part.trim_start_matches('0');
        Some(if is_number { NamePart::Number(digits.len(), digits) } else { NamePart::Text(part) })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Nodes such as `n1/a/3`: the name, the zone if there is one, and the number of pods. The name of a control-plane node
    /// begins with `cp`, that of a
    /// member of etcd with `et`.
    fn pool(texts: &str) -> Vec<PoolNode> {
        let nodes = texts.split_whitespace().map(|text| {
            let parts: Vec<&str> = text.split('/').collect();
            PoolNode {
                name: parts[0].to_owned(),
                zone: Some(parts[1].to_owned()).filter(|zone| !zone.is_empty()),
                role: match parts[0] {
                    name if name.starts_with("cp") => NodeRole::ControlPlane,
                    name if name.starts_with("et") => NodeRole::EtcdMember,
                    _ => NodeRole::Worker,
                },
                pods: parts[2].parse().unwrap(),
            }
        });
        nodes.collect()
    }

    fn sizes(text: &str) -> Option<WaveSizes> {
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    fn check(nodes: &str, wave_sizes: &str, expected: &str) {
        let waves = waves(pool(nodes), sizes(wave_sizes).as_ref());
        let names = waves.iter().map(|wave| wave.iter().map(|node| node.name.as_str()).collect::<Vec<_>>());
        assert_eq!(names.map(|wave| wave.join(" ")).collect::<Vec<_>>().join(" | "), expected, "{nodes}");
    }

    #[test]
    fn a_pool_may_have_no_node_or_one() {
        check("", "", "");
        check("", "1,3,10%", "");
        check("n1/a/3", "", "n1");
        check("n1/a/3", "10%", "n1");
        check("cp1//3", "5", "cp1");
    }

    #[test]
    fn zones_follow_one_another_and_nodes_without_a_zone_are_last() {
        check("n1//0 n2/b/0 n3/a/0 n4/b/0 n5//0", "", "n3 | n2 n4 | n1 n5");
        check("n1/z10/0 n2/z2/0", "", "n2 | n1");
    }

    #[test]
    fn the_zone_with_the_emptiest_node_is_first() {
        check("n1/a/4 n2/a/3 n3/b/9 n4/b/1 n5/c/3", "", "n4 n3 | n2 n1 | n5");
        check("n1/a/4 n2//0 n3/b/3", "", "n3 | n1 | n2");
        check("cp1/a/0 n1/a/4 n2/b/3", "", "n2 | n1 | cp1");
    }

    #[test]
    fn in_a_zone_the_fewest_pods_are_first_and_then_numbers_in_names() {
        check("n1/a/9 n2/a/3 n3/a/5", "", "n2 n3 n1");
        check("n10/a/1 n9/a/1 n100/a/1 m-2-10/a/1 m-2-9/a/1", "", "m-2-9 m-2-10 n9 n10 n100");
        check("n1/a/1 n01/a/1 n/a/1 n001-x/a/1", "", "n n01 n1 n001-x");
    }

    #[test]
    fn control_plane_nodes_are_last_and_alone() {
        check("cp2/a/0 cp1/a/0 cp0/b/0 n1/b/5 n2/a/5", "", "n2 | n1 | cp1 | cp2 | cp0");
        check("cp2/a/0 cp1/a/0 n1/a/5", "9", "n1 | cp1 | cp2");
    }

    #[test]
    fn members_of_etcd_are_last_and_alone() {
        check("et2/a/0 et1/a/0 cp1/b/0 n1/b/5 n2/b/5", "9", "n1 n2 | cp1 | et1 | et2");
    }

    #[test]
    fn waves_have_these_sizes_and_the_last_repeats() {
        let nodes = "n1/a/0 n2/a/0 n3/a/0 n4/a/0 n5/a/0 n6/a/0 n7/a/0 n8/a/0";
        check(nodes, "1,3", "n1 | n2 n3 n4 | n5 n6 n7 | n8");
        check(nodes, "1,2,100%", "n1 | n2 n3 | n4 n5 n6 n7 n8");
        check("n1/a/0 n2/a/0 n3/b/0 n4/b/0 n5/b/0 n6/b/0", "1,3,1", "n1 | n2 | n3 | n4 | n5 | n6");
        check("n1/a/0 n2/a/0 n3/b/0 n4/b/0 n5/b/0", "1,3,2", "n1 | n2 | n3 n4 | n5");
    }

    #[test]
    fn percentages_are_of_all_nodes_and_are_rounded_up() {
        for (text, nodes, size) in
            [("1%", 1, 1), ("10%", 10, 1), ("10%", 11, 2), ("50%", 3, 2), ("100%", 7, 7), ("1%", 5000, 50)]
        {
            assert_eq!(sizes(text).unwrap().of(3, nodes), size, "{text} of {nodes}");
        }
    }

    #[test]
    fn sizes_are_numbers_and_percentages() {
        use MaxUnavailable::{Nodes, Percent};
        for (text, read) in [
            ("1,3,10%", vec![Nodes(1), Nodes(3), Percent(10)]),
            (" 1, 2 ", vec![Nodes(1), Nodes(2)]),
            ("100%", vec![Percent(100)]),
        ] {
            assert_eq!(sizes(text), Some(WaveSizes(read)));
        }
        for (text, size) in [
            ("", ""),
            ("0", "0"),
            ("1,,2", ""),
            ("1,0%", "0%"),
            ("101%", "101%"),
            ("-1", "-1"),
            ("1;2", "1;2"),
        ] {
            let refused = text.parse::<WaveSizes>().unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("{size:?} must be")) && refused.contains("'1,3,10%'"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_pool_of_five_thousand_nodes_has_waves_of_ten_percent() {
        let node = |number: usize| PoolNode {
            name: format!("node-{number}"),
            zone: None,
            role: NodeRole::Worker,
            pods: 30,
        };
        let waves = waves((0..5000).rev().map(node).collect(), sizes("1,10%").as_ref());
        let lengths: Vec<usize> = waves.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1, 500, 500, 500, 500, 500, 500, 500, 500, 500, 499]);
        assert!(waves.concat().iter().enumerate().all(|(number, found)| *found == node(number)));
    }

    fn any_role() -> impl Strategy<Value = NodeRole> {
        prop_oneof![
            8 => Just(NodeRole::Worker),
            1 => Just(NodeRole::ControlPlane),
            1 => Just(NodeRole::EtcdMember),
        ]
    }

    fn any_pool() -> impl Strategy<Value = Vec<PoolNode>> {
        let facts = (proptest::option::of(0..4_u8), any_role(), 0..5_usize);
        proptest::collection::vec(facts, 0..60).prop_map(|facts| {
            let node = |(number, (zone, role, pods)): (usize, (Option<u8>, NodeRole, usize))| PoolNode {
                name: format!("n{number}"),
                zone: zone.map(|zone| format!("zone-{zone}")),
                role,
                pods,
            };
            facts.into_iter().enumerate().map(node).collect()
        })
    }

    fn any_sizes() -> impl Strategy<Value = Option<WaveSizes>> {
        let size = prop_oneof![
            (1..9_usize).prop_map(MaxUnavailable::Nodes),
            (1..=100_usize).prop_map(MaxUnavailable::Percent)
        ];
        proptest::option::of(proptest::collection::vec(size, 1..4).prop_map(WaveSizes))
    }

    proptest! {
        #[test]
        fn each_node_is_in_one_wave_and_waves_keep_zones_and_sizes(
            (nodes, shuffled) in any_pool().prop_flat_map(|nodes| (Just(nodes.clone()), Just(nodes).prop_shuffle())),
            sizes in any_sizes(),
        ) {
            let found = waves(nodes.clone(), sizes.as_ref());
            prop_assert_eq!(&found, &waves(shuffled, sizes.as_ref()), "the order of the input does not matter");

            let by_name = |mut nodes: Vec<PoolNode>| {
                nodes.sort_by(|a, b| a.name.cmp(&b.name));
                nodes
            };
            prop_assert_eq!(by_name(found.concat()), by_name(nodes.clone()), "each node is in one wave");
            prop_assert!(found.concat().is_sorted_by_key(|node| node.role));
            for (index, wave) in found.iter().enumerate() {
                let size = sizes.as_ref().map_or(usize::MAX, |sizes| sizes.of(index, nodes.len()));
                prop_assert!((1..=size).contains(&wave.len()));
                prop_assert!(wave.iter().all(|node| node.zone == wave[0].zone));
                prop_assert!(wave.len() == 1 || wave.iter().all(|node| node.role == NodeRole::Worker));
                prop_assert!(wave.is_sorted_by_key(|node| node.pods));
                let is_followed = found.get(index + 1).is_some_and(|next| next[0].may_share_wave(&wave[0]));
                prop_assert!(!is_followed || wave.len() == size, "a wave within a zone is full");
            }
        }

        #[test]
        fn the_order_of_names_is_total(names in proptest::collection::vec("[n0-2-]{0,6}", 3)) {
            let (a, b, c) = (&names[0], &names[1], &names[2]);
            prop_assert_eq!(by_numbers(a, b), by_numbers(b, a).reverse());
            prop_assert_eq!(by_numbers(a, b).is_eq(), a == b);
            prop_assert!(by_numbers(a, b).is_gt() || by_numbers(b, c).is_gt() || by_numbers(a, c).is_le());
        }
    }
}
