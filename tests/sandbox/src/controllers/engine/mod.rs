//! What drives a controller, and what it works with.

pub(crate) mod change_feed;
pub(crate) mod context;
pub(crate) mod controller;
pub(crate) mod delay_queue;
pub(crate) mod driver;
#[cfg(test)]
pub(crate) mod test_cluster;
pub(crate) mod work_queue;
