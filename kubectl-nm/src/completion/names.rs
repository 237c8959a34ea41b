//! Names that may stand on the command line, from the kubeconfig and from the cluster.
//!
//! Somebody holds a key and waits, so a cluster has a second and a half; and whatever goes wrong, there are no names and
//! no words about it, which would stand in the middle of the line.

use std::sync::mpsc;
use std::time::Duration;

use crate::args::node_name::distinct;
use crate::client::cluster::Cluster;
use crate::connection::{self, ConnectionFlags};
use crate::maintenance::node;
use crate::terminal::output::FirstAnswer;

use crate::completion::typed::Typed;

const PATIENCE: Duration = Duration::from_millis(1500);

/// What a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A context of the kubeconfig.
    Context,
    /// A cluster of the kubeconfig.
    Cluster,
    /// A user of the kubeconfig.
    User,
    /// A namespace.
    Namespace,
    /// A node that no maintenance is about.
    NodeAtWork,
    /// A node in maintenance.
    NodeInMaintenance,
}

/// The names of a kind, without those nodes that are named already.
pub(super) fn of(kind: Kind, typed: &Typed) -> Vec<String> {
    let is_node = matches!(kind, Kind::NodeAtWork | Kind::NodeInMaintenance);
    if is_node && typed.are_chosen {
        return Vec::new();
    }
    let connection = typed.connection.clone();
    let mut names = within(PATIENCE, move || look_up(kind, &connection)).unwrap_or_default();
    names.retain(|name| is_plain(name) && !(is_node && typed.nodes.contains(name)));
    names
}

/// What `work` finds, unless that takes too long. It has a thread to itself: looking up the name of a server and
/// running a credential plugin wait without giving way.
fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(patience).ok().flatten()
}

fn look_up(kind: Kind, connection: &ConnectionFlags) -> Option<Vec<String>> {
    match kind {
        Kind::Context => Some(connection::choices(connection).ok()?.contexts),
        Kind::Cluster => Some(connection::choices(connection).ok()?.clusters),
        Kind::User => Some(connection::choices(connection).ok()?.users),
        Kind::Namespace | Kind::NodeAtWork | Kind::NodeInMaintenance => {
            keep_quiet();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let cluster =
                    Cluster::from(connection::connect(connection, &FirstAnswer::default()).await.ok()?);
                in_cluster(kind, &cluster).await
            })
        }
    }
}

async fn in_cluster(kind: Kind, cluster: &Cluster) -> Option<Vec<String>> {
    let in_maintenance = async || {
        let maintenances = cluster.maintenances().await.ok()?;
        Some(distinct(&maintenances.iter().map(|object| node(object).to_owned()).collect::<Vec<_>>()))
    };
    match kind {
        Kind::Namespace => cluster.namespaces().await.ok(),
        Kind::NodeInMaintenance => in_maintenance().await,
        _ => {
            let (nodes, busy) = tokio::join!(cluster.node_names(None), in_maintenance());
            let busy = busy.unwrap_or_default();
            Some(nodes.ok()?.into_iter().filter(|node| !busy.contains(node)).collect())
        }
    }
}

/// Whether a shell takes the name as it is. Nobody is offered a word that would become a command.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+=,%".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

/// Keeps credential plugins from asking and complaining on the line that is being typed.
#[cfg(unix)]
fn keep_quiet() {
    if let Ok(nothing) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

/// Elsewhere descriptors are not to be had without unsafe code.
#[cfg(not(unix))]
fn keep_quiet() {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::cluster::tests::{cluster, failure, list, nodes};
    use crate::maintenance::fixture::named;

    #[tokio::test]
    async fn nodes_are_at_work_or_in_maintenance() {
        let (both, _) = cluster(|_, path| match path.rsplit('/').next() {
            Some("nodes") => nodes(&["n1", "n2", "n3"]),
            Some("nodemaintenances") => list(&[named("a", "n2", "u"), named("b", "n2", "v")]),
            _ => failure(404, "NotFound", "x"),
        });
        assert_eq!(in_cluster(Kind::NodeAtWork, &both).await.unwrap(), ["n1", "n3"]);
        assert_eq!(in_cluster(Kind::NodeInMaintenance, &both).await.unwrap(), ["n2"]);
        assert_eq!(in_cluster(Kind::Namespace, &both).await, None);
    }

    #[tokio::test]
    async fn without_the_right_to_see_maintenances_every_node_may_be_at_work() {
        let (blind, _) = cluster(|_, path| match path.rsplit('/').next() {
            Some("nodes") => nodes(&["n1"]),
            _ => failure(403, "Forbidden", "x"),
        });
        assert_eq!(in_cluster(Kind::NodeAtWork, &blind).await.unwrap(), ["n1"]);
        assert_eq!(in_cluster(Kind::NodeInMaintenance, &blind).await, None);
    }

    #[test]
    fn work_that_never_ends_is_not_waited_for() {
        let (_open, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(1), move || never.recv().ok()), None);
        assert_eq!(within(Duration::MAX, || Some(1)), Some(1));
    }

    #[test]
    fn nothing_is_offered_that_a_shell_would_obey() {
        for plain in ["worker-07.example.com", "arn:aws:eks:eu:1:cluster/a", "jane@example.com", "a_b"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in ["", "-rf", "a b", "$(reboot)", "`x`", "a;b", "*", "a\nb", "\u{1b}[31m", "a'b"] {
            assert!(!is_plain(other), "{other:?}");
        }
    }
}
