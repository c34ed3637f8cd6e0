//! Everything around the server under test: Postgres behind a proxy, the outside world's other sides behind theirs, and
//! writers who keep a journal.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chaos::{Proxy, Upstream, Writers};
use kernel::{Secret, World};
use reqwest::Url;
use sandbox::{CodeHostServer, DnsServer, Encryption, OAuthClient, SmtpServer};
use store::migrations::{self, Migrator};
use tokio::task::JoinHandle;
use xtask::postgres::Cluster;

use super::Outcome;
use super::service::Service;
use super::wire::{self, Ask, Shot};
use crate::bench::server::SEALING_KEY;

pub struct Rig {
    pub cluster: Cluster,
    /// Behind the proxy.
    pub database: String,
    pub postgres: Proxy,
    pub smtp: (SmtpServer, Proxy),
    pub code_host: (CodeHostServer, Proxy),
    pub resolver: DnsServer,
    pub service: Service,
    pub writers: Writers,
    folder: PathBuf,
}

/// Writers at a time.
const WRITERS: usize = 8;

impl Rig {
    /// Starts everything, on a Postgres of its own.
    pub async fn start(more: &[(&'static str, String)]) -> Result<Self> {
        Self::on(Cluster::bench()?, "postgres", more).await
    }

    /// Starts everything on this database of a cluster, with these settings beside the usual ones.
    pub async fn on(cluster: Cluster, database: &str, more: &[(&'static str, String)]) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("svc-chaos-{}", World::system().id::<uuid::Uuid>().simple()));
        fs::create_dir(&folder)?;
        let database = cluster.url(database);
        Migrator::default().up(&mut migrations::connect(Secret::new(database.clone())).await?).await?;
        let (postgres, through) = Proxy::before_postgres(&database).await?;
        let smtp = SmtpServer::start(Encryption::None).await;
        let smtp_proxy = Proxy::before(Upstream::Tcp(smtp.address())).await?;
        let (code_host, resolver) = (CodeHostServer::start().await, DnsServer::start().await);
        let client = code_host.client();
        let code_host_proxy = Proxy::before(Upstream::Tcp(address(&client.token_url)?)).await?;
        let behind = |url: &Url| {
            let (proxy, path) = (code_host_proxy.address(), url.path());
            Url::parse(&format!("http://{proxy}{path}"))
        };
        let (token_url, user_url) = (behind(&client.token_url)?, behind(&client.user_url)?);
        let behind_proxy = OAuthClient { token_url, user_url, ..client };
        let mut settings = behind_proxy.settings().to_vec();
        settings.extend([
            ("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost".to_owned()),
            ("SVC_SMTP_URL", format!("smtp://{}", smtp_proxy.address())),
            ("SVC_MAIL_FROM", "Svc <no-reply@svc.example>".to_owned()),
            ("SVC_DNS_RESOLVER", resolver.address().to_string()),
        ]);
        settings.extend_from_slice(more);
        let service = Service::start(&folder, through, &settings).await?;
        let writers = Writers::start(&service.base(), WRITERS).await?;
        let (smtp, code_host) = ((smtp, smtp_proxy), (code_host, code_host_proxy));
        Ok(Self { cluster, database, postgres, smtp, code_host, resolver, service, writers, folder })
    }

    /// The session of a writer, and its organization.
    pub fn caller(&self, number: usize) -> Result<(String, String)> {
        let all = self.writers.all();
        let writer = all.get(number % all.len().max(1)).context("no writer")?;
        Ok((writer.token().to_owned(), writer.org().to_owned()))
    }

    /// A request of the first writer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        Ok(wire::request(method, path, &self.caller(0)?.0, body))
    }

    /// Looks at whatever was written and at what must hold, and notes what is wrong. Gives the time until everything was
    /// acknowledged.
    pub async fn look(&mut self, outcome: &mut Outcome) -> Result<Duration> {
        let start = Instant::now();
        if let Err(error) = self.writers.settle().await {
            outcome.wrong.push(error.to_string());
        }
        let took = start.elapsed();
        outcome.wrong.extend(self.writers.faults(&self.database, &[SEALING_KEY]).await?);
        outcome.wrong.extend(self.service.faults()?.into_iter().map(|line| format!("in the log: {line}")));
        Ok(took)
    }

    /// Ends everything.
    pub async fn stop(self) -> Result<()> {
        self.service.stop().await;
        drop(self.cluster);
        Ok(fs::remove_dir_all(self.folder)?)
    }
}

fn address(url: &Url) -> Result<SocketAddr> {
    url.socket_addrs(|| None)?.first().copied().context("no address")
}

/// One request again and again, whatever else goes on.
pub struct Watch {
    over: Arc<AtomicBool>,
    shots: JoinHandle<Vec<Shot>>,
}

impl Watch {
    /// Fifty a second.
    pub fn start(address: SocketAddr, request: Vec<u8>) -> Self {
        let over = Arc::<AtomicBool>::default();
        let (ends, ask): (_, Ask) = (over.clone(), Arc::new(move |_| request.clone()));
        let shots =
            tokio::spawn(
                async move { wire::open_while(address, &ask, 50.0, move |_| !ends.load(Ordering::SeqCst)).await },
            );
        Self { over, shots }
    }

    /// Of the route that does nothing.
    pub fn no_op(address: SocketAddr) -> Self {
        Self::start(address, wire::request("GET", "/healthz", "", ""))
    }

    /// What came of them.
    pub async fn end(self) -> Result<Vec<Shot>> {
        self.over.store(true, Ordering::SeqCst);
        Ok(self.shots.await?)
    }
}
