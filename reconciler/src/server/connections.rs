//! Which connections of a server are open, and which one is closed when there are too many.
//!
//! Anybody who reaches a port can open connections and say nothing. So their number is bounded, and a new one is always
//! taken up: for it the oldest is closed of those that come from the address with the most. A connection over which
//! somebody has proved to be whom the server is for is [trusted](Visitor::trust), and is closed for nobody.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    open: Mutex<Open>,
}

/// By number: the smaller, the older.
#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    from: IpAddr,
    is_trusted: bool,
    /// Closes it when dropped.
    _keeps_open: oneshot::Sender<()>,
}

impl Connections {
    /// No more than `most`.
    pub(crate) fn at_most(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// Takes up a connection from this address, and closes another one if there are too many. None if all of them are
    /// trusted.
    pub(crate) fn open(self: &Arc<Self>, from: IpAddr) -> Option<Connection> {
        let mut open = self.lock();
        if open.all.len() >= self.most {
            let spared = open.victim()?;
            open.all.remove(&spared);
        }
        let number = open.next;
        open.next += 1;
        let (keeps_open, closed) = oneshot::channel();
        open.all.insert(number, Entry { from, is_trusted: false, _keeps_open: keeps_open });
        Some(Connection { visitor: Visitor { number, connections: self.clone() }, closed })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The connection that is closed next.
    fn victim(&self) -> Option<u64> {
        let mut by_address: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, entry) in self.all.iter().filter(|(_, entry)| !entry.is_trusted) {
            by_address.entry(entry.from).or_insert((0, *number)).0 += 1;
        }
        by_address
            .into_values()
            .max_by_key(|(count, oldest)| (*count, u64::MAX - oldest))
            .map(|(_, oldest)| oldest)
    }
}

/// An open connection. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    visitor: Visitor,
    closed: oneshot::Receiver<()>,
}

impl Connection {
    /// Whoever is at its other end.
    pub(crate) fn visitor(&self) -> Visitor {
        self.visitor.clone()
    }

    /// Returns when it is to be closed for another one.
    pub(crate) async fn closed(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.closed).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.visitor.connections.lock().all.remove(&self.visitor.number);
    }
}

/// Who is at the other end of a connection; each request over it carries this as an extension.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    number: u64,
    connections: Arc<Connections>,
}

impl Visitor {
    /// The connection is closed for no other from now on.
    pub(crate) fn trust(&self) {
        if let Some(entry) = self.connections.lock().all.get_mut(&self.number) {
            entry.is_trusted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, address])
    }

    fn is_closed(connection: &mut Connection) -> bool {
        connection.closed.try_recv() != Err(oneshot::error::TryRecvError::Empty)
    }

    /// Opens connections from these addresses one after another, of which there may be three, trusts some of them at
    /// once, and says which of all are closed in the end.
    fn closed(addresses: &[u8], trusted: &[usize]) -> Vec<usize> {
        let connections = Connections::at_most(3);
        let mut all = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let Some(connection) = connections.open(from(*address)) else { continue };
            if trusted.contains(&index) {
                connection.visitor().trust();
            }
            all.push((index, connection));
        }
        all.iter_mut().filter_map(|(index, connection)| is_closed(connection).then_some(*index)).collect()
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_makes_way_and_who_is_trusted_never_does() {
        assert_eq!(closed(&[1, 1, 1], &[]), [0; 0]);
        assert_eq!(closed(&[1, 1, 1, 1], &[]), [0]);
        assert_eq!(closed(&[1, 2, 2, 3], &[]), [1]);
        assert_eq!(closed(&[1, 2, 2, 2, 2, 2], &[]), [1, 2, 3], "the flood is in its own way");
        assert_eq!(closed(&[1, 1, 2, 2], &[0, 1]), [2]);
        assert_eq!(closed(&[1, 1, 1, 2], &[0, 1, 2]), [0; 0], "the new one is not taken up");
    }

    #[test]
    fn what_is_dropped_counts_no_more() {
        let connections = Connections::at_most(1);
        drop(connections.open(from(1)));
        let mut second = connections.open(from(1)).unwrap();
        assert!(!is_closed(&mut second));
        drop(connections.open(from(2)));
        assert!(is_closed(&mut second));
    }
}
