//! Which nodes need a roll: by an annotation, their kubelet or their kernel.

use std::str::FromStr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

/// What makes a node part of a roll. A node needs the roll if one of these is true of it; without any, every node does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// It has this annotation.
    pub annotations: Vec<Annotation>,
    /// Its kubelet is older than the API server.
    pub older_than_control_plane: bool,
    /// Its kernel has another version.
    pub kernel_not: Option<String>,
}

/// An annotation: any value of a key, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
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

impl Needs {
    /// Whether every node is part of the roll.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a node needs the roll, beside an API server of this version.
    pub fn of(&self, node: &Node, server: &str) -> bool {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let has = |wanted: &Annotation| {
            let value = node.annotations().get(&wanted.key);
            value.is_some_and(|value| wanted.value.as_ref().is_none_or(|wanted| wanted == value))
        };
        self.annotations.iter().any(has)
            || self.older_than_control_plane
                && info.is_some_and(|info| is_older(&info.kubelet_version, server))
            || self
                .kernel_not
                .as_ref()
                .is_some_and(|kernel| info.is_some_and(|info| info.kernel_version != *kernel))
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
        let annotation = |text: &str| Needs { annotations: vec![text.parse().unwrap()], ..Needs::default() };
        let marked = node(&json!({"example.com/reboot": "true"}), "v1.35.2+k3s1", "6.12.1");
        assert!(annotation("example.com/reboot").of(&marked, ""));
        assert!(annotation("example.com/reboot=true").of(&marked, ""));
        assert!(!annotation("example.com/reboot=false").of(&marked, ""));
        assert!(!annotation("example.com/other").of(&marked, ""));
        let older = Needs { older_than_control_plane: true, ..Needs::default() };
        for (server, is_older) in
            [("v1.35.2", false), ("v1.35.3-gke.1", true), ("v1.36.0", true), ("v1.34.9", false), ("", false)]
        {
            assert_eq!(older.of(&marked, server), is_older, "{server}");
        }
        let kernel = |version: &str| Needs { kernel_not: Some(version.into()), ..Needs::default() };
        assert!(kernel("6.12.2").of(&marked, "") && !kernel("6.12.1").of(&marked, ""));
        let either = Needs { older_than_control_plane: true, ..kernel("6.12.2") };
        assert!(either.of(&marked, "v1.35.2"));
        assert!(!kernel("6.12.2").of(&Node::default(), ""), "unknown");
    }

    #[test]
    fn an_annotation_has_a_key() {
        assert!("=x".parse::<Annotation>().is_err() && "".parse::<Annotation>().is_err());
    }
}
