//! Responses over HTTP/2 that the client does not read.
//!
//! A client can read other streams of the connection, so that the write timeout of the connection does not apply. actix
//! waits for such a client without a limit, and keeps a chunk of each response. The time of a chunk is not enough to
//! recognize such a client: with a slow client that reads many responses, each of them waits for the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::frames::Violation;

/// The number of stalled responses of a connection. A page may have several media files that the browser loads only in part.
pub(crate) const MAX_STALLED: usize = 32;
/// The data that a client takes of other responses before one that waits is stalled. The chunks of all concurrent responses
/// are not larger, so each has had its turn.
const MAX_OTHER_BYTES: u64 = 32 << 20;
/// The average rate of data below which a client does not read: otherwise a small response from time to time would keep all
/// others waiting.
const MIN_BYTES_PER_SECOND: u64 = 1 << 10;

/// The chunks of a connection that the client has not taken. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deliveries(Arc<Mutex<Chunks>>);

#[derive(Debug, Default)]
struct Chunks {
    responses: u64,
    /// The number of bytes of data that were written to the connection.
    written: u64,
    last_write: Option<Instant>,
    /// The time at which actix took a chunk from the app, and the number of its response, with the value of `written` at
    /// this time. A body that is one `Bytes` waits once, for its whole content.
    waiting: BTreeMap<(Instant, u64), u64>,
}

/// The delivery of one response.
#[derive(Debug)]
pub(crate) struct Delivery {
    deliveries: Deliveries,
    response: u64,
    waiting_since: Option<Instant>,
}

impl Deliveries {
    /// Begins the delivery of a response.
    pub(crate) fn begin(&self) -> Delivery {
        let mut chunks = self.lock();
        chunks.responses += 1;
        Delivery { deliveries: self.clone(), response: chunks.responses, waiting_since: None }
    }

    /// Records that data was written to the connection.
    pub(crate) fn record_write(&self, bytes: u64, now: Instant) {
        let mut chunks = self.lock();
        chunks.written += bytes;
        chunks.last_write = Some(now);
    }

    /// Checks how many responses are stalled: they wait for at least this time, and the client took nothing for as long,
    /// little data on average, or much data of others.
    ///
    /// # Errors
    /// Returns an error if the connection must be closed.
    pub(crate) fn check(&self, timeout: Duration, now: Instant) -> Result<(), Violation> {
        let chunks = self.lock();
        let stalled = chunks
            .waiting
            .iter()
            .take_while(|((since, _), _)| now.saturating_duration_since(*since) >= timeout)
            .filter(|((since, _), written)| chunks.is_stalled(*since, **written, timeout, now))
            .count();
        if stalled > MAX_STALLED { Err(Violation::UnreadResponses) } else { Ok(()) }
    }

