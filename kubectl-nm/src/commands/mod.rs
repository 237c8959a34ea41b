//! The commands, one file each: what it takes on the command line, what it decides, and the few requests it makes.

pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod watch;

/// How many requests are under way at once. Many, because nodes that go into maintenance together must be cordoned
/// before pods are moved from one to the next; not all, because a server queues only so much for one user.
const AT_ONCE: usize = 64;
