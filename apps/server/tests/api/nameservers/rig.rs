//! The test rig: the server with its hidden primary, Knot as the signer, and BIND and NSD as its secondaries.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::Process;

use super::daemon::{Daemon, Packages, Ports, TSIG, packages};

pub struct Rig {
    pub server: Process,
    pub packages: Packages,
    pub knot: Daemon,
    pub bind: Daemon,
    pub nsd: Daemon,
    pub token: String,
}

/// The longest wait for the nameservers. On an idle machine, a change reaches all of them within two seconds, but the test
/// machine can be under load.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Rig {
    /// Starts the rig. Returns `None` if the nameservers are not installed.
    pub async fn start() -> Option<Self> {
        Self::start_with(&[]).await
    }

    /// Starts the rig with these settings of the server in addition to its own.
    pub async fn start_with(settings: &[(&'static str, String)]) -> Option<Self> {
        let packages = packages()?;
        let ports = Ports::free();
        let Ports { primary, knot, bind, .. } = ports;
        // Raise the rate limit for bursts of requests.
        let limits = std::env::temp_dir().join(format!("svc-limits-{primary}.toml"));
        std::fs::write(&limits, "[rates]\ncredential = 1000000\n").unwrap();
        let own = [
            ("SVC_LIMITS", limits.display().to_string()),
            ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example,ns3.svc.example".to_owned()),
            ("SVC_DNS_LISTEN", format!("127.0.0.1:{primary}")),
            ("SVC_DNS_TSIG", TSIG.to_owned()),
            ("SVC_DNS_SECONDARIES", format!("127.0.0.1:{knot},127.0.0.1:{bind}")),
            ("SVC_DNS_SIGNER", format!("127.0.0.1:{knot}")),
        ];
        let server = Process::with(&[&own[..], settings].concat()).await;
        std::fs::remove_file(limits).unwrap();
        let token = server.sign_in().await;
        let knot = Daemon::knot(&packages, ports);
        let bind = Daemon::bind(&packages, ports);
        let nsd = Daemon::nsd(&packages, ports);
        let rig = Self { server, packages, knot, bind, nsd, token };
        rig.until("BIND has the catalog", async || rig.bind.query("version.catalog.invalid", "TXT").await.is(&["2"]))
            .await;
        rig.until("Knot answers", async || rig.knot.query("example.org", "SOA").await.code.is_some()).await;
        rig.until("NSD answers", async || rig.nsd.query("example.org", "SOA").await.code.is_some()).await;
        Some(rig)
    }

    /// Returns the nameservers to query when signing ends. NSD is not one of them: NSD 4.6.1 then sometimes answers
    /// without data, for an unknown reason.
    pub fn steady(&self) -> [&Daemon; 2] {
        [&self.knot, &self.bind]
    }

    pub fn daemons(&self) -> [&Daemon; 3] {
        [&self.knot, &self.bind, &self.nsd]
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        self.server.json(&self.token, method, &format!("/v1/orgs/ada/dns/zones{path}"), body).await
    }

    /// Sends a request whose body or response is not JSON.
    pub async fn send(&self, method: &str, path: &str, kind: &str, body: String) {
        let address = format!("{}/v1/orgs/ada/dns/zones{path}", self.server.base);
        let request = crate::support::client().request(method.parse().unwrap(), address).bearer_auth(&self.token);
        let request = if body.is_empty() { request } else { request.header("content-type", kind).body(body) };
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {}", answer.text().await.unwrap());
    }

    /// Creates a zone with an address, and adds it to NSD, which does not support catalog zones.
    pub async fn zone(&self, name: &str) {
        self.call("POST", "", Some(json!({ "name": name }))).await;
        self.put(name, "www", "A", &["192.0.2.1"]).await;
        self.nsd.control("addzone", &[name, "svc"]);
    }

    pub async fn put(&self, zone: &str, name: &str, kind: &str, records: &[&str]) {
        self.call("PUT", &format!("/{zone}/rrsets/{name}/{kind}"), Some(json!({ "records": records, "ttl": 30 })))
            .await;
    }

    pub async fn dnssec(&self, zone: &str, enabled: bool) {
        self.call("POST", &format!("/{zone}/dnssec"), Some(json!({ "enabled": enabled }))).await;
    }

    /// Waits until all nameservers return this data.
    pub async fn all_answer(&self, name: &str, kind: &str, data: &[&str]) {
        self.these_answer(&self.daemons(), name, kind, data).await;
    }

    /// Waits until these nameservers return this data.
    pub async fn these_answer(&self, daemons: &[&Daemon], name: &str, kind: &str, data: &[&str]) {
        let start = Instant::now();
        for daemon in daemons {
            let mut answer = daemon.query(name, kind).await;
            while !answer.is(data) {
                assert!(start.elapsed() < TIMEOUT, "{}: {name} {kind} is {answer:?}, not {data:?}", daemon.program);
                tokio::time::sleep(Duration::from_millis(10)).await;
                answer = daemon.query(name, kind).await;
            }
        }
    }

    /// Waits until a condition holds. Returns the elapsed time.
    pub async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) -> Duration {
        let start = Instant::now();
        while !condition().await {
            assert!(start.elapsed() < TIMEOUT, "timed out after {TIMEOUT:?}: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        start.elapsed()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.server.log();
            let lines: Vec<&str> = log.lines().filter(|line| line.contains("dns") || line.contains("zone")).collect();
            eprintln!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}
