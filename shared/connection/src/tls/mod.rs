//! TLS as Go does it for kubectl, on the interfaces of rustls.

pub(crate) mod algorithms;
pub(crate) mod identity;
#[cfg(test)]
pub(crate) mod test_certificates;
mod verifier;

use std::error::Error;
use std::io;
use std::sync::Arc;

use kube::Config;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;

use self::algorithms::UnsupportedCertificate;
use self::identity::Identity;
use self::verifier::ServerVerifier;

/// How the connections to a server are secured, except for the client certificate.
#[derive(Clone)]
pub(crate) struct TlsSettings(Trust);

#[derive(Clone)]
enum Trust {
    Authorities(Arc<ServerVerifier>),
    /// Those of the system, or everything if verification is switched off: kube's own configuration, without a client
    /// certificate.
    Kube(Box<ClientConfig>),
}

impl TlsSettings {
    pub(crate) fn new(config: &Config) -> kube::Result<Self> {
        match &config.root_cert {
            Some(authorities) if !config.accept_invalid_certs => {
                let verifier = ServerVerifier::new(authorities, config.root_cert_file.clone());
                Ok(Self(Trust::Authorities(Arc::new(verifier))))
            }
            _ => {
                let mut anonymous = config.clone();
                anonymous.auth_info = AuthInfo::default();
                if config.accept_invalid_certs {
                    // Not those of the system, which may have none.
                    anonymous.root_cert = Some(Vec::new());
                }
                Ok(Self(Trust::Kube(Box::new(anonymous.rustls_client_config()?))))
            }
        }
    }

    /// The configuration of new connections. Each identity has its own: resumed sessions would have another's.
    pub(crate) fn client_config(&self, identity: Option<Arc<Identity>>) -> kube::Result<ClientConfig> {
        let mut tls = match &self.0 {
            Trust::Kube(tls) => ClientConfig::clone(tls),
            Trust::Authorities(verifier) => {
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let builder = ClientConfig::builder_with_provider(provider);
                let builder = builder
                    .with_safe_default_protocol_versions()
                    .map_err(|error| kube::Error::Service(error.into()))?;
                let verifier: Arc<dyn ServerCertVerifier> = verifier.clone();
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
        };
        if let Some(identity) = identity {
            tls.client_auth_cert_resolver = identity;
        }
        tls.resumption = rustls::client::Resumption::default();
        Ok(tls)
    }
}

/// The certificate that the TLS library does not support, if that is the cause of a failed request.
pub fn unsupported_certificate<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a UnsupportedCertificate> {
    let causes = std::iter::successors(Some(error), |&cause| {
        // I/O errors return theirs from `get_ref` only.
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| cause.source())
    });
    causes.into_iter().find_map(|cause| match cause.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::Other(other)) => other.0.downcast_ref(),
        _ => cause.downcast_ref(),
    })
}
