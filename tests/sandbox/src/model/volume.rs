//! Claims, persistent volumes and attachments.

use std::fmt::Write;

use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::model::pod;

/// The annotation on a persistent volume: how long its driver takes to detach it, such as `5s`, or [`NEVER`].
pub const DETACH_DELAY: &str = "kube-sandbox.dev/detach-delay";
/// The annotation on a persistent volume: its driver fails to detach it, with this error, until it is removed.
pub const DETACH_ERROR: &str = "kube-sandbox.dev/detach-error";
/// The value of [`DETACH_DELAY`] for a volume that is not detached while it has the annotation.
pub const NEVER: &str = "never";

/// The names of the claims of a pod.
pub(crate) fn claims(pod: &Value) -> impl Iterator<Item = String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
        let generated = || {
            let name = volume["name"].as_str().filter(|_| volume["ephemeral"].is_object())?;
            Some(format!("{}-{name}", pod::name(pod)))
        };
        claim.or_else(generated)
    })
}

/// The name of the attachment of a CSI volume to a node; none for a volume that is not attached.
/// Source: kubernetes/kubernetes `pkg/volume/csi/csi_attacher.go`, `getAttachmentName`.
pub(crate) fn attachment_name(volume: &Value, node: &str) -> Option<String> {
    let csi = &volume["spec"]["csi"];
    let text = format!("{}{}{node}", csi["volumeHandle"].as_str()?, csi["driver"].as_str()?);
    let hash = digest(&SHA256, text.as_bytes());
    let mut name = String::from("csi-");
    for byte in hash.as_ref() {
        let _ = write!(name, "{byte:02x}");
    }
    Some(name)
}

/// The access modes as kubectl prints them.
pub(crate) fn access_modes(modes: &Value) -> String {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO".to_owned(),
        "ReadOnlyMany" => "ROX".to_owned(),
        "ReadWriteMany" => "RWX".to_owned(),
        "ReadWriteOncePod" => "RWOP".to_owned(),
        other => other.to_owned(),
    };
    let modes = modes.as_array().into_iter().flatten().filter_map(Value::as_str);
    modes.map(short).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attachment_has_the_name_that_the_real_controller_gives_it() {
        let volume = json!({"spec": {"csi": {"driver": "d20.example.com", "volumeHandle": "h1"}}});
        let recorded = "csi-55a62c9e726f7b62bc51df9b7642c3149a29dd926fbf9e239402aa79b042418e";
        assert_eq!(attachment_name(&volume, "d20-node").as_deref(), Some(recorded));
        assert_eq!(attachment_name(&json!({"spec": {"hostPath": {"path": "/"}}}), "n"), None);
    }

    #[test]
    fn the_claims_of_a_pod_are_those_it_names_and_those_created_for_it() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "emptyDir": {}},
            {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}}]}});
        assert_eq!(claims(&pod).collect::<Vec<_>>(), ["data", "p-c"]);
    }
}
