//! `auth-provider`, which credential programs replace.
//!
//! kubectl has only `oidc` left. Its `id-token` is used while it is valid. Its refresh token is not: providers accept most
//! refresh tokens once and answer with the next one, which has to be in the kubeconfig before kubectl runs again.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jiff::Timestamp;
use kube::config::AuthProviderConfig;
use serde_json::Value;

use super::error::{CredentialError, TokenOrigin};
use super::header;

/// The header with the provider's token, and when that expires.
pub(super) fn authorization(
    provider: &AuthProviderConfig,
    now: Timestamp,
) -> Result<(HeaderValue, Option<Timestamp>), CredentialError> {
    if provider.name != "oidc" {
        return Err(CredentialError::AuthProvider(provider.name.clone()));
    }
    let token = provider.config.get("id-token").filter(|token| !token.is_empty());
    let token = token.ok_or(CredentialError::IdToken(None))?;
    let expires = expiry(token);
    if expires.is_some_and(|expires| expires <= now) {
        return Err(CredentialError::IdToken(expires));
    }
    Ok((header::bearer(token, TokenOrigin::AuthProvider)?, expires))
}

/// When a JSON Web Token expires.
fn expiry(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str, token: Option<&str>) -> AuthProviderConfig {
        let config = token.map(|token| ("id-token".to_owned(), token.to_owned())).into_iter().collect();
        AuthProviderConfig { name: name.to_owned(), config, ..AuthProviderConfig::default() }
    }

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn an_id_token_is_used_until_it_expires() {
        let now = Timestamp::from_second(1000).unwrap();
        for (claims, expires) in [(r#"{"exp":1001}"#, Some(1001)), ("{}", None), ("no JSON", None)] {
            let token = token(claims);
            let (header, until) = authorization(&provider("oidc", Some(&token)), now).unwrap();
            assert_eq!(header, format!("Bearer {token}"));
            assert_eq!(until.map(Timestamp::as_second), expires);
        }
        let expired = authorization(&provider("oidc", Some(&token(r#"{"exp":1000}"#))), now).unwrap_err();
        assert_eq!(
            expired.to_string(),
            "the id-token of auth-provider \"oidc\" expired at 1970-01-01T00:16:40Z"
        );
        assert!(expired.remedy().contains("kubectl oidc-login"), "{}", expired.remedy());
        assert!(matches!(authorization(&provider("oidc", None), now), Err(CredentialError::IdToken(None))));
    }

    #[test]
    fn providers_that_kubectl_removed_are_refused_with_their_replacement() {
        for (name, replacement) in
            [("gcp", "gke-gcloud-auth-plugin"), ("azure", "kubelogin"), ("openstack", "users[].user.exec")]
        {
            let error = authorization(&provider(name, Some("t")), Timestamp::UNIX_EPOCH).unwrap_err();
            assert_eq!(error.to_string(), format!("the auth-provider \"{name}\" is not supported"));
            assert!(error.remedy().contains(replacement), "{}", error.remedy());
        }
    }
}
