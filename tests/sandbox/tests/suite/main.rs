//! Tests of the sandbox through its public API: one binary, since linking each takes seconds.

#![expect(clippy::unwrap_used, reason = "a test fails where its data cannot be read")]

mod admin_client;
mod api;
mod faults;
mod http2;
mod transcripts;
mod user_client;
