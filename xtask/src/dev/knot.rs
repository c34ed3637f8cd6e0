//! `dev --dns`: Knot with the operators' configuration from `deploy/dns`, on loopback ports.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xtask::credential::ensure_key;
use xtask::services::Services;
use xtask::workspace;

use super::dev_settings::DevSettings;
use crate::nameservers;
use crate::setting::read_setting;

/// The ports of the hidden primary and of Knot.
const PRIMARY_PORT: u16 = 5300;
const KNOT_PORT: u16 = 5354;

/// A configured Knot.
pub struct Knot {
    packages: PathBuf,
    config_file: PathBuf,
}

impl Knot {
    /// Writes Knot's configuration and sets the settings of the server and the sandbox, except those that are configured.
    pub fn prepare(settings: &mut DevSettings, folder: &Path) -> Result<Self> {
        let packages = nameservers::find().context("--dns and --tls need Knot")?;
        let folder = folder.join("knot");
        fs::create_dir_all(&folder)?;
        let tsig = folder.join("tsig");
        ensure_key(&tsig, "svc:hmac-sha256:")?;
        let knot = format!("127.0.0.1:{KNOT_PORT}");
        for (name, value) in [
            ("SVC_DNS_LISTEN", format!("127.0.0.1:{PRIMARY_PORT}")),
            ("SVC_DNS_SECONDARIES", knot.clone()),
            ("SVC_DNS_SIGNER", knot.clone()),
            ("SVC_SANDBOX_DNS_NAMESERVER", knot),
        ] {
            settings.set_default(name, value)?;
        }
        if read_setting::<settings::Secret>("SVC_DNS_TSIG")?.is_none() {
            settings.set("SVC_DNS_TSIG_FILE", tsig.display());
        }
        let file = configure(&folder, fs::read_to_string(&tsig)?.trim())?;
        Ok(Self { packages, config_file: file })
    }

    pub fn start(&self, services: &mut Services, folder: &Path) -> Result<()> {
        let libraries = self.packages.join(xtask::debian::library_folder());
        services.start("knot", &self.packages.join("usr/sbin/knotd"), folder, |command| {
            command.arg("-c").arg(&self.config_file).env("LD_LIBRARY_PATH", libraries);
        })?;
        Ok(())
    }

    /// Returns a command that queries Knot.
    pub fn usage() -> String {
        format!("  Zones     dig @127.0.0.1 -p {KNOT_PORT} +dnssec <name>  (SVC_DNS_… in docs/dns.md)\n")
    }
}

/// Adapts the operators' configuration: other addresses and folders, and no secondary nameservers.
fn configure(folder: &Path, tsig: &str) -> Result<PathBuf> {
    let mut text = fs::read_to_string(workspace::root()?.join("deploy/dns/knot.conf"))?;
    let secret = tsig.rsplit(':').next().unwrap_or_default();
    let (listen, primary) = (format!("127.0.0.1@{KNOT_PORT}"), format!("127.0.0.1@{PRIMARY_PORT}"));
    let state = folder.display().to_string();
    for (from, to) in [
        ("192.0.2.10@5300", primary.as_str()),
        ("192.0.2.1@53", &listen),
        ("/run/knot", &state),
        ("/var/lib/knot", &state),
        ("target: syslog", "target: stderr"),
        ("    notify: [bind, nsd]\n", ""),
        ("c3ZjIGV4YW1wbGUga2V5LCBub3QgZm9yIHVzZSEhISE=", secret),
    ] {
        ensure!(text.contains(from), "deploy/dns/knot.conf has no {from}");
        text = text.replace(from, to);
    }
    let file = folder.join("knot.conf");
    fs::write(&file, text)?;
    Ok(file)
}
