//! Renewals and their charges.

use std::time::Duration;

use domains::{DomainError, DomainRenewal, Notice, RegistrarError};
use kernel::Time;
use store::outbox::Retry;

use crate::kit::{Kit, LATER, actor};
use crate::providers::{Fault, RENEWAL, When, YEAR};

pub const NAME: &str = "a.example";

/// The time after which a request for the same number of years starts another renewal, in seconds.
const REPEAT: i64 = 24 * 3600;

/// The time for which the outbox retries a message after its first failed attempt, in seconds.
const RETRY_PERIOD: i64 = 72 * 3600;

impl Kit {
    /// Renews the domain of the tests.
    pub async fn renew(&self, years: u8) -> Result<Time, DomainError> {
        let renewed = self.domains.renew(&actor(), self.org, NAME, DomainRenewal { years }).await?;
        Ok(renewed.expires_at.unwrap())
    }

    /// Returns the number of renewals at the registrar.
    pub fn renewals(&self) -> usize {
        self.world.state().renewals.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_is_charged_after_it_succeeded() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    kit.world.fault(kit.org, "charge", When::After, Fault::Fail);
    assert_eq!(kit.renew(2).await.unwrap(), before.plus_seconds(2 * YEAR));
    assert_eq!(kit.world.charges(kit.org), (1, 0), "the purchase");
    let worker = kit.store.spawn_outbox_worker(std::sync::Arc::new(domains::RenewalCharges(kit.domains.clone())));
    kit.wait_for(1, "store.outbox WHERE last_error IS NOT NULL").await;
    worker.stop().await;
    kit.advance(LATER);
    kit.deliver().await;
    assert_eq!(kit.world.charges(kit.org), (2, 0));
    assert_eq!(kit.world.state().orders[1].cents, 2 * RENEWAL);
    assert_eq!(kit.events().await, ["domain.purchase", "domain.renew"]);
    // After a completed renewal, the next request starts another one.
    assert_eq!(kit.renew(1).await.unwrap(), before.plus_seconds(3 * YEAR));
    assert_eq!(kit.renewals(), 2);
}

/// A request after a failure continues the same renewal, even if the job has completed it.
#[tokio::test]
async fn renewal_after_a_failure_is_the_same_renewal() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    for (when, by_job) in [(When::Before, false), (When::After, false), (When::Before, true), (When::After, true)] {
        kit.advance(REPEAT);
        let expected = kit.renewals() + 1;
        kit.world.fault(NAME, "renew", when, Fault::Fail);
        assert!(matches!(kit.renew(1).await, Err(DomainError::RegistrarFailed)));
        if by_job || when == When::Before {
            kit.advance(LATER);
        }
        if by_job {
            kit.resume().await;
            assert_eq!(kit.count("store.sagas WHERE finished_at IS NULL").await, 0);
        }
        let years = i64::try_from(expected).unwrap();
        assert_eq!(kit.renew(1).await.unwrap(), before.plus_seconds(years * YEAR), "{when:?} {by_job}");
        assert_eq!(kit.renewals(), expected, "{when:?} {by_job}");
    }
    assert_eq!(kit.count("domains.charges WHERE purpose = 'renewal'").await, 4);
}

/// Repeats the request, because the first response may have been lost.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_renewal_is_the_same_renewal_for_a_day() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    for _ in 0..3 {
        assert_eq!(kit.renew(1).await.unwrap(), before.plus_seconds(YEAR));
        kit.advance(REPEAT / 4);
    }
    // A request for another number of years starts a new renewal. From then on, only this renewal can be repeated.
    for _ in 0..2 {
        assert_eq!(kit.renew(2).await.unwrap(), before.plus_seconds(3 * YEAR));
    }
    assert_eq!(kit.renew(1).await.unwrap(), before.plus_seconds(4 * YEAR));
    kit.advance(REPEAT);
    assert_eq!(kit.renew(1).await.unwrap(), before.plus_seconds(5 * YEAR));
    kit.deliver().await;
    assert_eq!((kit.renewals(), kit.world.charges(kit.org)), (4, (5, 0)));
}

#[tokio::test]
async fn repeated_renewal_is_the_same_renewal_on_a_server_with_another_clock() {
    let mut kit = Kit::start().await;
    kit.bought(NAME).await;
    let expires_at = kit.renew(1).await.unwrap();
    kit.domains = kit.server_ahead(2 * REPEAT);
    assert_eq!((kit.renew(1).await.unwrap(), kit.renewals()), (expires_at, 1));
}

