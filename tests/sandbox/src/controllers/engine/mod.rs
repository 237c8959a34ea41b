//! The framework that controllers run in.

pub(crate) mod change_feed;
pub(crate) mod context;
pub(crate) mod controller;
pub(crate) mod delay_queue;
pub(crate) mod driver;
#[cfg(test)]
pub(crate) mod test_cluster;
pub(crate) mod work_queue;
