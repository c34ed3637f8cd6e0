//! Tests of import, lock, transfer code, reads at the registrar, and notifications.

use std::time::Duration;

use domains::{
    DomainAutoRenew, DomainCheck, DomainError, DomainImport, DomainLock, DomainState, DsRecord, DsWanted, Notice,
    RegistrarError, UnavailableReason,
};
use kernel::Paging;
use serde_json::json;

use crate::kit::{Kit, NAMESERVERS, actor, purchase};
use crate::providers::{FIRST_YEAR, Fault, RENEWAL, When, YEAR, in_days};

const NAME: &str = "a.example";

#[tokio::test]
async fn check_returns_one_result_per_name() {
    let kit = Kit::start().await;
    kit.bought("sold.example").await;
    let names = ["New.example", "never.unsold", "sold.example", "new.example."].map(str::to_owned).to_vec();
    let results = kit.domains.check(kit.org, DomainCheck { names }).await.unwrap().results;
    let found: Vec<_> =
        results.iter().map(|it| (it.name.as_str(), it.reason, it.price_cents, it.renewal_cents)).collect();
    assert_eq!(
        found,
        [
            ("new.example", None, Some(FIRST_YEAR), Some(RENEWAL)),
            ("never.unsold", Some(UnavailableReason::Unsupported), None, None),
            ("sold.example", Some(UnavailableReason::Registered), None, None),
        ]
    );
    let names = ["ok.example", "www.not-ok.example", "also-ok.example", "not ok"].map(str::to_owned).to_vec();
    let error = kit.domains.check(kit.org, DomainCheck { names }).await.unwrap_err();
    let DomainError::Fields(invalid) = error else { panic!("{error:?}") };
    assert_eq!(invalid.paths().collect::<Vec<_>>(), ["names[1]", "names[3]"]);
}

#[tokio::test]
async fn import_creates_a_zone_and_calls_no_registrar() {
    let kit = Kit::start().await;
    let import = || DomainImport { name: "A.example".to_owned() };
    let imported = kit.domains.import(&actor(), kit.org, import()).await.unwrap();
    let domain = &imported.domain;
    assert_eq!((domain.state, domain.expires_at, domain.locked), (DomainState::External, None, None));
    assert_eq!((imported.is_new, &domain.nameservers[..]), (true, &NAMESERVERS.map(str::to_owned)[..]));
    assert!(!kit.domains.import(&actor(), kit.org, import()).await.unwrap().is_new);
    let other = kit.org().await;
    assert!(matches!(
        kit.domains.import(&actor(), other, import()).await,
        Err(DomainError::Taken(_) | DomainError::ZoneTaken(_))
    ));
    assert!(kit.world.state().calls.is_empty());
    assert_eq!((kit.events().await, kit.count("test.zones").await), (vec!["domain.import".to_owned()], 1));
    let lock = kit.domains.set_lock(&actor(), kit.org, NAME, DomainLock { locked: true }).await;
    assert!(matches!(lock, Err(DomainError::NotManaged)));
    assert!(matches!(kit.domains.auth_code(&actor(), kit.org, NAME).await, Err(DomainError::NotManaged)));
    assert_eq!(kit.domains.sync(&actor(), kit.org, NAME).await.unwrap(), *domain);
    assert!(matches!(kit.domains.get(other, NAME).await, Err(DomainError::NotFound)));
    assert!(matches!(kit.domains.get(kit.org, "not a name").await, Err(DomainError::NotFound)));
}

