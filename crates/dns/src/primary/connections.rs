//! Connection limits, so that one client cannot take all connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of connections of all secondaries together. The limit is high because each secondary queries all
/// its zones after a start.
const MAX_SECONDARY_CONNECTIONS: usize = 512;
/// The maximum number of connections of one address.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 256;
/// The maximum number of connections of all other clients together. They only receive REFUSED.
const MAX_OTHER_CONNECTIONS: usize = 16;

/// Counters of open connections, shared between clones.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    secondaries: usize,
    others: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A permit for one connection, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    connections: Connections,
    source: IpAddr,
    is_secondary: bool,
}

impl Connections {
    /// Acquires a permit, unless a limit is reached.
    pub(super) fn acquire(&self, source: IpAddr, is_secondary: bool) -> Option<ConnectionPermit> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { secondaries, others, by_address } = &mut *counts;
        let (all, max) =
            if is_secondary { (secondaries, MAX_SECONDARY_CONNECTIONS) } else { (others, MAX_OTHER_CONNECTIONS) };
        let one = by_address.get(&source).copied().unwrap_or_default();
        if *all >= max || one >= MAX_CONNECTIONS_PER_ADDRESS {
            return None;
        }
        *all += 1;
        by_address.insert(source, one + 1);
        Some(ConnectionPermit { connections: self.clone(), source, is_secondary })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { secondaries, others, by_address } = &mut *counts;
        let all = if self.is_secondary { secondaries } else { others };
        *all = all.saturating_sub(1);
        if let Some(one) = by_address.get_mut(&self.source) {
            *one = one.saturating_sub(1);
            if *one == 0 {
                by_address.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_clients_cannot_exhaust_the_connections_of_secondaries() {
        let connections = Connections::default();
        let (secondary, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1]));
        let others: Vec<ConnectionPermit> = std::iter::from_fn(|| connections.acquire(other, false)).collect();
        assert_eq!(others.len(), MAX_OTHER_CONNECTIONS);
        let of_secondary: Vec<ConnectionPermit> = std::iter::from_fn(|| connections.acquire(secondary, true)).collect();
        assert_eq!(of_secondary.len(), MAX_CONNECTIONS_PER_ADDRESS);
        let more: Vec<ConnectionPermit> = std::iter::from_fn(|| connections.acquire(other, true)).collect();
        assert_eq!(more.len(), MAX_CONNECTIONS_PER_ADDRESS - MAX_OTHER_CONNECTIONS);
        drop((of_secondary, others, more));
        assert!(connections.acquire(secondary, true).is_some());
        let counts = connections.0.lock().unwrap();
        assert_eq!((counts.secondaries, counts.others, counts.by_address.len()), (0, 0, 0));
    }
}
