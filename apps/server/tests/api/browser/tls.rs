//! A proxy that terminates TLS in front of a node.

use sandbox::Certificate;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A proxy, until it is dropped. Browsers must accept its certificate without an authority.
pub struct TlsProxy(AbortHandle);

impl TlsProxy {
    /// Starts a proxy at this port.
    pub async fn start(port: u16, node: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let (certificate, node) = (Certificate::generate(), node.to_owned());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, node) = (certificate.acceptor().clone(), node.clone());
                tokio::spawn(async move {
                    // A browser may reject the certificate, or close the connection at any time.
                    if let Ok(mut stream) = acceptor.accept(stream).await
                        && let Ok(mut upstream) = TcpStream::connect(node).await
                    {
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
                    }
                });
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}
