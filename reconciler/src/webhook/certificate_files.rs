//! Certificates from a directory, which someone else renews: read again when the files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::fs::read_to_string;
use tokio::time::sleep;
use tracing::error;

use crate::runtime::last_failure::LastFailure;
use crate::webhook::credentials::{Credentials, CredentialsError};
use crate::webhook::served_certificate::ServedCertificate;

/// How often the files are read. Not every kind of volume reports changes.
const READ_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
enum CertificateFilesError {
    #[error("{path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{directory}: {source}")]
    Invalid { directory: PathBuf, source: CredentialsError },
}

/// Serves `tls.crt` and `tls.key` of the directory. Never ends.
pub(super) async fn follow(directory: PathBuf, served: Arc<ServedCertificate>) {
    let mut last_failure = LastFailure::default();
    let mut last = None;
    loop {
        match update(&directory, &served, &mut last).await {
            Ok(()) => last_failure.clear(),
            // Two files do not change at once: the next attempt may find a pair.
            Err(failure) => {
                let failure = failure.to_string();
                if last_failure.is_new(&failure) {
                    error!("cannot read the webhook's certificate; retrying: {failure}");
                }
            }
        }
        sleep(READ_INTERVAL).await;
    }
}

/// Serves the files if they differ from `last`.
async fn update(
    directory: &Path,
    served: &ServedCertificate,
    last: &mut Option<(String, String)>,
) -> Result<(), CertificateFilesError> {
    let texts = (read(directory, "tls.crt").await?, read(directory, "tls.key").await?);
    if last.as_ref() == Some(&texts) {
        return Ok(());
    }
    let credentials = Credentials::read(&texts.0, &texts.1)
        .map_err(|source| CertificateFilesError::Invalid { directory: directory.to_owned(), source })?;
    served.serve(&credentials);
    *last = Some(texts);
    Ok(())
}

async fn read(directory: &Path, name: &str) -> Result<String, CertificateFilesError> {
    let path = directory.join(name);
    read_to_string(&path).await.map_err(|source| CertificateFilesError::Unreadable { path, source })
}
