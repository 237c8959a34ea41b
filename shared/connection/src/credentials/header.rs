//! The `Authorization` header of requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use super::error::{CredentialError, TokenOrigin};

pub(super) fn bearer(token: &str, origin: TokenOrigin) -> Result<HeaderValue, CredentialError> {
    sensitive(&format!("Bearer {token}"), origin)
}

pub(super) fn basic(user: &str, password: &str) -> Result<HeaderValue, CredentialError> {
    sensitive(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))), TokenOrigin::Password)
}

/// A value that no log shows.
fn sensitive(value: &str, origin: TokenOrigin) -> Result<HeaderValue, CredentialError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| CredentialError::Header(origin))?;
    value.set_sensitive(true);
    Ok(value)
}
