//! A proxy in front of the API server of any cluster, which injects faults.
//!
//! It speaks HTTP/2 and HTTP/1.1 as the API server does, streams watches, logs the requests, and has the faults of the
//! sandbox ([`kube_sandbox::faults`]): delays, failures, lost connections, watches that end. Requests keep their
//! credentials. Upgraded connections, as of `kubectl exec`, do not pass.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use kube_sandbox::faults::Faults;
use kube_sandbox::http::{Api, Body, ConnectionLost, Upstream};
use kube_sandbox::request_log::RequestLog;
use kube_sandbox::server::Server;
use serde_json::{Value, json};

/// Headers that concern one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, HeaderName::from_static("keep-alive")];

/// A proxy on a loopback port. It ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    server: Server,
}

impl FaultProxy {
    /// A proxy without faults in front of the API server of an administrator's kubeconfig.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(kubeconfig: &Path) -> io::Result<Self> {
        let admin = config(kubeconfig).await;
        let mut others = admin.clone();
        others.auth_info = AuthInfo::default();
        let clients = [admin, others].map(|config| Client::try_from(config).unwrap());
        let api = Api::proxy(|proxy_admin_token| {
            let proxy_admin = format!("Bearer {proxy_admin_token}");
            Upstream::new(move |request| {
                let [admin, others] = &clients;
                let is_admin =
                    request.headers().get(header::AUTHORIZATION).is_some_and(|it| *it == *proxy_admin);
                forward(if is_admin { admin.clone() } else { others.clone() }, request)
            })
        });
        Ok(Self { server: Server::serve(api).await? })
    }

    /// What happens to the requests that pass.
    pub fn faults(&self) -> &Faults {
        self.server.api().faults()
    }

    /// The requests that came, also those that the cluster never received.
    pub fn requests(&self) -> &RequestLog {
        self.server.requests()
    }

    /// A kubeconfig of this proxy for the administrator, whatever credentials the cluster asks for.
    pub fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }

    /// A kubeconfig with the server replaced by this proxy. Its user must have a token.
    pub fn kubeconfig_of(&self, kubeconfig: &Path) -> String {
        let mut config: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
        let authority = STANDARD.encode(self.server.authority());
        for cluster in config["clusters"].as_array_mut().unwrap() {
            cluster["cluster"] =
                json!({"server": self.server.url(), "certificate-authority-data": authority});
        }
        config.to_string()
    }
}

async fn config(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // Failures are the client's, and watches may be silent.
    config.default_retry = false;
    config.read_timeout = None;
    config.write_timeout = None;
    config
}

/// Sends a request to the API server by HTTP/1.1, where no request waits for another one of its connection.
async fn forward(client: Client, request: Request<Bytes>) -> Result<Response<Body>, ConnectionLost> {
    let (mut head, body) = request.into_parts();
    head.version = Version::HTTP_11;
    remove_hop_by_hop(&mut head.headers);
    head.headers.remove(header::HOST);
    let answer = client.send(Request::from_parts(head, body.into())).await.map_err(|_| ConnectionLost)?;
    let (mut head, body) = answer.into_parts();
    head.version = Version::default();
    remove_hop_by_hop(&mut head.headers);
    Ok(Response::from_parts(head, body.map_err(|_| ConnectionLost).boxed_unsync()))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}
