//! The ACME test server Pebble.

use std::path::PathBuf;
use std::sync::Arc;

use sandbox::DnsServer;
use serde_json::{Value, json};
use testkit::reserved_port;
use tokio::process::{Child, Command};

use super::{Folder, eventually, external_program};

/// A certificate authority with the public DNS. It validates challenges there, and at a port of this machine.
pub struct Pebble {
    /// The public DNS.
    pub dns: Arc<DnsServer>,
    /// The folder of its files.
    pub folder: Folder,
    /// The URL of the directory.
    pub directory: String,
    /// The file with the certificate of its HTTPS endpoint, which clients must trust.
    pub certificate: PathBuf,
    /// The file with the private key of its HTTPS endpoint.
    pub key: PathBuf,
    /// The port at which it validates HTTP-01.
    pub http_port: u16,
    program: PathBuf,
    config: PathBuf,
    log: PathBuf,
    listen: u16,
    management: u16,
    child: Child,
}

impl Pebble {
    /// Starts the authority. Returns `None` if the program is not installed.
    pub async fn start() -> Option<Self> {
        Self::start_with(json!({})).await
    }

    /// Starts the authority with these options in addition to the defaults.
    pub async fn start_with(options: Value) -> Option<Self> {
        let program = external_program("SVC_TEST_PEBBLE")?;
        let (dns, folder) = (Arc::new(DnsServer::start().await), Folder::new("pebble"));
        let self_signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = folder.write("pebble.pem", self_signed.cert.pem());
        let key = folder.write("pebble.key", self_signed.signing_key.serialize_pem());
        let (listen, management, http_port) = (reserved_port(), reserved_port(), reserved_port());
        let mut config = json!({
            "listenAddress": format!("127.0.0.1:{listen}"), "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": certificate, "privateKey": key, "httpPort": http_port, "tlsPort": 5001,
            "retryAfter": { "authz": 1, "order": 1 },
        });
        config.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let config = folder.write("pebble.json", json!({ "pebble": config }).to_string());
        let log = folder.path.join("pebble.log");
        let child = spawn(&program, &config, &log, &dns);
        let directory = format!("https://localhost:{listen}/dir");
        let pebble = Self {
            dns,
            folder,
            directory,
            certificate,
            key,
            http_port,
            program,
            config,
            log,
            listen,
            management,
            child,
        };
        pebble.listens().await;
        Some(pebble)
    }

    /// Stops the authority.
    pub async fn stop(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Starts the authority again. It has lost all accounts and orders, and has another root. Its certificates are valid
    /// for 20 years, so that they are valid for tests that have advanced the clock by years.
    pub async fn restart(&mut self) {
        self.stop().await;
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.config).unwrap()).unwrap();
        config["pebble"]["certificateValidityPeriod"] = json!(20_i64 * 366 * 24 * 3600);
        std::fs::write(&self.config, config.to_string()).unwrap();
        self.child = spawn(&self.program, &self.config, &self.log, &self.dns);
        self.listens().await;
    }

    /// Waits until a message appears in its log.
    pub async fn wait_for_log(&self, message: &str) {
        let is_logged = async || std::fs::read_to_string(&self.log).unwrap().contains(message).then_some(());
        eventually(message, is_logged).await;
    }

    /// Returns the root of its certificates, as PEM.
    pub async fn root(&self) -> String {
        let url = format!("https://localhost:{}/roots/0", self.management);
        self.client().get(url).send().await.unwrap().error_for_status().unwrap().text().await.unwrap()
    }

    /// Returns an HTTP client that trusts its HTTPS endpoint.
    pub fn client(&self) -> reqwest::Client {
        let own = reqwest::Certificate::from_pem(&std::fs::read(&self.certificate).unwrap()).unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder().no_proxy().tls_certs_only([own]).http1_only().build().unwrap()
    }

    async fn listens(&self) {
        let listens = async || tokio::net::TcpStream::connect(("127.0.0.1", self.listen)).await.ok();
        eventually("pebble listens", listens).await;
    }
}

fn spawn(program: &PathBuf, config: &PathBuf, log: &PathBuf, dns: &DnsServer) -> Child {
    let mut pebble = Command::new(program);
    pebble.arg("-config").arg(config).args(["-dnsserver", &dns.address().to_string()]);
    // By default it rejects some nonces at random. Three in a row end a call.
    pebble.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0");
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    pebble.stdout(log.try_clone().unwrap()).stderr(log);
    pebble.kill_on_drop(true).spawn().unwrap()
}
