//! `dev --tls`: TLS at the node, with certificates of the test authority Pebble.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::process::Command;
use tokio::time::sleep;
use xtask::credential::write_secret;
use xtask::debian::Unpacked;
use xtask::services::Services;

use super::dev_settings::{DevSettings, listen_address};

/// The setting of the node's TLS listener, and its default port.
const TLS_LISTEN: &str = "SVC_EDGE_TLS_LISTEN";
const TLS_PORT: u16 = 8443;
/// The ports of the authority and of its management.
const DIRECTORY_PORT: u16 = 14000;
const MANAGEMENT_PORT: u16 = 15000;

/// A configured Pebble.
pub struct Pebble {
    packages: Unpacked,
    config_file: PathBuf,
    /// The address of the node's TLS listener.
    tls: SocketAddr,
    /// The address of the sandbox's name server, where the authority looks names up.
    name_server: SocketAddr,
    /// The certificate of its https endpoints.
    certificate: PathBuf,
    /// The roots of this run and earlier ones.
    roots: PathBuf,
}

impl Pebble {
    /// Writes Pebble's configuration, and sets the settings of the node and the server, except those that are
    /// configured.
    pub fn prepare(settings: &mut DevSettings, folder: &Path) -> Result<Self> {
        let packages = Unpacked::obtain("pebble", &["pebble"]).context("--tls needs the Debian package pebble")?;
        let folder = folder.join("pebble");
        fs::create_dir_all(&folder)?;
        let [certificate, key] = ["pebble.pem", "pebble.key"].map(|name| folder.join(name));
        if !key.exists() {
            let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
            fs::write(&certificate, own.cert.pem())?;
            write_secret(&key, &own.signing_key.serialize_pem())?;
        }
        let tls = listen_address(TLS_LISTEN, TLS_PORT)?;
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{DIRECTORY_PORT}"),
            "managementListenAddress": format!("127.0.0.1:{MANAGEMENT_PORT}"),
            "certificate": certificate,
            "privateKey": key,
            "httpPort": settings.edge.port(),
            "tlsPort": tls.port(),
        }});
        let config_file = folder.join("pebble.json");
        fs::write(&config_file, config.to_string())?;
        for (name, value) in [
            (TLS_LISTEN, tls.to_string()),
            ("SVC_SITE_URL", format!("https://{{hostname}}:{}", tls.port())),
            ("SVC_ACME_DIRECTORIES", format!("https://localhost:{DIRECTORY_PORT}/dir")),
            ("SVC_ACME_CA", certificate.display().to_string()),
        ] {
            settings.set_default(name, value)?;
        }
        let name_server = settings.name_server();
        Ok(Self { packages, config_file, tls, name_server, certificate, roots: folder.join("roots.pem") })
    }

    /// Returns the addresses on which Pebble and the node listen, with the names of their settings.
    pub fn listeners(&self) -> Vec<(Option<&'static str>, SocketAddr)> {
        let fixed = [DIRECTORY_PORT, MANAGEMENT_PORT].map(|port| (None, SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        [(Some(TLS_LISTEN), self.tls)].into_iter().chain(fixed).collect()
    }

    /// Starts the authority.
    pub fn start(&self, services: &mut Services, folder: &Path) -> Result<()> {
        services.start("pebble", &self.packages.file("usr/bin/pebble")?, folder, |command| {
            command.arg("-config").arg(&self.config_file).args(["-dnsserver", &self.name_server.to_string()]);
            // Without this, Pebble waits for several seconds before each validation.
            command.env("PEBBLE_VA_NOSLEEP", "1");
        })?;
        Ok(())
    }

    /// Adds the root of this run to those of the earlier runs, whose certificates are still in use: Pebble generates a root
    /// at each start.
    pub async fn save_root(&self) -> Result<()> {
        const START_TIMEOUT: Duration = Duration::from_secs(20);
        let start = Instant::now();
        loop {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--cacert"]).arg(&self.certificate);
            let root = curl.arg(format!("https://localhost:{MANAGEMENT_PORT}/roots/0")).output().await;
            let root = root.context("--tls needs curl")?;
            if root.status.success() {
                let mut roots = File::options().create(true).append(true).open(&self.roots)?;
                return Ok(roots.write_all(&root.stdout)?);
            }
            let error = String::from_utf8_lossy(&root.stderr);
            ensure!(start.elapsed() < START_TIMEOUT, "Pebble did not return its root in time: {error}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns how to visit projects with this form of hostname over https.
    pub fn usage(&self, hostname: &str) -> String {
        let (roots, port) = (self.roots.display(), self.tls.port());
        format!(
            "  Https     curl --cacert {roots} https://{hostname}:{port}/\n            \
             curl --cacert {roots} --connect-to ::127.0.0.1:{port} https://<other hostname>:{port}/\n            (when \
             `svc hostnames list` shows the certificate as active, seconds after the first deployment)\n"
        )
    }
}
