//! The nodes whose pods are recorded although nobody opened them: those in maintenance.

use std::collections::BTreeSet;

use nm_core::maintenance::node;
use nm_shared::NodeMaintenance;
use nm_shared::gate::ownership::age_rank;

/// How many are followed at most: each costs a watch on its pods and two on events.
const MAX_FOLLOWED: usize = 16;

/// The nodes of these maintenances, the named ones first and then those whose maintenance is the oldest.
pub(crate) fn followed<'a>(
    objects: impl Iterator<Item = &'a NodeMaintenance>,
    named: &[String],
) -> BTreeSet<String> {
    let mut objects: Vec<&NodeMaintenance> = objects.collect();
    objects.sort_by_key(|object| age_rank(object));
    let in_maintenance = objects.into_iter().map(node);
    let mut followed = BTreeSet::new();
    for node in named.iter().map(String::as_str).chain(in_maintenance) {
        if followed.len() < MAX_FOLLOWED {
            followed.insert(node.to_owned());
        }
    }
    followed
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::requested;

    use super::*;

    #[test]
    fn named_nodes_and_the_oldest_maintenances_are_followed() {
        let objects: Vec<_> = (0..30).map(|number| requested(&format!("n{number:02}"))).collect();
        let nodes = followed(objects.iter(), &[String::from("zz")]);
        assert_eq!(nodes.len(), MAX_FOLLOWED);
        assert!(nodes.contains("zz") && nodes.contains("n00") && !nodes.contains("n15"), "{nodes:?}");
    }
}
