//! The settings that a laptop needs. One that is given, by the environment or by the file of `SVC_CONFIG`, wins.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::World;
use settings::Secret;
use xtask::credential::write_secret;

use crate::setting::given;
use sandbox::Sandbox;

mod sandbox;

/// What the programs are given.
pub struct Own {
    /// Where the public API answers.
    pub api: SocketAddr,
    /// Where the node answers for deployed projects.
    pub edge: SocketAddr,
    /// The listeners of the sandbox.
    pub sandbox: Sandbox,
    internal: SocketAddr,
    /// The database, when somebody else looks after it.
    pub database_url: Option<Secret>,
    /// The node's credential, when somebody else looks after it.
    pub node_token: Option<Secret>,
    values: BTreeMap<&'static str, String>,
}

/// Who is given what: the node never sees the database or the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Server,
    Node,
    Sandbox,
}

impl Program {
    /// The program that reads a setting.
    fn of(setting: &str) -> Self {
        match setting {
            name if name.starts_with("SVC_NODE_") || name.starts_with("SVC_EDGE_") => Self::Node,
            name if name.starts_with("SVC_SANDBOX_") => Self::Sandbox,
            _ => Self::Server,
        }
    }
}

impl Own {
    /// Reads what is given and adds what is not. What has to be kept is kept in `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let api = address("SVC_LISTEN", 8080)?;
        let internal = address("SVC_INTERNAL_LISTEN", 8081)?;
        let edge = address("SVC_EDGE_LISTEN", 8088)?;
        let kept = folder.display();
        let mut values = BTreeMap::new();
        for (name, own) in [
            ("SVC_LISTEN", api.to_string()),
            ("SVC_INTERNAL_LISTEN", internal.to_string()),
            ("SVC_EDGE_LISTEN", edge.to_string()),
            ("SVC_PUBLIC_URL", base(api)),
            ("SVC_DASHBOARD_URL", "http://localhost:3000".to_owned()),
            ("SVC_ENABLE_DEV_AUTH", "true".to_owned()),
            ("SVC_PLATFORM_DOMAIN", "localhost".to_owned()),
            ("SVC_SITE_URL", format!("http://{{hostname}}:{}", edge.port())),
            ("SVC_FALLBACK_ORIGIN", "fallback.localhost".to_owned()),
            // Zones can be edited; what serves them is `--dns`.
            ("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost,ns3.localhost".to_owned()),
            ("SVC_BUNDLE_STORE", format!("file://{kept}/bundles")),
            ("SVC_NODE_CORE_URL", base(internal)),
            ("SVC_NODE_DIR", format!("{kept}/node")),
        ] {
            values.insert(name, given::<String>(name)?.unwrap_or(own));
        }
        let sandbox = Sandbox::read()?;
        sandbox.add_settings(&mut values)?;
        if given::<Secret>("SVC_SEALING_KEYS")?.is_none() {
            let keys = folder.join("sealing.keys");
            if !keys.exists() {
                write_secret(&keys, &format!("dev1:{}", STANDARD.encode(World::system().bytes::<32>())))?;
            }
            values.insert("SVC_SEALING_KEYS_FILE", keys.display().to_string());
        }
        let (database_url, node_token) = (given("SVC_DATABASE_URL")?, given("SVC_NODE_TOKEN")?);
        Ok(Self { api, edge, sandbox, internal, database_url, node_token, values })
    }

    /// Base address of the public API.
    pub fn base(&self) -> String {
        base(self.api)
    }

    /// Adds a setting that only became known meanwhile.
    pub fn set(&mut self, name: &'static str, value: impl Display) {
        self.values.insert(name, value.to_string());
    }

    /// Hands a program its settings, and no setting of another program.
    pub fn hand_to(&self, program: Program, command: &mut Command) {
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
            if name.starts_with("SVC_") && name != "SVC_CONFIG" && Program::of(&name) != program {
                command.env_remove(name);
            }
        }
        command.envs(self.values.iter().filter(|(name, _)| Program::of(name) == program));
    }

    /// Fails when somebody else listens where the programs are to. The programs of a run that was killed just now may
    /// still be on their way out.
    pub async fn check_ports(&self) -> Result<()> {
        const ON_THEIR_WAY: Duration = Duration::from_secs(3);
        let own = [("SVC_LISTEN", self.api), ("SVC_INTERNAL_LISTEN", self.internal), ("SVC_EDGE_LISTEN", self.edge)];
        for (name, listen) in own.into_iter().chain(self.sandbox.listeners()) {
            let start = Instant::now();
            while let Err(error) = TcpListener::bind(listen) {
                let wait = error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < ON_THEIR_WAY;
                ensure!(wait, "{listen}: {error}; stop what listens there, or set {name} to another address");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }
}

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api = base(self.api);
        writeln!(f, "  API       {api}  (reference: {api}/docs)")?;
        writeln!(f, "  Projects  http://<project>-<org>.localhost:{}", self.edge.port())?;
        writeln!(f, "  Internal  {}  (metrics: /metrics)", base(self.internal))?;
        writeln!(f, "  Sandbox   {}  (mail, code host, DNS records)", base(self.sandbox.http))?;
        if let Some(url) = self.values.get("SVC_DATABASE_URL") {
            writeln!(f, "  Database  psql '{url}'")?;
        }
        write!(f, "\n  Ctrl-C stops everything.")
    }
}

fn address(name: &'static str, port: u16) -> Result<SocketAddr> {
    Ok(given(name)?.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// The base address at which this machine reaches what listens there.
fn base(listen: SocketAddr) -> String {
    format!("http://{}", reachable(listen))
}

/// The address at which this machine reaches a listener.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
