//! Somebody who asks the API server, and the roles that they have.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube_sandbox::http::Api;
use serde_json::{Value, json};

use crate::admin_client::json_of;

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Somebody with a token, and the headers that they add.
pub(crate) struct Asker<'a> {
    api: &'a Arc<Api>,
    token: String,
    headers: Vec<(&'static str, &'static str)>,
}

impl<'a> Asker<'a> {
    pub(crate) fn user(api: &'a Arc<Api>, name: &str, groups: &[&str]) -> Self {
        Self { api, token: api.add_user(name, groups), headers: Vec::new() }
    }

    pub(crate) fn admin(api: &'a Arc<Api>) -> Self {
        Self { api, token: api.admin_token().to_owned(), headers: Vec::new() }
    }

    pub(crate) fn with_token(api: &'a Arc<Api>, token: &str) -> Self {
        Self { api, token: token.to_owned(), headers: Vec::new() }
    }

    pub(crate) fn and(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let content_type =
            if method == "PATCH" { "application/apply-patch+yaml" } else { "application/json" };
        let mut request = Request::builder().method(method).uri(path).header("content-type", content_type);
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let response = self.api.answer(request.body(body).unwrap()).await;
        let code = response.status().as_u16();
        // A client that may watch is answered at once, and then for as long as it listens.
        if path.contains("watch=1") && code == 200 {
            return (code, Value::Null);
        }
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> u16 {
        self.ask("GET", path, &Value::Null).await.0
    }

    pub(crate) async fn refused(&self, method: &str, path: &str) -> String {
        let (code, answer) = self.ask(method, path, &Value::Null).await;
        assert_eq!(code, 403, "{method} {path}: {answer}");
        answer["message"].as_str().unwrap().to_owned()
    }
}

pub(crate) async fn create(api: &Arc<Api>, path: &str, object: Value) -> Value {
    let made = json_of(api, "POST", path, &object).await;
    assert!(made["metadata"]["uid"].is_string(), "{made}");
    made
}

pub(crate) async fn namespace(api: &Arc<Api>, name: &str) {
    create(api, "/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
}

pub(crate) async fn cluster_role(api: &Arc<Api>, name: &str, rules: Value) {
    create(api, &format!("{RBAC}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules})).await;
}

pub(crate) fn binding(name: &str, role: &str, subjects: &Value) -> Value {
    json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": {"kind": "ClusterRole", "name": role}})
}

pub(crate) async fn bind(api: &Arc<Api>, name: &str, role: &str, subjects: &Value) {
    create(api, &format!("{RBAC}/clusterrolebindings"), binding(name, role, subjects)).await;
}
