//! The ids of blobs.

use std::sync::{Mutex, PoisonError};

use uuid::{Builder, Uuid};

use crate::clock::since_epoch;
use crate::random;

/// Creates UUIDs of version 7 that increase even if the clock jumps back. Therefore, a listing of the store from an id
/// on contains all blobs that were started later.
#[derive(Default)]
pub struct BlobIds(Mutex<Last>);

#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Last {
    millis: u64,
    /// The counter has twelve bits, which directly follow the time in the id.
    counter: u16,
}

impl BlobIds {
    const MAX_COUNTER: u16 = 0xfff;

    /// Returns a new id, greater than all earlier ones.
    pub fn next(&self) -> Uuid {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = u64::try_from(since_epoch().as_millis()).unwrap_or_default();
        *last = match *last {
            last if now > last.millis => Last { millis: now, counter: 0 },
            Last { millis, counter: Self::MAX_COUNTER } => Last { millis: millis + 1, counter: 0 },
            Last { millis, counter } => Last { millis, counter: counter + 1 },
        };
        let [high, low] = last.counter.to_be_bytes();
        let [_, _, random @ .., _, _, _, _, _, _] = random::id().into_bytes();
        let mut bytes = [0; 10];
        for (byte, value) in bytes.iter_mut().zip([high, low].into_iter().chain(random)) {
            *byte = value;
        }
        Builder::from_unix_timestamp_millis(last.millis, &bytes).into_uuid()
    }

    /// Makes all later ids greater than this one, which another process or node created.
    pub fn observe(&self, id: Uuid) {
        let bits = id.as_u128();
        let millis = u64::try_from(bits >> 80).unwrap_or_default();
        let counter = u16::try_from((bits >> 64) & u128::from(Self::MAX_COUNTER)).unwrap_or_default();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Last { millis, counter });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_increase_within_a_millisecond_and_after_ids_of_the_future() {
        let ids = BlobIds::default();
        let created: Vec<Uuid> = (0..10_000).map(|_| ids.next()).collect();
        assert!(created.is_sorted() && created.iter().all(|id| id.get_version_num() == 7));
        let future = Builder::from_unix_timestamp_millis(1 << 46, &[0xff; 10]).into_uuid();
        ids.observe(future);
        assert!(ids.next() > future);
        ids.observe(created[0]);
        assert!(ids.next() > future);
    }
}
