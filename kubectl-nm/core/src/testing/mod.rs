//! What tests of this crate and of those above it share.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test that panics fails")]

pub mod fake_server;
pub mod objects;
