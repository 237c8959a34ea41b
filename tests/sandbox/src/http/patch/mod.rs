//! Patches that need list types: strategic merge patches, server-side apply, and managed fields.

pub(crate) mod apply;
pub(crate) mod managers;
pub(crate) mod shapes;
pub(crate) mod strategic;
