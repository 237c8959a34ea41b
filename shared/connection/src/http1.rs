//! The HTTP/1.1 client, which also speaks to proxies.

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::Body;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tower::util::BoxCloneService;
use tower::{BoxError, Service, ServiceExt};

/// Sends requests to a server.
pub type Http1Client = BoxCloneService<Request<Body>, Response<Incoming>, BoxError>;

/// A client for the server of `config`, through its proxy if it has one.
///
/// # Errors
/// When the name of the server is none, or the kind of the proxy is not supported.
pub fn client(config: &Config, tls: ClientConfig) -> kube::Result<Http1Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let Some(proxy) = intercept(config)? else { return over(config, tls, tcp) };
    let uri = proxy.uri().clone();
    match uri.scheme_str() {
        Some("socks5" | "socks5h") => {
            let socks = SocksV5::new(uri, tcp);
            let socks = match proxy.raw_auth() {
                Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                None => socks,
            };
            over(config, tls, socks)
        }
        Some("https") => {
            let to_proxy = https(None, tls.clone(), tcp);
            over(config, tls, tunnel(&proxy, uri, to_proxy))
        }
        _ => over(config, tls, tunnel(&proxy, uri, tcp)),
    }
}

fn intercept(config: &Config) -> kube::Result<Option<Intercept>> {
    let Some(url) = &config.proxy_url else { return Ok(None) };
    let matcher = Matcher::builder().all(url.to_string()).build();
    let proxy = matcher.intercept(&config.cluster_url);
    match proxy
        .filter(|proxy| matches!(proxy.uri().scheme_str(), Some("http" | "https" | "socks5" | "socks5h")))
    {
        Some(proxy) => Ok(Some(proxy)),
        None => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(url.clone()) }),
    }
}

fn tunnel<C>(proxy: &Intercept, uri: Uri, connector: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(uri, connector);
    match proxy.basic_auth() {
        Some(authorization) => tunnel.with_auth(authorization.clone()),
        None => tunnel,
    }
}

fn over<C>(config: &Config, tls: ClientConfig, connector: C) -> kube::Result<Http1Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: std::error::Error + Send + Sync + 'static,
{
    let name = config.tls_server_name.clone().filter(|name| !name.is_empty());
    let name = name.map(ServerName::try_from).transpose();
    let name = name.map_err(|error| kube::Error::Service(error.into()))?;
    let mut connector = TimeoutConnector::new(https(name, tls, connector));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(connector);
    Ok(client.map_err(BoxError::from).boxed_clone())
}

fn https<C>(name: Option<ServerName<'static>>, tls: ClientConfig, connector: C) -> HttpsConnector<C> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match name {
        Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
        None => builder,
    };
    builder.enable_http1().wrap_connector(connector)
}
