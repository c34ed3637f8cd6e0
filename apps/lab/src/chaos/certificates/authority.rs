//! Pebble, and the name server at which it finds hostnames and challenges.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::Client;
use sandbox::{Certificate, DnsServer, RecordType};
use serde_json::{Value, json};
use testkit::{reserved_address, reserved_dns_address};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use xtask::debian::Unpacked;
use xtask::process::ExecChild;

/// Selects the records that the nameservers of the platform serve.
const RECORDS: &str = "\
    SELECT r.name || '.' || z.name AS name, o.response FROM dns.rrsets r JOIN dns.zones z ON z.id = r.zone_id \
    JOIN certificates.orders o ON '_acme-challenge.' || o.name = r.name || '.' || z.name \
    WHERE r.managed_by = 'certificate'";

/// The zone that the platform hosts.
pub const ZONE: &str = "chaos.example";

/// A certificate authority with its own root.
pub struct Authority {
    pub dns: Arc<DnsServer>,
    directory: SocketAddr,
    management: SocketAddr,
    certificate: Certificate,
    folder: PathBuf,
    program: PathBuf,
    running: Option<(Child, AbortHandle)>,
}

impl Authority {
    /// Prepares the authority, and starts the name server.
    pub async fn prepare(folder: &Path) -> Result<Self> {
        let program = Unpacked::obtain("pebble", &["pebble"])?.file("usr/bin/pebble")?;
        let (directory, management) = (reserved_address(), reserved_address());
        let (dns, certificate) = (Arc::new(DnsServer::start().await), Certificate::generate());
        dns.set(ZONE, RecordType::NS, &["ns1.svc.example", "ns2.svc.example"]);
        let folder = folder.to_owned();
        Ok(Self { dns, directory, management, certificate, folder, program, running: None })
    }

    /// Returns the settings of the server.
    pub fn settings(&self) -> Result<Vec<(&'static str, String)>> {
        let ca = self.folder.join("pebble-ca.pem");
        std::fs::write(&ca, self.certificate.authority())?;
        Ok(vec![
            ("SVC_ACME_DIRECTORIES", format!("https://localhost:{}/dir", self.directory.port())),
            ("SVC_ACME_CA", ca.display().to_string()),
            ("SVC_DNS_RESOLVER", self.dns.address().to_string()),
            ("SVC_DNS_LISTEN", reserved_dns_address().to_string()),
            ("SVC_DNS_SECONDARIES", self.dns.address().to_string()),
            ("SVC_DNS_TSIG", "svc:hmac-sha256:c3ZjIGV4YW1wbGUga2V5LCBub3QgZm9yIHVzZSEhISE=".to_owned()),
            ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned()),
        ])
    }

    /// Starts Pebble, which rejects nonces, delays validations and reuses authorizations at random. It validates HTTP-01
    /// at this port. `database` contains the records of challenges.
    pub async fn start(&mut self, http_port: u16, database: String) -> Result<()> {
        let [certificate, key] = ["pebble.pem", "pebble.key"].map(|name| self.folder.join(name));
        std::fs::write(&certificate, self.certificate.chain())?;
        std::fs::write(&key, self.certificate.key())?;
        let config = json!({ "pebble": {
            "listenAddress": self.directory, "managementListenAddress": self.management,
            "certificate": certificate, "privateKey": key, "httpPort": http_port, "tlsPort": 5001,
        }});
        let file = self.folder.join("pebble.json");
        std::fs::write(&file, config.to_string())?;
        let mut command = ExecChild::wrap(&self.program)?;
        command.arg("-config").arg(file).args(["-dnsserver", &self.dns.address().to_string()]);
        command.env("PEBBLE_WFE_NONCEREJECT", "15").env("PEBBLE_AUTHZREUSE", "50").env("PEBBLE_VA_SLEEPTIME", "2");
        let log = File::create(self.folder.join("pebble.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let mirror = tokio::spawn(serve_challenges(database, self.dns.clone()));
        self.running = Some((child, mirror.abort_handle()));
        let start = Instant::now();
        while TcpStream::connect(self.directory).await.is_err() {
            ensure!(start.elapsed() < Duration::from_secs(10), "pebble does not listen");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns a client that trusts only the root of this authority, and finds these hosts at `address`.
    pub async fn client(&self, hosts: &[String], address: SocketAddr) -> Result<Client> {
        let own = reqwest::Certificate::from_pem(self.certificate.authority().as_bytes())?;
        let management = Client::builder().no_proxy().tls_certs_only([own]).build()?;
        let root = format!("https://localhost:{}/roots/0", self.management.port());
        let root = management.get(root).send().await?.error_for_status()?.text().await?;
        let root = reqwest::Certificate::from_pem(root.as_bytes())?;
        let client = Client::builder().no_proxy().tls_certs_only([root]);
        Ok(hosts.iter().fold(client, |client, host| client.resolve(host, address)).build()?)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        if let Some((_, mirror)) = &self.running {
            mirror.abort();
        }
    }
}

/// Copies the records of challenges to the name server, as a secondary nameserver would.
async fn serve_challenges(database: String, dns: Arc<DnsServer>) -> Result<()> {
    let mut served: Vec<String> = Vec::new();
    loop {
        let rows = chaos::rows(&database, RECORDS).await?;
        let text = |row: &Value, column: &str| {
            row.get(column).and_then(Value::as_str).map(str::to_owned).context("a text column")
        };
        let mut current = Vec::new();
        for row in &rows {
            let name = text(row, "name")?;
            dns.set(&name, RecordType::TXT, &[&text(row, "response")?]);
            current.push(name);
        }
        for name in served.iter().filter(|name| !current.contains(name)) {
            dns.set(name, RecordType::TXT, &[]);
        }
        served = current;
        sleep(Duration::from_millis(50)).await;
    }
}
