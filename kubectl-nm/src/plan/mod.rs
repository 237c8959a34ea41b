//! What a drain would come to, before anything is changed.
//!
//! [`readings`] asks the cluster for all that matters, as far as the user may read it; [`asking`] has the API server
//! judge each eviction without carrying it out. Both are put together in [`outlook`], by the decisions of `nm-shared`
//! that the reconciler takes too, and told by [`text`] or [`document`].

pub(crate) mod asking;
pub(crate) mod document;
pub(crate) mod limit;
pub(crate) mod outlook;
pub(crate) mod readings;
pub(crate) mod text;
