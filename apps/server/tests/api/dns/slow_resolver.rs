//! A resolver that delays its responses until a test releases them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};

/// Forwards queries over UDP to a DNS server, and sends the responses after [`SlowResolver::release`].
pub struct SlowResolver {
    pub address: SocketAddr,
    queries: mpsc::UnboundedReceiver<()>,
    gate: Arc<Semaphore>,
}

impl SlowResolver {
    pub async fn start(server: SocketAddr) -> Self {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (address, gate) = (socket.local_addr().unwrap(), Arc::new(Semaphore::new(0)));
        let (answered, queries) = mpsc::unbounded_channel();
        tokio::spawn(forward(socket, server, gate.clone(), answered));
        Self { address, queries, gate }
    }

    /// Waits for the next query. Later changes of the records do not affect its response.
    pub async fn query(&mut self) {
        let next = tokio::time::timeout(Duration::from_secs(30), self.queries.recv());
        next.await.expect("no query within 30 seconds").unwrap();
    }

    /// Delivers all responses from now on.
    pub fn release(&self) {
        self.gate.close();
    }
}

async fn forward(
    socket: Arc<UdpSocket>,
    server: SocketAddr,
    gate: Arc<Semaphore>,
    answered: mpsc::UnboundedSender<()>,
) {
    let mut buffer = [0; 4096];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        upstream.send_to(&buffer[..length], server).await.unwrap();
        let mut response = vec![0; 4096];
        let length = upstream.recv(&mut response).await.unwrap();
        if answered.send(()).is_err() {
            return;
        }
        let (socket, gate) = (socket.clone(), gate.clone());
        tokio::spawn(async move {
            // `release` closes the semaphore.
            let _ = gate.acquire().await;
            let _ = socket.send_to(&response[..length], client).await;
        });
    }
}