#[tokio::test]
async fn refused_renewal_charges_nothing_and_the_next_has_a_new_key() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().refusals.insert(NAME.to_owned(), RegistrarError::Rejected("status 422".to_owned()));
    assert!(matches!(kit.renew(10).await, Err(DomainError::RenewalRejected)));
    assert_eq!((kit.renewals(), kit.count("domains.charges WHERE purpose = 'renewal'").await), (0, 0));
    kit.world.state().refusals.clear();
    kit.renew(1).await.unwrap();
    assert_eq!(kit.renewals(), 1);
}

/// The registrar continues a renewal after its caller has stopped waiting. It would execute a repeated request too.
#[tokio::test]
async fn renewal_is_not_repeated_while_it_may_be_in_progress() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    // No renewal gets this response, because none repeats the key of another call.
    kit.world.state().slow.insert(NAME.to_owned(), RegistrarError::Unavailable("status 500".to_owned()));
    for _ in 0..3 {
        assert!(matches!(kit.renew(1).await, Err(DomainError::RegistrarFailed)));
    }
    assert_eq!(kit.world.calls("renew"), 1);
    kit.world.state().complete_slow_calls();
    assert_eq!((kit.renew(1).await.unwrap(), kit.renewals()), (before.plus_seconds(YEAR), 1));
    assert_eq!(kit.count("domains.charges WHERE purpose = 'renewal'").await, 1);
}

