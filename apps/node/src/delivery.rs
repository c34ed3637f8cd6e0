//! Delivery of streams to receivers that may stop reading.

use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::mpsc;

/// Delivers a stream to a receiver that must take each item within a limit: before the future of `expire` completes, which
/// begins when the item begins to wait. Without the limit, a receiver could occupy the source of the stream, such as a file
/// or a connection, for any length of time.
///
/// Returns the receiver's stream, and the task that reads the source until the receiver is dropped. A receiver that was
/// too slow gets `not_taken` as the last item. The source is dropped before.
pub fn deliver<T, E: Future<Output = ()>>(
    items: impl Stream<Item = T> + Unpin,
    expire: impl Fn() -> E,
    not_taken: T,
) -> (impl Stream<Item = T>, impl Future<Output = ()>) {
    let (sender, mut receiver) = mpsc::channel(1);
    let received = stream::poll_fn(move |context| receiver.poll_recv(context));
    (received, send(items, sender, expire, not_taken))
}

async fn send<T, E: Future<Output = ()>>(
    mut items: impl Stream<Item = T> + Unpin,
    receiver: mpsc::Sender<T>,
    expire: impl Fn() -> E,
    not_taken: T,
) {
    loop {
        let next = tokio::select! {
            next = items.next() => next,
            () = receiver.closed() => None,
        };
        let Some(item) = next else { return };
        let sent = tokio::select! {
            biased;
            sent = receiver.send(item) => Some(sent),
            () = expire() => None,
        };
        match sent {
            Some(Ok(())) => {}
            Some(Err(_)) => return,
            None => {
                drop(items);
                // The send waits until the receiver reads again, and fails if the receiver is dropped.
                drop(receiver.send(not_taken).await);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Returns a stream of these items that then continues without one, and whether the stream exists.
    fn source(items: &'static [&'static str]) -> (impl Stream<Item = &'static str> + Unpin, Weak<()>) {
        let exists = Arc::new(());
        let weak = Arc::downgrade(&exists);
        let items = stream::iter(items.iter().copied()).chain(stream::pending());
        (items.inspect(move |_| drop(Arc::clone(&exists))), weak)
    }

    #[tokio::test(start_paused = true)]
    async fn receiver_must_take_each_item_within_the_timeout() {
        let (items, exists) = source(&["a", "b", "c"]);
        let (received, delivery) = deliver(items, || sleep(TIMEOUT), "not taken");
        tokio::spawn(delivery);
        let mut received = pin!(received);
        assert_eq!(received.next().await, Some("a"));
        // No item waits for longer than the timeout.
        sleep(TIMEOUT / 2).await;
        assert_eq!(received.next().await, Some("b"));
        assert_eq!(received.next().await, Some("c"));
        // The stream has no item.
        assert!(timeout(10 * TIMEOUT, received.next()).await.is_err());
        assert!(exists.upgrade().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn source_is_dropped_if_its_receiver_stops_reading() {
        let (items, exists) = source(&["a", "b", "c"]);
        let (received, delivery) = deliver(items, || sleep(TIMEOUT), "not taken");
        tokio::spawn(delivery);
        sleep(2 * TIMEOUT).await;
        assert!(exists.upgrade().is_none());
        assert_eq!(received.collect::<Vec<_>>().await, ["a", "not taken"]);
    }

    #[tokio::test(start_paused = true)]
    async fn source_is_dropped_with_its_receiver() {
        let (items, exists) = source(&[]);
        let (received, delivery) = deliver(items, || sleep(TIMEOUT), "not taken");
        let delivery = tokio::spawn(delivery);
        drop(received);
        delivery.await.unwrap();
        assert!(exists.upgrade().is_none());
    }
}
