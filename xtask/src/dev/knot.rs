//! `dev --dns`: Knot beside the server, configured as operators are told to, on ports of the loopback.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::World;
use xtask::credential::write_secret;
use xtask::services::Services;
use xtask::workspace;

use super::own::Own;
use crate::nameservers;
use crate::setting::given;

/// Where zones are transferred from, and where Knot answers.
const PRIMARY: u16 = 5300;
const KNOT: u16 = 5354;

/// Knot, as it is to be started.
pub struct Knot {
    packages: PathBuf,
    file: PathBuf,
}

impl Knot {
    /// Writes its configuration and tells the server of it. What is given of `SVC_DNS_…` wins.
    pub fn prepare(own: &mut Own, folder: &Path) -> Result<Self> {
        let packages = nameservers::find().context("--dns needs Knot")?;
        let folder = folder.join("knot");
        fs::create_dir_all(&folder)?;
        let tsig = folder.join("tsig");
        if !tsig.exists() {
            write_secret(&tsig, &format!("svc:hmac-sha256:{}", STANDARD.encode(World::system().bytes::<32>())))?;
        }
        let knot = format!("127.0.0.1:{KNOT}");
        for (name, value) in [
            ("SVC_DNS_LISTEN", format!("127.0.0.1:{PRIMARY}")),
            ("SVC_DNS_SECONDARIES", knot.clone()),
            ("SVC_DNS_SIGNER", knot),
        ] {
            if given::<String>(name)?.is_none() {
                own.set(name, value);
            }
        }
        if given::<settings::Secret>("SVC_DNS_TSIG")?.is_none() {
            own.set("SVC_DNS_TSIG_FILE", tsig.display());
        }
        let file = configure(&folder, fs::read_to_string(&tsig)?.trim())?;
        Ok(Self { packages, file })
    }

    pub fn start(&self, services: &mut Services, folder: &Path) -> Result<()> {
        let libraries = self.packages.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        services.start("knot", &self.packages.join("usr/sbin/knotd"), folder, |command| {
            command.arg("-c").arg(&self.file).env("LD_LIBRARY_PATH", libraries);
        })?;
        Ok(())
    }

    /// How to try it.
    pub fn told() -> String {
        format!("  Zones     dig @127.0.0.1 -p {KNOT} +dnssec <name>  (SVC_DNS_… in docs/dns.md)\n")
    }
}

/// The operators' configuration with other addresses and folders, and without the nameservers behind Knot.
fn configure(folder: &Path, tsig: &str) -> Result<PathBuf> {
    let mut text = fs::read_to_string(workspace::root()?.join("deploy/dns/knot.conf"))?;
    let secret = tsig.rsplit(':').next().unwrap_or_default();
    let (listen, primary) = (format!("127.0.0.1@{KNOT}"), format!("127.0.0.1@{PRIMARY}"));
    let kept = folder.display().to_string();
    for (from, to) in [
        ("192.0.2.10@5300", primary.as_str()),
        ("192.0.2.1@53", &listen),
        ("/run/knot", &kept),
        ("/var/lib/knot", &kept),
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
