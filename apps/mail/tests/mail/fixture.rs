//! A mail node in this process, and a client that can violate every rule.

use std::path::Path;
use std::time::Duration;

use mail_node::MailNode;
use mail_node::config::{CLAIM, Config, TABLE};
use mail_node::limits::Limits;
use sandbox::{Certificate, DnsServer};
use settings::Settings;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::control_plane::{ControlPlane, Received, TOKEN};

pub const HOST: &str = "mx.mail.example";
/// The maximum wait for an event that must happen in a correct node.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mail node, with the control plane and the name server that it uses.
pub struct Fixture {
    pub core: ControlPlane,
    pub dns: DnsServer,
    pub certificate: Certificate,
    pub directory: TempDir,
    pub address: std::net::SocketAddr,
    pub internal: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    node: JoinHandle<anyhow::Result<()>>,
}

impl Fixture {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a node with other limits. By default, mails are not limited.
    pub async fn start_with(change: impl FnOnce(&mut Limits)) -> Self {
        let (core, dns) = (ControlPlane::start(), DnsServer::start().await);
        let (certificate, directory) = (Certificate::generate(), tempfile::tempdir().unwrap());
        let mut config = config(&core.url(), dns.address(), &certificate, directory.path());
        config.limits.mails_per_minute = 1_000_000;
        config.limits.queue.free_bytes = 0;
        change(&mut config.limits);
        let node = MailNode::start(config).await.unwrap();
        let (address, internal) = (node.address(), node.internal_address());
        let (stop, stopped) = oneshot::channel();
        let node = tokio::spawn(node.run_until(async { drop(stopped.await) }));
        Self { core, dns, certificate, directory, address, internal, stop: Some(stop), node }
    }

    /// Stops the node gracefully.
    pub async fn stop(&mut self) {
        drop(self.stop.take());
        timeout(PATIENCE, &mut self.node).await.unwrap().unwrap().unwrap();
    }

    /// Connects, and reads the greeting.
    pub async fn connect(&self) -> Client {
        let mut client = Client::connect(self.address).await;
        assert_eq!(client.reply().await, format!("220 {HOST} ESMTP"));
        client
    }

    /// Connects and sends EHLO.
    pub async fn greet(&self) -> Client {
        let mut client = self.connect().await;
        client.command("EHLO client.example").await;
        client
    }

    /// Waits until the queue is empty, and returns the mails that the control plane received since the last call.
    pub async fn drain(&self) -> Vec<Received> {
        let is_empty = || std::fs::read_dir(self.directory.path().join("queue")).unwrap().count() == 1;
        let wait = async {
            while !is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap();
        self.core.take()
    }

    /// Waits until a metric, with its labels, has a value. A counter may change after the reply to a client.
    pub async fn has_metric(&self, name: &str, value: &str) {
        let wait = async {
            while self.metric(name).await.as_deref() != Some(value) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = timeout(PATIENCE, wait).await;
        assert!(reached.is_ok(), "{name} is {:?} instead of {value}", self.metric(name).await);
    }

    /// Returns the value of a metric, with its labels.
    pub async fn metric(&self, name: &str) -> Option<String> {
        let text = self.get("/metrics").await;
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned()))
    }

    /// Returns the response of the internal listener.
    pub async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.internal).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }
}

fn config(core: &str, dns: std::net::SocketAddr, certificate: &Certificate, directory: &Path) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(directory.join("cert.pem"), certificate.chain()).unwrap();
    std::fs::write(directory.join("key.pem"), certificate.key()).unwrap();
    let values = [
        ("SVC_MX_LISTEN", "127.0.0.1:0".to_owned()),
        ("SVC_MX_INTERNAL_LISTEN", "127.0.0.1:0".to_owned()),
        ("SVC_MX_HOSTNAME", HOST.to_owned()),
        ("SVC_MX_CORE_URL", core.to_owned()),
        ("SVC_MX_TOKEN", TOKEN.to_owned()),
        ("SVC_MX_RESOLVER", dns.to_string()),
        ("SVC_MX_DIR", path("queue")),
        ("SVC_MX_TLS_CERT", path("cert.pem")),
        ("SVC_MX_TLS_KEY", path("key.pem")),
    ];
    let values = values.map(|(name, value)| (name.to_owned(), value));
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Config::new(&Settings::read(TABLE, &CLAIM, values).unwrap()).unwrap()
}

/// A client that sends arbitrary bytes.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub async fn connect(address: std::net::SocketAddr) -> Self {
        Self { stream: BufReader::new(TcpStream::connect(address).await.unwrap()) }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The server may have closed the connection.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Reads a reply. Its lines are separated by `|`. Returns an empty text if the server closed the connection.
    pub async fn reply(&mut self) -> String {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = timeout(PATIENCE, self.stream.read_line(&mut line)).await.unwrap();
            if read.unwrap_or(0) == 0 {
                return lines.join("|");
            }
            let line = line.strip_suffix("\r\n").unwrap().to_owned();
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            lines.push(line);
            if is_last {
                return lines.join("|");
            }
        }
    }

    /// Sends a command and returns the reply.
    pub async fn command(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n")).await;
        self.reply().await
    }

    /// Sends a mail to these recipients and returns the last reply.
    pub async fn mail(&mut self, from: &str, to: &[&str], data: &str) -> String {
        assert_eq!(self.command(&format!("MAIL FROM:<{from}>")).await, "250 2.1.0 OK");
        for to in to {
            assert_eq!(self.command(&format!("RCPT TO:<{to}>")).await, "250 2.1.5 OK");
        }
        assert!(self.command("DATA").await.starts_with("354 "));
        self.send(format!("{data}\r\n.\r\n")).await;
        self.reply().await
    }
}
