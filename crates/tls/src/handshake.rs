//! The TLS handshake of a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use actix_http::Protocol;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::Ticketer;
use rustls::server::{Acceptor, NoServerSessionStorage, ResolvesServerCertUsingSni};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig};
use semaphores::KeyedSemaphores;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate::ServedCertificate;
use crate::metrics::ListenerMetrics;
use crate::store::CertificateStore;
use crate::write_timeout::WriteTimeout;

/// The timeout of the whole handshake, with the wait for its permits: that of the head of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// One client gets this part of the permits, so that it cannot prevent the handshakes of others.
const CLIENT_SHARE: usize = 8;

const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Fatal alerts (RFC 8446 section 6.2) before encryption: content type, version, length, level, description. rustls has no
/// alert for a name without a certificate.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
const MISSING_EXTENSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 109];

/// Performs the handshakes of all connections.
#[derive(Clone)]
pub struct Handshaker {
    /// Without a certificate: each connection has its own.
    config: Arc<ServerConfig>,
    store: Arc<CertificateStore>,
    metrics: ListenerMetrics,
}

/// The permits of the handshakes of one worker thread.
#[derive(Debug, Clone)]
pub(crate) struct HandshakePermits {
    all: Arc<Semaphore>,
    clients: Arc<KeyedSemaphores<IpAddr>>,
    client_key: fn(IpAddr) -> IpAddr,
}

/// An accepted connection.
pub(crate) struct Accepted {
    pub(crate) stream: TlsStream<WriteTimeout<TcpStream>>,
    pub(crate) protocol: Protocol,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) presented: Presented,
}

/// The certificate with which a connection was opened.
#[derive(Debug, Clone)]
pub struct Presented {
    /// The name that the client asked for, in lowercase.
    name: Arc<str>,
    certificate: Arc<ServedCertificate>,
}

/// The handshake failed. The reason is counted and logged.
#[derive(Debug)]
pub(crate) struct HandshakeFailed;

/// Why a handshake failed.
enum Failure {
    UnknownName(String),
    NoName,
    Timeout,
    /// The client disconnected, or the two sides have no protocol in common.
    Tls(io::Error),
}

impl HandshakePermits {
    /// Creates the permits. `client_key` returns the address under which a client is counted.
    pub(crate) fn new(permits: usize, client_key: fn(IpAddr) -> IpAddr) -> Self {
        let clients = Arc::new(KeyedSemaphores::new((permits / CLIENT_SHARE).max(1)));
        Self { all: Arc::new(Semaphore::new(permits)), clients, client_key }
    }

    /// Waits for a permit of the client, and then for one of all. These semaphores are never closed.
    async fn acquire(&self, client: IpAddr) -> Result<[OwnedSemaphorePermit; 2], AcquireError> {
        let client = self.clients.of((self.client_key)(client.to_canonical())).acquire_owned().await?;
        Ok([client, Arc::clone(&self.all).acquire_owned().await?])
    }
}

impl Handshaker {
    /// Prepares TLS 1.2 and 1.3. All cipher suites of the provider have forward secrecy.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers.
    pub fn new(
        provider: Arc<CryptoProvider>,
        store: Arc<CertificateStore>,
        metrics: ListenerMetrics,
    ) -> Result<Self, rustls::Error> {
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        // Sessions are resumed only with tickets, whose keys rotate: without these keys, recorded sessions stay secret.
        config.ticketer = Ticketer::new()?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), store, metrics })
    }

    /// Performs the handshake of a connection, which then has this write timeout.
    ///
    /// # Errors
    /// Returns an error if the connection must be closed.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        write_timeout: Duration,
        permits: &HandshakePermits,
    ) -> Result<Accepted, HandshakeFailed> {
        let client = stream.peer_addr().ok();
        let address = client.map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.ip());
        let handshake = self.handshake(stream, write_timeout, permits.acquire(address));
        match timeout(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or(Err(Failure::Timeout)) {
            Ok((stream, presented)) => {
                let (_, connection) = stream.get_ref();
                let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
                self.metrics.count_handshake(if is_resumed { "resumed" } else { "full" });
                let is_http_2 = connection.alpn_protocol() == Some(HTTP_2);
                let protocol = if is_http_2 { Protocol::Http2 } else { Protocol::Http1 };
                Ok(Accepted { stream, protocol, client, presented })
            }
            Err(failure) => {
                self.metrics.count_handshake(failure.outcome());
                let client = client.map(|client| client.ip().to_string());
                tracing::debug!(client, error = %failure, "a TLS handshake failed");
                Err(HandshakeFailed)
            }
        }
    }

    async fn handshake<P>(
        &self,
        stream: TcpStream,
        write_timeout: Duration,
        permits: impl Future<Output = P>,
    ) -> Result<(TlsStream<WriteTimeout<TcpStream>>, Presented), Failure> {
        stream.set_nodelay(true)?;
        let stream = WriteTimeout::new(stream, write_timeout);
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        // Most of the work follows. A client that has sent nothing holds no permit.
        let _permits = permits.await;
        let name = start.client_hello().server_name().map(str::to_owned);
        let (failure, alert) = match name.map(|name| (self.store.find(&name), name)) {
            Some((Some(certificate), name)) => {
                let mut config = ServerConfig::clone(&self.config);
                config.cert_resolver = Arc::<ServedCertificate>::clone(&certificate);
                let presented = Presented { name: name.into(), certificate };
                return Ok((start.into_stream(Arc::new(config)).await?, presented));
            }
            Some((None, name)) => (Failure::UnknownName(name), UNRECOGNIZED_NAME),
            None => (Failure::NoName, MISSING_EXTENSION),
        };
        let mut stream = start.io;
        stream.write_all(&alert).await?;
        stream.shutdown().await?;
        Err(failure)
    }
}

