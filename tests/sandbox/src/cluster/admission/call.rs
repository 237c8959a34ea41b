//! Calls a webhook: its URL, its timeout, and whether the response is valid.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cluster::admission::connection::{ConnectionPool, Destination, Reply};
use crate::cluster::admission::services::{Backend, Services};

/// The URL and timeout of a webhook.
#[derive(Debug)]
pub(crate) struct Line {
    place: Endpoint,
    wire: ConnectionPool,
    timeout: Duration,
}

#[derive(Debug)]
enum Endpoint {
    Url(String),
    Service { namespace: String, name: String, port: u64, path: String },
}

impl Line {
    /// Reads a webhook's `clientConfig` and `timeoutSeconds`.
    pub(crate) fn parse(webhook: &Value) -> Self {
        let config = &webhook["clientConfig"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = match config["url"].as_str() {
            Some(url) => Endpoint::Url(url.to_owned()),
            None => Endpoint::Service {
                namespace: text(&config["service"]["namespace"]),
                name: text(&config["service"]["name"]),
                port: config["service"]["port"].as_u64().unwrap_or(443),
                path: text(&config["service"]["path"]),
            },
        };
        let timeout = Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10));
        Self { place, wire: ConnectionPool::new(config["caBundle"].as_str().unwrap_or_default()), timeout }
    }

    /// Calls the webhook and returns its response.
    ///
    /// # Errors
    /// Why there is no response.
    pub(crate) async fn ask(&self, services: &Services, request: &Value) -> Result<Value, String> {
        let review =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
        let shown = format!("{}?timeout={}s", self.url(), self.timeout.as_secs());
        let failed = |because: &str| format!("failed to call webhook: Post {shown:?}: {because}");
        let (dial, host) = match &self.place {
            Endpoint::Url(url) => {
                let (host, port) = host_and_port(url);
                (format!("{host}:{port}"), host.trim_matches(['[', ']']).to_owned())
            }
            Endpoint::Service { namespace, name, .. } => match services.find(namespace, name) {
                None => return Err(failed(&format!("service {name:?} not found"))),
                Some(Backend::Reviewer(reviewer)) => {
                    let mut response = reviewer.review(request);
                    response["uid"] = request["uid"].clone();
                    return Ok(json!({"kind": review["kind"], "apiVersion": review["apiVersion"],
                        "response": response}));
                }
                Some(Backend::Address(address)) => (address.to_string(), format!("{name}.{namespace}.svc")),
            },
        };
        let rest = shown.strip_prefix("https://").unwrap_or(&shown);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let target = Destination { dial, host, authority: authority.to_owned(), path };
        let posted = self.wire.post(&target, Bytes::from(review.to_string()));
        match timeout(self.timeout, posted).await {
            Err(_) => Err(failed("context deadline exceeded")),
            Ok(Err(because)) => Err(failed(&because)),
            Ok(Ok(reply)) => read(&reply).map_err(|because| format!("failed to call webhook: {because}")),
        }
    }

    fn url(&self) -> String {
        match &self.place {
            Endpoint::Url(url) => url.clone(),
            Endpoint::Service { namespace, name, port, path } => {
                format!("https://{name}.{namespace}.svc:{port}{path}")
            }
        }
    }
}

/// `127.0.0.1` and `9443` of `https://127.0.0.1:9443/validate`.
fn host_and_port(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, "443"),
    }
}

fn read(reply: &Reply) -> Result<Value, String> {
    let Reply { code, content_type, body } = reply;
    match code {
        200..=299 => {}
        404 => return Err("the server could not find the requested resource".into()),
        500.. => {
            let is_text = content_type.starts_with("text/");
            let text = if is_text { String::from_utf8_lossy(body) } else { "unknown".into() };
            let text = text.trim();
            return Err(format!(
                "an error on the server ({text:?}) has prevented the request from succeeding"
            ));
        }
        _ => {
            return Err(format!(
                "the server responded with the status code {code} but did not return more information"
            ));
        }
    }
    if body.is_empty() {
        return Err(format!("0-length response with status code: {code} and content type: {content_type}"));
    }
    serde_json::from_slice(body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_somewhere() {
        assert_eq!(host_and_port("https://127.0.0.1:9443/validate"), ("127.0.0.1", "9443"));
        assert_eq!(host_and_port("https://hook.example.com?x"), ("hook.example.com", "443"));
        assert_eq!(host_and_port("https://[::1]:1/"), ("[::1]", "1"));
        assert_eq!(host_and_port("https://[::1]/"), ("[::1]", "443"));
    }

    #[test]
    fn what_is_no_answer_is_told_as_such() {
        let said = |code: u16, content_type: &str, body: &'static str| {
            let content_type = content_type.to_owned();
            read(&Reply { code, content_type, body: Bytes::from_static(body.as_bytes()) }).unwrap_err()
        };
        let json = "application/json";
        let on_server = |text: &str| {
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        };
        assert_eq!(said(500, json, "{}"), on_server("unknown"));
        assert_eq!(said(503, "text/plain", "down\n"), on_server("down"));
        assert_eq!(said(404, json, "{}"), "the server could not find the requested resource");
        assert_eq!(
            said(204, json, ""),
            "0-length response with status code: 204 and content type: application/json"
        );
        assert!(said(200, json, "hello").starts_with("couldn't get version/kind; json parse error: "));
    }
}
