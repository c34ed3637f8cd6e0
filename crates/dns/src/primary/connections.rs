//! How many connections there are, and whose: so that nobody takes all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Of the secondaries together, and of one address. After a start each of them asks for all of its zones.
const KNOWN: usize = 512;
const OF_ONE: usize = 256;
/// Of everybody else together: they are told that they are refused.
const STRANGERS: usize = 16;

/// The connections that are open. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    known: usize,
    strangers: usize,
    of: HashMap<IpAddr, usize>,
}

/// A place among them, given back with this value.
#[derive(Debug)]
pub(super) struct Place {
    connections: Connections,
    source: IpAddr,
    is_known: bool,
}

impl Connections {
    /// A place for one more, where there is one.
    pub(super) fn take(&self, source: IpAddr, is_known: bool) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { known, strangers, of } = &mut *counts;
        let (all, most) = if is_known { (known, KNOWN) } else { (strangers, STRANGERS) };
        let one = of.get(&source).copied().unwrap_or_default();
        if *all >= most || one >= OF_ONE {
            return None;
        }
        *all += 1;
        of.insert(source, one + 1);
        Some(Place { connections: self.clone(), source, is_known })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { known, strangers, of } = &mut *counts;
        let all = if self.is_known { known } else { strangers };
        *all = all.saturating_sub(1);
        if let Some(one) = of.get_mut(&self.source) {
            *one = one.saturating_sub(1);
            if *one == 0 {
                of.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_take_no_place_of_a_secondary_and_places_come_back() {
        let connections = Connections::default();
        let (us, them) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1]));
        let theirs: Vec<Place> = std::iter::from_fn(|| connections.take(them, false)).collect();
        assert_eq!(theirs.len(), STRANGERS);
        let ours: Vec<Place> = std::iter::from_fn(|| connections.take(us, true)).collect();
        assert_eq!(ours.len(), OF_ONE);
        let more: Vec<Place> = std::iter::from_fn(|| connections.take(them, true)).collect();
        assert_eq!(more.len(), OF_ONE - STRANGERS);
        drop((ours, theirs, more));
        assert!(connections.take(us, true).is_some());
        let counts = connections.0.lock().unwrap();
        assert_eq!((counts.known, counts.strangers, counts.of.len()), (0, 0, 0));
    }
}
