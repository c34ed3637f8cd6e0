//! A server, a node and nginx with the same certificates.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use testkit::reserved_address;
use tokio::time::sleep;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workspace::print_step;

use super::authority::{Authority, Leaf};
use super::client::Expected;
use super::nginx::Nginx;
use super::publisher::Publisher;
use super::requests::PATH;
use super::target::Target;
use crate::bench::edge::page;
use crate::bench::platform::{Platform, Settings};
use crate::connected_app::SharedKey;
use crate::random;

/// The number of certificates of a project.
const NAMES_PER_PROJECT: usize = 100;
/// The project with the page.
const PAGE: &str = "page";
/// The longest time until the node has fetched all certificates.
const FETCH_TIMEOUT: Duration = Duration::from_secs(600);

pub struct Rig {
    pub authority: Authority,
    pub publisher: Publisher,
    pub nginx: Nginx,
    /// The hostname of the page.
    pub host: String,
    /// The names with certificates, without [`Self::host`].
    pub names: Vec<String>,
    pub expected: Arc<Expected>,
    /// The operator's folder.
    pub files: PathBuf,
    platform: Platform,
    /// The certificates of [`Self::names`].
    leaves: Vec<Leaf>,
    tls: SocketAddr,
    metrics: SocketAddr,
}

impl Rig {
    /// Starts a server and a node. Only the page has a certificate at the node, and nginx is not started.
    pub async fn start(services: &mut Services, folder: &Path, nginx: PathBuf, count: usize) -> Result<Self> {
        let (files, [tls, metrics]) = (folder.join("operator"), [(); 2].map(|()| reserved_address()));
        fs::create_dir(&files)?;
        let (key, cluster) = (SharedKey::generate(), Cluster::test()?);
        let database_url = cluster.url("postgres");
        let node = vec![
            ("SVC_EDGE_TLS_LISTEN", tls.to_string()),
            ("SVC_EDGE_CERTIFICATES", files.display().to_string()),
            ("SVC_NODE_METRICS_LISTEN", metrics.to_string()),
        ];
        let settings = Settings { server: vec![key.setting()], node };
        let platform = Platform::start_on(services, folder, cluster, settings).await?;
        let project = platform.create_project(PAGE).await?;
        project.deploy(&[(&format!("assets{PATH}"), &page())]).await?;
        project.wait_until_served(PATH).await?;
        let host = project.hostname.clone();
        for number in 0..count.div_ceil(NAMES_PER_PROJECT) {
            platform.create_project(&project_name(number)).await?;
        }
        let start = Instant::now();
        let (authority, publisher) = (Authority::generate()?, Publisher::new(&key, &database_url).await?);
        let names: Vec<String> = (0..count).map(|number| format!("h{number}.certificates.example")).collect();
        let leaves: Vec<Leaf> = names.iter().map(|name| authority.issue(name)).collect::<Result<_>>()?;
        let (nginx, page) = (Nginx::new(nginx, folder)?, authority.issue(&host)?);
        let mut expected: Expected = HashMap::from([(host.clone(), page.der.clone())]);
        nginx.write(&host, &page)?;
        for (name, leaf) in names.iter().zip(&leaves) {
            nginx.write(name, leaf)?;
            expected.insert(name.clone(), leaf.der.clone());
        }
        print_step("Certificates", format_args!("{count} generated"), start);
        publisher.publish(PAGE, &[(host.as_str(), &page)]).await?;
        let expected = Arc::new(expected);
        let rig = Self { authority, publisher, nginx, host, names, expected, files, platform, leaves, tls, metrics };
        services.supervise(rig.wait_until_held(1)).await?;
        Ok(rig)
    }

    /// Gives the node all certificates. Returns the duration until it has fetched them.
    pub async fn publish_all(&self) -> Result<Duration> {
        let certificates: Vec<(&str, &Leaf)> = self.names.iter().map(String::as_str).zip(&self.leaves).collect();
        let start = Instant::now();
        for (number, certificates) in certificates.chunks(NAMES_PER_PROJECT).enumerate() {
            self.publisher.publish(&project_name(number), certificates).await?;
        }
        self.wait_until_held(self.names.len() + 1).await?;
        Ok(start.elapsed())
    }

    /// Restarts the node, and waits until it is idle. Returns the duration until it responded.
    pub async fn restart_node(&self, services: &mut Services) -> Result<Duration> {
        let duration = self.platform.node.restart(services).await?;
        services.supervise(self.platform.wait_until_idle()).await?;
        Ok(duration)
    }

    /// Returns the node. A restart changes its process.
    pub fn node(&self) -> Target {
        Target { name: "node", address: self.tls, process: self.platform.node.pid() }
    }

    /// Returns a random name with a certificate, and its project.
    pub fn random_name(&self) -> Result<(String, String)> {
        let random = random::index(self.names.len());
        let name = self.names.get(random).context("there are no names")?;
        Ok((project_name(random / NAMES_PER_PROJECT), name.clone()))
    }

    /// Waits until the node presents this number of issued certificates.
    async fn wait_until_held(&self, count: usize) -> Result<()> {
        let (start, url) = (Instant::now(), format!("http://{}/metrics", self.metrics));
        let held = format!("svc_node_tls_certificates{{source=\"issued\"}} {count}\n");
        while !self.platform.get(&url, &[]).await?.text().await?.contains(&held) {
            ensure!(start.elapsed() < FETCH_TIMEOUT, "the node has not fetched {count} certificates");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn project_name(number: usize) -> String {
    format!("site{number}")
}
