//! Default settings for development. Settings from the environment or the `SVC_CONFIG` file take precedence.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use settings::{Secret, is_loopback_host};
use url::Url;
use xtask::credential::ensure_key;

use crate::setting::read_setting;
use sandbox::Sandbox;

mod sandbox;

/// The settings of all programs.
pub struct DevSettings {
    /// The address of the public API.
    pub api: SocketAddr,
    /// The address at which the node serves projects.
    pub edge: SocketAddr,
    /// The addresses of the git node for HTTP, for SSH, and for the control plane.
    pub git: [SocketAddr; 3],
    /// The addresses of the mail node for SMTP and for metrics.
    pub mail: [SocketAddr; 2],
    /// The addresses of the sandbox.
    pub sandbox: Sandbox,
    internal: SocketAddr,
    /// The URL of an external database, if configured.
    pub database_url: Option<Secret>,
    /// The address at which the checkout's own cluster serves the databases of projects. `None` if another one is
    /// configured or if it is unavailable.
    pub project_databases: Option<SocketAddr>,
    /// Whether the authorization server for connected apps is on.
    pub has_connected_apps: bool,
    /// The credential of the node, if configured.
    pub node_token: Option<Secret>,
    /// The credential of the git node, if configured.
    pub git_token: Option<Secret>,
    /// The credential of the mail node, if configured.
    pub mail_token: Option<Secret>,
    values: BTreeMap<&'static str, String>,
}

/// The programs. Each receives only its own settings: the node never receives the database URL or the sealing keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Server,
    Node,
    GitNode,
    MailNode,
    Sandbox,
}

impl Program {
    /// Returns the program that reads a setting.
    fn for_setting(setting: &str) -> Self {
        match setting {
            name if name.starts_with("SVC_NODE_") || name.starts_with("SVC_EDGE_") => Self::Node,
            "SVC_GIT_URL" | "SVC_GIT_SSH_HOST" => Self::Server,
            name if name.starts_with("SVC_GIT_") => Self::GitNode,
            name if name.starts_with("SVC_MX_") => Self::MailNode,
            name if name.starts_with("SVC_SANDBOX_") => Self::Sandbox,
            _ => Self::Server,
        }
    }
}

