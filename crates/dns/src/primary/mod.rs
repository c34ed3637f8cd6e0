//! The hidden primary: what the platform's nameservers transfer zones from. The world never asks it.
//!
//! It answers SOA, AXFR (RFC 5936) and IXFR (RFC 1995) to the configured secondaries, transfers only with a good
//! signature (RFC 8945), and refuses everything else and everybody else. Records leave as they are stored. What a transfer
//! holds in memory is one page of rrsets and one message, however large the zone is; for the length of a large one it
//! holds a connection to Postgres too, so few of them run at once.

mod connections;
mod gate;
mod notify;
mod read;
mod reply;
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

/// Zones that are looked up in Postgres at once: more would wait for connections that requests need.
const LOOKUPS: usize = 4;
/// Large transfers at once.
const LARGE: usize = 3;

/// How the primary is reached, and by whom.
#[derive(Debug, Clone)]
pub struct PrimaryConfig {
    /// For UDP and TCP. An address of its own rather than all there are: over UDP an answer comes from where the question
    /// went to only then.
    pub listen: SocketAddr,
    /// The key that it shares with its secondaries.
    pub key: TsigKey,
    /// Who is told of changes, and whose addresses may transfer.
    pub secondaries: Vec<SocketAddr>,
    /// What the catalog zone is called (RFC 9432).
    pub catalog: ZoneName,
}

/// A primary that listens. Dropped, it stops.
#[derive(Debug)]
pub struct Primary {
    /// Where it listens.
    pub listen: SocketAddr,
    tasks: JoinSet<()>,
}

impl Primary {
    /// Listens. Needs a tokio runtime. Postgres need not be there yet: until it is, zones are answered with SERVFAIL.
    ///
    /// # Errors
    /// An address in use, or a catalog that is no domain name.
    pub fn bind(config: PrimaryConfig, store: Store, hosting: Hosting) -> io::Result<Self> {
        let (listener, socket) = bind_both(config.listen)?;
        let listen = listener.local_addr()?;
        let catalog_wire = WireName::of_host(config.catalog.as_str());
        let shared = Arc::new(Shared {
            store,
            hosting,
            key: config.key,
            secondaries: config.secondaries.iter().map(|at| at.ip().to_canonical()).collect(),
            catalog_wire: catalog_wire.ok_or_else(|| io::Error::other("the catalog's name is no domain name"))?,
            catalog: config.catalog,
            lookups: Semaphore::new(LOOKUPS),
            large: Semaphore::new(LARGE),
            connections: Connections::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(tcp::listen(shared.clone(), listener));
        tasks.spawn(udp::listen(shared, socket));
        Ok(Self { listen, tasks })
    }

    /// Ends once it has failed, which is never.
    pub async fn run(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Where the port is left to the system, one that is free for both.
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
