//! DNSSEC of zones whose DS records this installation sets at the registry.

use std::sync::atomic::Ordering;

use dns::{DnsError, DnssecState, DnssecSwitch, Ds, DsReport, Precondition, WantedDs};
use kernel::ZoneId;
use store::Connection;

use super::kit::{Kit, ZONE, actor};
use super::signer::FakeSigner;

const HOLD: i64 = 48 * 3600;

impl Kit {
    async fn switch(&self, enabled: bool) -> ZoneId {
        let zone = self.dns.dnssec_switch(&actor(), self.org, ZONE, DnssecSwitch { enabled }).await.unwrap().value;
        assert_eq!(zone.dnssec.state, if enabled { DnssecState::Signing } else { DnssecState::Off });
        zone.id
    }

    /// Returns whether the catalog lists the zone as signed.
    async fn is_in_signed_group(&self) -> bool {
        let signed =
            "SELECT count(*) FROM dns.rrsets WHERE name LIKE 'group.%' AND encode(rdata, 'escape') LIKE '%signed'";
        self.db_number(signed).await == 1
    }

    /// Makes the signer serve keys and request a DS record, and records this request.
    async fn sign(&self) {
        let ds = r#"{"keyTag": 1, "algorithm": 13, "digestType": 2, "digest": "AA"}"#;
        self.db_execute(&format!(
            r#"UPDATE dns.zones SET dnssec_state = 'ds_pending', ds = '[{ds}]', cds = '[{ds}]', signer = '{{"serial": 1, "keys": [],
            "cds": [{ds}], "error": null, "observedAt": "2026-11-21T10:00:00.000Z"}}' WHERE org_id IS NOT NULL"#
        ))
        .await;
    }

    async fn wanted(&self, zone: ZoneId) -> WantedDs {
        self.dns.ds_wanted(zone).await.unwrap().unwrap()
    }

    /// Records that a DS record was removed from the registry, which has no other.
    async fn remove_ds(&self, zone: ZoneId) {
        self.dns.ds_removal_begin(zone).await.unwrap();
        self.dns.ds_absent(zone).await.unwrap();
    }

    async fn messages(&self) -> i64 {
        self.db_number("SELECT count(*) FROM store.outbox WHERE topic = 'dns.ds'").await
    }
}

#[tokio::test]
async fn zone_stays_signed_until_no_resolver_has_its_ds_record() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let zone = kit.switch(true).await;
    assert!(kit.wanted(zone).await.ds.is_empty(), "nothing signs yet");
    kit.sign().await;
    let wanted = kit.wanted(zone).await;
    assert_eq!((wanted.name.as_str(), wanted.ds.len(), wanted.is_ending), (ZONE, 1, false));
    let serial = kit.served().await.serial;
    kit.switch(false).await;
    let wanted = kit.wanted(zone).await;
    assert_eq!((wanted.ds.len(), wanted.is_ending, kit.messages().await), (0, true, 2));
    assert!(kit.is_in_signed_group().await);
    kit.remove_ds(zone).await;
    assert_eq!(kit.messages().await, 3, "one is due in two days");
    kit.advance(HOLD - 1);
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(kit.is_in_signed_group().await);
    assert_eq!(kit.served().await.serial, serial);
    // A DS record that was added late was removed: the two days begin again.
    kit.remove_ds(zone).await;
    kit.advance(1);
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(kit.is_in_signed_group().await);
    kit.advance(HOLD);
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(!kit.is_in_signed_group().await && !kit.wanted(zone).await.is_ending);
    assert_ne!(kit.served().await.serial, serial);
    kit.dns.ds_absent(zone).await.unwrap();
}

#[tokio::test]
async fn signing_that_is_turned_on_again_continues() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let zone = kit.switch(true).await;
    kit.sign().await;
    let serial = kit.served().await.serial;
    kit.switch(false).await;
    kit.switch(true).await;
    assert!(kit.is_in_signed_group().await && !kit.wanted(zone).await.is_ending);
    kit.remove_ds(zone).await;
    kit.advance(HOLD);
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(kit.is_in_signed_group().await);
    assert_eq!(kit.served().await.serial, serial);
}

/// A removal whose response was lost, and a DS record that a delivery in progress adds, are not visible to the next
/// delivery.
#[tokio::test]
async fn zone_whose_registry_may_have_had_a_ds_record_stays_signed_for_two_days() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let zone = kit.switch(true).await;
    kit.sign().await;
    kit.switch(false).await;
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(kit.is_in_signed_group().await);
    // DNSSEC is on for less than two days, and the signer is not checked in this time.
    kit.advance(HOLD / 2);
    for enabled in [true, false] {
        kit.switch(enabled).await;
    }
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(kit.is_in_signed_group().await);
    // The removal begins late.
    kit.dns.ds_removal_begin(zone).await.unwrap();
    kit.advance(HOLD - 1);
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(kit.is_in_signed_group().await);
    kit.advance(1);
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(!kit.is_in_signed_group().await);
}

/// A delivery in progress may apply an earlier state, and may die.
#[tokio::test]
async fn zone_has_two_messages_of_which_one_is_due_after_the_deliveries_in_progress() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    kit.switch(true).await;
    for attempts in [0, 1, 2] {
        kit.db_execute(&format!("UPDATE store.outbox SET attempts = {attempts} WHERE topic = 'dns.ds'")).await;
        kit.switch(false).await;
        kit.switch(true).await;
        let (org, now) = (kit.org.as_uuid(), kit.now());
        for due in [now, now.plus_seconds(60)] {
            let queued = format!("tenant_id = '{org}' AND attempts = 0 AND next_attempt_at = '{due}'");
            let statement = format!("SELECT count(*) FROM store.outbox WHERE topic = 'dns.ds' AND {queued}");
            assert_eq!((kit.db_number(&statement).await, kit.messages().await), (1, 2), "{due}");
        }
        kit.advance(30);
    }
}

