//! `xtask mail`, as an operator runs it.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dns::{Dns, Hosting, LookupFailure, NewZone, NsRecords, Ports, Precondition, RrsetContent};
use kernel::audit::Actor;
use kernel::{ClockRng, Limits, OrgId, Plan, Secret};
use serde_json::json;
use store::{Config, Connection, Store};
use testkit::TestDatabase;
use uuid::Uuid;

const ORG: &str = "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
    VALUES ('00000000-0000-7000-8000-000000000001', 'acme', 'Acme', 'free', false, now())";

/// Runs `xtask mail dns-records`. Returns whether it succeeded, stdout and stderr.
fn dns_records(settings: &[(&str, &str)], arguments: &[&str]) -> (bool, String, String) {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["mail", "dns-records"]).args(arguments);
    let Output { status, stdout, stderr } = xtask.envs(settings.iter().copied()).output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[derive(Debug)]
struct Port;

#[async_trait]
impl dns::Organizations for Port {
    async fn plan(&self, _connection: &mut Connection, _org: OrgId) -> store::Result<Option<Plan>> {
        Ok(Some(Plan::Free))
    }

    async fn raise(&self, _tx: &mut Connection, _org: OrgId, _notice: dns::Notice) -> store::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl dns::Resolver for Port {
    async fn ns(&self, names: &[String], _timeout: Duration) -> Vec<NsRecords> {
        names.iter().map(|_| Err(LookupFailure::NoSuchName)).collect()
    }

    async fn txt(&self, names: &[String], _timeout: Duration) -> Vec<dns::TxtRecords> {
        names.iter().map(|_| Err(LookupFailure::NoSuchName)).collect()
    }
}

#[async_trait]
impl dns::Registrations for Port {
    async fn is_registered(&self, _connection: &mut Connection, _org: OrgId, _zone: &str) -> store::Result<bool> {
        Ok(false)
    }

