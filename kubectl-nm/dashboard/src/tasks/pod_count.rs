//! Counts the pods on nodes, for the rows of all nodes that are on the screen.
//!
//! The API has no count of pods by node. A watch on all pods would cost more than everything else together, so each node's
//! pods are listed: as a table, whose rows have a tenth of a pod's size, and from the API server's cache
//! (`resourceVersion=0`), which has an index of pods by node.

use futures::stream::{self, StreamExt};
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_shared::cluster::node::is_valid_name;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc::Sender;

use crate::message::Message;
use crate::objects::watch_state::PodCountError;

const MAX_CONCURRENT: usize = 8;

/// A table without columns, and a list, which a proxy that knows no tables may answer.
#[derive(Deserialize)]
struct TableRows {
    #[serde(default, alias = "items")]
    rows: Vec<IgnoredAny>,
}

/// Counts the pods on these nodes that have not ended, and sends the result.
pub(crate) async fn count(cluster: Cluster, nodes: Vec<String>, to: Sender<Message>) {
    let mut answers = stream::iter(nodes.into_iter().filter(|node| is_valid_name(node)))
        .map(async |node| {
            let count = count_on(&cluster, &node).await;
            (node, count)
        })
        .buffer_unordered(MAX_CONCURRENT);
    let (mut counts, mut error) = (Vec::new(), None);
    while let Some((node, answer)) = answers.next().await {
        match answer {
            Ok(count) => counts.push((node, count)),
            Err(refused) => {
                let is_forbidden = refused.status().is_some_and(kube::core::Status::is_forbidden);
                error = Some(if is_forbidden { PodCountError::Forbidden } else { PodCountError::Failed });
                break;
            }
        }
    }
    // The receiver is gone if the dashboard has ended.
    let _ = to.send(Message::PodCounts { counts, error }).await;
}

async fn count_on(cluster: &Cluster, node: &str) -> Result<usize, Error> {
    let client = cluster.client();
    let path = format!(
        "/api/v1/pods?resourceVersion=0&includeObject=None\
         &fieldSelector=spec.nodeName%3D{node}%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
    );
    let list = async || {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let request = http::Request::get(&path).header(http::header::ACCEPT, accept).body(Vec::new());
        client.request::<TableRows>(request.map_err(kube::Error::HttpError)?).await
    };
    Ok(cluster.request("list pods", list).await?.rows.len())
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;

    async fn counted(
        nodes: &[&str],
        answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (Vec<(String, usize)>, Option<PodCountError>) {
        let (cluster, _) = cluster(answer);
        let (to, mut from) = mpsc::channel(1);
        count(cluster, nodes.iter().map(ToString::to_string).collect(), to).await;
        match from.recv().await {
            Some(Message::PodCounts { counts, error }) => (counts, error),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn the_rows_of_a_table_and_the_items_of_a_list_are_counted() {
        for key in ["rows", "items"] {
            let (counts, error) = counted(&["n1", "a/../b"], move |_, _| {
                (200, json!({"kind": "X", key: [{"cells": []}, {"cells": []}]}))
            })
            .await;
            assert_eq!((counts, error), (vec![("n1".to_owned(), 2)], None));
        }
    }

    #[tokio::test]
    async fn an_error_ends_the_count() {
        let refused = |code: u16, reason: &'static str| move |_: &str, _: &str| failure(code, reason, "pods");
        let forbidden = counted(&["n1", "n2"], refused(403, "Forbidden")).await;
        assert_eq!(forbidden, (vec![], Some(PodCountError::Forbidden)));
        let failed = counted(&["n1", "n2"], refused(500, "InternalError")).await;
        assert_eq!(failed, (vec![], Some(PodCountError::Failed)));
    }
}
