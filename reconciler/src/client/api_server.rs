//! The API server as the configuration names it.

use std::io::IsTerminal;

use kube::Config;
use nm_connection::{Credentials, credentials};

/// The API server, and the credentials that all clients of this process share.
#[derive(Clone)]
pub(crate) struct ApiServer {
    pub(crate) config: Config,
    pub(super) credentials: Credentials,
}

impl ApiServer {
    pub(crate) fn new(config: Config) -> Self {
        let credentials = credentials(&config, None, || std::io::stdin().is_terminal());
        Self { config, credentials }
    }
}
