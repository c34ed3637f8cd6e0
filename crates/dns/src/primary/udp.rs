//! Requests over UDP: one datagram each way.

use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::Shared;
use super::request::{RequestCheck, Transport};

/// The maximum number of concurrent requests. The primary drops further requests, because UDP clients retry.
const MAX_CONCURRENT_REQUESTS: usize = 256;
/// The maximum length of a request. A longer request is truncated, and therefore invalid.
const MAX_REQUEST_LENGTH: usize = 4096;

/// Answers requests until the returned future is dropped.
pub(super) async fn listen(shared: Arc<Shared>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut in_flight = JoinSet::new();
    let mut buffer = vec![0; MAX_REQUEST_LENGTH];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // An error means that an earlier answer could not be delivered. It does not affect further requests.
                let Ok((length, source)) = received else { continue };
                let request = buffer.get(..length).unwrap_or_default();
                match shared.check_request(source.ip(), Transport::Udp, request) {
                    RequestCheck::Ignored => {}
                    RequestCheck::Answered(answer) => drop(socket.try_send_to(&answer, source)),
                    RequestCheck::Query { zone, reply, .. } if in_flight.len() < MAX_CONCURRENT_REQUESTS => {
                        let (shared, socket) = (shared.clone(), socket.clone());
                        in_flight.spawn(async move {
                            let answer = shared.udp_answer(&zone, *reply).await;
                            drop(socket.send_to(&answer, source).await);
                        });
                    }
                    RequestCheck::Query { .. } => tracing::debug!(%source, "dropped a UDP request: too many in flight"),
                }
            }
            Some(_) = in_flight.join_next() => {}
        }
    }
}
