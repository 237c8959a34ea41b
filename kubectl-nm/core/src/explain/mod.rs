//! Why a maintenance makes no progress, and how to fix each cause.

pub mod explanation;
pub mod owner;
pub mod remedy;
pub mod returned_pods;
