//! The registrar is down for an hour.

use domains::{DomainCheck, DomainError, DomainLock, DomainRenewal, DomainState, DsError, DsRecord, DsWanted};
use kernel::{Paging, ZoneId};
use store::saga::SagaFilter;

use crate::kit::{Kit, LATER, actor, purchase};
use crate::providers::{Fault, When, YEAR};

const OWNED: &str = "owned.example";
/// `NEW` is purchased during the outage. The other purchase is charged before it.
const NEW: &str = "new.example";
const CHARGED: &str = "charged.example";

impl Kit {
    /// Returns the results of all operations that need the registrar.
    async fn writes(&self) -> Vec<Result<(), DomainError>> {
        let (domains, org) = (&self.domains, self.org);
        vec![
            self.buy(NEW).await.map(drop),
            self.buy(CHARGED).await.map(drop),
            domains.check(org, DomainCheck { names: vec!["free.example".to_owned()] }).await.map(drop),
            domains.renew(&actor(), org, OWNED, DomainRenewal { years: 1 }).await.map(drop),
            domains.set_lock(&actor(), org, OWNED, DomainLock { locked: false }).await.map(drop),
            domains.auth_code(&actor(), org, OWNED).await.map(drop),
            domains.sync(&actor(), org, OWNED).await.map(drop),
        ]
    }

    async fn open_sagas(&self) -> i64 {
        self.count("store.sagas WHERE finished_at IS NULL").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_resumes_by_itself_after_an_outage_of_an_hour() {
    let kit = Kit::start().await;
    let expires_at = kit.bought(OWNED).await.expires_at.unwrap();
    kit.world.fault(CHARGED, "register", When::Before, Fault::Fail);
    assert!(matches!(kit.buy(CHARGED).await, Err(DomainError::RegistrarFailed)));
    let zone: ZoneId = kit.store.clock_rng().id();
    let ds = vec![DsRecord { key_tag: 1, algorithm: 13, digest_type: 2, digest: "AA".repeat(32) }];
    let wanted = DsWanted { org: kit.org, name: OWNED.to_owned(), ds: ds.clone(), is_ending: false };
    kit.world.state().ds_wanted.insert(zone, wanted);
    kit.world.state().is_registrar_down = true;
    let other = kit.org().await;
    for minute in 0..60 {
        if minute % 20 == 0 {
            for result in kit.writes().await {
                assert!(matches!(result, Err(DomainError::RegistrarFailed)), "{result:?}");
            }
            let taken = kit.domains.purchase(&actor(), other, purchase(NEW)).await;
            assert!(matches!(taken, Err(DomainError::Taken(_) | DomainError::ZoneTaken(_))));
            assert!(matches!(kit.domains.apply_ds(zone).await, Err(DsError::Registrar(_))));
        }
        kit.advance(60);
        kit.resume().await;
        kit.domains.sync_due().await.unwrap();
        // Reads work, and so do changes that do not need the registrar.
        let listed = kit.domains.list(kit.org, &Paging { limit: 10, after: None }).await.unwrap().items;
        assert_eq!(listed.len(), 3);
        assert_eq!(kit.domains.get(kit.org, NEW).await.unwrap().domain.state, DomainState::Registering);
        assert_eq!(kit.open_sagas().await, 3);
    }
    assert_eq!((kit.world.charges(kit.org), kit.world.state().registrations.len()), ((2, 0), 1));
    assert_eq!(kit.world.calls("register"), 1 + 1, "a repeated registration first reads the domain");

    kit.world.state().is_registrar_down = false;
    // The longest backoff is five minutes.
    for _ in 0..6 {
        kit.advance(60);
        kit.resume().await;
    }
    assert_eq!(kit.open_sagas().await, 0);
    for name in [NEW, CHARGED] {
        assert_eq!(kit.domains.get(kit.org, name).await.unwrap().domain.state, DomainState::Active, "{name}");
    }
    assert_eq!((kit.world.charges(kit.org), kit.world.state().registrations.len()), ((3, 0), 3));
    kit.domains.apply_ds(zone).await.unwrap();
    assert_eq!(kit.world.state().ds[OWNED], ds);
    // The caller's repeated request continues the renewal that began during the outage.
    let renewed = kit.domains.renew(&actor(), kit.org, OWNED, DomainRenewal { years: 1 }).await.unwrap();
    assert_eq!((renewed.expires_at, kit.world.state().renewals.len()), (Some(expires_at.plus_seconds(YEAR)), 1));
    kit.domains.sync(&actor(), kit.org, OWNED).await.unwrap();
}

#[tokio::test]
async fn server_without_a_registrar_records_the_reason_and_another_completes_the_sagas() {
    let kit = Kit::start().await;
    kit.bought(OWNED).await;
    for (name, call) in [("a.example", "check"), ("b.example", "register"), ("c.example", "nameservers")] {
        kit.world.fault(name, call, When::Before, Fault::Fail);
        assert!(matches!(kit.buy(name).await, Err(DomainError::RegistrarFailed)), "{name}");
    }
    kit.world.fault(OWNED, "renew", When::Before, Fault::Fail);
    let renewed = kit.domains.renew(&actor(), kit.org, OWNED, DomainRenewal { years: 1 }).await;
    assert!(matches!(renewed, Err(DomainError::RegistrarFailed)), "{renewed:?}");
    kit.advance(LATER);
    kit.without_registrar().resume().await.unwrap();
    let open = kit.store.saga_list(&SagaFilter::default()).await.unwrap();
    let errors: Vec<_> = open.iter().map(|saga| saga.last_error.as_deref()).collect();
    assert_eq!(errors, [Some("the registrar is not configured any more"); 4]);
    kit.advance(LATER);
    kit.resume().await;
    assert_eq!(kit.open_sagas().await, 0);
    assert_eq!((kit.world.charges(kit.org), kit.world.state().renewals.len()), ((4, 0), 1));
}
