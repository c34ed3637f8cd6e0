//! TLS for visitors, with real TLS clients.

mod certificates;
mod challenges;
mod files;
mod handshakes;
mod hsts;
mod limits;
mod programs;
mod redirects;
mod requests;
mod swaps;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::config::Config;
use node::tls::config::TlsConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, RootCertStore, SupportedProtocolVersion};
use sandbox::Certificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::control_plane::ControlPlane;
use crate::running::{Dir, RunningNode, config, until};
use crate::timeout::TIMEOUT;
use crate::visitor::get_text;
use crate::workers::with_workers;

const HOST: &str = "shop.localhost";
const NAMES: [&str; 1] = [HOST];

/// A node that terminates TLS, with a deployed site at [`HOST`].
struct Rig {
    core: ControlPlane,
    dir: Dir,
    node: RunningNode,
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (core, dir) = (ControlPlane::start().await, Dir::new());
        core.deploy("shop", &[("assets/index.html", b"home")]);
        let mut config = tls_config(&core, &dir, None);
        change(&mut config);
        let node = RunningNode::start_as(&config).await;
        until("the site", || core.last_report("shop").is_some()).await;
        Self { core, dir, node }
    }

    /// Starts a node with a certificate for [`HOST`]. Returns the certificate.
    async fn start_with_certificate() -> (Self, Certificate) {
        let (rig, certificate) = (Self::start().await, Certificate::generate_for(&NAMES));
        rig.core.issue("shop", HOST, &certificate);
        rig.client(&[&certificate]).presents(HOST, &certificate).await;
        (rig, certificate)
    }

    /// Starts a node with this code and a certificate for [`HOST`]. Returns the certificate.
    async fn start_with_code(workerd: PathBuf, code: &str, change: impl FnOnce(&mut Config)) -> (Self, Certificate) {
        let (core, dir, certificate) = (ControlPlane::start().await, Dir::new(), Certificate::generate_for(&NAMES));
        core.deploy("shop", &[("worker/index.js", code.as_bytes())]);
        core.issue("shop", HOST, &certificate);
        let mut config = Config { tls: tls_config(&core, &dir, None).tls, ..with_workers(&core, &dir, workerd) };
        change(&mut config);
        let node = RunningNode::start_as(&config).await;
        let rig = Self { core, dir, node };
        rig.client(&[&certificate]).presents(HOST, &certificate).await;
        (rig, certificate)
    }

    fn address(&self) -> SocketAddr {
        self.node.tls.unwrap()
    }

    /// Returns a client that trusts the authorities of these certificates.
    fn client(&self, trusted: &[&Certificate]) -> Client {
        Client::new(self.address(), trusted)
    }

    async fn metrics(&self) -> String {
        get_text(&format!("http://{}/metrics", self.node.metrics.unwrap())).await
    }

    /// Waits until the metrics contain each of these texts. A counter may change after the client sees the event.
    async fn has_metrics(&self, texts: &[&str]) {
        let has_all = async || {
            let metrics = self.metrics().await;
            texts.iter().all(|text| metrics.contains(text))
        };
        wait_for(&format!("{texts:?} in the metrics"), has_all).await;
    }

    /// Returns the number of certificates on the disk.
    fn saved(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("certificates")).unwrap().count()
    }
}

/// Returns the configuration of a node that terminates TLS.
fn tls_config(core: &ControlPlane, dir: &Dir, files: Option<PathBuf>) -> Config {
    let local: SocketAddr = ([127, 0, 0, 1], 0).into();
    let tls = Some(TlsConfig { listen: local, files });
    Config { tls, metrics_listen: Some(local), ..config(core, dir) }
}

/// A TLS client that verifies the node's certificate.
struct Client {
    address: SocketAddr,
    config: ClientConfig,
}

impl Client {
    fn new(address: SocketAddr, trusted: &[&Certificate]) -> Self {
        Self::with_versions(address, trusted, rustls::ALL_VERSIONS)
    }

    fn with_versions(
        address: SocketAddr,
        trusted: &[&Certificate],
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in trusted {
            roots.add(CertificateDer::from_pem_slice(certificate.authority().as_bytes()).unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        Self { address, config: config.with_root_certificates(roots).with_no_client_auth() }
    }

    fn with(mut self, change: impl FnOnce(&mut ClientConfig)) -> Self {
        change(&mut self.config);
        self
    }

    async fn connect(&self, name: &str) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(self.config.clone())).connect(name, stream).await
    }

    /// Returns the alert with which the node rejects a name.
    async fn alert(&self, name: &str) -> AlertDescription {
        let error = self.connect(name).await.unwrap_err();
        let alert = match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
            _ => None,
        };
        assert!(alert.is_some(), "not an alert: {error:?}");
        alert.unwrap()
    }

    /// Sends a request over HTTP/1.1 on a new connection. Returns the whole response.
    async fn get(&self, host: &str, path: &str) -> String {
        self.send(host, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
    }

    async fn send(&self, host: &str, request: &str) -> String {
        let mut stream = self.connect(host).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    /// Waits until the node presents this certificate for a name.
    async fn presents(&self, name: &str, certificate: &Certificate) {
        let expected = CertificateDer::from_pem_slice(certificate.chain().as_bytes()).unwrap();
        let presents = async || match self.connect(name).await {
            Ok(stream) => stream.get_ref().1.peer_certificates().unwrap()[0] == expected,
            Err(_) => false,
        };
        wait_for(&format!("the certificate of {name}"), presents).await;
    }

    /// Waits until the node has no certificate for a name.
    async fn is_rejected(&self, name: &str) {
        wait_for(&format!("the rejection of {name}"), async || self.connect(name).await.is_err()).await;
        assert_eq!(self.alert(name).await, AlertDescription::UnrecognisedName);
    }
}

async fn wait_for(what: &str, condition: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < TIMEOUT, "timed out waiting for {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
