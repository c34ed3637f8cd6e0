//! Connections to permitted addresses.
//!
//! A name is resolved once for a connection, and the connection goes to an address that was checked. A name server
//! therefore cannot return a permitted address for the check and another one for the connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::Name;
use prometheus::IntCounterVec;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::policy::Policy;
use super::refusal::Refusal;
use crate::metrics::Metrics;
use crate::system_roots::system_roots;

/// The timeout of a connection, from the lookup of the name to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of one address of a host.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens connections for workers.
pub struct Dialer {
    policy: Policy,
    resolver: TokioResolver,
    tls: TlsConnector,
    connections: IntCounterVec,
}

impl Dialer {
    /// Creates a dialer that resolves names with this name server, or with those of the system.
    pub fn new(policy: Policy, server: Option<SocketAddr>, metrics: &Metrics) -> anyhow::Result<Self> {
        let connections = metrics.egress_connections.clone();
        for outcome in ["connected", Refusal::Denied.outcome(), Refusal::Lost.outcome()] {
            connections.with_label_values(&[outcome]);
        }
        Ok(Self {
            policy,
            resolver: daemon::resolver(server)?,
            tls: TlsConnector::from(Arc::new(tls_config()?)),
            connections,
        })
    }

    /// Opens a connection to the host, a name or an address without brackets.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        let connected =
            timeout(CONNECT_TIMEOUT, self.connect_to_host(host, port)).await.unwrap_or(Err(Refusal::Timeout));
        let outcome = connected.as_ref().map_or_else(|refusal| refusal.outcome(), |_| "connected");
        self.connections.with_label_values(&[outcome]).inc();
        if let Err(refusal) = connected {
            tracing::debug!(host, port, ?refusal, "a worker's connection was not opened");
        }
        connected
    }

    /// Opens a TLS connection. The host must have a valid certificate.
    pub async fn connect_tls(&self, host: &str, port: u16) -> Result<TlsStream<TcpStream>, Refusal> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Refusal::Unresolved)?;
        let stream = self.connect(host, port).await?;
        let secured = timeout(CONNECT_TIMEOUT, self.tls.connect(name, stream)).await;
        secured.map_err(|_| Refusal::Timeout)?.map_err(|error| {
            tracing::debug!(host, %error, "failed to secure a worker's connection with TLS");
            Refusal::Tls
        })
    }

    async fn connect_to_host(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        let mut refusal = Refusal::Unresolved;
        for address in self.permitted_addresses(host).await? {
            match timeout(ADDRESS_TIMEOUT, TcpStream::connect((address.to_canonical(), port))).await {
                Ok(Ok(stream)) => {
                    // An error only delays small packets.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(_)) => refusal = Refusal::Unreachable,
                Err(_) => refusal = Refusal::Timeout,
            }
        }
        Err(refusal)
    }

    /// Returns the addresses of the host that workers may connect to; at least one.
    async fn permitted_addresses(&self, host: &str) -> Result<Vec<IpAddr>, Refusal> {
        if let Ok(address) = host.parse() {
            return if self.policy.permits(address) { Ok(vec![address]) } else { Err(Refusal::Denied) };
        }
        let mut addresses = self.resolve(host).await?;
        if addresses.is_empty() {
            return Err(Refusal::Unresolved);
        }
        addresses.retain(|address| self.policy.permits(*address));
        if addresses.is_empty() { Err(Refusal::DeniedName) } else { Ok(addresses) }
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Refusal> {
        let mut name = Name::from_ascii(name).map_err(|_| Refusal::Unresolved)?;
        // The name is absolute, so that no search list of the system applies.
        name.set_fqdn(true);
        let found = self.resolver.lookup_ip(name).await.map_err(|error| {
            tracing::debug!(%error, "a name that a worker uses was not resolved");
            Refusal::Unresolved
        })?;
        Ok(found.iter().collect())
    }
}

/// Trusts the CAs of the system, or those of `SSL_CERT_FILE`.
fn tls_config() -> anyhow::Result<ClientConfig> {
    let roots = system_roots();
    if roots.is_empty() {
        tracing::warn!("the system has no CA certificates: workers cannot connect to https addresses");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