#[tokio::test]
async fn lock_is_set_once() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    let set = async |locked| kit.domains.set_lock(&actor(), kit.org, NAME, DomainLock { locked }).await;
    assert_eq!(set(true).await.unwrap().locked, Some(true));
    assert_eq!(kit.world.calls("lock"), 0);
    // The response is lost. The registrar then refuses the repeated change, because it has no effect.
    kit.world.fault(NAME, "lock", When::After, Fault::Fail);
    assert!(matches!(set(false).await, Err(DomainError::RegistrarFailed)));
    assert_eq!(set(false).await.unwrap().locked, Some(false));
    assert_eq!(kit.events().await, ["domain.purchase", "domain.lock"]);
    // After a failure, the lock is unknown until the next change or read.
    let locked = async || kit.domains.get(kit.org, NAME).await.unwrap().domain.locked;
    kit.world.fault(NAME, "lock", When::After, Fault::Fail);
    assert!(matches!(set(true).await, Err(DomainError::RegistrarFailed)));
    assert_eq!(locked().await, None);
    assert_eq!(set(false).await.unwrap().locked, Some(false));
    assert!(!kit.world.state().domain(NAME).locked);
    kit.world.fault(NAME, "lock", When::Before, Fault::Fail);
    assert!(matches!(set(true).await, Err(DomainError::RegistrarFailed)));
    kit.advance(15 * 60);
    kit.domains.sync_due().await.unwrap();
    assert_eq!(locked().await, Some(false));
    // After a refusal, the lock is known.
    for refusal in [
        RegistrarError::Rejected("status 422".to_owned()),
        RegistrarError::Deferred("status 402".to_owned()),
        RegistrarError::NameUnavailable("status 409".to_owned()),
    ] {
        kit.world.state().refusals.insert(NAME.to_owned(), refusal.clone());
        assert!(matches!(set(true).await, Err(DomainError::RegistrarFailed)), "{refusal}");
        assert_eq!(locked().await, Some(false), "{refusal}");
    }
    // A change that was not sent needs no read.
    let reads = kit.world.calls("read");
    kit.world.state().refusals.insert(NAME.to_owned(), RegistrarError::NotSent("too many requests".to_owned()));
    assert!(matches!(set(true).await, Err(DomainError::RegistrarFailed)));
    assert_eq!((locked().await, kit.world.calls("read")), (Some(false), reads));
}

#[tokio::test]
async fn change_of_the_lock_does_not_postpone_the_daily_read() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    for locked in [false, true] {
        kit.advance(13 * 3600);
        kit.domains.set_lock(&actor(), kit.org, NAME, DomainLock { locked }).await.unwrap();
    }
    kit.domains.sync_due().await.unwrap();
    assert_eq!(kit.world.calls("read"), 1);
}

#[tokio::test]
async fn request_ends_if_the_registrar_does_not_respond() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    let domains = kit.with_request_timeout(Duration::from_millis(100));
    for call in ["lock", "read", "auth-code", "check"] {
        kit.world.fault(NAME, call, When::Before, Fault::Kill);
        let error = match call {
            "lock" => domains.set_lock(&actor(), kit.org, NAME, DomainLock { locked: false }).await.unwrap_err(),
            "read" => domains.sync(&actor(), kit.org, NAME).await.unwrap_err(),
            "auth-code" => domains.auth_code(&actor(), kit.org, NAME).await.unwrap_err(),
            _ => domains.check(kit.org, DomainCheck { names: vec![NAME.to_owned()] }).await.unwrap_err(),
        };
        assert!(matches!(error, DomainError::RegistrarFailed), "{call}: {error:?}");
    }
}

#[tokio::test]
async fn transfer_code_is_not_stored() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    let code = kit.domains.auth_code(&actor(), kit.org, NAME).await.unwrap();
    assert_eq!((code.auth_code.as_str(), code.transferable_at), ("code-of-a.example", Some(in_days(kit.now(), 60))));
    assert!(!format!("{code:?}").contains("code-of"));
    for table in ["store.audit", "domains.history", "domains.domains"] {
        assert_eq!(kit.count(&format!("(SELECT t::text AS row FROM {table} t) r WHERE row LIKE '%code-of%'")).await, 0);
    }
    assert_eq!(kit.events().await, ["domain.purchase", "domain.auth_code"]);
}

#[tokio::test]
async fn reading_follows_the_registrar() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    let sync = async || {
        // Later changes have higher ids in the history.
        kit.advance(1);
        kit.domains.sync(&actor(), kit.org, NAME).await
    };
    kit.world.fault(NAME, "read", When::Before, Fault::Fail);
    assert!(matches!(sync().await, Err(DomainError::RegistrarFailed)));
    kit.world.state().domain(NAME).nameservers = vec!["ns.elsewhere.example".to_owned()];
    assert_eq!(sync().await.unwrap().nameservers, ["ns.elsewhere.example"]);
    kit.advance(YEAR + 1);
    assert_eq!(sync().await.unwrap().state, DomainState::Expired);
    let domain = kit.world.state().account.remove(NAME).unwrap();
    assert_eq!(sync().await.unwrap().state, DomainState::TransferredOut);
    let history = kit.domains.get(kit.org, NAME).await.unwrap().history;
    let events: Vec<_> = history.iter().map(|change| change.event.as_str()).collect();
    assert_eq!(events, ["domain.sync", "domain.sync", "domain.sync", "domain.purchase"]);
    assert_eq!(kit.count("test.zones").await, 1, "the zone stays");
    // The transfer was reverted.
    kit.world.state().account.insert(NAME.to_owned(), domain);
    assert_eq!(sync().await.unwrap().state, DomainState::Expired);
}