impl Presented {
    /// Returns whether the client verified the connection for a hostname: browsers also use a connection for the other
    /// names of its certificate (RFC 9113 section 9.1.1).
    pub fn is_valid_for(&self, hostname: &str) -> bool {
        *self.name == *hostname || self.certificate.is_valid_for(hostname)
    }
}

impl Failure {
    const fn outcome(&self) -> &'static str {
        match self {
            Self::UnknownName(_) => "unknown_name",
            Self::NoName => "no_name",
            Self::Timeout => "timeout",
            Self::Tls(_) => "failed",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => write!(f, "there is no certificate for {name}"),
            Self::NoName => f.write_str("the client sent no server name"),
            Self::Timeout => f.write_str("the client was too slow"),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Tls(error)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use prometheus::Registry;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use sandbox::Certificate;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::crypto_provider;

    const NAME: &str = "shop.example.org";
    const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

    fn handshaker(certificate: &Certificate) -> Handshaker {
        let metrics = ListenerMetrics::new("test", &Registry::new()).unwrap();
        let store = Arc::new(CertificateStore::new(metrics.clone()));
        let (chain, key) = (certificate.chain(), certificate.key());
        let served = ServedCertificate::parse(NAME, chain.as_bytes(), key.as_bytes(), &crypto_provider()).unwrap();
        store.insert([(NAME.to_owned(), served)]);
        Handshaker::new(crypto_provider(), store, metrics).unwrap()
    }

    fn connector(certificate: &Certificate) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.authority().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions();
        TlsConnector::from(Arc::new(config.unwrap().with_root_certificates(roots).with_no_client_auth()))
    }

    #[tokio::test]
    async fn client_that_sends_nothing_holds_no_permit() {
        let certificate = Certificate::generate_for(&[NAME]);
        let (handshaker, connector) = (handshaker(&certificate), connector(&certificate));
        let name = || ServerName::try_from(NAME).unwrap();
        // The client has one permit.
        let permits = HandshakePermits::new(CLIENT_SHARE, |client| client);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = async || (TcpStream::connect(address).await.unwrap(), listener.accept().await.unwrap().0);
        let (silent, accepted) = connect().await;
        let mut first = pin!(handshaker.accept(accepted, WRITE_TIMEOUT, &permits));
        let (client, accepted) = connect().await;
        let second = async {
            tokio::join!(connector.connect(name(), client), handshaker.accept(accepted, WRITE_TIMEOUT, &permits))
        };
        tokio::select! {
            biased;
            _ = &mut first => panic!("the handshake ended before the client sent anything"),
            (client, accepted) = second => assert!(client.is_ok() && accepted.is_ok()),
        }
        let (client, accepted) = tokio::join!(connector.connect(name(), silent), first);
        assert!(client.is_ok() && accepted.is_ok());
    }

    #[tokio::test]
    async fn one_client_gets_a_part_of_the_permits() {
        let permits = HandshakePermits::new(2 * CLIENT_SHARE, |client| client);
        let [client, mapped, other] =
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"].map(|it| it.parse::<IpAddr>().unwrap());
        let _held = (permits.acquire(client).await.unwrap(), permits.acquire(mapped).await.unwrap());
        assert!(permits.acquire(client).now_or_never().is_none());
        assert!(permits.acquire(other).now_or_never().is_some());
    }
}
