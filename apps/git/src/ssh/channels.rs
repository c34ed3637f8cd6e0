//! The open channels of a connection, and the time at which it is closed without one.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::{GRACE, MAX_CHANNELS, MAX_OPENED_CHANNELS};

/// During a stop, a connection whose channels have all been closed for this long is closed. The client closes most
/// connections earlier, after it has received the result of its command.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// After the begin of a stop, a client that has not opened a channel may authenticate and open one for this long. An idle
/// client would otherwise delay the stop.
const STOP_AUTHENTICATION: Duration = Duration::from_secs(5);

/// The channels of a connection.
#[derive(Debug, Default)]
pub(super) struct ChannelCounts {
    open: usize,
    /// The number of channels that the client has opened, including closed ones.
    opened: usize,
}

impl ChannelCounts {
    /// Returns whether the client can open another channel.
    pub(super) const fn can_open(&self) -> bool {
        self.open < MAX_CHANNELS && self.opened < MAX_OPENED_CHANNELS
    }
}

/// Counts an open channel until it is dropped.
pub(super) struct ChannelCount(watch::Sender<ChannelCounts>);

impl ChannelCount {
    pub(super) fn new(counts: &watch::Sender<ChannelCounts>) -> Self {
        counts.send_modify(|counts| {
            counts.open += 1;
            counts.opened += 1;
        });
        Self(counts.clone())
    }
}

impl Drop for ChannelCount {
    fn drop(&mut self) {
        self.0.send_modify(|counts| counts.open -= 1);
    }
}

/// Waits until the server stops.
pub(super) async fn wait_for_stop(stopping: &mut watch::Receiver<bool>) {
    // The wait fails only when the server has ended.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Waits until a connection is not in use: earlier during a stop of the server.
pub(super) async fn wait_until_done(mut counts: watch::Receiver<ChannelCounts>, stopping: &mut watch::Receiver<bool>) {
    let mut unused = pin!(wait_until_unused(counts.clone(), GRACE));
    tokio::select! {
        () = &mut unused => return,
        () = wait_for_stop(stopping) => {}
    }
    // A client that has not opened a channel may still authenticate.
    tokio::select! {
        () = unused => return,
        opened = timeout(STOP_AUTHENTICATION, counts.wait_for(|counts| counts.opened > 0)) => {
            if opened.is_err() {
                return;
            }
        }
    }
    wait_until_unused(counts, STOP_GRACE).await;
}

/// Waits until a connection has no open channel for this time.
async fn wait_until_unused(mut counts: watch::Receiver<ChannelCounts>, grace: Duration) {
    // The waits fail only when the connection has ended.
    while counts.wait_for(|counts| counts.open == 0).await.is_ok() {
        if !timeout(grace, counts.wait_for(|counts| counts.open > 0)).await.is_ok_and(|opened| opened.is_ok()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn connection_is_unused_without_an_open_channel() {
        let counts = watch::Sender::new(ChannelCounts::default());
        let (first, second) = (ChannelCount::new(&counts), ChannelCount::new(&counts));
        let mut unused = pin!(wait_until_unused(counts.subscribe(), Duration::ZERO));
        drop(first);
        assert!(poll!(&mut unused).is_pending());
        drop(second);
        unused.await;
    }

    #[tokio::test(start_paused = true)]
    async fn client_can_authenticate_during_a_stop() {
        let (counts, stopping) = (watch::Sender::new(ChannelCounts::default()), watch::Sender::new(true));
        let mut stopping = stopping.subscribe();
        let mut done = pin!(wait_until_done(counts.subscribe(), &mut stopping));
        assert!(timeout(STOP_AUTHENTICATION / 2, &mut done).await.is_err());
        let channel = ChannelCount::new(&counts);
        assert!(timeout(2 * GRACE, &mut done).await.is_err());
        drop(channel);
        timeout(2 * STOP_GRACE, done).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn idle_client_does_not_delay_a_stop() {
        let (counts, stopping) = (watch::Sender::new(ChannelCounts::default()), watch::Sender::new(true));
        let done = async { wait_until_done(counts.subscribe(), &mut stopping.subscribe()).await };
        assert!(timeout(GRACE / 2, done).await.is_ok());
    }
}
