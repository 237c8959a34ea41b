//! A node whose drain waits: for replacements, for work that finishes, and for volumes.

use std::sync::Arc;

use nm_core::client::watch_stream::WatchChange;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use crate::message::Message;
use crate::model::{Model, Options};
use crate::tests::scenes::{ago, node, pod, send, worker_07};

fn with_status(status: &Value) -> NodeMaintenance {
    let mut object = worker_07();
    let mut before = serde_json::to_value(object.status.as_ref().unwrap()).unwrap();
    for (field, value) in status.as_object().into_iter().flatten() {
        before[field] = value.clone();
    }
    object.status = serde_json::from_value(before).unwrap();
    object
}

pub(super) fn waiting_for_pods(options: Options) -> Model {
    let mut model = node(options);
    let pods = [
        pod("web", "front-6c4f9-9zq", "ReplicaSet/front-6c4f9", &json!({})),
        pod("pay", "ledger-5d7-k2", "ReplicaSet/ledger-5d7", &json!({})),
        pod("web", "import-9x", "Job/import", &json!({})),
    ];
    let pods = pods.into_iter().collect();
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(pods) });
    let replacement = json!({"name": "front-79b8d-x4", "node": "worker-11", "ready": false});
    let status = json!({
        "blockedPods": [], "migratingPods": null,
        "surgingPods": [
            {"namespace": "pay", "name": "ledger-5d7-k2", "deployment": "ledger", "since": ago(3)},
            {"namespace": "web", "name": "front-6c4f9-9zq", "deployment": "front", "restarted": true,
                "replacement": replacement, "since": ago(25)},
        ],
        "waitingPods": [{"namespace": "web", "name": "import-9x", "reason": "Completing", "since": ago(200), "until": ago(-1600)}],
        "evictionPods": 17, "drainProgress": 82, "podCounts": {"gone": 14, "surging": 2, "waiting": 1, "staying": 4},
    });
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(with_status(&status)))));
    model
}

pub(super) fn waiting_for_volumes(options: Options) -> Model {
    let mut model = node(options);
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(Vec::new()) });
    let status = json!({
        "blockedPods": [], "migratingPods": null,
        "attachedVolumes": [
            {"attachment": "csi-1", "persistentVolume": "pvc-1", "claim": {"namespace": "shop", "name": "cart-data"}, "driver": "ebs.csi.aws.com",
                "since": ago(90), "error": "rpc error: the volume is still mounted"},
            {"attachment": "csi-2", "driver": "ebs.csi.aws.com", "since": ago(90)},
        ],
        "evictionPods": 14, "drainProgress": 100, "podCounts": {"gone": 14, "staying": 4},
    });
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(with_status(&status)))));
    model
}
