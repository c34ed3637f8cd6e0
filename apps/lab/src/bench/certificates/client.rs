//! A TLS client that compares each certificate with the one that it expects. It checks neither signatures nor the
//! chain, because this costs more time than the handshake costs the server, with which it shares the machine.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, HandshakeKind, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The expected certificates by name.
pub type Expected = HashMap<String, CertificateDer<'static>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Tls12,
    Tls13,
}

/// A client of one server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Client {
    /// Creates a client. `protocol` is the one that it offers with ALPN.
    pub fn new(
        address: SocketAddr,
        expected: &Arc<Expected>,
        version: Version,
        protocol: &str,
        resumption: Resumption,
    ) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier { expected: Arc::clone(expected), provider: Arc::clone(&provider) };
        let version = match version {
            Version::Tls12 => &TLS12,
            Version::Tls13 => &TLS13,
        };
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version])?;
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        config.resumption = resumption;
        Ok(Self { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    pub async fn connect(&self, name: &ServerName<'static>) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        self.connector.connect(name.clone(), stream).await
    }
}

/// Closes a connection, and waits until the server has closed it too. So the server has sent its session tickets, and
/// the client has received them.
pub async fn close(mut stream: TlsStream<TcpStream>) {
    // nginx closes a connection without a request before the client does. The handshake has succeeded anyway.
    if stream.shutdown().await.is_ok() {
        let _ = stream.read(&mut [0; 64]).await;
    }
}

/// Returns whether the client and the server resumed a session.
pub fn is_resumed(stream: &TlsStream<TcpStream>) -> bool {
    let (_, connection) = stream.get_ref();
    connection.handshake_kind() == Some(HandshakeKind::Resumed)
}

#[derive(Debug)]
struct Verifier {
    expected: Arc<Expected>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let name = name.to_str();
        if self.expected.get(name.as_ref()).is_some_and(|expected| expected == leaf) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!("another certificate of {name}")))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
