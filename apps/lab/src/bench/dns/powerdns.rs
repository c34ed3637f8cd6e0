//! Debian's PowerDNS on the same Postgres cluster, configured for unsigned zones: the gpgsql backend with the package's
//! schema, the HTTP API, prepared statements, and no request log. By default it does not rectify the zone after each
//! change, because only signed zones need that.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use store::migrations;
use xtask::debian::{self, Unpacked};
use xtask::probe;
use xtask::services::Services;

use super::updates::RrsetUpdate;
use crate::bench::report::version_of;
use crate::bench::server::{client, success_json};
use testkit::reserved_address;

const ZONES: &str = "/api/v1/servers/localhost/zones";
const KEY: &str = "bench";

/// The location of its database, and its options.
pub struct Location {
    /// The folder with the Postgres socket.
    pub sockets: PathBuf,
    /// The URL of an existing database.
    pub existing_database_url: String,
    /// The URL of the database that PowerDNS creates.
    pub database_url: String,
    /// Whether PowerDNS rectifies a zone after each change, which is its default.
    pub rectify: bool,
}

/// The files of the packages.
pub struct Programs {
    server: PathBuf,
    backends: PathBuf,
    schema: PathBuf,
    libraries: PathBuf,
}

pub struct PowerDns {
    client: Client,
    api: String,
    database_url: String,
}

impl Programs {
    pub fn find() -> Result<Self> {
        let unpacked = Unpacked::obtain("powerdns", &["pdns-server", "pdns-backend-pgsql"])?;
        Ok(Self {
            server: unpacked.file("usr/sbin/pdns_server")?,
            backends: unpacked.file(&format!("{}/pdns", debian::library_folder()))?,
            schema: unpacked.file("usr/share/pdns-backend-pgsql/schema/schema.pgsql.sql")?,
            libraries: unpacked.libraries(),
        })
    }

    /// Returns the version of PowerDNS.
    pub fn version(&self) -> Result<String> {
        let line = version_of(Command::new(&self.server).env("LD_LIBRARY_PATH", &self.libraries).arg("--version"))?;
        // The line begins with the time, like a line of the log, and ends with the copyright.
        let version = line.find("PowerDNS").and_then(|at| line.get(at..)).unwrap_or(&line);
        Ok(version.split(" (C)").next().unwrap_or(version).to_owned())
    }
}

impl PowerDns {
    /// Creates the database and starts PowerDNS.
    pub async fn start(services: &mut Services, folder: &Path, programs: &Programs, at: &Location) -> Result<Self> {
        let mut connection = migrations::connect(Secret::new(at.existing_database_url.clone())).await?;
        connection.batch_execute("CREATE DATABASE pdns").await?;
        let mut connection = migrations::connect(Secret::new(at.database_url.clone())).await?;
        connection.batch_execute(&fs::read_to_string(&programs.schema)?).await?;
        let (dns, web, home) = (reserved_address(), reserved_address(), folder.join("powerdns"));
        fs::create_dir(&home)?;
        fs::write(home.join("pdns.conf"), configuration(&home, programs, at, [dns, web]))?;
        services.start("powerdns", &programs.server, folder, |it| {
            it.env("LD_LIBRARY_PATH", &programs.libraries).arg(format!("--config-dir={}", home.display()));
        })?;
        services.supervise(probe::wait_until_ok(web, "/")).await?;
        Ok(Self { client: client()?, api: format!("http://{web}"), database_url: at.database_url.clone() })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.api)).header("X-API-Key", KEY)
    }

    /// Creates a zone with this number of rrsets.
    pub async fn create_zone(&self, name: &str, rrsets: u32) -> Result<()> {
        let rrset = |number| rrset(name, &RrsetUpdate { rrset: number, address: [192, 0, 2, 1].into() });
        let zone = json!({
            "name": format!("{name}."),
            "kind": "Native",
            "nameservers": ["ns1.bench.example.", "ns2.bench.example.", "ns3.bench.example."],
            "rrsets": (0..rrsets).map(rrset).collect::<Vec<Value>>(),
        });
        success_json(self.request(Method::POST, ZONES).json(&zone).send().await?).await.map(drop)
    }

    /// Creates many zones that contain only SOA and NS, in one statement: the API would take minutes.
    pub async fn create_small_zones(&self, zones: u32) -> Result<()> {
        let mut connection = migrations::connect(Secret::new(self.database_url.clone())).await?;
        let statement = format!(
            "WITH created AS (INSERT INTO domains (name, type) \
               SELECT 'z' || n || '.example', 'NATIVE' FROM generate_series(0, {zones} - 1) n RETURNING id, name) \
             INSERT INTO records (domain_id, name, type, content, ttl) \
               SELECT id, name, type, content, 3600 FROM created, (VALUES \
                 ('SOA', 'ns1.bench.example hostmaster.bench.example 1 10800 3600 604800 3600'), \
                 ('NS', 'ns1.bench.example'), ('NS', 'ns2.bench.example'), ('NS', 'ns3.bench.example') \
               ) AS apex (type, content); \
             ANALYZE"
        );
        Ok(connection.batch_execute(&statement).await?)
    }

    pub fn replace(&self, zone: &str, change: &RrsetUpdate) -> RequestBuilder {
        let rrsets = json!({ "rrsets": [rrset(zone, change)] });
        self.request(Method::PATCH, &format!("{ZONES}/{zone}.")).json(&rrsets)
    }

    /// Lists all zones: the API has no pagination.
    pub fn list(&self) -> RequestBuilder {
        self.request(Method::GET, ZONES)
    }

    pub fn detail(&self, zone: &str) -> RequestBuilder {
        self.request(Method::GET, &format!("{ZONES}/{zone}."))
    }
}

fn rrset(zone: &str, change: &RrsetUpdate) -> Value {
    json!({
        "name": format!("r{}.{zone}.", change.rrset),
        "type": "A",
        "ttl": 300,
        "changetype": "REPLACE",
        "records": [{ "content": change.address.to_string(), "disabled": false }],
    })
}

fn configuration(home: &Path, programs: &Programs, at: &Location, [dns, web]: [SocketAddr; 2]) -> String {
    let (home, backends, sockets) = (home.display(), programs.backends.display(), at.sockets.display());
    let rectify = if at.rectify { "yes" } else { "no" };
    format!(
        "daemon=no\nguardian=no\nsocket-dir={home}\nmodule-dir={backends}\nloglevel=3\nlog-dns-queries=no\n\
         local-address={}\nlocal-port={}\nsecurity-poll-suffix=\nzone-cache-refresh-interval=0\n\
         launch=gpgsql\ngpgsql-host={sockets}\ngpgsql-port=5432\ngpgsql-user=svc\ngpgsql-dbname=pdns\n\
         gpgsql-dnssec=yes\ngpgsql-prepared-statements=yes\ndefault-api-rectify={rectify}\n\
         webserver=yes\napi=yes\napi-key={KEY}\nwebserver-address={}\nwebserver-port={}\n\
         webserver-loglevel=none\nwebserver-max-bodysize=64\n",
        dns.ip(),
        dns.port(),
        web.ip(),
        web.port(),
    )
}
