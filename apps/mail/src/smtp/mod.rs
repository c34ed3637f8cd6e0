//! The SMTP server (RFC 5321), with the extensions SIZE, 8BITMIME, SMTPUTF8, PIPELINING, ENHANCEDSTATUSCODES and
//! STARTTLS.

mod command;
mod connection;
mod data;
mod receive;
mod reply;
mod session;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::host::HostName;
use crate::limits::{Clients, Limits, TooManyConnections};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::recipients::Recipients;
use crate::spf::Spf;
use crate::tls::Tls;
use connection::Connection;
use reply::Reply;
use session::Session;

/// The pause after a connection could not be accepted, for example because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The state that all sessions share.
pub struct Server {
    pub host: HostName,
    pub limits: Limits,
    pub clients: Clients,
    pub recipients: Recipients,
    pub spf: Spf,
    pub queue: Queue,
    pub tls: Option<Tls>,
    pub metrics: Metrics,
}

/// Serves clients until the node stops. Then waits for the mails that clients are transmitting.
pub async fn serve(listener: TcpListener, server: Arc<Server>, mut stopping: watch::Receiver<bool>) {
    let mut sessions = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        match accepted {
            Ok((stream, address)) => {
                sessions.spawn(serve_client(stream, address, Arc::clone(&server), stopping.clone()));
            }
            Err(error) => {
                tracing::error!(%error, "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        while sessions.try_join_next().is_some() {}
    }
    drop(listener);
    let drained = timeout(server.limits.timeouts.stop, async { while sessions.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(sessions = sessions.len(), "closing sessions with mails in transmission");
    }
}

async fn serve_client(stream: TcpStream, address: SocketAddr, server: Arc<Server>, stopping: watch::Receiver<bool>) {
    // Fails only if the connection is already closed.
    let _: io::Result<()> = stream.set_nodelay(true);
    let client = address.ip().to_canonical();
    let mut connection = Connection::new(stream, server.limits.timeouts.write, server.metrics.clone());
    match server.clients.connect(client) {
        Ok(counted) => {
            server.metrics.connection("accepted");
            let _open = server.metrics.open_connection();
            Session::new(Arc::clone(&server), connection, client, counted, stopping).run().await;
        }
        Err(limit) => {
            let (outcome, reply) = match limit {
                TooManyConnections::Node => ("node_limit", Reply::new(421, "4.3.2", "too many connections")),
                TooManyConnections::Client => {
                    ("client_limit", Reply::new(421, "4.7.0", "too many connections from your address"))
                }
            };
            server.metrics.connection(outcome);
            connection.reply(&reply);
            // Do not wait until the client closes the connection: the number of such waits would need another limit.
            let _ = timeout(ACCEPT_PAUSE, connection.flush()).await;
        }
    }
}
