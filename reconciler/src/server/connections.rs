//! Limits the open connections of a server, in all and for each client address.
//!
//! Anyone who reaches a port can open connections and stay silent until they time out. The limit for each address leaves
//! room for the connections of others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many connections are open at once. In the middle of their handshakes they take about 30 MiB.
pub(crate) const MAX_CONNECTIONS: usize = 256;

/// How many of them come from one address.
pub(crate) const MAX_CONNECTIONS_PER_ADDRESS: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct ConnectionLimit(Mutex<HashMap<IpAddr, usize>>);

impl ConnectionLimit {
    /// Counts a connection from this address. None if there are too many.
    pub(crate) fn accept(self: &Arc<Self>, from: IpAddr) -> Option<CountedConnection> {
        let mut open = self.lock();
        let is_full = open.values().sum::<usize>() >= MAX_CONNECTIONS;
        let of_address = open.get(&from).copied().unwrap_or_default();
        if is_full || of_address >= MAX_CONNECTIONS_PER_ADDRESS {
            return None;
        }
        open.insert(from, of_address + 1);
        Some(CountedConnection { from, limit: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection, which counts until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    from: IpAddr,
    limit: Arc<ConnectionLimit>,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.limit.lock();
        match open.get_mut(&self.from) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_in_all_and_for_each_address_while_they_are_open() {
        let limit = Arc::new(ConnectionLimit::default());
        let open = |address: u8| -> Vec<CountedConnection> {
            let from = IpAddr::from([10, 0, 0, address]);
            std::iter::from_fn(|| limit.accept(from)).take(MAX_CONNECTIONS + 1).collect()
        };
        let mut all: Vec<_> = (1..=5).map(open).collect();
        let counts: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!(counts, [128, 128, 0, 0, 0]);
        all[0].truncate(60);
        assert_eq!(open(1).len(), 68, "of the same address");
        drop(all);
        assert!(limit.lock().is_empty(), "addresses without connections are forgotten");
    }
}
