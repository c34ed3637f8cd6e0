//! The hidden primary, from which the platform's nameservers transfer zones. Resolvers never query it.
//!
//! It answers SOA, AXFR (RFC 5936) and IXFR (RFC 1995) queries of the configured secondaries and refuses all other
//! requests. Transfers require a valid TSIG signature (RFC 8945). Records are sent as they are stored. A transfer keeps
//! one page of rrsets and one message in memory, whatever the size of the zone. A large transfer also holds a Postgres
//! connection, so the number of large transfers is limited.

mod connections;
mod notify;
mod read;
mod reply;
mod request;
mod shared;
mod tcp;
mod transfer;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use store::Store;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::name::WireName;
use crate::wire::TsigKey;
use crate::{Hosting, ZoneName};
use connections::Connections;
use shared::Shared;

pub use notify::Notifier;

/// The maximum number of concurrent zone lookups. The limit leaves Postgres connections for API requests.
const MAX_LOOKUPS: usize = 4;
/// The maximum number of concurrent large transfers.
const MAX_LARGE_TRANSFERS: usize = 3;

/// The configuration of the primary.
#[derive(Debug, Clone)]
pub struct PrimaryConfig {
    /// The address for UDP and TCP. It must not be a wildcard address, because a UDP answer could then be sent from
    /// another address than the one that received the query.
    pub listen: SocketAddr,
    /// The key that the primary shares with its secondaries.
    pub key: TsigKey,
    /// The nameservers that receive NOTIFY messages and may transfer zones.
    pub secondaries: Vec<SocketAddr>,
    /// The name of the catalog zone (RFC 9432).
    pub catalog: ZoneName,
}

/// A listening primary. It stops when dropped.
#[derive(Debug)]
pub struct Primary {
    /// The address on which it listens.
    pub listen: SocketAddr,
    tasks: JoinSet<()>,
}

impl Primary {
    /// Starts to listen, within a tokio runtime. Queries receive SERVFAIL while Postgres is unavailable.
    ///
    /// # Errors
    /// Returns an error for an address in use, or an invalid catalog name.
    pub fn bind(config: PrimaryConfig, store: Store, hosting: Hosting) -> io::Result<Self> {
        let (listener, socket) = bind_both(config.listen)?;
        let listen = listener.local_addr()?;
        let catalog_wire = WireName::from_host(config.catalog.as_str());
        let shared = Arc::new(Shared {
            store,
            hosting,
            key: config.key,
            secondaries: config.secondaries.iter().map(|at| at.ip().to_canonical()).collect(),
            catalog_wire: catalog_wire.ok_or_else(|| io::Error::other("the catalog name is not a domain name"))?,
            catalog: config.catalog,
            lookup_permits: Semaphore::new(MAX_LOOKUPS),
            large_transfer_permits: Semaphore::new(MAX_LARGE_TRANSFERS),
            connections: Connections::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(tcp::listen(shared.clone(), listener));
        tasks.spawn(udp::listen(shared, socket));
        Ok(Self { listen, tasks })
    }

    /// Waits for the listeners, which run until the primary is dropped.
    pub async fn run(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Binds TCP and UDP to the same port. For port 0, retries until a port is free for both.
fn bind_both(listen: SocketAddr) -> io::Result<(tokio::net::TcpListener, tokio::net::UdpSocket)> {
    let mut attempts = 0;
    loop {
        let listener = std::net::TcpListener::bind(listen)?;
        match std::net::UdpSocket::bind(listener.local_addr()?) {
            Ok(socket) => {
                listener.set_nonblocking(true)?;
                socket.set_nonblocking(true)?;
                return Ok((tokio::net::TcpListener::from_std(listener)?, tokio::net::UdpSocket::from_std(socket)?));
            }
            Err(_) if listen.port() == 0 && attempts < 16 => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}
