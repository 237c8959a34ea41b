//! Which proxy stands between us and the API server.
//!
//! kubectl takes `proxy-url` from the kubeconfig, else what Go takes from the environment: `HTTPS_PROXY` or
//! `HTTP_PROXY` by the scheme of the server, unless `NO_PROXY` lists the server or it is this very machine.

use std::net::IpAddr;

use http::Uri;

/// The proxy for a server, if there is one. `configured` is the kubeconfig's `proxy-url`, `variable` reads the
/// environment.
///
/// # Errors
///
/// With the address that cannot be parsed.
pub(super) fn choose(
    configured: Option<&str>,
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, (String, http::uri::InvalidUri)> {
    let either = |upper: &str, lower: &str| {
        variable(upper)
            .filter(|set| !set.is_empty())
            .or_else(|| variable(lower).filter(|set| !set.is_empty()))
    };
    let from_environment = || {
        let proxy = if server.scheme_str() == Some("http") {
            either("HTTP_PROXY", "http_proxy")?
        } else {
            either("HTTPS_PROXY", "https_proxy")?
        };
        let exceptions = either("NO_PROXY", "no_proxy").unwrap_or_default();
        (!is_direct(server, &exceptions)).then_some(proxy)
    };
    let Some(proxy) = configured.map(str::to_owned).or_else(from_environment) else {
        return Ok(None);
    };
    let with_scheme = if proxy.contains("://") { proxy.clone() } else { format!("http://{proxy}") };
    with_scheme.parse().map(Some).map_err(|source| (proxy, source))
}

/// Whether a server is reached without a proxy.
fn is_direct(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    host == "localhost"
        || address.is_some_and(|address| address.is_loopback())
        || exceptions.split(',').map(str::trim).any(|exception| {
            let exception = exception.to_ascii_lowercase();
            match (exception.as_str(), address) {
                ("", _) => false,
                ("*", _) => true,
                (range, Some(address)) if range.contains('/') => is_in_range(address, range),
                (listed, _) => is_listed(&host, server.port_u16().unwrap_or(443), listed),
            }
        })
}

/// Whether `host` is what `listed` names, or below it: `example.com`, `.example.com`, `*.example.com`, `host:6443`.
fn is_listed(host: &str, port: u16, listed: &str) -> bool {
    let (listed, wanted_port) = match listed.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') => (name, digits.parse().ok()),
        _ => (listed, None),
    };
    let listed = listed.trim_start_matches('*').trim_matches(['[', ']']);
    let (below, exactly) = match listed.strip_prefix('.') {
        Some(domain) => (domain, false),
        None => (listed, true),
    };
    let is_below = host.strip_suffix(below).is_some_and(|front| front.ends_with('.'));
    wanted_port.is_none_or(|wanted: u16| wanted == port) && (is_below || (exactly && host == below))
}

/// Whether an address is in a range such as `10.0.0.0/8`.
fn is_in_range(address: IpAddr, range: &str) -> bool {
    let Some((network, length)) = range.split_once('/') else { return false };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    let shared = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    shared >= length
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
    fn the_kubeconfig_decides_then_the_environment() {
        let proxy = Some("http://p:3128/".to_owned());
        let set = [("HTTPS_PROXY", "p:3128")];
        assert_eq!(chosen(None, "https://c.example:6443", &[]), None);
        assert_eq!(chosen(None, "https://c.example:6443", &set), proxy);
        assert_eq!(chosen(None, "https://c.example:6443", &[("https_proxy", "http://p:3128")]), proxy);
        assert_eq!(chosen(None, "http://c.example:8080", &set), None);
        assert_eq!(
            chosen(Some("socks5://q:1080"), "https://c.example", &set).as_deref(),
            Some("socks5://q:1080/")
        );
        assert_eq!(chosen(Some("http://p:3128"), "https://127.0.0.1", &[("NO_PROXY", "*")]), proxy);
    }

    #[test]
    fn this_machine_and_exceptions_are_reached_directly() {
        for (server, exceptions, direct) in [
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
            ("https://c.example", "", false),
            ("https://c.example", "*", true),
            ("https://c.example", "c.example", true),
            ("https://api.c.example", "a, c.example", true),
            ("https://api.c.example", ".c.example", true),
            ("https://api.c.example", "*.c.example", true),
            ("https://c.example", ".c.example", false),
            ("https://cc.example", "c.example", false),
            ("https://c.example:6443", "c.example:6443", true),
            ("https://c.example:6443", "c.example:443", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "10.0.0.0/8", false),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://[fd00::1]:6443", "fd00::/16", true),
        ] {
            assert_eq!(is_direct(&Uri::from_static(server), exceptions), direct, "{server} {exceptions:?}");
        }
    }

    #[test]
    fn a_proxy_that_is_no_address_is_named() {
        let failed = choose(Some("http://a b"), &Uri::from_static("https://c.example"), |_| None);
        assert_eq!(failed.unwrap_err().0, "http://a b");
    }
}
