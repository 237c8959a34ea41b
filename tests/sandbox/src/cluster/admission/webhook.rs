//! A webhook of a `ValidatingWebhookConfiguration`.

use serde_json::{Value, json};

use crate::cluster::admission::call::Line;
use crate::cluster::admission::match_condition::Condition;
use crate::cluster::admission::review_request::{ReviewRequest, View};
use crate::cluster::admission::rule::WebhookRule;
use crate::model::label_selector::LabelSelector;

/// A webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    /// The name, such as `virt-launcher-eviction-interceptor.kubevirt.io`.
    pub(crate) name: String,
    /// Whether the failure policy is `Fail`.
    pub(crate) fails_closed: bool,
    /// Whether it may be called for dry runs.
    pub(crate) answers_dry_runs: bool,
    /// Its `matchConditions`.
    pub(crate) conditions: Vec<Condition>,
    /// How to call it.
    pub(crate) line: Line,
    rules: Vec<WebhookRule>,
    takes_equivalents: bool,
    /// None if it matches every namespace.
    namespaces: Option<LabelSelector>,
    /// None if it matches every object.
    objects: Option<LabelSelector>,
}

impl Webhook {
    /// Reads an entry of `webhooks`.
    pub(crate) fn parse(webhook: &Value) -> Self {
        let list = |field: &str| webhook[field].as_array().into_iter().flatten();
        let text = |field: &str| webhook[field].as_str().unwrap_or_default();
        Self {
            name: text("name").to_owned(),
            fails_closed: text("failurePolicy") != "Ignore",
            answers_dry_runs: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            conditions: list("matchConditions").map(Condition::parse).collect(),
            line: Line::parse(webhook),
            rules: list("rules").map(WebhookRule::parse).collect(),
            takes_equivalents: text("matchPolicy") != "Exact",
            namespaces: selector(&webhook["namespaceSelector"]),
            objects: selector(&webhook["objectSelector"]),
        }
    }

    /// The view of the request for this webhook; none if it does not match. `namespace` returns the labels of the
    /// request's namespace.
    pub(crate) fn view<'a>(
        &self,
        question: &'a ReviewRequest,
        namespace: impl FnOnce() -> Value,
    ) -> Option<&'a View> {
        let view = self.covered(question)?;
        let has_namespace = question.is_namespaced() || question.is_about_namespaces();
        if has_namespace && self.namespaces.as_ref().is_some_and(|selector| !selector.matches(&namespace())) {
            return None;
        }
        let chosen = |selector: &LabelSelector| {
            let objects = [&view.object, &view.old].into_iter();
            objects
                .filter(|object| object.is_object())
                .any(|object| selector.matches(&object["metadata"]["labels"]))
        };
        self.objects.as_ref().is_none_or(chosen).then_some(view)
    }

    fn covered<'a>(&self, question: &'a ReviewRequest) -> Option<&'a View> {
        let covers = |view: &View| self.rules.iter().any(|rule| rule.covers(question, view));
        if covers(&question.asked) {
            return Some(&question.asked);
        }
        question.equivalents.iter().find(|view| self.takes_equivalents && covers(view))
    }
}

fn selector(selector: &Value) -> Option<LabelSelector> {
    let chooses = selector.as_object().is_some_and(|fields| {
        fields.values().any(|part| *part != json!({}) && *part != json!([]) && !part.is_null())
    });
    chooses.then(|| LabelSelector::parse(selector))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(namespace: &str, labels: &Value) -> ReviewRequest {
        let view = |group: &str, version: &str| View {
            group: group.into(),
            version: version.into(),
            plural: "events".into(),
            kind: json!({}),
            object: json!({"metadata": {"labels": labels}}),
            old: Value::Null,
        };
        ReviewRequest {
            operation: "CREATE",
            subresource: String::new(),
            name: "e".into(),
            namespace: namespace.into(),
            user: json!({}),
            options: json!({}),
            dry_run: false,
            asked: view("", "v1"),
            equivalents: vec![view("events.k8s.io", "v1")],
        }
    }

    /// The group in which the webhook sees a labelled event in a namespace that is labelled `team: a`.
    fn seen(change: &Value) -> Option<String> {
        let mut webhook = json!({"name": "a.b.c", "sideEffects": "None", "rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["events"]}]});
        json_patch::merge(&mut webhook, change);
        let question = question("ns", &json!({"app": "x"}));
        let webhook = Webhook::parse(&webhook);
        webhook.view(&question, || json!({"team": "a"})).map(|view| view.group.clone())
    }

    #[test]
    fn rules_and_selectors_decide_whom_a_request_concerns() {
        let core = Some(String::new());
        let rules = |group: &str, scope: &str| {
            json!([{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": ["*"],
                "scope": scope}])
        };
        let labels = |key: &str, value: &str| json!({"matchLabels": {key: value}});
        for (change, expected) in [
            (json!({}), core.clone()),
            (json!({"rules": rules("*", "Namespaced")}), core.clone()),
            (json!({"rules": rules("*", "Cluster")}), None),
            (json!({"rules": rules("events.k8s.io", "*")}), Some("events.k8s.io".into())),
            (json!({"rules": rules("events.k8s.io", "*"), "matchPolicy": "Exact"}), None),
            (json!({"namespaceSelector": labels("team", "a")}), core.clone()),
            (json!({"namespaceSelector": labels("team", "b")}), None),
            (json!({"namespaceSelector": {}, "objectSelector": {}}), core.clone()),
            (json!({"objectSelector": labels("app", "x")}), core),
            (json!({"objectSelector": labels("app", "y")}), None),
        ] {
            assert_eq!(seen(&change), expected, "{change}");
        }
    }
}
