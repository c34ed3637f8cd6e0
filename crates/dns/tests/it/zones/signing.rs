use std::sync::atomic::Ordering;

use dns::signer::Signer;
use dns::{DnssecState, DnssecSwitch, Ds, DsReport};
use serde_json::json;

use super::kit::{Kit, ZONE, actor};
use super::signer::FakeSigner;

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_signer_is_reported_and_checked_again() {
    let kit = Kit::start().await;
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let signer = Signer::new(unused, kit.store.clock_rng().clone());
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 0, "no zone is signed");
    kit.dns.dnssec_switch(&actor(), kit.org, ZONE, DnssecSwitch { enabled: true }).await.unwrap();
    kit.clock.advance(5);
    let before = kit.served().await.serial;
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 1);
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 0, "not due yet");
    let dnssec = kit.dns.dnssec(kit.org, ZONE).await.unwrap();
    let view = dnssec.signer.unwrap();
    assert_eq!((dnssec.state, view.serial, view.keys.len()), (DnssecState::Signing, None, 0));
    assert!(view.error.is_some_and(|error| !error.is_empty()));
    kit.clock.advance(15);
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 1);
    assert_eq!(kit.served().await.serial, before, "a failed check does not raise the serial");
    let events = kit.database.rows("SELECT count(*) FROM store.audit WHERE event = 'dns.ds.set'").await;
    assert_eq!(events, [json!({ "count": 0 })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn signer_that_is_configured_later_is_checked() {
    let kit = Kit::start().await;
    kit.dns.dnssec_switch(&actor(), kit.org, ZONE, DnssecSwitch { enabled: true }).await.unwrap();
    let ds = vec![Ds { key_tag: 1, algorithm: 13, digest_type: 2, digest: "01".repeat(32) }];
    kit.dns.ds_set(&actor(), kit.org, ZONE, DsReport { ds }).await.unwrap();
    kit.put(("www", "TXT"), &["1"]).await;
    // Until then, no server checks signers.
    kit.advance(24 * 3600);
    let fake = FakeSigner::start().await;
    fake.set_key(2);
    kit.dns.check_signers(&fake.client(kit.store.clock_rng().clone())).await.unwrap();
    let dnssec = kit.dns.dnssec(kit.org, ZONE).await.unwrap();
    assert_eq!((dnssec.signer.unwrap().keys.len(), dnssec.ds[0].key_tag), (1, 2));
}

/// A signer applies the new group of a zone only at a transfer of the whole zone, with a serial above its own, after it
/// has the new catalog.
#[tokio::test]
async fn switch_causes_a_transfer_of_the_whole_zone_after_the_catalog() {
    let kit = Kit::start().await;
    for (enabled, record) in [(true, "on"), (false, "off")] {
        let before = kit.put(("www", "TXT"), &[record]).await;
        kit.db_execute("DELETE FROM store.outbox").await;
        kit.dns.dnssec_switch(&actor(), kit.org, ZONE, DnssecSwitch { enabled }).await.unwrap();
        assert!(kit.served().await.serial >= before + 60);
        let journal =
            "SELECT count(*) FROM dns.changes c JOIN dns.zones z ON z.id = c.zone_id WHERE z.name = 'example.org'";
        assert_eq!(kit.db_number(journal).await, 0);
        let notices = kit.db_rows("SELECT key FROM store.outbox WHERE topic = 'dns.notify'").await;
        assert_eq!(notices, [json!({ "key": "example.org after catalog" })]);
    }
}

/// As if the signer was rebuilt, and did not serve the zone until it had the zone again.
#[tokio::test(flavor = "multi_thread")]
async fn new_key_of_a_signer_that_refused_queries_is_recorded() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let fake = FakeSigner::start().await;
    let signer = fake.client(kit.store.clock_rng().clone());
    let zone = kit.dns.dnssec_switch(&actor(), kit.org, ZONE, DnssecSwitch { enabled: true }).await.unwrap().value.id;
    let check = async |key: u8| {
        fake.set_key(key);
        // Longer than the interval of a zone that is as desired.
        kit.advance(600);
        kit.dns.check_signers(&signer).await.unwrap();
    };
    let wanted = async || {
        let wanted = kit.dns.ds_wanted(zone).await.unwrap().unwrap();
        wanted.ds.iter().map(|ds| ds.key_tag).collect::<Vec<_>>()
    };
    let queued = async || kit.db_number("SELECT count(*) FROM store.outbox WHERE topic = 'dns.ds'").await;
    check(1).await;
    assert_eq!((wanted().await, queued().await), (vec![1], 2));
    // A message that is delivered now finds the record of the key.
    check(0).await;
    let dnssec = kit.dns.dnssec(kit.org, ZONE).await.unwrap();
    assert_eq!((dnssec.state, dnssec.ds.len(), dnssec.signer.unwrap().serial), (DnssecState::DsPending, 1, None));
    assert_eq!(wanted().await, [1]);
    // All messages are delivered.
    kit.db_execute("DELETE FROM store.outbox WHERE topic = 'dns.ds'").await;
    check(1).await;
    assert_eq!((wanted().await, queued().await), (vec![1], 0), "the registry has the record of this key");
    check(0).await;
    check(2).await;
    assert_eq!((wanted().await, queued().await), (vec![2], 2));
    assert_eq!(kit.dns.dnssec(kit.org, ZONE).await.unwrap().ds[0].key_tag, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_that_cannot_be_recorded_does_not_drop_those_of_other_zones() {
    const OTHER: &str = "example.com";
    let kit = Kit::start().await;
    let fake = FakeSigner::start().await;
    fake.set_key(1);
    let signer = fake.client(kit.store.clock_rng().clone());
    kit.create(kit.org, OTHER).await.unwrap();
    for zone in [ZONE, OTHER] {
        kit.dns.dnssec_switch(&actor(), kit.org, zone, DnssecSwitch { enabled: true }).await.unwrap();
        kit.advance(1);
    }
    kit.db_execute(
        "CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'a failure of this test'; END $$; \
         CREATE TRIGGER fail BEFORE UPDATE OF signer ON dns.zones FOR EACH ROW \
         WHEN (NEW.name = 'example.org') EXECUTE FUNCTION public.fail()",
    )
    .await;
    kit.advance(5);
    kit.dns.check_signers(&signer).await.unwrap_err();
    for (zone, is_recorded) in [(ZONE, false), (OTHER, true)] {
        let dnssec = kit.dns.dnssec(kit.org, zone).await.unwrap();
        assert_eq!(dnssec.signer.is_some(), is_recorded, "{zone}");
    }
}
