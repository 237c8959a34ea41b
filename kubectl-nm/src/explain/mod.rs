//! Why a maintenance makes no progress, and how to fix each cause.

pub(crate) mod explanation;
pub(crate) mod owner;
pub(crate) mod remedy;
