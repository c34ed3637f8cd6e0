//! A mail node, and a platform with one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use convergence::NodeKind;
use kernel::Secret;
use reqwest::Method;
use sandbox::DnsServer;
use serde_json::json;
use testkit::reserved_address;
use xtask::credential;
use xtask::postgres::Cluster;
use xtask::services::Services;

use crate::bench::platform::{Platform, Settings};
use crate::bench::server::string_at;
use crate::program::RunningProgram;

/// A running mail node.
pub struct MailNode {
    pub smtp: SocketAddr,
    pub program: RunningProgram,
    queue: PathBuf,
    /// The name server for SPF.
    _dns: DnsServer,
}

/// A running platform with a mail node.
pub struct MailHost {
    pub platform: Platform,
    pub node: MailNode,
    /// The URL of the database.
    pub database: String,
}

impl MailNode {
    /// Starts a mail node with this credential. A client has no limits.
    pub async fn start(services: &mut Services, folder: &Path, core_url: String, token: &Path) -> Result<Self> {
        let ([smtp, internal], dns) = (std::array::from_fn(|_| reserved_address()), DnsServer::start().await);
        // Without an SPF record, each mail would need a query: the responses of this name server are not cached then.
        dns.add("example.org", "TXT", "v=spf1 ip4:127.0.0.1 -all")?;
        let queue = folder.join("queue");
        let settings = vec![
            ("SVC_MX_LISTEN", smtp.to_string()),
            ("SVC_MX_INTERNAL_LISTEN", internal.to_string()),
            ("SVC_MX_HOSTNAME", "mx.localhost".to_owned()),
            ("SVC_MX_CORE_URL", core_url),
            ("SVC_MX_TOKEN_FILE", token.display().to_string()),
            ("SVC_MX_RESOLVER", dns.address().to_string()),
            ("SVC_MX_DIR", queue.display().to_string()),
            ("SVC_MX_MAX_CONNECTIONS", "2000".to_owned()),
            ("SVC_MX_MAX_CONNECTIONS_PER_ADDRESS", "2000".to_owned()),
            ("SVC_MX_MAX_MAILS_PER_MINUTE_PER_ADDRESS", "100000000".to_owned()),
            ("SVC_MX_LOG", "warn".to_owned()),
        ];
        let program = RunningProgram::start(services, "mail", folder, settings, (internal, "/healthz")).await?;
        Ok(Self { smtp, program, queue, _dns: dns })
    }

    /// Stops the node, and deletes its queue.
    pub async fn stop(self, services: &mut Services) -> Result<()> {
        self.program.stop(services).await;
        Ok(std::fs::remove_dir_all(self.queue)?)
    }

    /// Returns the number of mails in the queue.
    pub fn queued(&self) -> Result<usize> {
        // One file is the lock.
        Ok(std::fs::read_dir(&self.queue)?.count().saturating_sub(1))
    }
}

impl MailHost {
    /// Starts all on an empty database. `relay` is the URL of the relay, and `node` contains settings of the node.
    pub async fn start(
        services: &mut Services,
        folder: &Path,
        relay: &str,
        node: Vec<(&'static str, String)>,
    ) -> Result<Self> {
        Self::start_on(services, folder, Cluster::bench()?, relay, Settings { node, ..Settings::default() }).await
    }

    /// Starts all on an empty database of this cluster, with more settings.
    pub async fn start_on(
        services: &mut Services,
        folder: &Path,
        cluster: Cluster,
        relay: &str,
        mut more: Settings,
    ) -> Result<Self> {
        let database = cluster.url("postgres");
        more.server.extend([
            ("SVC_MAIL_DOMAIN", "mail.localhost".to_owned()),
            ("SVC_SMTP_URL", format!("{relay}?tls=none")),
            ("SVC_MAIL_FROM", "noreply@mail.localhost".to_owned()),
        ]);
        let platform = Platform::start_on(services, folder, cluster, more).await?;
        let token = folder.join("mail.token");
        credential::ensure_node(Secret::new(database.clone()), &token, NodeKind::Mail).await?;
        let node = MailNode::start(services, folder, platform.internal_url(), &token).await?;
        Ok(Self { platform, node, database })
    }

    /// Creates a project with a mail address. Returns the domain of its addresses.
    pub async fn create(&self, name: &str) -> Result<String> {
        self.platform.create_project(name).await?;
        enable_email(&self.platform, name).await
    }
}

/// Creates a project with a mail address and a worker that responds to requests for `/`.
pub async fn create_with_worker(platform: &Platform, name: &str, worker: &[u8]) -> Result<String> {
    let project = platform.create_project(name).await?;
    let address = enable_email(platform, name).await?;
    project.deploy(&[("worker/index.js", worker)]).await?;
    project.wait_until_served("/").await?;
    Ok(address)
}

async fn enable_email(platform: &Platform, name: &str) -> Result<String> {
    let status = platform.call(Method::POST, &format!("{name}/email"), &json!(null)).await?;
    string_at(&status, "/address")
}
