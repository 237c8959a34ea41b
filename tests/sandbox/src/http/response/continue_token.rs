//! Continue tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use crate::cluster::store::Key;
use crate::http::decode::json_syntax;
use crate::model::status_error::StatusError;

const FORM: &str = "meta.k8s.io/v1";

/// The position in a list.
#[derive(Debug)]
pub(crate) struct Continue {
    /// The revision of the list.
    pub(crate) revision: u64,
    /// The last object of the previous page.
    pub(crate) after: Key,
}

impl Continue {
    /// The token for this position.
    pub(crate) fn write(&self) -> String {
        let Key { namespace, name } = &self.after;
        let start = if namespace.is_empty() { format!("{name}\0") } else { format!("{namespace}/{name}\0") };
        URL_SAFE_NO_PAD.encode(json!({"v": FORM, "rv": self.revision, "start": start}).to_string())
    }

    /// Parses a token.
    ///
    /// # Errors
    /// 400 for an invalid token.
    pub(crate) fn read(token: &str) -> Result<Self, StatusError> {
        let invalid = |because: &str| {
            StatusError::bad_request(format!("invalid continue token: continue key is not valid: {because}"))
        };
        let json = URL_SAFE_NO_PAD.decode(token).or_else(|error| {
            let foreign = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'-' && byte != b'_';
            match (token.bytes().position(foreign), error) {
                (Some(at), _) => Err(invalid(&format!("illegal base64 data at input byte {at}"))),
                // Trailing bits are ignored.
                (None, base64::DecodeError::InvalidLastSymbol(..)) => Ok(lenient(token)),
                (None, _) => {
                    Err(invalid(&format!("illegal base64 data at input byte {}", token.len() / 4 * 4)))
                }
            }
        })?;
        let token = json_syntax::read(&json).map_err(|error| invalid(&error))?;
        let form = token["v"].as_str().unwrap_or_default();
        if form != FORM {
            return Err(invalid(&format!("server does not recognize this encoded version {form}")));
        }
        let revision = token["rv"].as_u64().unwrap_or_default();
        if revision == 0 {
            return Err(invalid(&format!("incorrect encoded start resourceVersion (version {FORM})")));
        }
        let start = token["start"].as_str().unwrap_or_default().trim_end_matches('\0');
        if start.is_empty() {
            return Err(invalid(&format!("encoded start key empty (version {FORM})")));
        }
        let (namespace, name) = start.split_once('/').unwrap_or(("", start));
        Ok(Self { revision, after: Key::new(namespace, name) })
    }
}

fn lenient(token: &str) -> Vec<u8> {
    use base64::alphabet::URL_SAFE;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    let config = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone);
    GeneralPurpose::new(&URL_SAFE, config).decode(token).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_where_it_was_written() {
        for key in [Key::new("", "n"), Key::new("a", "p")] {
            let token = Continue { revision: 7, after: key.clone() }.write();
            let read = Continue::read(&token).unwrap();
            assert_eq!((read.revision, read.after), (7, key));
        }
    }

    #[test]
    fn an_invalid_continue_token_has_the_servers_error_message() {
        for (token, expected) in [
            ("garbage!!", "illegal base64 data at input byte 7"),
            ("e30", "server does not recognize this encoded version "),
            ("eyJ2IjoieHh4In0", "server does not recognize this encoded version xxx"),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0", "encoded start key empty (version meta.k8s.io/v1)"),
        ] {
            let message = Continue::read(token).unwrap_err().message;
            let because =
                message.strip_prefix("invalid continue token: continue key is not valid: ").unwrap();
            assert_eq!(because, expected, "{token}");
        }
    }
}