    async fn release_imported(&self, _tx: &mut Connection, _org: OrgId, _zone: &str) -> store::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl dns::Hostnames for Port {
    async fn zone_created(&self, _tx: &mut Connection, _org: OrgId, _name: &str) -> store::Result<()> {
        Ok(())
    }
}

/// Creates the zone `example.net` with a TXT record at this name.
async fn create_zone(database: &TestDatabase, name: &str) {
    database.run(ORG).await;
    let store = Store::new(&Config::new(Secret::new(database.url()), "test"), ClockRng::system()).unwrap();
    let hosting = Hosting::new(&["ns1.host.example".to_owned()], "origin.host.example").unwrap();
    let ports = Ports {
        organizations: Arc::new(Port),
        resolver: Arc::new(Port),
        registrations: Arc::new(Port),
        hostnames: Arc::new(Port),
    };
    let dns = Dns::new(store, Some(hosting), Limits::default(), ports);
    let (actor, org) = (Actor::operator("test"), OrgId::from_uuid(Uuid::from_u128(0x7000_8000_0000_0000_0001)));
    dns.zone_create(&actor, org, NewZone { name: "example.net".to_owned() }).await.unwrap();
    let content = RrsetContent { ttl: Some(300), records: vec!["\"verification=1\"".to_owned()] };
    let place = (name, "TXT");
    dns.rrset_put(&actor, (org, "example.net"), place, content, &Precondition::Any).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_printed_and_applied_once() {
    let settings = [
        ("SVC_MAIL_DOMAIN", "mail.example.net"),
        ("SVC_MX_HOSTNAME", "mx.example.net"),
        ("SVC_SMTP_URL", "smtp://user:hush@relay.example"),
        ("SVC_NAMESERVERS", "ns1.host.example"),
        ("SVC_FALLBACK_ORIGIN", "origin.host.example"),
    ];
    let (succeeded, printed, error) = dns_records(&settings, &[]);
    assert!(succeeded && error.is_empty(), "{error}");
    assert!(printed.starts_with("*.mail.example.net. 3600 IN MX 10 mx.example.net.\n"), "{printed}");
    assert!(printed.contains("\nmail.example.net. 3600 IN TXT \"v=spf1 a:relay.example -all\"\n"), "{printed}");

    let database = TestDatabase::create().await;
    create_zone(&database, "mail").await;
    let url = database.url();
    let apply = |zone: &str| dns_records(&settings, &["--apply", zone, "--database-url", &url]);
    assert_eq!(apply("example.net"), (true, printed.clone(), "changed rrsets of example.net: 4\n".to_owned()));
    let texts = "SELECT count(*) FROM dns.rrsets WHERE kind = 'TXT' AND name LIKE '%mail'";
    assert_eq!(database.number(texts).await, 3);
    assert_eq!(apply("example.net"), (true, printed, "changed rrsets of example.net: 0\n".to_owned()));
    let audited = database.rows("SELECT event FROM store.audit ORDER BY id").await;
    let event = |name: &str| json!({ "event": name });
    assert_eq!(audited, [event("dns.zone.create"), event("dns.rrset.set"), event("dns.rrset.patch")]);
    let (succeeded, _, error) = apply("other.example");
    assert!(!succeeded && error.contains("this installation has no zone other.example"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_records_of_an_internationalized_domain_are_kept() {
    let settings = [
        ("SVC_MAIL_DOMAIN", "M\u{fc}ller.example.net."),
        ("SVC_MX_HOSTNAME", "mx.b\u{fc}cher.example"),
        ("SVC_SMTP_URL", "smtp://relay.example"),
        ("SVC_NAMESERVERS", "ns1.host.example"),
        ("SVC_FALLBACK_ORIGIN", "origin.host.example"),
    ];
    let database = TestDatabase::create().await;
    create_zone(&database, "xn--mller-kva").await;
    let url = database.url();
    let (succeeded, printed, error) = dns_records(&settings, &["--apply", "example.net", "--database-url", &url]);
    assert!(succeeded, "{error}");
    let mx = "*.xn--mller-kva.example.net. 3600 IN MX 10 mx.xn--bcher-kva.example.\n";
    assert!(printed.starts_with(mx), "{printed}");
    for text in ["v=spf1", "verification=1"] {
        let records = format!(
            "SELECT count(*) FROM dns.rrsets WHERE name = 'xn--mller-kva' AND kind = 'TXT' \
             AND position('{text}'::bytea IN rdata) > 0"
        );
        assert_eq!(database.number(&records).await, 1, "{text}");
    }
    let malformed = [("SVC_SMTP_URL", "smtp://relay.example"), ("SVC_MAIL_DOMAIN", "not a name")];
    let (succeeded, printed, error) = dns_records(&malformed, &[]);
    assert!(!succeeded && printed.is_empty() && error.contains("SVC_MAIL_DOMAIN must be"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_changes_like_by_the_server() {
    let (database, folder) = (TestDatabase::create().await, tempfile::tempdir().unwrap());
    create_zone(&database, "mail").await;
    let limits = folder.path().join("limits.toml");
    std::fs::write(&limits, "[plans.free]\nzone_bytes = 1\n[rates]\ncredential = 7\n").unwrap();
    let (url, limits) = (database.url(), limits.display().to_string());
    let apply = |more: &[(&'static str, &str)]| {
        let settings = [
            ("SVC_MAIL_DOMAIN", "mail.example.net"),
            ("SVC_MX_HOSTNAME", "mx.example.net"),
            ("SVC_SMTP_URL", "smtp://relay.example"),
            ("SVC_NAMESERVERS", "ns1.host.example"),
            ("SVC_DNS_LISTEN", "127.0.0.1:5300"),
        ];
        dns_records(&[&settings[..], more].concat(), &["--apply", "example.net", "--database-url", &url])
    };
    let (succeeded, _, error) = apply(&[]);
    assert!(!succeeded && error.contains("set SVC_SEALING_KEYS"), "{error}");
    let keys = ("SVC_SEALING_KEYS", "test:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let (succeeded, _, error) = apply(&[keys, ("SVC_LIMITS", limits.as_str())]);
    assert!(!succeeded && error.contains("the free plan allows 1 bytes of rrsets per zone"), "{error}");
    let notices = "SELECT count(*) FROM store.outbox WHERE topic = 'dns.notify'";
    assert_eq!(database.number(notices).await, 0);
    let (succeeded, _, error) = apply(&[keys]);
    assert!(succeeded, "{error}");
    assert_eq!(database.number(notices).await, 1);
}

#[test]
fn local_relay_needs_a_mechanism() {
    let settings = [
        ("SVC_MAIL_DOMAIN", "mail.example.net"),
        ("SVC_MX_HOSTNAME", "mx.example.net"),
        ("SVC_SMTP_URL", "smtp://localhost:25"),
    ];
    let (succeeded, printed, error) = dns_records(&settings, &[]);
    assert!(!succeeded && printed.is_empty() && error.contains("local relay: pass --spf"), "{error}");
    let (succeeded, printed, error) = dns_records(&settings, &["--spf", "ip4:192.0.2.1"]);
    assert!(succeeded, "{error}");
    assert!(printed.contains("\nmail.example.net. 3600 IN TXT \"v=spf1 ip4:192.0.2.1 -all\"\n"), "{printed}");
}

#[test]
fn missing_settings_are_named() {
    for (settings, name) in [
        (&[][..], "SVC_SMTP_URL"),
        (&[("SVC_SMTP_URL", "smtp://relay.example")], "SVC_MAIL_DOMAIN"),
        (&[("SVC_SMTP_URL", "smtp://relay.example"), ("SVC_MAIL_DOMAIN", "m.example")], "SVC_MX_HOSTNAME"),
    ] {
        let (succeeded, printed, error) = dns_records(settings, &[]);
        assert!(!succeeded && printed.is_empty() && error.contains(name), "{name}: {error}");
    }
}
