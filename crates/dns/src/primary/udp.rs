//! Requests over UDP: one datagram each way.

use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::Shared;
use super::gate::{Transport, Verdict};

/// Requests that are worked on at once. More are dropped: whoever asks over UDP asks again.
const AT_ONCE: usize = 256;
/// The longest request that is looked at: what is longer ends early, and is none.
const LONGEST: usize = 4096;

/// Answers for as long as it lives.
pub(super) async fn listen(shared: Arc<Shared>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut working = JoinSet::new();
    let mut buffer = vec![0; LONGEST];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // An error is of an answer that nobody was there for.
                let Ok((length, source)) = received else { continue };
                let request = buffer.get(..length).unwrap_or_default();
                match shared.judge(source.ip(), Transport::Udp, request) {
                    Verdict::Ignored => {}
                    Verdict::Answered(answer) => drop(socket.try_send_to(&answer, source)),
                    Verdict::About { zone, reply, .. } if working.len() < AT_ONCE => {
                        let (shared, socket) = (shared.clone(), socket.clone());
                        working.spawn(async move {
                            let answer = shared.datagram(&zone, *reply).await;
                            drop(socket.send_to(&answer, source).await);
                        });
                    }
                    Verdict::About { .. } => tracing::debug!(%source, "too many requests over UDP"),
                }
            }
            Some(_) = working.join_next() => {}
        }
    }
}
