//! What tests of this crate and of those above it share.

pub mod fake_server;
pub mod objects;
