//! Cancels the statement of a session. A request to cancel uses a separate connection.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::socket;
use crate::database::server::Address;

/// The longest time of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The process id and the secret key that identify a session in a request to cancel.
#[derive(Clone, Copy)]
pub struct CancelKey {
    pub process: i32,
    pub secret: i32,
}

/// Asks the server to cancel the current statement of a session, and waits until the server has received the
/// request. Between two statements, the request has no effect.
pub async fn cancel(address: &Address, key: CancelKey) {
    match timeout(REQUEST_TIMEOUT, send(address, key)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "failed to cancel a statement"),
        Err(_) => tracing::debug!("a request to cancel a statement timed out"),
    }
}

async fn send(address: &Address, key: CancelKey) -> io::Result<()> {
    let mut socket = socket::open(address).await?;
    let mut request = BytesMut::new();
    frontend::cancel_request(key.process, key.secret, &mut request);
    socket.write_all(&request).await?;
    socket.flush().await?;
    // The server closes the connection after the signal was sent.
    socket.read_u8().await.map_or(Ok(()), |_| Err(io::ErrorKind::InvalidData.into()))
}
