//! Patches that need to know what a list means: strategic merges, server-side apply, and who manages which field.

pub(crate) mod apply;
pub(crate) mod managers;
pub(crate) mod shapes;
pub(crate) mod strategic;
