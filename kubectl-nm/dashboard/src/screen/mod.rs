//! The terminal: taken and restored, its signals, and when to draw.

pub(crate) mod redraw;
pub(crate) mod signals;
#[cfg(unix)]
pub(crate) mod standard_streams;
pub(crate) mod terminal;