    /// Waits until a chunk that waits for the client from now on is stalled.
    pub(crate) async fn wait_until_stalled(&self, timeout: Duration) {
        let (since, written) = (tokio::time::Instant::now().into_std(), self.lock().written);
        loop {
            sleep(timeout).await;
            let now = tokio::time::Instant::now().into_std();
            if self.lock().is_stalled(since, written, timeout, now) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Chunks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunks {
    /// Returns whether a chunk that waits for at least this time is stalled, by the time and the value of `written` when its
    /// wait began.
    fn is_stalled(&self, since: Instant, written: u64, timeout: Duration, now: Instant) -> bool {
        let is_silent = self.last_write.is_none_or(|last| now.saturating_duration_since(last) >= timeout);
        let taken = self.written - written;
        let min_bytes = now.saturating_duration_since(since).as_secs() * MIN_BYTES_PER_SECOND;
        is_silent || taken < min_bytes || taken > MAX_OTHER_BYTES
    }
}

impl Delivery {
    /// Records whether a chunk waits for the client.
    pub(crate) fn set_waiting_since(&mut self, since: Option<Instant>) {
        if self.waiting_since == since {
            return;
        }
        let mut chunks = self.deliveries.lock();
        if let Some(before) = self.waiting_since {
            chunks.waiting.remove(&(before, self.response));
        }
        if let Some(since) = since {
            let written = chunks.written;
            chunks.waiting.insert((since, self.response), written);
        }
        drop(chunks);
        self.waiting_since = since;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.set_waiting_since(None);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn stalled_responses_are_limited() {
        let (deliveries, began, timeout) = (Deliveries::default(), Instant::now(), Duration::from_secs(60));
        let mut responses: Vec<_> = (0..=MAX_STALLED).map(|_| deliveries.begin()).collect();
        for response in &mut responses {
            response.set_waiting_since(Some(began));
        }
        assert_eq!(deliveries.check(timeout, began + timeout / 2), Ok(()));
        assert_eq!(deliveries.check(timeout, began + timeout), Err(Violation::UnreadResponses));
        // The client took the chunk.
        responses[0].set_waiting_since(Some(began + timeout));
        assert_eq!(deliveries.check(timeout, began + timeout), Ok(()));
        assert_eq!(deliveries.check(timeout, began + 2 * timeout), Err(Violation::UnreadResponses));
        responses[0].set_waiting_since(None);
        assert_eq!(deliveries.check(timeout, began + 2 * timeout), Ok(()));
        responses[0].set_waiting_since(Some(began));
        assert_eq!(deliveries.check(timeout, began + 2 * timeout), Err(Violation::UnreadResponses));
        responses.pop();
        assert_eq!(deliveries.check(timeout, began + 2 * timeout), Ok(()));
    }

    #[test]
    fn responses_of_a_client_that_reads_slowly_are_not_stalled() {
        let (deliveries, began, timeout) = (Deliveries::default(), Instant::now(), Duration::from_secs(60));
        deliveries.record_write(MAX_OTHER_BYTES, began);
        let mut responses: Vec<_> = (0..=MAX_STALLED).map(|_| deliveries.begin()).collect();
        for response in &mut responses {
            response.set_waiting_since(Some(began));
        }
        // The client takes data of other responses.
        let end = began + 2 * timeout;
        deliveries.record_write(MAX_OTHER_BYTES, end);
        assert_eq!(deliveries.check(timeout, end), Ok(()));
        assert_eq!(deliveries.check(timeout, end + timeout / 2), Ok(()));
        // It pauses all of them.
        assert_eq!(deliveries.check(timeout, end + timeout), Err(Violation::UnreadResponses));
        // It continues with others only.
        deliveries.record_write(1, end + timeout);
        assert_eq!(deliveries.check(timeout, end + timeout), Err(Violation::UnreadResponses));
        responses[0].set_waiting_since(Some(end + timeout));
        assert_eq!(deliveries.check(timeout, end + timeout), Ok(()));
    }

    #[test]
    fn client_must_take_data_at_a_minimum_rate() {
        let (deliveries, began, timeout) = (Deliveries::default(), Instant::now(), Duration::from_secs(60));
        let mut responses: Vec<_> = (0..=MAX_STALLED).map(|_| deliveries.begin()).collect();
        for response in &mut responses {
            response.set_waiting_since(Some(began));
        }
        let min_bytes = timeout.as_secs() * MIN_BYTES_PER_SECOND;
        deliveries.record_write(min_bytes - 1, began + timeout / 2);
        assert_eq!(deliveries.check(timeout, began + timeout), Err(Violation::UnreadResponses));
        deliveries.record_write(1, began + timeout);
        assert_eq!(deliveries.check(timeout, began + timeout), Ok(()));
        // A small response from time to time is not enough.
        deliveries.record_write(2048, began + timeout * 3 / 2);
        assert_eq!(deliveries.check(timeout, began + 2 * timeout), Err(Violation::UnreadResponses));
    }

    #[tokio::test(start_paused = true)]
    async fn chunk_waits_for_longer_while_the_client_takes_data() {
        let (deliveries, timeout) = (Deliveries::default(), Duration::from_secs(60));
        let record_write = |bytes| deliveries.record_write(bytes, tokio::time::Instant::now().into_std());
        let mut stalled = pin!(deliveries.wait_until_stalled(timeout));
        for _ in 0..4 {
            record_write(timeout.as_secs() * MIN_BYTES_PER_SECOND);
            assert!(tokio::time::timeout(timeout * 3 / 4, &mut stalled).await.is_err());
        }
        stalled.await;

        let mut stalled = pin!(deliveries.wait_until_stalled(timeout));
        assert!(tokio::time::timeout(timeout / 2, &mut stalled).await.is_err());
        record_write(MAX_OTHER_BYTES + 1);
        assert!(tokio::time::timeout(timeout, &mut stalled).await.is_ok());

        let mut stalled = pin!(deliveries.wait_until_stalled(timeout));
        assert!(tokio::time::timeout(timeout / 2, &mut stalled).await.is_err());
        record_write(2048);
        assert!(tokio::time::timeout(timeout, &mut stalled).await.is_ok());
    }
}
