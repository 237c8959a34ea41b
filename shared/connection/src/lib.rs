//! How both programs connect to an API server: credentials and certificates as kubectl treats them.
//!
//! kube reads kubeconfigs and service accounts into a [`kube::Config`]. What it does with their credentials and certificates
//! differs from kubectl in places that users meet: credential programs, token files, certificates that Go accepts. That part
//! is here, in two pieces: [`Credentials`], which are renewed while they are used, and [`Authenticated`], the service that
//! sends requests with them. Each program has its own connections below that: [`http1`] is the plugin's.

mod credentials;
pub mod http1;
mod service;
mod tls;

pub use credentials::error::{CredentialError, ProgramError, TokenOrigin};
pub use credentials::{Credentials, Reread};
pub use service::Authenticated;
pub use tls::algorithms::{Algorithm, Role, UnsupportedCertificate};
pub use tls::identity::IdentityError;
pub use tls::unsupported_certificate;

use kube::Config;

/// The credentials of `config`: none for a server whose connections are not encrypted, as in kubectl.
pub fn credentials(config: &Config, reread: Option<Reread>, can_prompt: fn() -> bool) -> Credentials {
    if config.cluster_url.scheme_str() == Some("http") {
        return Credentials::none();
    }
    Credentials::new(config.auth_info.clone(), reread, can_prompt)
}
