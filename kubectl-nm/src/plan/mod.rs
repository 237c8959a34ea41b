//! What a drain would come to, before anything is changed.
//!
//! [`readings`] asks the cluster for all that matters, as far as the user may read it; [`asking`] has the API server
//! judge each eviction without carrying it out. Both are put together in [`outlook`], by the decisions of `nm-shared`
//! that the reconciler takes too, and told by [`text`] or [`document`].

pub(crate) mod cluster_snapshot;
pub(crate) mod document;
pub(crate) mod eviction_dry_run;
pub(crate) mod max_unavailable;
pub(crate) mod outlook;
pub(crate) mod text;
