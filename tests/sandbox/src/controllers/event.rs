//! Events as the parts of a cluster write them: for people, and for nobody's decisions.
//!
//! The scheduler writes the shape of `events.k8s.io`; kubelets and controllers write the older one, in which the same
//! thing said again is one event with a higher count.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::clock::metav1_time;
use crate::model::pod;

/// Who writes an event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Author<'a> {
    /// The scheduler.
    Scheduler,
    /// The kubelet of this node, about this container.
    Kubelet(&'a str, &'a str),
    /// The controller of this name.
    Controller(&'static str),
}

/// What is said of an object.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    /// Who says it.
    pub(crate) author: Author<'a>,
    /// Of whom.
    pub(crate) about: &'a Value,
    /// In one word.
    pub(crate) reason: &'static str,
    /// In a sentence.
    pub(crate) message: String,
}

impl<'a> Event<'a> {
    /// A controller has made a pod.
    pub(crate) fn created(controller: &'static str, owner: &'a Value, pod: &Value) -> Self {
        let message = format!("Created pod: {}", pod::name(pod));
        Self { author: Author::Controller(controller), about: owner, reason: "SuccessfulCreate", message }
    }

    /// The object that it is, under a name that `stamp` makes its own.
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

    /// What makes an event of the older shape the same as an earlier one.
    pub(crate) fn gist(&self) -> String {
        let container = match self.author {
            Author::Kubelet(_, container) => container,
            _ => "",
        };
        [pod::uid(self.about), self.reason, container, &self.message].join("\n")
    }

    /// Whether it is of the shape that counts no repetitions in this way.
    pub(crate) fn is_new_style(&self) -> bool {
        matches!(self.author, Author::Scheduler)
    }
}

/// An event of the older shape is said once more.
pub(crate) fn repeat(event: &mut Value, now: Timestamp) {
    event["count"] = json!(event["count"].as_i64().unwrap_or(1) + 1);
    event["lastTimestamp"] = json!(metav1_time(now));
}
