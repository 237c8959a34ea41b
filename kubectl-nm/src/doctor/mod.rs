//! The checks that `kubectl nm doctor` runs against an installation.

mod certificate;
pub(crate) mod finding;
pub(crate) mod health_checks;
mod orphans;
mod returned_pods;
pub(crate) mod service_account;
