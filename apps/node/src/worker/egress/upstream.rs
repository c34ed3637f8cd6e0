//! Connections to origins.

use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::dialer::Dialer;
use super::refusal::Refusal;
use crate::duplex::Duplex;
use crate::worker::MAX_HEAD_BYTES;

/// A scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub is_https: bool,
    /// A name or an address without brackets.
    pub host: String,
    pub port: u16,
}

/// An open connection to an origin.
pub struct Upstream {
    origin: Origin,
    sender: SendRequest<Incoming>,
    /// Drives the connection, until this is dropped.
    _driver: JoinSet<()>,
}

impl Upstream {
    /// Opens a connection.
    pub async fn open(dialer: &Dialer, origin: Origin) -> Result<Self, Refusal> {
        let stream: Box<dyn Duplex> = if origin.is_https {
            Box::new(dialer.connect_tls(&origin.host, origin.port).await?)
        } else {
            Box::new(dialer.connect(&origin.host, origin.port).await?)
        };
        let connected = Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|_| Refusal::Lost)?;
        let mut driver = JoinSet::new();
        driver.spawn(async {
            // The sender receives the error.
            let _ = connection.with_upgrades().await;
        });
        Ok(Self { origin, sender, _driver: driver })
    }

    /// Returns whether the connection leads to the origin and is free.
    pub fn can_serve(&self, origin: &Origin) -> bool {
        self.origin == *origin && self.sender.is_ready()
    }

    /// Sends a request. Returns the request if the connection closed before any part of it was sent.
    pub async fn send(
        &mut self,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, (Refusal, Option<Box<Request<Incoming>>>)> {
        self.sender.try_send_request(request).await.map_err(|mut failed| {
            tracing::debug!(error = %failed.error(), "an origin did not respond to a worker");
            (Refusal::Lost, failed.take_message().map(Box::new))
        })
    }
}