impl DevSettings {
    /// Reads the configured settings and adds defaults for the others. Persistent state is in `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let api = listen_address("SVC_LISTEN", 8080)?;
        let internal = listen_address("SVC_INTERNAL_LISTEN", 8081)?;
        let edge = listen_address("SVC_EDGE_LISTEN", 8088)?;
        let git = [("SVC_GIT_LISTEN", 8093), ("SVC_GIT_SSH_LISTEN", 2222), ("SVC_GIT_INTERNAL_LISTEN", 8094)];
        let [git_http, git_ssh, git_internal] = git.map(|(name, port)| listen_address(name, port));
        let git = [git_http?, git_ssh?, git_internal?];
        let mail = [listen_address("SVC_MX_LISTEN", 2525)?, listen_address("SVC_MX_INTERNAL_LISTEN", 8095)?];
        let state = folder.display();
        let sandbox = Sandbox::read()?;
        let mut values = BTreeMap::new();
        for (name, default) in [
            ("SVC_LISTEN", api.to_string()),
            ("SVC_INTERNAL_LISTEN", internal.to_string()),
            ("SVC_EDGE_LISTEN", edge.to_string()),
            ("SVC_PUBLIC_URL", base_url(api)),
            ("SVC_DASHBOARD_URL", sandbox.url()),
            ("SVC_ENABLE_DEV_AUTH", "true".to_owned()),
            ("SVC_PLATFORM_DOMAIN", "localhost".to_owned()),
            ("SVC_SITE_URL", format!("http://{{hostname}}:{}", edge.port())),
            ("SVC_FALLBACK_ORIGIN", "fallback.localhost".to_owned()),
            // Zones can be edited, but are served only with `--dns`.
            ("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost,ns3.localhost".to_owned()),
            ("SVC_BUNDLE_STORE", format!("file://{state}/bundles")),
            ("SVC_NODE_CORE_URL", base_url(internal)),
            ("SVC_NODE_DIR", format!("{state}/node")),
            ("SVC_NODE_STORAGE", format!("file://{state}/objects")),
            ("SVC_GIT_LISTEN", git[0].to_string()),
            ("SVC_GIT_SSH_LISTEN", git[1].to_string()),
            ("SVC_GIT_INTERNAL_LISTEN", git[2].to_string()),
            ("SVC_GIT_CORE_URL", base_url(internal)),
            ("SVC_GIT_DIR", format!("{state}/git")),
            ("SVC_GIT_URL", base_url(git[0])),
            ("SVC_GIT_SSH_HOST", format!("localhost:{}", git[1].port())),
            ("SVC_MAIL_DOMAIN", "mail.localhost".to_owned()),
            ("SVC_MX_LISTEN", mail[0].to_string()),
            ("SVC_MX_INTERNAL_LISTEN", mail[1].to_string()),
            ("SVC_MX_HOSTNAME", "mx.localhost".to_owned()),
            ("SVC_MX_CORE_URL", base_url(internal)),
            ("SVC_MX_DIR", format!("{state}/mx")),
            ("SVC_SANDBOX_S3_DIR", format!("{state}/s3")),
        ] {
            values.insert(name, read_setting::<String>(name)?.unwrap_or(default));
        }
        if read_setting::<Secret>("SVC_SEALING_KEYS")?.is_none() {
            let keys = folder.join("sealing.keys");
            ensure_key(&keys, "dev1:")?;
            values.insert("SVC_SEALING_KEYS_FILE", keys.display().to_string());
        }
        let project_databases = match read_setting::<Secret>("SVC_NODE_DATABASE_URL")? {
            Some(_) => None,
            None => Some(database_address()?),
        };
        let [public_url, dashboard_url] =
            ["SVC_PUBLIC_URL", "SVC_DASHBOARD_URL"].map(|name| values.get(name).cloned().unwrap_or_default());
        let has_connected_apps = read_setting::<String>("SVC_OAUTH_ISSUER")?.is_some() || may_be_issuer(&public_url);
        let mut settings = Self {
            api,
            edge,
            git,
            mail,
            sandbox,
            internal,
            database_url: read_setting("SVC_DATABASE_URL")?,
            project_databases,
            has_connected_apps,
            node_token: read_setting("SVC_NODE_TOKEN")?,
            git_token: read_setting("SVC_GIT_TOKEN")?,
            mail_token: read_setting("SVC_MX_TOKEN")?,
            values,
        };
        for (name, default) in settings.sandbox.settings(&public_url, &dashboard_url)? {
            settings.set_default(name, default)?;
        }
        if has_connected_apps {
            settings.set_default("SVC_OAUTH_ISSUER", public_url)?;
            settings.set_default("SVC_OAUTH_DEVICE_FLOW", "on")?;
        }
        Ok(settings)
    }

    /// Adds the settings of the checkout's own cluster for the databases of projects, and of their backups.
    pub fn set_project_databases(&mut self, url: &str, programs: &Path, folder: &Path) -> Result<()> {
        let Some(address) = self.project_databases else { return Ok(()) };
        self.set_default("SVC_NODE_DATABASE_SSLMODE", "disable")?;
        self.set_default("SVC_NODE_BACKUPS", format!("file://{}/backups", folder.display()))?;
        self.set("SVC_NODE_DATABASE_URL", url);
        self.set_default("SVC_NODE_DATABASE_ADDRESS", reachable_address(address))?;
        self.set("SVC_NODE_PG_BIN", programs.display());
        Ok(())
    }

    /// Returns the base URL of the public API.
    pub fn api_url(&self) -> String {
        base_url(self.api)
    }

    /// Returns the form of the default hostnames of projects.
    pub fn default_hostname(&self) -> String {
        let domain = self.values.get("SVC_PLATFORM_DOMAIN").map_or("localhost", String::as_str);
        format!("<project>-<org>.{domain}")
    }

    /// Returns the address at which this machine reaches the sandbox's name server.
    pub fn name_server(&self) -> SocketAddr {
        reachable_address(self.sandbox.dns)
    }

    /// Adds a setting that is only known after the start of another program.
    pub fn set(&mut self, name: &'static str, value: impl Display) {
        self.values.insert(name, value.to_string());
    }

    /// Adds a setting unless it is configured.
    pub fn set_default(&mut self, name: &'static str, value: impl Display) -> Result<()> {
        if read_setting::<Secret>(name)?.is_none() {
            self.set(name, value);
        }
        Ok(())
    }

    /// Passes a program its settings, and removes settings of other programs from its environment.
    pub fn apply_to(&self, program: Program, command: &mut Command) {
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
            if name.starts_with("SVC_") && name != "SVC_CONFIG" && Program::for_setting(&name) != program {
                command.env_remove(name);
            }
        }
        command.envs(self.values.iter().filter(|(name, _)| Program::for_setting(name) == program));
    }

    /// Returns the addresses on which programs listen, with the names of their settings.
    fn listeners(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let listeners =
            [("SVC_LISTEN", self.api), ("SVC_INTERNAL_LISTEN", self.internal), ("SVC_EDGE_LISTEN", self.edge)];
        let git = ["SVC_GIT_LISTEN", "SVC_GIT_SSH_LISTEN", "SVC_GIT_INTERNAL_LISTEN"].into_iter().zip(self.git);
        let mail = ["SVC_MX_LISTEN", "SVC_MX_INTERNAL_LISTEN"].into_iter().zip(self.mail);
        listeners.into_iter().chain(git).chain(mail).chain(self.sandbox.listeners())
    }

    /// Fails if two programs have the same address, or if another process listens on one of the addresses. Waits for
    /// the programs of a run that was just killed. `more` contains the addresses of other programs; those without a
    /// setting are fixed.
    pub async fn check_ports(&self, more: Vec<(Option<&'static str>, SocketAddr)>) -> Result<()> {
        const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
        let mut checked = BTreeMap::new();
        for (name, listen) in self.listeners().map(|(name, listen)| (Some(name), listen)).chain(more) {
            if let Some(other) = checked.insert(listen, name) {
                let names: Vec<&str> = [other, name].into_iter().flatten().collect();
                bail!("two programs listen on {listen}; set {} to another address", names.join(" or "));
            }
            let start = Instant::now();
            while let Err(error) = TcpListener::bind(listen) {
                let wait = error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < EXIT_TIMEOUT;
                let or_set = name.map(|name| format!(", or set {name} to another address")).unwrap_or_default();
                ensure!(wait, "{listen}: {error}; stop the process that listens there{or_set}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }
}

impl Display for DevSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api = base_url(self.api);
        writeln!(f, "  API       {api}  (reference: {api}/docs)")?;
        writeln!(f, "  Projects  http://{}:{}", self.default_hostname(), self.edge.port())?;
        let [git, ssh, _] = self.git;
        writeln!(f, "  Git       {}/<org>/<project>/<repository>.git  (SSH: {ssh})", base_url(git))?;
        if let Some(domain) = self.values.get("SVC_MAIL_DOMAIN") {
            let [smtp, _] = self.mail;
            writeln!(f, "  Mail      smtp://{}  (to <any>@<project>.<org>.{domain})", reachable_address(smtp))?;
        }
        writeln!(f, "  Internal  {}  (metrics: /metrics)", base_url(self.internal))?;
        writeln!(
            f,
            "  Sandbox   {}  (mail, code host, DNS records, objects, payments, AI models, a connected app)",
            self.sandbox.url()
        )?;
        if !self.has_connected_apps {
            writeln!(
                f,
                "  Apps      cannot sign in: SVC_PUBLIC_URL is not an https origin or an address of this machine"
            )?;
        }
        writeln!(f, "  Sign-in   {}/identity  (of the users of projects: svc auth)", self.sandbox.url())?;
        if let Some(url) = self.values.get("SVC_DATABASE_URL") {
            writeln!(f, "  Database  psql '{url}'")?;
        }
        if let Some(address) = self.project_databases
            && let Some(programs) = self.values.get("SVC_NODE_PG_BIN")
        {
            writeln!(f, "  Databases {address}  (of projects: svc db; psql is in {programs})")?;
        }
        write!(f, "\n  Ctrl-C stops everything.")
    }
}

/// Returns the address in a setting, or by default this port of the machine itself.
pub fn listen_address(name: &'static str, port: u16) -> Result<SocketAddr> {
    Ok(read_setting(name)?.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Returns the address of the cluster for the databases of projects. The setting may contain a name, which clients then
/// receive.
fn database_address() -> Result<SocketAddr> {
    const NAME: &str = "SVC_NODE_DATABASE_ADDRESS";
    let Some(address) = read_setting::<String>(NAME)? else { return Ok((Ipv4Addr::LOCALHOST, 8432).into()) };
    let resolved = address.to_socket_addrs().with_context(|| format!("{NAME}={address}"))?.next();
    resolved.with_context(|| format!("{NAME}={address}: the name has no address"))
}

/// Returns whether the server accepts the URL as the issuer of tokens.
fn may_be_issuer(url: &str) -> bool {
    Url::parse(url)
        .is_ok_and(|url| url.path() == "/" && (url.scheme() == "https" || url.host_str().is_some_and(is_loopback_host)))
}

/// Returns the URL at which this machine reaches a listener.
fn base_url(listen: SocketAddr) -> String {
    format!("http://{}", reachable_address(listen))
}

/// Returns the address at which this machine reaches a listener.
fn reachable_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::env;

    use super::*;

    /// Returns the settings that a program receives in addition to its inherited environment.
    fn applied(settings: &DevSettings, program: Program) -> BTreeMap<String, String> {
        let mut command = Command::new("program");
        settings.apply_to(program, &mut command);
        let text = |text: &std::ffi::OsStr| text.to_str().unwrap().to_owned();
        command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect()
    }

    #[test]
    fn programs_have_different_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let settings = DevSettings::read(folder.path()).unwrap();
        let listeners: Vec<_> = settings.listeners().collect();
        let addresses: BTreeSet<_> = listeners.iter().map(|(_, listen)| listen).collect();
        assert_eq!(addresses.len(), listeners.len(), "{listeners:?}");
        assert_eq!(applied(&settings, Program::Server)["SVC_OAUTH_ISSUER"], settings.api_url());
    }

    #[test]
    fn each_configured_setting_takes_precedence() {
        const CONFIGURED: [(Program, &str, &str); 12] = [
            (Program::Server, "SVC_PUBLIC_URL", "http://192.0.2.1:8080"),
            (Program::Node, "SVC_NODE_DATABASE_ADDRESS", "localhost:9432"),
            (Program::Server, "SVC_LENDING_URL", "http://127.0.0.1:1/lending"),
            (Program::Server, "SVC_CODEHOST_USER_URL", "http://127.0.0.1:1/user"),
            (Program::Server, "SVC_PAYMENTS_TOKEN_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
            (Program::Server, "SVC_PAYMENTS_SANDBOX", "off"),
            (Program::Server, "SVC_REGISTRAR_USER", "own"),
            (Program::Server, "SVC_MAILHOOK_TOPIC_ARN", "arn:aws:sns:eu-west-1:1:own"),
            (Program::Node, "SVC_NODE_AI_KEY", "own"),
            (Program::Node, "SVC_NODE_AUTH_CODEHOST_AUTHORIZE_URL", "http://127.0.0.1:1/authorize"),
            (Program::Node, "SVC_NODE_AUTH_WEBACCOUNT_JWKS_URL", "http://127.0.0.1:1/jwks"),
            (Program::Sandbox, "SVC_SANDBOX_API_URL", "http://127.0.0.1:1"),
        ];
        const TEST: &str = "dev::dev_settings::tests::each_configured_setting_takes_precedence";
        if env::var_os("SVC_LENDING_URL").is_none() {
            // Settings are variables of the environment, which can be set only for another process.
            let mut test = Command::new(env::current_exe().unwrap());
            test.args(["--exact", TEST]).envs(CONFIGURED.map(|(_, name, value)| (name, value)));
            let output = test.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let settings = DevSettings::read(folder.path()).unwrap();
        for (program, name, value) in CONFIGURED {
            let applied = applied(&settings, program);
            assert!(applied.get(name).is_none_or(|applied| applied == value), "{name}: {applied:?}");
        }
        // The other settings of these systems keep their defaults.
        for (program, names) in [
            (Program::Server, &["SVC_LENDING_SECRET", "SVC_CODEHOST_CLIENT_ID", "SVC_PAYMENTS_URL"][..]),
            (Program::Server, &["SVC_REGISTRAR_URL", "SVC_MAILHOOK_CA"]),
            (
                Program::Node,
                &["SVC_NODE_AI_URL", "SVC_NODE_AUTH_CODEHOST_TOKEN_URL", "SVC_NODE_AUTH_WEBACCOUNT_ISSUER"],
            ),
            (Program::Sandbox, &["SVC_SANDBOX_URL", "SVC_SANDBOX_LISTEN"]),
        ] {
            let applied = applied(&settings, program);
            assert!(names.iter().all(|name| applied.contains_key(*name)), "{names:?}: {applied:?}");
        }
        assert!(!applied(&settings, Program::Server).contains_key("SVC_PAYMENTS_TOKEN"));
        // The server would refuse this public URL as an issuer.
        assert!(!applied(&settings, Program::Server).contains_key("SVC_OAUTH_ISSUER"));
        assert!(settings.project_databases.is_some_and(|address| address.port() == 9432 && address.ip().is_loopback()));
    }
}
