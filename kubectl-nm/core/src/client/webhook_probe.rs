//! Whether nm-reconciler's webhook works, tested by a server-side dry run that creates a maintenance.

use kube::core::Status;
use nm_shared::api::names::PROBE_NODE;
use nm_shared::cluster::admission_webhook::{denied_by, failed_call};
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};

use crate::client::cluster::Cluster;
use crate::error::{Error, is_own_webhook};

/// Result of a [`probe`].
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeResult {
    /// The webhook refused a node that does not exist, as it should.
    Works,
    /// The API server called no webhook, or it admitted a node that does not exist.
    Admitted,
    /// The API server could not call a webhook; its name and the error.
    Failed(String),
    /// Another webhook refused the request; the message of the API server.
    RefusedByOther(String),
}

/// Creates a maintenance for a node that does not exist, by a dry run.
///
/// # Errors
///
/// If the request fails for a reason other than a webhook, such as missing permission.
pub async fn probe(cluster: &Cluster) -> Result<ProbeResult, Error> {
    let spec = NodeMaintenanceSpec { node_name: PROBE_NODE.to_owned(), ..NodeMaintenanceSpec::default() };
    let maintenance = NodeMaintenance::new(PROBE_NODE, spec);
    match cluster.create(&maintenance, true).await {
        Ok(_) => Ok(ProbeResult::Admitted),
        Err(error) => error.status().and_then(result).ok_or(error),
    }
}

fn result(status: &Status) -> Option<ProbeResult> {
    let message = status.message.as_str();
    if let Some((name, why)) = failed_call(message) {
        return Some(ProbeResult::Failed(format!("\"{name}\": {why}")));
    }
    let webhook = denied_by(message)?;
    Some(if is_own_webhook(webhook) {
        ProbeResult::Works
    } else {
        ProbeResult::RefusedByOther(message.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fake_server::{cluster, failure};

    fn refusal(message: &str) -> Status {
        serde_json::from_value(serde_json::json!({"message": message, "code": 403})).unwrap()
    }

    #[test]
    fn a_refusal_shows_whether_the_webhook_was_called() {
        let ours =
            "admission webhook \"validate.nodemaintenance.medik8s.io\" denied the request: invalid nodeName";
        let theirs = "admission webhook \"vnodemaintenance.kb.io\" denied the request: invalid nodeName";
        let silent = "Internal error occurred: failed calling webhook \"validate.nodemaintenance.medik8s.io\": x509: no";
        for (message, expected) in [
            (ours, Some(ProbeResult::Works)),
            (theirs, Some(ProbeResult::RefusedByOther(theirs.into()))),
            (silent, Some(ProbeResult::Failed("\"validate.nodemaintenance.medik8s.io\": x509: no".into()))),
            ("nodemaintenances is forbidden: User \"x\" cannot create resource", None),
        ] {
            assert_eq!(result(&refusal(message)), expected, "{message}");
        }
    }

    #[tokio::test]
    async fn without_permission_the_probe_is_an_error() {
        let (cluster, requests) = cluster(|_, _| failure(403, "Forbidden", "x"));
        assert!(probe(&cluster).await.is_err());
        assert_eq!(requests.lock().unwrap().len(), 1);
    }
}