/// As if the registrar failed for so long that the outbox made each message a dead letter.
#[tokio::test]
async fn dead_letter_of_a_zone_is_followed_by_a_message_on_the_next_day() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let zone = kit.switch(true).await;
    kit.switch(false).await;
    let key = zone.to_string();
    let retry_next_day = async |zone: ZoneId| {
        let retry = async |tx: &mut Connection| kit.dns.ds_retry_next_day(tx, zone, &key).await;
        kit.store.transaction_unaudited(retry).await.unwrap();
    };
    for day in 1..=2 {
        let due = format!("FROM store.outbox WHERE key = '{key}' AND dead_lettered_at IS NULL AND next_attempt_at");
        let now = kit.now();
        assert_eq!(kit.db_number(&format!("SELECT count(*) {due} = '{now}'")).await, 1, "{day}");
        retry_next_day(zone).await;
        kit.db_execute(&format!(
            "UPDATE store.outbox SET dead_lettered_at = '{now}' WHERE key = '{key}' AND next_attempt_at = '{now}'"
        ))
        .await;
        assert_eq!(kit.db_number(&format!("SELECT count(*) {due} > '{now}'")).await, 1, "{day}");
        assert_eq!(kit.messages().await, 3, "the dead letter of this day, its successor, and the recheck");
        kit.advance(24 * 3600);
    }
    // The next change of the zone replaces them.
    for enabled in [true, false] {
        kit.switch(enabled).await;
    }
    assert_eq!(kit.messages().await, 2);
    // A deleted zone has no message.
    retry_next_day(kit.store.clock_rng().id()).await;
    assert_eq!(kit.messages().await, 2);
}

#[tokio::test]
async fn zone_that_never_had_a_ds_record_and_other_zones_are_unsigned_immediately() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let zone = kit.switch(true).await;
    kit.switch(false).await;
    assert!(kit.is_in_signed_group().await);
    kit.dns.ds_absent(zone).await.unwrap();
    assert!(!kit.is_in_signed_group().await);
    kit.registered.0.store(false, Ordering::SeqCst);
    let before = kit.messages().await;
    kit.switch(true).await;
    kit.switch(false).await;
    assert!(!kit.is_in_signed_group().await && !kit.wanted(zone).await.is_ending);
    assert_eq!(kit.messages().await, before);
}

/// The records that a user reports need not belong to the keys of the signer.
#[tokio::test(flavor = "multi_thread")]
async fn registry_gets_the_signers_ds_record_after_a_user_reported_another() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let fake = FakeSigner::start().await;
    let signer = fake.client(kit.store.clock_rng().clone());
    let zone = kit.switch(true).await;
    let reported = Ds { key_tag: 9, algorithm: 13, digest_type: 2, digest: "09".repeat(32) };
    kit.dns.ds_set(&actor(), kit.org, ZONE, DsReport { ds: vec![reported.clone()] }).await.unwrap();
    assert_eq!((kit.wanted(zone).await.ds, kit.messages().await), (Vec::new(), 0));
    fake.set_key(1);
    kit.advance(5);
    kit.dns.check_signers(&signer).await.unwrap();
    let requested = vec![Ds { key_tag: 1, digest: "01".repeat(32), ..reported.clone() }];
    assert_eq!((kit.wanted(zone).await.ds, kit.messages().await), (requested.clone(), 2));
    assert_eq!(kit.dns.dnssec(kit.org, ZONE).await.unwrap().ds, requested);
    // A report does not change the records at the registry, and the same request is recorded once.
    kit.dns.ds_set(&actor(), kit.org, ZONE, DsReport { ds: vec![reported.clone()] }).await.unwrap();
    kit.dns.check_signers(&signer).await.unwrap();
    assert_eq!(kit.dns.dnssec(kit.org, ZONE).await.unwrap().ds, [reported]);
    assert_eq!(kit.wanted(zone).await.ds, requested);
}

#[tokio::test]
async fn zone_cannot_be_deleted_while_its_registry_or_resolvers_may_have_its_ds_record() {
    let kit = Kit::start().await;
    kit.registered.0.store(true, Ordering::SeqCst);
    let zone = kit.switch(true).await;
    let delete = async || kit.dns.zone_delete(&actor(), kit.org, ZONE, &Precondition::Any).await;
    assert!(matches!(delete().await, Err(DnsError::DnssecOn(_))), "its DS record may be on its way");
    kit.sign().await;
    assert!(matches!(delete().await, Err(DnsError::DnssecOn(_))));
    kit.switch(false).await;
    kit.remove_ds(zone).await;
    assert!(matches!(delete().await, Err(DnsError::DnssecOn(_))), "resolvers may still have it");
    kit.advance(HOLD);
    kit.dns.ds_absent(zone).await.unwrap();
    delete().await.unwrap();
    assert!(kit.dns.ds_wanted(zone).await.unwrap().is_none());
}

#[tokio::test]
async fn signed_zone_of_a_domain_that_is_registered_elsewhere_can_be_deleted() {
    let kit = Kit::start().await;
    kit.switch(true).await;
    kit.dns.zone_delete(&actor(), kit.org, ZONE, &Precondition::Any).await.unwrap();
}
