//! Shows a recording again, without a cluster.
//!
//! The messages of the recording go through the same `update` as those of a cluster, at the pace of a clock that can be
//! paused and set ([`player`]). [`run`] shows them on a terminal; [`printing`] prints what `watch` prints elsewhere.

#[cfg(feature = "testing")]
pub(crate) mod headless;
mod keys;
pub(crate) mod pace;
pub(crate) mod player;
pub(crate) mod printing;
pub(crate) mod run;
