//! TLS, through a proxy in front of Postgres that answers `SSLRequest` and holds a certificate.

use std::fs;
use std::sync::Arc;

use node::database::registry::Connection;
use node::database::server::{Credentials, Server};
use node::pg::Mode;
use sandbox::Certificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::rig::{Rig, SLEEPING};
use crate::running::Dir;

/// Serves the cluster over TLS and returns the port.
async fn proxy(address: String, tls: TlsAcceptor) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, tls.clone(), address.clone()));
        }
    });
    port
}

async fn serve(mut client: TcpStream, tls: TlsAcceptor, address: String) {
    let mut request = [0; 8];
    client.read_exact(&mut request).await.unwrap();
    // A client that begins with another message would use plain text.
    assert_eq!(request[4..], 80_877_103_u32.to_be_bytes());
    client.write_all(b"S").await.unwrap();
    let Ok(mut client) = tls.accept(client).await else { return };
    let mut server = TcpStream::connect(address).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_cancellations_use_verified_tls() {
    let Some(rig) = Rig::start().await else { return };
    let dir = Dir::new();
    let [certificate, other] = [(); 2].map(|()| Certificate::generate_for(&["localhost"]));
    let port = proxy(rig.postgres.address(), certificate.acceptor().clone()).await;
    let use_server = |generation, host: &str, root: &str| {
        let file = dir.path().join("root.pem");
        fs::write(&file, root).unwrap();
        let url = format!("postgres://u@{host}:{port}/d?sslmode=verify-full&sslrootcert={}", file.display());
        let credentials = Credentials { address: Server::parse(&url).unwrap().address, ..rig.credentials.clone() };
        rig.access.send_replace(Connection::Open { generation, credentials: Arc::new(credentials) });
    };
    use_server(2, "localhost", certificate.authority());
    assert_eq!(rig.value("SELECT 1").await, 1);
    let body = br#"[{ "text": "SELECT pg_sleep(600)", "params": [] }]"#;
    let chunks = rig.begin(Mode::Query, &body[..]);
    rig.wait_for_sessions(SLEEPING, 1).await;
    drop(chunks);
    rig.wait_for_sessions(SLEEPING, 0).await;
    for (generation, host, root) in [(3, "localhost", other.authority()), (4, "127.0.0.1", certificate.authority())] {
        use_server(generation, host, root);
        assert_eq!(rig.query("SELECT 1").await.unwrap_err().0, "database_unavailable", "{host}");
    }
    // The node never uses plain text with a server without TLS.
    let url = rig.postgres.url() + "?sslmode=verify-full&sslrootcert=" + dir.path().join("root.pem").to_str().unwrap();
    let credentials = Credentials { address: Server::parse(&url).unwrap().address, ..rig.credentials.clone() };
    rig.access.send_replace(Connection::Open { generation: 5, credentials: Arc::new(credentials) });
    assert_eq!(rig.query("SELECT 1").await.unwrap_err().0, "database_unavailable");
}