#[tokio::test]
async fn refusal_ends_the_renewal_when_no_attempt_can_be_in_progress() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.fault(NAME, "renew", When::Before, Fault::Fail);
    for _ in 0..2 {
        assert!(matches!(kit.renew(1).await, Err(DomainError::RegistrarFailed)));
    }
    kit.world.state().refusals.insert(NAME.to_owned(), RegistrarError::Rejected("status 409".to_owned()));
    kit.advance(LATER);
    assert!(matches!(kit.renew(1).await, Err(DomainError::RenewalRejected)));
    assert_eq!((kit.renewals(), kit.count("domains.charges WHERE purpose = 'renewal'").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn declined_charge_of_a_renewal_notifies_and_undoes_nothing() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().declined.push(kit.org);
    let expires_at = kit.renew(1).await.unwrap();
    kit.deliver().await;
    let notice = Notice::RenewalDeclined { domain: NAME.to_owned() };
    assert_eq!(kit.world.state().notices, [(kit.org, notice)]);
    assert_eq!(kit.domains.get(kit.org, NAME).await.unwrap().domain.expires_at, Some(expires_at));
    assert_eq!(kit.count("domains.charges WHERE state = 'declined'").await, 1);
}

/// The first attempt does not reach the provider, so a later one learns that the order can never be paid.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_whose_order_can_never_be_paid_is_declined() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.fault(kit.org, "charge", When::Before, Fault::Fail);
    kit.renew(1).await.unwrap();
    let worker = kit.store.spawn_outbox_worker(std::sync::Arc::new(domains::RenewalCharges(kit.domains.clone())));
    kit.wait_for(1, "store.outbox WHERE last_error IS NOT NULL").await;
    worker.stop().await;
    kit.world.state().not_payable.push(kit.org);
    kit.advance(LATER);
    kit.deliver().await;
    assert_eq!(kit.count("domains.charges WHERE state = 'declined'").await, 1);
    assert_eq!(kit.world.state().notices, [(kit.org, Notice::RenewalDeclined { domain: NAME.to_owned() })]);
    // The next renewal cannot pay this order either. The one after that pays another order.
    assert!(matches!(kit.renew(2).await, Err(DomainError::RenewalUnpaid { .. })));
    kit.world.state().not_payable.clear();
    kit.renew(2).await.unwrap();
    assert_eq!((kit.world.charges(kit.org), kit.world.state().orders.len()), ((2, 0), 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_of_a_dead_letter_is_declined_and_never_charged() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.renew(1).await.unwrap();
    for failed in ["last_error", "dead_lettered_at"] {
        kit.world.fault(kit.org, "charge", When::Before, Fault::Fail);
        let worker = kit.store.spawn_outbox_worker(std::sync::Arc::new(domains::RenewalCharges(kit.domains.clone())));
        kit.wait_for(1, &format!("store.outbox WHERE {failed} IS NOT NULL")).await;
        worker.stop().await;
        kit.advance(RETRY_PERIOD);
    }
    let notice = Notice::RenewalDeclined { domain: NAME.to_owned() };
    assert_eq!(kit.world.state().notices, [(kit.org, notice.clone())]);
    assert_eq!(kit.count("domains.charges WHERE state = 'declined'").await, 1);
    // An operator retries the dead letter.
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 1);
    kit.deliver().await;
    assert_eq!(kit.world.charges(kit.org), (1, 0), "the purchase");
    assert_eq!(kit.world.state().notices, [(kit.org, notice)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_renewal_pays_its_declined_charge() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().declined.push(kit.org);
    let expires_at = kit.renew(1).await.unwrap();
    kit.deliver().await;
    assert_eq!(kit.world.charges(kit.org), (1, 0), "the purchase");
    kit.world.state().declined.clear();
    for _ in 0..2 {
        assert_eq!(kit.renew(1).await.unwrap(), expires_at);
        assert_eq!((kit.renewals(), kit.world.charges(kit.org)), (1, (2, 0)));
    }
    assert_eq!(kit.count("domains.charges WHERE state <> 'paid'").await, 0);
}

/// An organization that does not pay cannot renew further at the platform's expense.
#[tokio::test(flavor = "multi_thread")]
async fn declined_renewal_is_paid_before_the_next_one() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().declined.push(kit.org);
    let expires_at = kit.renew(1).await.unwrap();
    kit.deliver().await;
    // Neither a repeated request nor another renewal succeeds.
    for years in [1, 2, 2] {
        let Err(DomainError::RenewalUnpaid { name, until, cents }) = kit.renew(years).await else {
            panic!("not refused")
        };
        assert_eq!((name.as_str(), until, cents), (NAME, expires_at, RENEWAL));
    }
    kit.world.state().declined.clear();
    // The charge fails before and after its effect.
    for when in [When::Before, When::After] {
        kit.world.fault(kit.org, "charge", when, Fault::Fail);
        assert!(matches!(kit.renew(2).await, Err(DomainError::Incomplete)), "{when:?}");
        assert_eq!(kit.renewals(), 1);
    }
    assert_eq!(kit.renew(2).await.unwrap(), expires_at.plus_seconds(2 * YEAR));
    // The purchase and the first renewal are paid.
    assert_eq!((kit.world.charges(kit.org), kit.world.state().orders.len()), ((2, 0), 2));
    kit.deliver().await;
    assert_eq!((kit.world.charges(kit.org), kit.world.state().orders.len()), ((3, 0), 3));
    assert_eq!(kit.count("domains.charges WHERE state <> 'paid'").await, 0);
    assert_eq!(kit.events().await, ["domain.purchase", "domain.renew", "domain.renew"]);
}

/// The platform pays the registrar first, so each domain of an organization that does not pay would cost it money.
#[tokio::test(flavor = "multi_thread")]
async fn declined_renewal_is_paid_before_another_domain_is_renewed() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.bought("b.example").await;
    let renew_other =
        async || kit.domains.renew(&actor(), kit.org, "b.example", DomainRenewal { years: 9 }).await.map(drop);
    kit.world.state().declined.push(kit.org);
    kit.renew(1).await.unwrap();
    kit.deliver().await;
    for _ in 0..2 {
        let Err(DomainError::RenewalUnpaid { name, .. }) = renew_other().await else { panic!("not refused") };
        assert_eq!((name.as_str(), kit.renewals()), (NAME, 1));
    }
    kit.world.state().declined.clear();
    renew_other().await.unwrap();
    kit.deliver().await;
    assert_eq!((kit.renewals(), kit.world.charges(kit.org)), (2, (4, 0)));
}

/// Concurrent requests do not renew several domains at the expense of the platform.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_waits_for_another_one_of_the_organization_and_its_charge() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.bought("b.example").await;
    kit.world.state().declined.push(kit.org);
    kit.world.fault(NAME, "renew", When::Before, Fault::Pause);
    let impatient = kit.with_request_timeout(Duration::from_secs(1));
    let renew_other = async |domains: &domains::Domains| {
        domains.renew(&actor(), kit.org, "b.example", DomainRenewal { years: 1 }).await.map(drop)
    };
    let (renewed, refused) = tokio::join!(kit.renew(1), kit.world.during_pause(renew_other(&impatient)));
    renewed.unwrap();
    assert!(matches!(&refused, Err(DomainError::RenewalInProgress { name }) if name == NAME), "{refused:?}");
    // The outbox has not charged the first renewal yet.
    let Err(DomainError::RenewalUnpaid { name, .. }) = renew_other(&kit.domains).await else { panic!("not refused") };
    assert_eq!((name.as_str(), kit.renewals()), (NAME, 1));
    assert_eq!(kit.count("domains.charges WHERE state = 'pending'").await, 1);
    kit.world.state().declined.clear();
    renew_other(&kit.domains).await.unwrap();
    // The purchases and the first renewal.
    assert_eq!((kit.renewals(), kit.world.charges(kit.org)), (2, (3, 0)));
    kit.deliver().await;
    assert_eq!((kit.world.charges(kit.org), kit.world.state().orders.len()), ((4, 0), 4));
}

