//! Certificates that somebody else renews: read from a directory, and again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::fs::read_to_string;
use tokio::time::sleep;
use tracing::error;

use crate::webhook::credentials::Credentials;
use crate::webhook::served_certificate::{Complaint, Served};

/// How often the files are looked at. Nothing tells of a change on every kind of volume.
const PERIOD: Duration = Duration::from_secs(2);

/// Serves `tls.crt` and `tls.key` of the directory, for ever.
pub(super) async fn follow(directory: PathBuf, served: Arc<Served>) {
    let mut complaint = Complaint::default();
    let mut last = None;
    loop {
        let texts = async {
            let certificate = text(&directory, "tls.crt").await?;
            Ok::<_, String>((certificate, text(&directory, "tls.key").await?))
        };
        match texts.await {
            Ok(texts) if last.as_ref() == Some(&texts) => {}
            Ok(texts) => match Credentials::read(&texts.0, &texts.1) {
                Ok(credentials) => {
                    complaint.over();
                    served.serve(&credentials);
                    last = Some(texts);
                }
                // Two files do not change at once: the next look may find a pair.
                Err(why) => complain(&mut complaint, &format!("{}: {why}", directory.display())),
            },
            Err(why) => complain(&mut complaint, &why),
        }
        sleep(PERIOD).await;
    }
}

async fn text(directory: &Path, name: &str) -> Result<String, String> {
    let path = directory.join(name);
    read_to_string(&path).await.map_err(|error| format!("{}: {error}", path.display()))
}

fn complain(complaint: &mut Complaint, why: &str) {
    if complaint.is_new(why) {
        error!("the webhook's certificate cannot be read and will be tried again: {why}");
    }
}
