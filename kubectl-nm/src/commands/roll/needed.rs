//! The nodes of a roll that need it: by an annotation, their kubelet or their kernel.

use std::str::FromStr;

use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::{NodeSelection, check_exist};
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, counted};

/// Which of the selected nodes need the roll: those of which one of these is true. Without any of them, every node does.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NeedFlags {
    /// Roll only the selected nodes with this annotation, such as example.com/reboot-required=true. May be repeated.
    /// With several of --only-if, --older-than-control-plane and --kernel-not, a node is rolled if at least one
    /// applies to it
    #[arg(long, value_name = "KEY[=VALUE]", hide_short_help = true, help_heading = "Nodes that need it")]
    only_if: Vec<Annotation>,

    /// Roll only the selected nodes whose kubelet is older than the API server
    #[arg(long, hide_short_help = true, help_heading = "Nodes that need it")]
    older_than_control_plane: bool,

    /// Roll only the selected nodes whose kernel is not this version, as `kubectl get nodes -o wide` shows it
    #[arg(long, value_name = "VERSION", hide_short_help = true, help_heading = "Nodes that need it")]
    kernel_not: Option<String>,
}

/// An annotation: any value of a key, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Annotation {
    key: String,
    value: Option<String>,
}

impl FromStr for Annotation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
        if key.is_empty() {
            return Err(String::from(
                "an annotation is KEY or KEY=VALUE, such as example.com/reboot-required=true",
            ));
        }
        Ok(Self { key: key.to_owned(), value: value.map(str::to_owned) })
    }
}

impl NeedFlags {
    /// Whether a node needs the roll, if the API server has this version.
    fn apply_to(&self, node: &Node, server: &str) -> bool {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let has = |wanted: &Annotation| {
            let value = node.annotations().get(&wanted.key);
            value.is_some_and(|value| wanted.value.as_ref().is_none_or(|wanted| wanted == value))
        };
        let is_other = |kernel: &String| info.is_some_and(|info| info.kernel_version != *kernel);
        self.only_if.iter().any(has)
            || self.older_than_control_plane
                && info.is_some_and(|info| is_older(&info.kubelet_version, server))
            || self.kernel_not.as_ref().is_some_and(is_other)
    }
}

/// Whether a version such as `v1.35.2+k3s1` is older than another one. Only the three numbers count.
fn is_older(one: &str, other: &str) -> bool {
    numbers(one).zip(numbers(other)).is_some_and(|(one, other)| one < other)
}

fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.trim_start_matches('v').splitn(3, '.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).map_or(part, |end| &part[..end]);
        digits.parse().ok()
    });
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// The names of the nodes that were selected and need the roll, and how many do not.
pub(super) async fn names(
    nodes: &NodeSelection,
    needs: &NeedFlags,
    cluster: &Cluster,
) -> Result<(Vec<String>, usize), Error> {
    let names = nodes.resolve(cluster).await?;
    if !nodes.are_known() {
        check_exist(cluster, &names).await?;
    }
    if *needs == NeedFlags::default() {
        return Ok((names, 0));
    }
    let server = objects::server_version(cluster).await?;
    let all = cluster.list(&Api::<Node>::all(cluster.client()), "nodes", &ListParams::default()).await?;
    let is_needed =
        |name: &String| all.iter().any(|node| node.name_any() == *name && needs.apply_to(node, &server));
    let (needed, others): (Vec<String>, Vec<String>) = names.into_iter().partition(is_needed);
    Ok((needed, others.len()))
}

/// Reports how many nodes do not need the roll. Returns whether none does.
pub(super) fn is_none(names: &[String], others: usize, out: &mut Output) -> bool {
    if others > 0 {
        let text = match names.len() {
            0 => format!("No node needs the roll: nothing to do for {}.", counted(others, "node")),
            1 => format!("1 of {} needs the roll.", counted(1 + others, "node")),
            needed => format!("{needed} of {} need the roll.", counted(needed + others, "node")),
        };
        out.message(&Line::new(text));
    }
    names.is_empty() && others > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(annotations: &serde_json::Value, kubelet: &str, kernel: &str) -> Node {
        let info = json!({"kubeletVersion": kubelet, "kernelVersion": kernel, "architecture": "", "bootID": "",
            "containerRuntimeVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "",
            "osImage": "", "systemUUID": ""});
        let node =
            json!({"metadata": {"name": "n", "annotations": annotations}, "status": {"nodeInfo": info}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_node_needs_a_roll_for_any_of_the_causes() {
        let annotation =
            |text: &str| NeedFlags { only_if: vec![text.parse().unwrap()], ..NeedFlags::default() };
        let marked = node(&json!({"example.com/reboot": "true"}), "v1.35.2+k3s1", "6.12.1");
        assert!(annotation("example.com/reboot").apply_to(&marked, ""));
        assert!(annotation("example.com/reboot=true").apply_to(&marked, ""));
        assert!(!annotation("example.com/reboot=false").apply_to(&marked, ""));
        assert!(!annotation("example.com/other").apply_to(&marked, ""));
        let older = NeedFlags { older_than_control_plane: true, ..NeedFlags::default() };
        for (server, is_older) in
            [("v1.35.2", false), ("v1.35.3-gke.1", true), ("v1.36.0", true), ("v1.34.9", false), ("", false)]
        {
            assert_eq!(older.apply_to(&marked, server), is_older, "{server}");
        }
        let kernel = |version: &str| NeedFlags { kernel_not: Some(version.into()), ..NeedFlags::default() };
        assert!(kernel("6.12.2").apply_to(&marked, "") && !kernel("6.12.1").apply_to(&marked, ""));
        let either = NeedFlags { older_than_control_plane: true, ..kernel("6.12.2") };
        assert!(either.apply_to(&marked, "v1.35.2"));
        assert!(!kernel("6.12.2").apply_to(&Node::default(), ""), "unknown");
    }

    #[test]
    fn an_annotation_has_a_key() {
        assert!("=x".parse::<Annotation>().is_err() && "".parse::<Annotation>().is_err());
    }
}
