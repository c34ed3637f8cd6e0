//! `kill -9` of the server at every step of an order.
//!
//! The proxy holds the calls of a step before Pebble receives them, and before the server receives the response. So every
//! commit between two calls is killed before and after it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sandbox::{DnsServer, RecordType};
use serde_json::json;
use testkit::reserved_dns_address;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::eventually;
use super::proxy::{AcmeProxy, Moment, Resource};
use super::rig::{DEFAULT, PLATFORM, ZONE, ZONES, activate, serve_challenges, serve_zones};
use crate::nameservers::daemon::TSIG;
use crate::process::Process;
use crate::support::{Caller, ManualNode, Pebble, site};

/// The steps of an order.
const STEPS: [Resource; 6] = [
    Resource::NewOrder,
    Resource::Authorization,
    Resource::Order,
    Resource::Challenge,
    Resource::Finalize,
    Resource::Certificate,
];

struct Rig {
    server: Process,
    proxy: AcmeProxy,
    dns: Arc<DnsServer>,
    ada: Caller,
    tasks: [AbortHandle; 2],
    pebble: Pebble,
}

impl Rig {
    async fn start(pebble: Pebble) -> Self {
        let dns = pebble.dns.clone();
        let proxy = AcmeProxy::start(&pebble).await;
        let settings = [
            ("SVC_PLATFORM_DOMAIN", PLATFORM.to_owned()),
            ("SVC_DNS_RESOLVER", dns.address().to_string()),
            ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned()),
            ("SVC_DNS_LISTEN", reserved_dns_address().to_string()),
            ("SVC_DNS_TSIG", TSIG.to_owned()),
            ("SVC_DNS_SECONDARIES", dns.address().to_string()),
            ("SVC_ACME_DIRECTORIES", proxy.directory.clone()),
            ("SVC_ACME_CA", pebble.certificate.display().to_string()),
        ];
        let server = Process::with(&settings).await;
        let ada = Caller::at(&server.base).await.with_token(&server.sign_in().await);
        let node = Arc::new(ManualNode::register(&server.database.url(), &server.internal, "edge").await);
        let responding = watch::channel(node).1;
        let responder = serve_challenges(pebble.http_port, responding, Arc::new(AtomicBool::new(true))).await;
        let zones = tokio::spawn(serve_zones(server.database.clone(), dns.clone())).abort_handle();
        Self { server, proxy, dns, ada, tasks: [responder, zones], pebble }
    }

    /// Deploys the project, which then needs a certificate for its default hostname.
    async fn deploy(&self) {
        self.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        self.dns.set(DEFAULT, RecordType::A, &["127.0.0.1"]);
        self.ada.upload("/v1/orgs/ada/projects/site/deployments", site("page")).await.expect(201);
    }

    /// Holds the next call of these resources, at both moments.
    fn hold(&self, resources: &[Resource]) {
        for resource in resources {
            self.proxy.hold(*resource, Moment::Before);
            self.proxy.hold(*resource, Moment::After);
        }
    }

    /// Kills the server with each call that is held, until the name has a certificate.
    async fn kill_until_issued(&mut self, name: &str) {
        let issued = format!("SELECT count(*) FROM certificates.certificates WHERE name = '{name}'");
        loop {
            let database = self.server.database.clone();
            let issued = async {
                while database.number(&issued).await == 0 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::select! {
                held = self.proxy.held() => {
                    self.server.kill();
                    drop(held);
                }
                () = issued => break,
            }
            assert_eq!(self.violations().await, Vec::<String>::new());
            self.restart().await;
        }
        assert!(self.proxy.holds().is_empty(), "not killed at {:?}", self.proxy.holds());
        let left = "SELECT (SELECT count(*) FROM certificates.orders) \
             + (SELECT count(*) FROM dns.rrsets WHERE managed_by = 'certificate')";
        assert_eq!(self.server.database.number(left).await, 0);
    }

    /// Starts the killed server. The lease of its run and the limits of accounts and orders have ended.
    async fn restart(&mut self) {
        let lapse = "UPDATE certificates.names SET due_at = now() WHERE state <> 'active'; \
             DELETE FROM store.rate_limits WHERE key LIKE 'certificate-%'";
        self.server.database.run(lapse).await;
        self.server.restart().await;
    }

    async fn violations(&self) -> Vec<String> {
        let mut violations = chaos::violations(&self.server.database.url(), &["test"]).await.unwrap();
        let stuck = "SELECT name, due_at FROM certificates.names \
             WHERE state <> 'active' AND due_at > now() + interval '3 minutes'";
        let stuck = self.server.database.rows(stuck).await;
        violations.extend(stuck.iter().map(|row| format!("a name without a next run: {row}")));
        violations
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_is_continued_after_its_server_was_killed_at_any_step() {
    let Some(pebble) = Pebble::start().await else { return };
    let mut rig = Rig::start(pebble).await;
    // The first order uses HTTP-01, and needs an account.
    rig.hold(&STEPS);
    rig.hold(&[Resource::Directory, Resource::Nonce, Resource::NewAccount]);
    rig.deploy().await;
    rig.kill_until_issued(DEFAULT).await;

    // This one uses DNS-01.
    rig.ada.post(ZONES, json!({ "name": "example.org" })).await.expect(200);
    rig.dns.set("example.org", RecordType::NS, &["ns1.svc.example"]);
    rig.hold(&STEPS);
    activate(&rig.ada, &rig.dns, "www.example.org").await;
    rig.kill_until_issued("www.example.org").await;

    let database = rig.server.database.clone();
    let challenges = "SELECT DISTINCT data ->> 'name' AS name, data ->> 'challenge' AS challenge FROM store.audit \
         WHERE event = 'certificate.order' ORDER BY name";
    let challenges = database.rows(challenges).await;
    let expected = [(DEFAULT, "http-01"), ("www.example.org", "dns-01")];
    assert_eq!(challenges, expected.map(|(name, challenge)| json!({ "name": name, "challenge": challenge })));
    let failed = "SELECT data FROM store.audit WHERE event = 'certificate.fail'";
    assert_eq!(database.rows(failed).await, Vec::<serde_json::Value>::new());
    assert_eq!(database.number("SELECT count(*) FROM certificates.accounts").await, 1);
    let is_active = async || {
        let listed = rig.ada.get(super::rig::HOSTNAMES).await.expect(200).clone();
        listed["items"].as_array().unwrap().iter().all(|it| it["tls"]["state"] == "active").then_some(())
    };
    eventually("all hostnames are active", is_active).await;
    assert!(!rig.ada.get(ZONE).await.expect(200).to_string().contains("_acme-challenge"));
}

/// The authority receives a request of the killed server after the next server has read the order, and then refuses the
/// request of that server.
#[tokio::test(flavor = "multi_thread")]
async fn order_continues_although_a_request_of_a_killed_server_arrived_first() {
    let Some(pebble) = Pebble::start().await else { return };
    let mut rig = Rig::start(pebble).await;
    rig.proxy.hold(Resource::Challenge, Moment::Before);
    rig.proxy.hold(Resource::Finalize, Moment::Before);
    rig.deploy().await;
    let steps = [(Resource::Challenge, "set VALID by completed challenge"), (Resource::Finalize, "Issued certificate")];
    for (resource, completed) in steps {
        let first = rig.proxy.held().await;
        rig.server.kill();
        rig.proxy.hold(resource, Moment::Before);
        rig.restart().await;
        let second = rig.proxy.held().await;
        first.release();
        rig.pebble.wait_for_log(completed).await;
        second.release();
    }
    let issued = async || {
        (rig.server.database.number("SELECT count(*) FROM certificates.certificates").await == 1).then_some(())
    };
    eventually("the certificate is issued", issued).await;
    let events =
        "SELECT event FROM store.audit WHERE event LIKE 'certificate.%' AND event NOT LIKE '%account%' ORDER BY id";
    let events = rig.server.database.rows(events).await;
    let events: Vec<&str> = events.iter().map(|row| row["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["certificate.order", "certificate.issue"]);
    assert_eq!(rig.violations().await, Vec::<String>::new());
}
