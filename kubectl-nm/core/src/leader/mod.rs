//! Whether a reconciler leads, and so works on maintenances.
//!
//! [`gap`] reads it once, [`reads`] again and again, and [`changes`] tells of each change while maintenances need a leader.

pub mod changes;
pub mod gap;
pub mod reads;
mod reconcilers;

pub use reconcilers::{Leadership, Reconcilers};
