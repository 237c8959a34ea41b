//! Whether the webhook answers, which the API server tells who asks it to check a maintenance and keep nothing.

use kube::core::Status;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};

use crate::client::cluster::Cluster;
use crate::error::Error;

/// A node that no cluster has: names under `invalid` are nobody's (RFC 2606).
const NOBODYS_NODE: &str = "kubectl-nm.invalid";

/// What ends the names of our webhooks.
const OURS: &str = ".nodemaintenance.medik8s.io\"";

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The webhook refused a node that does not exist, as it should.
    Given,
    /// No webhook was asked, or it has nothing against a node that does not exist.
    NotAsked,
    /// It cannot be reached, or nobody believes it.
    Failed(String),
    /// Another webhook refused before ours was heard.
    Anothers(String),
}

/// Asks for a maintenance of a node that does not exist, without one being made.
///
/// # Errors
///
/// When the server cannot be asked, or refuses by itself.
pub(crate) async fn ask(cluster: &Cluster) -> Result<Answer, Error> {
    let spec = NodeMaintenanceSpec { node_name: NOBODYS_NODE.to_owned(), ..NodeMaintenanceSpec::default() };
    let probe = NodeMaintenance::new(NOBODYS_NODE, spec);
    match cluster.create(&probe, true).await {
        Ok(_) => Ok(Answer::NotAsked),
        Err(error) => error.status().and_then(answer).ok_or(error),
    }
}

/// What the API server says of a webhook that it could not ask (its admission,
/// staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors): the webhook's name in quotes, and why.
fn failed_call(said: &str) -> Option<&str> {
    said.split_once("failed calling webhook ").map(|(_, why)| why)
}

/// The webhook that the API server could not ask, as its refusal says, and whether that is ours.
pub(crate) fn that_failed(said: &str) -> Option<(&str, bool)> {
    let quoted = failed_call(said)?.split_inclusive('"').nth(1)?;
    Some((quoted.trim_end_matches('"'), quoted.ends_with(OURS)))
}

/// What the API server's refusal says of the webhook; nothing if it is about something else.
fn answer(status: &Status) -> Option<Answer> {
    let said = status.message.as_str();
    if let Some(why) = failed_call(said) {
        return Some(Answer::Failed(without_path(why)));
    }
    let (_, denied) = said.split_once("admission webhook \"")?;
    let ours = denied.split_inclusive('"').next().is_some_and(|name| name.ends_with(OURS));
    Some(if ours { Answer::Given } else { Answer::Anothers(said.to_owned()) })
}

/// The same without the path at which the webhook is asked: what is said of it ends in bug reports.
fn without_path(why: &str) -> String {
    const PREFIX: &str = "/validate/";
    let Some((before, after)) = why.split_once(PREFIX) else { return why.to_owned() };
    format!("{before}{PREFIX}...{}", after.trim_start_matches(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::cluster::tests::{cluster, failure};

    fn refusal(message: &str) -> Status {
        serde_json::from_value(serde_json::json!({"message": message, "code": 403})).unwrap()
    }

    #[test]
    fn a_refusal_tells_whether_the_webhook_was_heard() {
        let ours =
            "admission webhook \"validate.nodemaintenance.medik8s.io\" denied the request: invalid nodeName";
        let theirs = "admission webhook \"vnodemaintenance.kb.io\" denied the request: invalid nodeName";
        let silent = "Internal error occurred: failed calling webhook \"validate.nodemaintenance.medik8s.io\": x509: no";
        for (said, expected) in [
            (ours, Some(Answer::Given)),
            (theirs, Some(Answer::Anothers(theirs.into()))),
            (silent, Some(Answer::Failed("\"validate.nodemaintenance.medik8s.io\": x509: no".into()))),
            ("nodemaintenances is forbidden: User \"x\" cannot create resource", None),
        ] {
            assert_eq!(answer(&refusal(said)), expected, "{said}");
        }
    }

    #[test]
    fn the_path_at_which_the_webhook_is_asked_is_not_told() {
        let why = |path: &str| format!("Post \"https://nm.svc:443{path}?timeout=10s\": connection refused");
        assert_eq!(without_path(&why("/validate/0123abcd")), why("/validate/..."));
        assert_eq!(without_path(&why("/validate")), why("/validate"));
    }

    #[tokio::test]
    async fn who_may_not_ask_learns_nothing() {
        let (cluster, requests) = cluster(|_, _| failure(403, "Forbidden", "x"));
        assert!(ask(&cluster).await.is_err());
        assert_eq!(requests.lock().unwrap().len(), 1);
    }
}
