//! Names for shell completion, from the kubeconfig and from the cluster.
//!
//! The user waits, so a cluster has 1.5 seconds to respond. On errors there are no names and no messages, because a message
//! would appear in the middle of the line.

use std::sync::mpsc;
use std::time::Duration;

use nm_core::args::names::distinct;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::connection::{self, ConnectionFlags};
use nm_core::maintenance::node;

use crate::completion::partial_line::PartialLine;

const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Context,
    Cluster,
    User,
    Namespace,
    NodeInService,
    NodeInMaintenance,
}

/// The names of a kind, without nodes that the line contains already.
pub(super) fn find(kind: NameKind, line: &PartialLine) -> Vec<String> {
    let is_node = matches!(kind, NameKind::NodeInService | NameKind::NodeInMaintenance);
    if is_node && line.has_node_selector {
        return Vec::new();
    }
    let connection = line.connection.clone();
    let mut names = within(LOOKUP_TIMEOUT, move || look_up(kind, &connection)).unwrap_or_default();
    names.retain(|name| is_plain(name) && !(is_node && line.nodes.contains(name)));
    names
}

/// The result of `work`, unless it takes too long. It runs in a thread of its own, because DNS lookups and credential
/// plugins block.
fn within<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(timeout).ok().flatten()
}

fn look_up(kind: NameKind, connection: &ConnectionFlags) -> Option<Vec<String>> {
    let kubeconfig = || connection::kubeconfig(connection).ok();
    match kind {
        NameKind::Context => Some(kubeconfig()?.contexts.into_iter().map(|named| named.name).collect()),
        NameKind::Cluster => Some(kubeconfig()?.clusters.into_iter().map(|named| named.name).collect()),
        NameKind::User => Some(kubeconfig()?.auth_infos.into_iter().map(|named| named.name).collect()),
        NameKind::Namespace | NameKind::NodeInService | NameKind::NodeInMaintenance => {
            silence_standard_streams();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let cluster = Cluster::from(connection::connect(connection).await.ok()?);
                in_cluster(kind, &cluster).await
            })
        }
    }
}

async fn in_cluster(kind: NameKind, cluster: &Cluster) -> Option<Vec<String>> {
    let in_maintenance = async || {
        let (maintenances, _) = Box::pin(all_groups::shown(cluster)).await.ok()?;
        Some(distinct(&maintenances.iter().map(|object| node(object).to_owned()).collect::<Vec<_>>()))
    };
    match kind {
        NameKind::Namespace => cluster.namespaces().await.ok(),
        NameKind::NodeInMaintenance => in_maintenance().await,
        _ => {
            let (nodes, others) = tokio::join!(cluster.node_names(None), in_maintenance());
            let others = others.unwrap_or_default();
            Some(nodes.ok()?.into_iter().filter(|node| !others.contains(node)).collect())
        }
    }
}

/// Whether a shell takes the name literally. Names that a shell would interpret are not offered.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+=,%".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

/// Prevents credential plugins from prompting and printing on the command line.
#[cfg(unix)]
fn silence_standard_streams() {
    if let Ok(nothing) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

/// On other systems this would need unsafe code.
#[cfg(not(unix))]
fn silence_standard_streams() {}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure, list, nodes};
    use nm_core::testing::objects::named;

    use super::*;

    #[tokio::test]
    async fn nodes_are_in_service_or_in_maintenance() {
        let (both, _) = cluster(|_, path| match path.rsplit('/').next() {
            Some("nodes") => nodes(&["n1", "n2", "n3"]),
            Some("nodemaintenances") => list(&[named("a", "n2", "u"), named("b", "n2", "v")]),
            _ => failure(404, "NotFound", "x"),
        });
        assert_eq!(in_cluster(NameKind::NodeInService, &both).await.unwrap(), ["n1", "n3"]);
        assert_eq!(in_cluster(NameKind::NodeInMaintenance, &both).await.unwrap(), ["n2"]);
        assert_eq!(in_cluster(NameKind::Namespace, &both).await, None);
    }

    #[tokio::test]
    async fn without_permission_to_list_maintenances_every_node_is_offered() {
        let (blind, _) = cluster(|_, path| match path.rsplit('/').next() {
            Some("nodes") => nodes(&["n1"]),
            _ => failure(403, "Forbidden", "x"),
        });
        assert_eq!(in_cluster(NameKind::NodeInService, &blind).await.unwrap(), ["n1"]);
        assert_eq!(in_cluster(NameKind::NodeInMaintenance, &blind).await, None);
    }

    #[test]
    fn lookups_time_out() {
        let (_open, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(1), move || never.recv().ok()), None);
        assert_eq!(within(Duration::MAX, || Some(1)), Some(1));
    }

    #[test]
    fn names_that_a_shell_would_interpret_are_not_plain() {
        for plain in ["worker-07.example.com", "arn:aws:eks:eu:1:cluster/a", "jane@example.com", "a_b"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in ["", "-rf", "a b", "$(reboot)", "`x`", "a;b", "*", "a\nb", "\u{1b}[31m", "a'b"] {
            assert!(!is_plain(other), "{other:?}");
        }
    }
}
