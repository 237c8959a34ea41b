//! Events that kubelets, the scheduler and controllers write.
//!
//! The scheduler writes `events.k8s.io` events. Kubelets and controllers write core events, in which a repetition
//! increments the count.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::clock::metav1_time;
use crate::model::pod;

/// The component that writes an event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Author<'a> {
    /// The scheduler.
    Scheduler,
    /// The kubelet of this node, about this container.
    Kubelet(&'a str, &'a str),
    /// The kubelet of this node, about the node. It is a warning.
    NodeKubelet(&'a str),
    /// The controller with this name.
    Controller(&'static str),
}

/// An event about an object.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    /// The component that writes it.
    pub(crate) author: Author<'a>,
    /// The object that it is about.
    pub(crate) about: &'a Value,
    /// Its `reason`.
    pub(crate) reason: &'static str,
    /// Its `message`.
    pub(crate) message: String,
}

impl<'a> Event<'a> {
    /// A controller has created a pod.
    pub(crate) fn created(controller: &'static str, owner: &'a Value, pod: &Value) -> Self {
        let message = format!("Created pod: {}", pod::name(pod));
        Self { author: Author::Controller(controller), about: owner, reason: "SuccessfulCreate", message }
    }

    /// The object, with a name made unique by `stamp`.
    pub(crate) fn object(&self, stamp: i128, now: Timestamp) -> Value {
        let metadata = &self.about["metadata"];
        let mut object = json!({
            "metadata": {
                "namespace": metadata["namespace"],
                "name": format!("{}.{stamp:x}", pod::name(self.about)),
            },
            "involvedObject": {
                "apiVersion": self.about["apiVersion"], "kind": self.about["kind"], "name": metadata["name"],
                "namespace": metadata["namespace"], "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": self.reason, "message": self.message, "type": "Normal", "source": {},
            "eventTime": null, "firstTimestamp": null, "lastTimestamp": null,
        });
        let (component, instance) = match self.author {
            Author::Scheduler => {
                object["action"] = json!("Binding");
                object["eventTime"] = json!(now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string());
                ("default-scheduler", "default-scheduler-sandbox")
            }
            Author::Kubelet(node, container) => {
                object["involvedObject"]["fieldPath"] = json!(format!("spec.containers{{{container}}}"));
                object["source"] = json!({"component": "kubelet", "host": node});
                ("kubelet", node)
            }
            Author::NodeKubelet(node) => {
                object["metadata"]["namespace"] = json!("default");
                object["type"] = json!("Warning");
                object["source"] = json!({"component": "kubelet", "host": node});
                ("kubelet", node)
            }
            Author::Controller(name) => {
                object["source"] = json!({"component": name});
                (name, "")
            }
        };
        object["reportingComponent"] = json!(component);
        object["reportingInstance"] = json!(instance);
        if !self.is_new_style() {
            object["count"] = json!(1);
            object["firstTimestamp"] = json!(metav1_time(now));
            object["lastTimestamp"] = json!(metav1_time(now));
        }
        object
    }

    /// The key by which a core event is a repetition of an earlier one.
    pub(crate) fn gist(&self) -> String {
        let container = match self.author {
            Author::Kubelet(_, container) => container,
            _ => "",
        };
        [pod::uid(self.about), self.reason, container, &self.message].join("\n")
    }

    /// Whether it is an `events.k8s.io` event, which is not counted this way.
    pub(crate) fn is_new_style(&self) -> bool {
        matches!(self.author, Author::Scheduler)
    }
}

/// Increments the count of a core event.
pub(crate) fn repeat(event: &mut Value, now: Timestamp) {
    event["count"] = json!(event["count"].as_i64().unwrap_or(1) + 1);
    event["lastTimestamp"] = json!(metav1_time(now));
}
