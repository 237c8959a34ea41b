//! The checks that `kubectl nm doctor` runs against an installation.

mod certificate;
pub(crate) mod finding;
pub(crate) mod health_checks;
mod orphans;
pub(crate) mod service_account;
