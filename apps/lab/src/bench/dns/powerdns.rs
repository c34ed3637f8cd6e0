//! Debian's PowerDNS on the same Postgres, as an operator of unsigned zones would have it: gpgsql with the schema of the
//! package, the HTTP API, prepared statements, no logging of requests, and, unless it is asked for, no rectifying of the
//! whole zone after each change, which is for signed ones.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use store::migrations;
use xtask::debian::{self, Unpacked};
use xtask::probe;
use xtask::services::Services;

use super::replaces::Change;
use crate::bench::machine::free_address;
use crate::bench::server::{answer, client};

const ZONES: &str = "/api/v1/servers/localhost/zones";
const KEY: &str = "bench";

/// Where it keeps zones, and how.
pub struct At {
    /// The folder of the Postgres' socket.
    pub sockets: PathBuf,
    /// The address of a database that is there.
    pub there: String,
    /// The address of its own, which is not.
    pub own: String,
    /// Whether it rectifies a zone after each change, as it does when nobody says otherwise.
    pub rectify: bool,
}

/// What it consists of.
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
}

impl PowerDns {
    /// Starts it on a database of its own.
    pub async fn start(services: &mut Services, folder: &Path, programs: &Programs, at: &At) -> Result<Self> {
        let mut connection = migrations::connect(Secret::new(at.there.clone())).await?;
        connection.batch_execute("CREATE DATABASE pdns").await?;
        let mut connection = migrations::connect(Secret::new(at.own.clone())).await?;
        connection.batch_execute(&fs::read_to_string(&programs.schema)?).await?;
        let (dns, web, home) = (free_address()?, free_address()?, folder.join("powerdns"));
        fs::create_dir(&home)?;
        fs::write(home.join("pdns.conf"), configuration(&home, programs, at, [dns, web]))?;
        services.start("powerdns", &programs.server, folder, |it| {
            it.env("LD_LIBRARY_PATH", &programs.libraries).arg(format!("--config-dir={}", home.display()));
        })?;
        services.during(probe::until_ok(web, "/")).await?;
        Ok(Self { client: client()?, api: format!("http://{web}"), database_url: at.own.clone() })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.api)).header("X-API-Key", KEY)
    }

    /// Makes a zone of so many rrsets.
    pub async fn zone(&self, name: &str, rrsets: u32) -> Result<()> {
        let rrset = |number| rrset(name, &Change { rrset: number, address: [192, 0, 2, 1].into() });
        let zone = json!({
            "name": format!("{name}."),
            "kind": "Native",
            "nameservers": ["ns1.bench.example.", "ns2.bench.example.", "ns3.bench.example."],
            "rrsets": (0..rrsets).map(rrset).collect::<Vec<Value>>(),
        });
        answer(self.request(Method::POST, ZONES).json(&zone).send().await?).await.map(drop)
    }

    /// Makes many that are as small as zones get. In one statement: through the API it takes minutes.
    pub async fn many(&self, zones: u32) -> Result<()> {
        let mut connection = migrations::connect(Secret::new(self.database_url.clone())).await?;
        let made = format!(
            "WITH made AS (INSERT INTO domains (name, type) \
               SELECT 'z' || n || '.example', 'NATIVE' FROM generate_series(0, {zones} - 1) n RETURNING id, name) \
             INSERT INTO records (domain_id, name, type, content, ttl) \
               SELECT id, name, type, content, 3600 FROM made, (VALUES \
                 ('SOA', 'ns1.bench.example hostmaster.bench.example 1 10800 3600 604800 3600'), \
                 ('NS', 'ns1.bench.example'), ('NS', 'ns2.bench.example'), ('NS', 'ns3.bench.example') \
               ) AS apex (type, content); \
             ANALYZE"
        );
        Ok(connection.batch_execute(&made).await?)
    }

    pub fn replace(&self, zone: &str, change: &Change) -> RequestBuilder {
        let rrsets = json!({ "rrsets": [rrset(zone, change)] });
        self.request(Method::PATCH, &format!("{ZONES}/{zone}.")).json(&rrsets)
    }

    /// It has no pages.
    pub fn list(&self) -> RequestBuilder {
        self.request(Method::GET, ZONES)
    }

    pub fn detail(&self, zone: &str) -> RequestBuilder {
        self.request(Method::GET, &format!("{ZONES}/{zone}."))
    }

    /// The rrsets of a zone besides its SOA and NS, seen to be what they should.
    pub async fn check(&self, zone: &str, rrsets: usize) -> Result<()> {
        let found = answer(self.detail(zone).send().await?).await?;
        let found = found.get("rrsets").and_then(|rrsets| rrsets.as_array()).map_or(0, Vec::len);
        ensure!(found == rrsets + 2, "{zone} has {found} rrsets");
        Ok(())
    }
}

fn rrset(zone: &str, change: &Change) -> Value {
    json!({
        "name": format!("r{}.{zone}.", change.rrset),
        "type": "A",
        "ttl": 300,
        "changetype": "REPLACE",
        "records": [{ "content": change.address.to_string(), "disabled": false }],
    })
}

fn configuration(home: &Path, programs: &Programs, at: &At, [dns, web]: [SocketAddr; 2]) -> String {
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