#[tokio::test]
async fn history_has_the_last_50_changes() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    for change in 0..51 {
        // Later changes have higher ids in the history.
        kit.advance(1);
        let change = DomainAutoRenew { enabled: change % 2 == 1 };
        kit.domains.set_auto_renew(&actor(), kit.org, NAME, change).await.unwrap();
    }
    let history = kit.domains.get(kit.org, NAME).await.unwrap().history;
    assert_eq!((history.len(), &history[0].data["enabled"]), (50, &json!(false)));
    assert!(history.iter().all(|change| change.event == "domain.auto_renew"));
}

#[tokio::test]
async fn any_number_of_domains_is_read_daily_until_the_registrar_fails() {
    let kit = Kit::start().await;
    for number in 0..12 {
        kit.bought(&format!("shop{number}.example")).await;
    }
    kit.advance(26 * 3600);
    kit.domains.sync_due().await.unwrap();
    assert_eq!(kit.world.calls("read"), 12);
    kit.advance(26 * 3600);
    kit.world.state().is_registrar_down = true;
    kit.domains.sync_due().await.unwrap();
    assert_eq!(kit.world.calls("read"), 12 + 3, "a run stops after three failures");
}

#[tokio::test]
async fn every_domain_is_read_daily() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.domains.sync_due().await.unwrap();
    assert_eq!(kit.world.calls("read"), 0);
    kit.advance(26 * 3600);
    kit.world.fault(NAME, "read", When::Before, Fault::Fail);
    for expected in [1, 1] {
        kit.domains.sync_due().await.unwrap();
        assert_eq!(kit.world.calls("read"), expected);
    }
    kit.advance(15 * 60);
    kit.domains.sync_due().await.unwrap();
    assert_eq!(kit.world.calls("read"), 2, "after a failure, earlier");
    kit.world.state().account.remove(NAME);
    kit.advance(26 * 3600);
    kit.domains.sync_due().await.unwrap();
    assert_eq!(kit.state(NAME).await.as_deref(), Some("transferred_out"));
    kit.advance(26 * 3600);
    kit.domains.sync_due().await.unwrap();
    assert_eq!(kit.world.calls("read"), 3);
}

#[tokio::test]
async fn expiry_is_notified_once_per_threshold() {
    let kit = Kit::start().await;
    let expires_at = kit.bought(NAME).await.expires_at.unwrap();
    let mut sent = Vec::new();
    for day in 0..=366 {
        for _ in 0..2 {
            kit.domains.notify_expiring().await.unwrap();
        }
        let notices = std::mem::take(&mut kit.world.state().notices);
        for notice in notices {
            let expected = Notice::Expiring { domain: NAME.to_owned(), expires_at };
            assert_eq!(notice, (kit.org, expected));
            sent.push(365 - day);
        }
        kit.clock.advance_days(1);
    }
    assert_eq!(sent, [30, 14, 7, 1]);
}

#[tokio::test]
async fn domains_are_listed_newest_first() {
    let kit = Kit::start().await;
    for name in ["a.example", "b.example", "c.example"] {
        kit.advance(1);
        kit.bought(name).await;
    }
    let first = kit.domains.list(kit.org, &Paging { limit: 2, after: None }).await.unwrap();
    let names: Vec<_> = first.items.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["c.example", "b.example"]);
    let after = Paging::after(2, &first.next_cursor.unwrap()).unwrap();
    let rest = kit.domains.list(kit.org, &after).await.unwrap();
    assert_eq!((rest.items.len(), rest.items[0].name.as_str(), rest.next_cursor), (1, "a.example", None));
}

