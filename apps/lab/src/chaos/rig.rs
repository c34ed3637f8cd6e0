//! The server under test with Postgres and the providers, each behind a fault proxy, and writers that keep a journal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chaos::{Proxy, Upstream, Writers};
use kernel::Secret;
use reqwest::{Client, Method, RequestBuilder, Url};
use sandbox::{CodeHostServer, DnsServer, Encryption, OAuthClient, SmtpServer};
use serde_json::Value;
use store::migrations::{self, Migrator};
use tempfile::TempDir;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::sleep;
use xtask::postgres::{Cluster, Stop};

use super::Outcome;
use super::load::{self, RequestSource, Sample};
use super::service::Service;
use crate::bench::machine::create_folder;
use crate::bench::server::{SEALING_KEY, success_json};
use crate::random;

pub struct Rig {
    pub cluster: Cluster,
    /// The database URL that bypasses the proxy.
    pub database: String,
    pub postgres: Proxy,
    pub smtp: (SmtpServer, Proxy),
    pub code_host: (CodeHostServer, Proxy),
    pub resolver: DnsServer,
    pub service: Service,
    pub writers: Writers,
    /// The last field, so that it is dropped after the service.
    folder: TempDir,
}

/// The number of concurrent writers.
const WRITERS: usize = 8;
/// How long Postgres stays down in a restart.
const POSTGRES_DOWN: Duration = Duration::from_millis(300);

