//! Concurrent operations on one name.

use diesel_async::RunQueryDsl as _;
use domains::{DomainError, DomainImport, DomainLock, DomainRepository as _, RegistrarError};
use futures_util::future::join_all;
use store::Connection;
use testkit::four_at_a_time;
use tokio::sync::Notify;

use crate::kit::{Kit, actor, purchase};
use crate::providers::{Fault, When};

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_organizations_gets_the_name_and_the_other_is_not_charged() {
    let kit = Kit::start().await;
    for round in 0..5 {
        let name = format!("race-{round}.example");
        let (one, two) = (kit.org().await, kit.org().await);
        let buy = async |org| kit.domains.purchase(&actor(), org, purchase(&name)).await;
        let results = join_all([one, two, two, one].map(buy)).await;
        let winners: Vec<_> =
            [one, two, two, one].into_iter().zip(&results).filter(|(_, result)| result.is_ok()).collect();
        let [(winner, _), (again, _)] = winners[..] else { panic!("{results:?}") };
        assert_eq!(winner, again, "{results:?}");
        let loser = if winner == one { two } else { one };
        assert!(
            results
                .iter()
                .filter_map(|result| result.as_ref().err())
                .all(|it| matches!(it, DomainError::Taken(_) | DomainError::ZoneTaken(_)))
        );
        assert_eq!((kit.world.charges(winner), kit.world.charges(loser)), ((1, 0), (0, 0)));
        assert_eq!(kit.world.state().registrations.iter().filter(|it| **it == name).count(), 1);
    }
    assert_eq!(kit.count("test.names").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_that_races_itself_buys_once() {
    let kit = Kit::start().await;
    let results = four_at_a_time((0..20).map(|_| kit.buy("self.example"))).await;
    for result in &results {
        assert_eq!(result.as_ref().unwrap().domain.name, "self.example");
    }
    assert!(results.iter().any(|result| result.as_ref().unwrap().is_new));
    assert_eq!(kit.world.charges(kit.org), (1, 0));
    assert_eq!((kit.world.calls("register"), kit.world.state().registrations.len()), (1, 1));
    assert_eq!(kit.events().await, ["domain.purchase"]);
}

/// The deletion of a zone ends the import of its domain, even if a purchase of the domain is refused at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn import_ends_while_a_purchase_is_refused() {
    const NAME: &str = "imported.example";
    let kit = Kit::start().await;
    kit.domains.import(&actor(), kit.org, DomainImport { name: NAME.to_owned() }).await.unwrap();
    kit.db_execute("UPDATE domains.domains SET state = 'registering', previous_state = 'external'").await;
    let is_refusing = Notify::new();
    let refuse = kit.store.transaction_unaudited(async |tx: &mut Connection| {
        let refuse = "UPDATE domains.domains SET state = 'external', previous_state = NULL, revision = revision + 1";
        diesel::sql_query(refuse).execute(tx).await?;
        is_refusing.notify_one();
        kit.wait_for(1, "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").await;
        Ok::<_, store::Error>(())
    });
    let release = async {
        is_refusing.notified().await;
        kit.connection().await.domain_release_imported(kit.org, NAME).await
    };
    let (refused, released) = tokio::join!(refuse, release);
    refused.unwrap();
    released.unwrap();
    assert_eq!(kit.state(NAME).await, None);
}

/// The lock is never shown in a state that the registrar need not have.
#[tokio::test(flavor = "multi_thread")]
async fn lock_is_unknown_after_overlapping_changes_and_reads() {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Meanwhile {
        Change,
        LostChange,
        Read,
    }
    for (round, meanwhile) in [Meanwhile::Change, Meanwhile::LostChange, Meanwhile::Read].into_iter().enumerate() {
        let kit = Kit::start().await;
        let name = format!("lock-{round}.example");
        kit.bought(&name).await;
        let set = async |locked| kit.domains.set_lock(&actor(), kit.org, &name, DomainLock { locked }).await;
        kit.world.fault(&name, "lock", When::After, Fault::Pause);
        let (changed, ()) = tokio::join!(
            set(false),
            kit.world.during_pause(async {
                match meanwhile {
                    Meanwhile::Change => assert_eq!(set(true).await.unwrap().locked, Some(true)),
                    Meanwhile::LostChange => {
                        kit.world.fault(&name, "lock", When::After, Fault::Fail);
                        assert!(matches!(set(true).await, Err(DomainError::RegistrarFailed)));
                    }
                    Meanwhile::Read => {
                        let read = kit.domains.sync(&actor(), kit.org, &name).await.unwrap();
                        assert_eq!(read.locked, Some(false));
                    }
                }
            })
        );
        assert_eq!(changed.unwrap().locked, None, "{meanwhile:?}");
        let audited = if meanwhile == Meanwhile::Change { 2 } else { 1 };
        assert_eq!(kit.count("store.audit WHERE event = 'domain.lock'").await, audited, "{meanwhile:?}");
        // The calls have ended.
        kit.advance(60);
        kit.domains.sync_due().await.unwrap();
        let found = kit.domains.get(kit.org, &name).await.unwrap().domain.locked;
        assert_eq!(found, Some(meanwhile != Meanwhile::Read), "{meanwhile:?}");
    }
}

/// The lock from before another change is not stored.
#[tokio::test(flavor = "multi_thread")]
async fn lock_is_unknown_after_another_change_and_an_unsent_one() {
    const NAME: &str = "unsent.example";
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().refusals.insert(NAME.to_owned(), RegistrarError::NotSent("too many requests".to_owned()));
    let is_changing = Notify::new();
    let change = kit.store.transaction_unaudited(async |tx: &mut Connection| {
        let change = "UPDATE domains.domains SET locked = false, revision = revision + 1";
        diesel::sql_query(change).execute(tx).await?;
        is_changing.notify_one();
        kit.wait_for(1, "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").await;
        Ok::<_, store::Error>(())
    });
    let set = async {
        is_changing.notified().await;
        kit.domains.set_lock(&actor(), kit.org, NAME, DomainLock { locked: false }).await
    };
    let (changed, set) = tokio::join!(change, set);
    changed.unwrap();
    assert!(matches!(set, Err(DomainError::RegistrarFailed)));
    assert_eq!(kit.domains.get(kit.org, NAME).await.unwrap().domain.locked, None);
}
