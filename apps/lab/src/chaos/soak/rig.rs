//! The whole platform: server, node with a Postgres for databases, git node, mail node and the providers.

use std::path::{Path, PathBuf};

use anyhow::Result;
use chaos::{Proxy, Upstream};
use kernel::Secret;
use reqwest::Url;
use sandbox::{AI_PATH, AiServer, DnsServer, Encryption, PaymentsServer, RegistrarServer, SmtpServer};
use xtask::postgres::Cluster;
use xtask::services::Services;

use crate::bench::billing;
use crate::bench::databases::ProjectCluster;
use crate::bench::platform::Platform;
use crate::chaos::rig::address;
use crate::chaos::service::log_errors;
use crate::connected_app::SharedKey;
use crate::git_host::GitNode;
use crate::mail_host::{MailHost, MailNode};
use crate::program::RunningProgram;

/// A program of the platform.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    Server,
    Node,
    GitNode,
    MailNode,
}

/// A network connection through a proxy.
#[derive(Debug, Clone, Copy)]
pub enum Link {
    /// From the server to its database.
    Postgres,
    /// From the server to the mail relay.
    Relay,
    /// From the node to the AI models.
    Models,
}

/// The parts of the platform that stay the same when programs restart.
pub struct Rig {
    pub platform: Platform,
    pub databases: ProjectCluster,
    /// The URL of the control plane's database, which bypasses the proxy.
    pub database: String,
    pub relay: SmtpServer,
    pub models: AiServer,
    pub registrar: RegistrarServer,
    pub payments: PaymentsServer,
    pub key: SharedKey,
    pub folder: PathBuf,
    proxies: [Proxy; 3],
    _resolver: DnsServer,
}

/// The git node and the mail node, and the errors in the logs of programs that have ended.
pub struct Nodes {
    pub git: GitNode,
    pub mail: MailNode,
    folder: PathBuf,
    pub log_errors: Vec<String>,
}

impl Program {
    pub const ALL: [Self; 4] = [Self::Server, Self::Node, Self::GitNode, Self::MailNode];

    /// Returns the name of the program among the services.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Node => "node",
            Self::GitNode => "git",
            Self::MailNode => "mail",
        }
    }
}

impl Rig {
    pub async fn start(services: &mut Services, folder: &Path, workerd: &Path) -> Result<(Self, Nodes)> {
        let (databases, cluster) = (ProjectCluster::start(services, folder)?, Cluster::bench()?);
        let (relay, models) = (SmtpServer::start(Encryption::None).await, AiServer::start().await);
        let (registrar, payments) = (RegistrarServer::start().await, PaymentsServer::start(None).await);
        let (key, resolver) = (SharedKey::generate(), DnsServer::start().await);
        let (postgres, database_url) = Proxy::start_for_postgres(&cluster.url("postgres")).await?;
        let to_relay = Proxy::start(Upstream::Tcp(relay.address())).await?;
        let to_models = Proxy::start(Upstream::Tcp(address(&Url::parse(&models.url())?)?)).await?;
        let mut settings = billing::settings(folder, &models, workerd)?;
        // Later settings replace earlier ones.
        settings.server.extend(key.settings());
        settings.server.extend(registrar.settings());
        settings.server.extend(payments.settings());
        settings.server.extend([
            ("SVC_DATABASE_URL", database_url),
            ("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost".to_owned()),
            ("SVC_DNS_RESOLVER", resolver.address().to_string()),
        ]);
        settings.node.extend(databases.settings());
        settings.node.extend([
            ("SVC_NODE_AI_URL", format!("http://{}{AI_PATH}", to_models.address())),
            ("SVC_NODE_BACKUP_INTERVAL", "20s".to_owned()),
        ]);
        let relay_url = format!("smtp://{}", to_relay.address());
        let MailHost { platform, node: mail, database } =
            MailHost::start_on(services, folder, cluster, &relay_url, settings).await?;
        let git = GitNode::start(services, folder, platform.server.internal, Secret::new(database.clone())).await?;
        let nodes = Nodes { git, mail, folder: folder.to_owned(), log_errors: Vec::new() };
        let proxies = [postgres, to_relay, to_models];
        let folder = folder.to_owned();
        let rig = Self {
            platform,
            databases,
            database,
            relay,
            models,
            registrar,
            payments,
            key,
            folder,
            proxies,
            _resolver: resolver,
        };
        Ok((rig, nodes))
    }

    /// Returns the proxy of a connection.
    pub const fn proxy(&self, link: Link) -> &Proxy {
        let [postgres, relay, models] = &self.proxies;
        match link {
            Link::Postgres => postgres,
            Link::Relay => relay,
            Link::Models => models,
        }
    }

    /// Returns a running program.
    pub const fn program<'a>(&'a self, nodes: &'a Nodes, program: Program) -> &'a RunningProgram {
        match program {
            Program::Server => &self.platform.server.program,
            Program::Node => &self.platform.node,
            Program::GitNode => &nodes.git.program,
            Program::MailNode => &nodes.mail.program,
        }
    }
}

impl Nodes {
    /// Reads the log of a program, which the next start overwrites.
    pub fn keep_log_errors(&mut self, program: Program) -> Result<()> {
        let errors = log_errors(&self.folder.join(format!("{}.log", program.name())))?;
        self.log_errors.extend(errors.into_iter().map(|line| format!("in the log of {program:?}: {line}")));
        Ok(())
    }
}
