//! The checks that `kubectl nm doctor` runs against an installation.

pub(crate) mod finding;
pub(crate) mod health_checks;
pub(crate) mod orphans;
pub(crate) mod permissions;
pub(crate) mod required_permissions;
pub(crate) mod service_account;
