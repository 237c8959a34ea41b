//! The proxy between this program and the API server.
//!
//! As in kubectl, that is `proxy-url` from the kubeconfig, or else what Go takes from the environment: `HTTPS_PROXY` or
//! `HTTP_PROXY`, depending on the server's scheme, unless `NO_PROXY` lists the server or it is on this machine. kube's own
//! reading of the environment is not used: it looks for the proxy in `NO_PROXY`, instead of the server.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use crate::connection::error::ConnectionError;

/// The proxy for a server, if there is one. `configured` is the kubeconfig's `proxy-url`; `variable` reads the environment.
pub(super) fn choose(
    configured: Option<&str>,
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, ConnectionError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let either = |name: &str| set(name).or_else(|| set(&name.to_ascii_lowercase()));
    let from_environment = || {
        let is_http = server.scheme_str() == Some("http");
        let proxy = either(if is_http { "HTTP_PROXY" } else { "HTTPS_PROXY" })?;
        (!is_direct(server, &either("NO_PROXY").unwrap_or_default())).then_some(proxy)
    };
    let Some(proxy) = configured.map(str::to_owned).or_else(from_environment) else {
        return Ok(None);
    };
    let with_scheme = if proxy.contains("://") { proxy.clone() } else { format!("http://{proxy}") };
    with_scheme.parse().map(Some).map_err(|source| ConnectionError::Address { address: proxy, source })
}

/// Whether a server is reached without a proxy, by Go's rules (`golang.org/x/net/http/httpproxy`).
fn is_direct(server: &Uri, no_proxy: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let is_loopback = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let port = server.port_u16().unwrap_or(443);
    let no_proxy = no_proxy.to_ascii_lowercase();
    let entries: Vec<&str> =
        no_proxy.split(',').filter_map(|entry| matcher_entry(entry.trim(), &host, port)).collect();
    let matcher = || Matcher::builder().all("http://any-proxy").no(entries.join(",")).build();
    is_loopback || host == "localhost" || entries.contains(&"*") || matcher().intercept(server).is_none()
}

/// An entry of `NO_PROXY` for hyper-util's matcher, which takes domains, addresses and ranges of them, but knows neither
/// ports nor `*.example.com`, and lets `.example.com` include `example.com` itself. `None` if the entry does not apply.
fn matcher_entry<'a>(entry: &'a str, host: &str, port: u16) -> Option<&'a str> {
    let (name, wanted_port) = match entry.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') => (name, digits.parse().ok()),
        _ => (entry, None),
    };
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    let is_only_below = name.strip_prefix('.').is_some_and(|domain| domain == host);
    (wanted_port.is_none_or(|wanted: u16| wanted == port) && !is_only_below)
        .then_some(name.trim_matches(['[', ']']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        configured: Option<&str>,
        server: &'static str,
        environment: &[(&str, &str)],
    ) -> Option<String> {
        let variable = |name: &str| {
            environment.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        };
        choose(configured, &Uri::from_static(server), variable).unwrap().map(|proxy| proxy.to_string())
    }

    #[test]
    fn the_kubeconfig_takes_precedence_over_the_environment() {
        let proxy = Some("http://p:3128/".to_owned());
        let set = [("HTTPS_PROXY", "p:3128")];
        assert_eq!(chosen(None, "https://c.example:6443", &[]), None);
        assert_eq!(chosen(None, "https://c.example:6443", &set), proxy);
        assert_eq!(chosen(None, "https://c.example:6443", &[("https_proxy", "http://p:3128")]), proxy);
        assert_eq!(chosen(None, "http://c.example:8080", &set), None);
        assert_eq!(chosen(None, "http://c.example:8080", &[("HTTP_PROXY", "p:3128")]), proxy);
        assert_eq!(
            chosen(Some("socks5://q:1080"), "https://c.example", &set).as_deref(),
            Some("socks5://q:1080/")
        );
        assert_eq!(chosen(Some("http://p:3128"), "https://127.0.0.1", &[("NO_PROXY", "*")]), proxy);
        let with_password = chosen(None, "https://c.example", &[("HTTPS_PROXY", "http://me:secret@p:3128")]);
        assert_eq!(with_password.as_deref(), Some("http://me:secret@p:3128/"));
    }

    #[test]
    fn this_machine_and_exceptions_are_reached_directly() {
        for (server, exceptions, direct) in [
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
            ("https://c.example", "", false),
            ("https://c.example", "*", true),
            ("https://10.1.2.3:6443", "*", true),
            ("https://c.example", "c.example", true),
            ("https://C.example", "c.EXAMPLE", true),
            ("https://api.c.example", "a, c.example", true),
            ("https://api.c.example", ".c.example", true),
            ("https://api.c.example", "*.c.example", true),
            ("https://c.example", ".c.example", false),
            ("https://c.example", "*.c.example", false),
            ("https://cc.example", "c.example", false),
            ("https://c.example:6443", "c.example:6443", true),
            ("https://c.example:6443", "c.example:443", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "10.0.0.0/8", false),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", true),
            ("https://[fd00::1]:6443", "fd00::/16", true),
            ("https://[fd00::1]:6443", "[fd00::1]", true),
        ] {
            assert_eq!(is_direct(&Uri::from_static(server), exceptions), direct, "{server} {exceptions:?}");
        }
    }

    #[test]
    fn a_proxy_that_is_not_an_address_is_named() {
        let failed =
            choose(Some("http://a b"), &Uri::from_static("https://c.example"), |_| None).unwrap_err();
        assert!(matches!(failed, ConnectionError::Address { address, .. } if address == "http://a b"));
    }
}
