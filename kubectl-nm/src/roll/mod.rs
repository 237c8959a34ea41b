//! Rolls: maintenances of many nodes, one wave after another.
#![cfg_attr(not(test), expect(dead_code, reason = "no command rolls nodes yet"))]

pub(crate) mod waves;
pub(crate) mod window;