/// A renewal that can never be completed does not block the renewals of the organization.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_without_a_valid_price_is_refused() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.bought("b.example").await;
    for cents in [-1, 0] {
        kit.world.state().domain(NAME).renewal_cents = Some(cents);
        assert!(matches!(kit.renew(1).await, Err(DomainError::RegistrarFailed)), "{cents}");
        assert_eq!(kit.count("store.sagas WHERE finished_at IS NULL").await, 0, "{cents}");
    }
    kit.domains.renew(&actor(), kit.org, "b.example", DomainRenewal { years: 1 }).await.unwrap();
    kit.world.state().domain(NAME).renewal_cents = Some(RENEWAL);
    kit.renew(1).await.unwrap();
    assert_eq!(kit.renewals(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_without_a_stated_price_has_the_last_known_one() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().domain(NAME).renewal_cents = None;
    kit.renew(2).await.unwrap();
    kit.deliver().await;
    assert_eq!(kit.world.charges(kit.org), (2, 0));
    assert_eq!(kit.world.state().orders[1].cents, 2 * RENEWAL);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_renewals_with_a_declining_card_reach_the_registrar_once() {
    let kit = Kit::start().await;
    let names = ["a.example", "b.example", "c.example", "d.example"];
    for name in names {
        kit.bought(name).await;
    }
    kit.world.state().declined.push(kit.org);
    let renew = async |name| kit.domains.renew(&actor(), kit.org, name, DomainRenewal { years: 1 }).await;
    let results = futures_util::future::join_all(names.map(renew)).await;
    assert_eq!((results.iter().filter(|it| it.is_ok()).count(), kit.renewals()), (1, 1), "{results:?}");
}

#[tokio::test]
async fn renewal_requires_a_saved_payment_method() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.world.state().no_card.push(kit.org);
    assert!(matches!(kit.renew(1).await, Err(DomainError::PaymentFailed)));
    kit.world.state().no_card.clear();
    kit.world.fault(kit.org, "card", When::Before, Fault::Fail);
    assert!(matches!(kit.renew(1).await, Err(DomainError::Incomplete)));
    assert_eq!((kit.renewals(), kit.count("store.sagas WHERE kind = 'domains.renewal'").await), (0, 0));
    let expires_at = kit.renew(1).await.unwrap();
    // A repeated request spends nothing.
    kit.world.state().no_card.push(kit.org);
    assert_eq!((kit.renew(1).await.unwrap(), kit.renewals()), (expires_at, 1));
}

/// The registrar shows the new expiry only after the response, and the process is killed when it reads the domain.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_that_waits_for_the_new_expiry_continues_after_a_kill() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    kit.world.state().stale_expiries.insert(NAME.to_owned(), before);
    kit.world.fault(NAME, "renew", When::Before, Fault::Pause);
    let kill_next_read = async { kit.world.fault(NAME, "read", When::Before, Fault::Kill) };
    let (renewed, ()) = tokio::join!(kit.world.run(None, kit.renew(1)), kit.world.during_pause(kill_next_read));
    assert!(renewed.is_none());
    kit.world.state().stale_expiries.clear();
    kit.advance(LATER);
    kit.resume().await;
    kit.deliver().await;
    assert_eq!((kit.world.calls("renew"), kit.world.charges(kit.org)), (1, (2, 0)));
    assert_eq!(kit.renew(1).await.unwrap(), before.plus_seconds(YEAR));
}

/// A read during a renewal whose response was lost does not count as a renewal by the registrar.
#[tokio::test(flavor = "multi_thread")]
async fn reading_completes_an_unfinished_renewal_first() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    kit.world.fault(NAME, "renew", When::After, Fault::Fail);
    assert!(matches!(kit.renew(1).await, Err(DomainError::RegistrarFailed)));
    let synced = kit.domains.sync(&actor(), kit.org, NAME).await.unwrap();
    assert_eq!(synced.expires_at, Some(before.plus_seconds(YEAR)));
    kit.deliver().await;
    assert_eq!((kit.world.charges(kit.org), kit.renewals()), ((2, 0), 1));
}