impl Rig {
    /// Starts everything with a new Postgres cluster.
    pub async fn start(more: &[(&'static str, String)]) -> Result<Self> {
        Self::start_on(Cluster::bench()?, "postgres", more).await
    }

    /// Starts everything on a database of this cluster. `more` contains additional settings.
    pub async fn start_on(cluster: Cluster, database: &str, more: &[(&'static str, String)]) -> Result<Self> {
        let folder = create_folder()?;
        let database = cluster.url(database);
        Migrator::default().up(&mut migrations::connect(Secret::new(database.clone())).await?).await?;
        let (postgres, proxy_url) = Proxy::start_for_postgres(&database).await?;
        let smtp = SmtpServer::start(Encryption::None).await;
        let smtp_proxy = Proxy::start(Upstream::Tcp(smtp.address())).await?;
        let (code_host, resolver) = (CodeHostServer::start().await, DnsServer::start().await);
        let client = code_host.client();
        let code_host_proxy = Proxy::start(Upstream::Tcp(address(&client.token_url)?)).await?;
        let through_proxy = |url: &Url| {
            let (proxy, path) = (code_host_proxy.address(), url.path());
            Url::parse(&format!("http://{proxy}{path}"))
        };
        let (token_url, user_url) = (through_proxy(&client.token_url)?, through_proxy(&client.user_url)?);
        let behind_proxy = OAuthClient { token_url, user_url, ..client };
        let mut settings = behind_proxy.settings().to_vec();
        settings.extend([
            ("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost".to_owned()),
            ("SVC_SMTP_URL", format!("smtp://{}", smtp_proxy.address())),
            ("SVC_MAIL_FROM", "Svc <no-reply@svc.example>".to_owned()),
            ("SVC_DNS_RESOLVER", resolver.address().to_string()),
        ]);
        settings.extend_from_slice(more);
        let service = Service::start(folder.path(), proxy_url, &settings).await?;
        let writers = Writers::start(&service.base(), WRITERS).await?;
        let (smtp, code_host) = ((smtp, smtp_proxy), (code_host, code_host_proxy));
        Ok(Self { cluster, database, postgres, smtp, code_host, resolver, service, writers, folder })
    }

    /// Returns the session token and the organization of a writer.
    pub fn caller(&self, number: usize) -> Result<(String, String)> {
        let all = self.writers.all();
        let writer = all.get(number % all.len().max(1)).context("no writer")?;
        Ok((writer.token().to_owned(), writer.org().to_owned()))
    }

    /// Builds a request of the first writer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        Ok(load::request(method, path, &self.caller(0)?.0, body))
    }

    /// Builds a request of the first writer to a path below the path of its organization.
    pub fn org_request(&self, client: &Client, method: Method, path: &str) -> Result<RequestBuilder> {
        let (token, org) = self.caller(0)?;
        Ok(client.request(method, format!("{}/v1/orgs/{org}/{path}", self.service.base())).bearer_auth(token))
    }

    /// Sends a POST request like [`Self::org_request`]. Returns the JSON body of a 2xx response.
    pub async fn post(&self, client: &Client, path: &str, body: Value) -> Result<Value> {
        success_json(self.org_request(client, Method::POST, path)?.json(&body).send().await?).await
    }

    /// Kills the server with SIGKILL and stops Postgres immediately, alternately and at random times. Both run for
    /// three seconds between two faults.
    pub async fn kill_repeatedly(&mut self, kills: usize) -> Result<()> {
        for number in 0..kills {
            sleep(random::millis(300..1500)).await;
            if number % 2 == 0 {
                self.service.kill().await?;
                self.service.restart().await?;
            } else {
                restart_postgres(Some(&mut self.cluster), Stop::Immediate).await?;
            }
        }
        sleep(Duration::from_secs(3)).await;
        Ok(())
    }

    /// Retries unacknowledged writes, then records the violations in `outcome`. Returns the time until all writes were
    /// acknowledged.
    pub async fn verify(&mut self, outcome: &mut Outcome) -> Result<Duration> {
        let start = Instant::now();
        if let Err(error) = self.writers.retry_unacknowledged().await {
            outcome.violations.push(error.to_string());
        }
        let resolved = start.elapsed();
        outcome.violations.extend(self.writers.violations(&self.database, &[SEALING_KEY]).await?);
        outcome.violations.extend(self.service.log_errors()?.into_iter().map(|line| format!("in the log: {line}")));
        Ok(resolved)
    }

    /// Stops everything.
    pub async fn stop(self) -> Result<()> {
        self.service.stop().await;
        drop(self.cluster);
        Ok(self.folder.close()?)
    }
}

/// Stops Postgres and starts it again. Fails if there is no cluster.
pub async fn restart_postgres(cluster: Option<&mut Cluster>, mode: Stop) -> Result<()> {
    let cluster = cluster.context("no cluster")?;
    block_in_place(|| cluster.stop(mode));
    sleep(POSTGRES_DOWN).await;
    block_in_place(|| cluster.restart())
}

/// Returns the address of a URL.
pub fn address(url: &Url) -> Result<SocketAddr> {
    url.socket_addrs(|| None)?.first().copied().context("no address")
}

/// A request that is repeated in the background, until this value is dropped.
pub struct RequestProbe {
    /// The requests end with this value.
    running: Arc<()>,
    samples: JoinHandle<Vec<Sample>>,
}

impl RequestProbe {
    /// Starts to send the request 50 times per second.
    pub fn start(address: SocketAddr, request: Vec<u8>) -> Self {
        let running = Arc::new(());
        let (probe, requests): (_, RequestSource) = (Arc::downgrade(&running), Arc::new(move |_| request.clone()));
        let samples = tokio::spawn(async move {
            load::open_loop_while(address, &requests, 50.0, move |_| probe.strong_count() > 0).await
        });
        Self { running, samples }
    }

    /// Starts to request `/healthz`, which does nothing.
    pub fn no_op(address: SocketAddr) -> Self {
        Self::start(address, load::request("GET", "/healthz", "", ""))
    }

    /// Stops and returns the samples.
    pub async fn stop(self) -> Result<Vec<Sample>> {
        drop(self.running);
        Ok(self.samples.await?)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn requests_of_a_dropped_probe_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probe = RequestProbe::no_op(listener.local_addr().unwrap());
        let (mut stream, _) = listener.accept().await.unwrap();
        drop((probe, listener));
        // After its last request, the probe closes the connection.
        let responses = async {
            while stream.read(&mut [0; 1024]).await.unwrap() > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
        };
        timeout(Duration::from_secs(30), responses).await.unwrap();
    }
}
