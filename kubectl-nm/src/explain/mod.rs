//! Why a maintenance makes no progress, and how to fix each cause.

pub(crate) mod explanation;
pub(crate) mod owner;
pub(crate) mod remedy;
pub(crate) mod returned_pods;
