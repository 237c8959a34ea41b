//! Names of namespaces on the command line.
//!
//! A namespace that cannot exist is refused before anything is asked for: it would be noticed halfway through otherwise.

use nm_shared::cluster::node::is_dns_label;

/// Reads a namespace's name, which is a label as RFC 1123 has them. As in kubectl, an empty one is none.
///
/// # Errors
///
/// When no namespace can be called so.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    if text.is_empty() || (text.len() <= 63 && is_dns_label(text)) {
        Ok(text.to_owned())
    } else {
        Err(String::from(
            "a namespace's name consists of at most 63 lower case letters, digits and '-', and neither begins nor ends with '-'",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_would_refuse_is_refused_at_once() {
        for name in ["node-maintenance", "a", "0", "", &"a".repeat(63)] {
            assert_eq!(parse(name).as_deref(), Ok(name));
        }
        for name in ["Foo_x", "Foo", "a_b", "a.b", "-a", "a-", "a b", "ä", "a\n", &"a".repeat(64)] {
            assert!(parse(name).is_err(), "{name:?}");
        }
    }
}
