//! Limits the open connections of a server.
//!
//! Anyone who reaches a port can open connections and stay silent, so their number is limited. A new connection is always
//! accepted: in its place the oldest connection from the address with the most connections is closed. A connection over
//! which the client has proved its identity is [trusted](ConnectionHandle::trust) and never closed for another.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    max: usize,
    open: Mutex<OpenConnections>,
}

/// By number: a smaller one is older.
#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    all: BTreeMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    from: IpAddr,
    is_trusted: bool,
    /// Closes the connection when dropped.
    _keeps_open: oneshot::Sender<()>,
}

impl ConnectionLimit {
    /// At most `max` connections are open at once.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, open: Mutex::default() })
    }

    /// Accepts a connection from this address, and closes another one if there are too many. None if all of them are
    /// trusted.
    pub(crate) fn accept(self: &Arc<Self>, from: IpAddr) -> Option<CountedConnection> {
        let mut open = self.lock();
        if open.all.len() >= self.max {
            let victim = open.victim()?;
            open.all.remove(&victim);
        }
        let number = open.next;
        open.next += 1;
        let (keeps_open, closed) = oneshot::channel();
        open.all.insert(number, OpenConnection { from, is_trusted: false, _keeps_open: keeps_open });
        Some(CountedConnection { handle: ConnectionHandle { number, limit: self.clone() }, closed })
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn victim(&self) -> Option<u64> {
        let mut by_address: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, connection) in self.all.iter().filter(|(_, connection)| !connection.is_trusted) {
            by_address.entry(connection.from).or_insert((0, *number)).0 += 1;
        }
        by_address
            .into_values()
            .max_by_key(|(count, oldest)| (*count, u64::MAX - oldest))
            .map(|(_, oldest)| oldest)
    }
}

/// An open connection, which counts until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    handle: ConnectionHandle,
    closed: oneshot::Receiver<()>,
}

impl CountedConnection {
    /// What its requests carry.
    pub(crate) fn handle(&self) -> ConnectionHandle {
        self.handle.clone()
    }

    /// Resolves when it has to be closed for another one.
    pub(crate) async fn closed(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.closed).await;
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.handle.limit.lock().all.remove(&self.handle.number);
    }
}

/// Refers to an open connection. Each request over it carries this as an extension.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandle {
    number: u64,
    limit: Arc<ConnectionLimit>,
}

impl ConnectionHandle {
    /// From now on the connection is never closed for another one.
    pub(crate) fn trust(&self) {
        if let Some(connection) = self.limit.lock().all.get_mut(&self.number) {
            connection.is_trusted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, address])
    }

    fn is_closed(connection: &mut CountedConnection) -> bool {
        connection.closed.try_recv() != Err(oneshot::error::TryRecvError::Empty)
    }

    /// The connections that are closed in the end, when these addresses connect one after another, three connections are
    /// allowed and some are trusted at once.
    fn closed(addresses: &[u8], trusted: &[usize]) -> Vec<usize> {
        let connections = ConnectionLimit::new(3);
        let mut all = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let Some(connection) = connections.accept(from(*address)) else { continue };
            if trusted.contains(&index) {
                connection.handle().trust();
            }
            all.push((index, connection));
        }
        all.iter_mut().filter_map(|(index, connection)| is_closed(connection).then_some(*index)).collect()
    }

    #[test]
    fn the_oldest_untrusted_connection_of_the_address_with_the_most_is_closed() {
        assert_eq!(closed(&[1, 1, 1], &[]), [0; 0]);
        assert_eq!(closed(&[1, 1, 1, 1], &[]), [0]);
        assert_eq!(closed(&[1, 2, 2, 3], &[]), [1]);
        assert_eq!(closed(&[1, 2, 2, 2, 2, 2], &[]), [1, 2, 3], "a flood only closes its own connections");
        assert_eq!(closed(&[1, 1, 2, 2], &[0, 1]), [2]);
        assert_eq!(closed(&[1, 1, 1, 2], &[0, 1, 2]), [0; 0], "the new one is not accepted");
    }

    #[test]
    fn a_dropped_connection_does_not_count() {
        let connections = ConnectionLimit::new(1);
        drop(connections.accept(from(1)));
        let mut second = connections.accept(from(1)).unwrap();
        assert!(!is_closed(&mut second));
        drop(connections.accept(from(2)));
        assert!(is_closed(&mut second));
    }
}