/// New DS records are added before the others are removed, and all are removed when signing ends.
#[tokio::test]
async fn ds_records_follow_the_zone() {
    let kit = Kit::start().await;
    let record = |tag: u16| DsRecord { key_tag: tag, algorithm: 13, digest_type: 2, digest: format!("{tag:064X}") };
    let zone = kit.store.clock_rng().id();
    let wants = |tags: &[u16], is_ending| {
        let ds = tags.iter().map(|tag| record(*tag)).collect();
        let wanted = DsWanted { org: kit.org, name: NAME.to_owned(), ds, is_ending };
        kit.world.state().ds_wanted.insert(zone, wanted);
    };
    let at_registry = || kit.world.state().ds.get(NAME).cloned().unwrap_or_default();
    // An external domain is managed at another registrar.
    kit.domains.import(&actor(), kit.org, DomainImport { name: NAME.to_owned() }).await.unwrap();
    wants(&[1], false);
    kit.domains.apply_ds(zone).await.unwrap();
    assert_eq!(kit.world.calls("add-ds"), 0);
    kit.bought(NAME).await;
    for _ in 0..2 {
        kit.domains.apply_ds(zone).await.unwrap();
        assert_eq!((kit.world.calls("add-ds"), at_registry()), (1, vec![record(1)]));
    }
    // After a failure between the addition and the removal, both records exist.
    wants(&[2], false);
    kit.world.fault(NAME, "remove-ds", When::Before, Fault::Fail);
    kit.domains.apply_ds(zone).await.unwrap_err();
    assert_eq!(at_registry(), [record(1), record(2)]);
    kit.domains.apply_ds(zone).await.unwrap();
    assert_eq!(at_registry(), [record(2)]);
    // While the keys are not known yet, nothing changes.
    wants(&[], false);
    kit.domains.apply_ds(zone).await.unwrap();
    assert_eq!((at_registry(), kit.world.calls("ds-absent")), (vec![record(2)], 0));
    // The registrar executes the removal, and its response is lost. The hold begins anyway.
    wants(&[], true);
    kit.world.fault(NAME, "remove-ds", When::After, Fault::Fail);
    kit.world.state().calls.clear();
    kit.domains.apply_ds(zone).await.unwrap_err();
    assert!(at_registry().is_empty());
    kit.domains.apply_ds(zone).await.unwrap();
    assert_eq!(kit.world.state().calls, ["ds", "ds-removal-begin", "remove-ds", "ds", "ds-absent"]);
}

/// A domain that was transferred away is in the account again, because another organization bought it.
#[tokio::test]
async fn domain_of_another_organization_does_not_return_to_the_former_one() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().account.clear();
    let sync = async || kit.domains.sync(&actor(), kit.org, NAME).await;
    assert_eq!(sync().await.unwrap().state, DomainState::TransferredOut);
    // The zone of the former organization no longer prevents the purchase.
    kit.db_execute("DELETE FROM test.zones").await;
    let other = kit.org().await;
    let bought = kit.domains.purchase(&actor(), other, purchase(NAME)).await.unwrap().domain;
    kit.db_execute("DELETE FROM test.zones").await;
    assert_eq!(sync().await.unwrap().state, DomainState::TransferredOut);
    assert!(matches!(kit.buy(NAME).await, Err(DomainError::Taken(_) | DomainError::ZoneTaken(_))));
    let import = kit.domains.import(&actor(), kit.org, DomainImport { name: NAME.to_owned() }).await;
    assert!(matches!(import, Err(DomainError::Taken(_) | DomainError::ZoneTaken(_))));
    assert_eq!(kit.domains.get(other, NAME).await.unwrap().domain, bought);
    assert_eq!((kit.world.charges(kit.org), kit.world.state().registrations.len()), ((1, 0), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn expiring_example_lists_the_domains_of_the_next_month() {
    let kit = Kit::start().await;
    for (name, days) in [("soon.example", 10), ("late.example", 60)] {
        kit.bought(name).await;
        let expiry = format!("UPDATE domains.domains SET expires_at = now() + interval '{days} days'");
        kit.db_execute(&format!("{expiry} WHERE name = '{name}'")).await;
    }
    let output = kit.database.example("expiring", &[]);
    assert!(output.lines().count() == 1 && output.ends_with(&format!("Z  soon.example  {}\n", kit.org)), "{output}");
}
