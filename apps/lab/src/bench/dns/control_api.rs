//! Zones in the control API.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use futures_util::future::try_join_all;
use kernel::Secret;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use store::migrations::{self, Migrator};
use xtask::services::Services;

use super::updates::RrsetUpdate;
use crate::bench::server::{Server, success_json};

const ZONES: &str = "/v1/orgs/ada/dns/zones";
/// The number of zones that are created concurrently.
const MAX_CONCURRENT_REQUESTS: usize = 8;

pub struct ControlApi {
    server: Server,
}

impl ControlApi {
    pub async fn start(services: &mut Services, folder: &Path, database_url: String) -> Result<Self> {
        Migrator::default().up(&mut migrations::connect(Secret::new(database_url.clone())).await?).await?;
        let nameservers = "ns1.bench.example,ns2.bench.example,ns3.bench.example".to_owned();
        let settings = [("SVC_NAMESERVERS", nameservers)];
        Ok(Self { server: Server::start(services, folder, database_url, &settings).await? })
    }

    /// Creates a zone with this number of rrsets.
    pub async fn create_zone(&self, name: &str, rrsets: u32) -> Result<()> {
        self.create(name).await?;
        let mut file = String::new();
        for number in 0..rrsets {
            writeln!(file, "r{number} 300 IN A 192.0.2.1")?;
        }
        let put = self.server.request(Method::PUT, &format!("{ZONES}/{name}/zonefile"));
        success_json(put.header("content-type", "text/dns").body(file).send().await?).await.map(drop)
    }

    /// Creates many zones that contain only SOA and NS.
    pub async fn create_small_zones(&self, zones: u32) -> Result<()> {
        let numbers: Vec<u32> = (0..zones).collect();
        for batch in numbers.chunks(MAX_CONCURRENT_REQUESTS) {
            try_join_all(batch.iter().map(async |number| self.create(&format!("z{number}.example")).await)).await?;
        }
        Ok(())
    }

    async fn create(&self, name: &str) -> Result<()> {
        let post = self.server.request(Method::POST, ZONES).json(&json!({ "name": name }));
        success_json(post.send().await?).await.map(drop)
    }

    pub fn replace(&self, zone: &str, change: RrsetUpdate) -> RequestBuilder {
        let path = format!("{ZONES}/{zone}/rrsets/r{}/A", change.rrset);
        self.server.request(Method::PUT, &path).json(&json!({ "ttl": 300, "records": [change.address.to_string()] }))
    }

    pub fn list(&self, limit: u32) -> RequestBuilder {
        self.server.request(Method::GET, &format!("{ZONES}?limit={limit}"))
    }

    pub fn detail(&self, zone: &str) -> RequestBuilder {
        self.server.request(Method::GET, &format!("{ZONES}/{zone}"))
    }
}
