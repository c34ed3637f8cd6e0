//! Renewals that the registrar makes automatically, and their charges.

use domains::{ChargeRepository as _, DomainError, DomainRenewal, RegistrarError};
use store::saga::SagaFilter;

use crate::kit::{Kit, LATER, actor};
use crate::providers::{Fault, RENEWAL, When, YEAR};
use crate::renewals::NAME;

impl Kit {
    /// The registrar has renewed the domain, whose automatic renewal is off.
    async fn with_unbilled_renewal() -> Self {
        let kit = Self::start().await;
        kit.bought(NAME).await;
        kit.set_auto_renew(false).await;
        kit.move_expiry(YEAR).await;
        kit
    }

    async fn set_auto_renew(&self, enabled: bool) {
        let change = domains::DomainAutoRenew { enabled };
        self.domains.set_auto_renew(&actor(), self.org, NAME, change).await.unwrap();
    }

    /// The registrar changes the expiry.
    fn move_expiry_at_registrar(&self, seconds: i64) {
        let mut state = self.world.state();
        let domain = state.domain(NAME);
        domain.expires_at = domain.expires_at.plus_seconds(seconds);
    }

    /// The registrar changes the expiry, and the daily read finds it.
    async fn move_expiry(&self, seconds: i64) {
        self.move_expiry_at_registrar(seconds);
        self.read_daily().await;
    }

    async fn read_daily(&self) {
        self.advance(26 * 3600);
        self.domains.sync_due().await.unwrap();
        self.deliver().await;
    }

    /// The operator cancels a renewal at the registrar, and a read finds it.
    async fn cancel_renewal(&self) {
        self.move_expiry_at_registrar(-YEAR);
        self.domains.sync(&actor(), self.org, NAME).await.unwrap();
    }

    async fn unbilled(&self) -> i64 {
        self.count("domains.charges WHERE state = 'unbilled'").await
    }
}

/// The registrar renews automatically. The organization pays only if the domain's auto-renewal is on.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_by_the_registrar_is_charged_if_it_is_wanted() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    for (enabled, charged) in [(true, 2), (false, 2)] {
        let change = domains::DomainAutoRenew { enabled };
        kit.domains.set_auto_renew(&actor(), kit.org, NAME, change).await.unwrap();
        kit.move_expiry(YEAR).await;
        kit.read_daily().await;
        assert_eq!(kit.world.charges(kit.org), (charged, 0), "{enabled}");
    }
    assert_eq!(kit.world.state().orders[1].cents, RENEWAL);
    let history = kit.domains.get(kit.org, NAME).await.unwrap().history;
    let automatic = history.iter().filter(|change| change.data["automatic"] == true).count();
    assert_eq!(automatic, 2);
    assert_eq!(kit.events().await, ["domain.purchase", "domain.renew", "domain.auto_renew", "domain.renew"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unbilled_renewal_is_charged_when_auto_renewal_is_turned_on() {
    let kit = Kit::with_unbilled_renewal().await;
    assert_eq!((kit.unbilled().await, kit.world.charges(kit.org)), (1, (1, 0)));
    let detail = kit.domains.get(kit.org, NAME).await.unwrap();
    assert_eq!((detail.unpaid_cents, detail.unbilled_cents), (RENEWAL, RENEWAL));
    kit.set_auto_renew(true).await;
    let detail = kit.domains.get(kit.org, NAME).await.unwrap();
    assert_eq!((detail.unpaid_cents, detail.unbilled_cents), (0, 0), "the charge is pending");
    kit.deliver().await;
    assert_eq!((kit.unbilled().await, kit.world.charges(kit.org)), (0, (2, 0)));
    assert_eq!(kit.world.state().orders[1].cents, RENEWAL);
}

#[tokio::test(flavor = "multi_thread")]
async fn unbilled_renewal_is_paid_before_the_next_one() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.bought("b.example").await;
    kit.set_auto_renew(false).await;
    kit.move_expiry(YEAR).await;
    kit.world.state().declined.push(kit.org);
    for _ in 0..2 {
        let Err(DomainError::RenewalUnpaid { name, cents, .. }) = kit.renew(1).await else { panic!("not refused") };
        assert_eq!((name.as_str(), cents, kit.renewals()), (NAME, RENEWAL, 0));
    }
    // The organization did not order the renewal, so its other domains are not affected, and it can leave.
    kit.domains.renew(&actor(), kit.org, "b.example", DomainRenewal { years: 1 }).await.unwrap();
    kit.domains.auth_code(&actor(), kit.org, NAME).await.unwrap();
    kit.world.state().declined.clear();
    kit.renew(1).await.unwrap();
    kit.deliver().await;
    assert_eq!((kit.unbilled().await, kit.world.charges(kit.org)), (0, (5, 0)));
    assert_eq!(kit.renewals(), 2);
}

/// The operator cancels the renewal at the registrar.
#[tokio::test(flavor = "multi_thread")]
async fn canceled_unbilled_renewal_is_never_charged() {
    let kit = Kit::with_unbilled_renewal().await;
    assert_eq!(kit.connection().await.charges_unpaid(10).await.unwrap().len(), 1);
    // The registry corrects the expiry.
    kit.move_expiry(-2).await;
    assert_eq!(kit.unbilled().await, 1);
    kit.move_expiry(2 - YEAR).await;
    assert_eq!(kit.connection().await.charges_unpaid(10).await.unwrap(), []);
    kit.set_auto_renew(true).await;
    kit.deliver().await;
    assert_eq!(kit.world.charges(kit.org), (1, 0));
    // A renewal until the same expiry is another one.
    kit.renew(1).await.unwrap();
    kit.deliver().await;
    assert_eq!(kit.world.charges(kit.org), (2, 0));
}

/// The operator cancels the renewal at the registrar while a request charges it.
#[tokio::test(flavor = "multi_thread")]
async fn unbilled_renewal_is_not_canceled_while_it_is_charged() {
    let kit = Kit::with_unbilled_renewal().await;
    kit.world.fault(kit.org, "charge", When::Before, Fault::Pause);
    let (renewed, ()) = tokio::join!(kit.renew(2), kit.world.during_pause(kit.cancel_renewal()));
    renewed.unwrap();
    kit.deliver().await;
    assert_eq!(kit.count("domains.charges WHERE state = 'canceled'").await, 0);
    // The purchase, the renewal by the registrar, and the renewal of the request.
    assert_eq!(kit.world.charges(kit.org), (3, 0));
}

/// The operator cancels the renewal at the registrar while a request charges it, and the card is declined.
#[tokio::test(flavor = "multi_thread")]
async fn unbilled_renewal_that_is_canceled_while_it_is_declined_is_never_charged() {
    let kit = Kit::with_unbilled_renewal().await;
    kit.world.state().declined.push(kit.org);
    kit.world.fault(kit.org, "charge", When::Before, Fault::Pause);
    let (renewed, ()) = tokio::join!(kit.renew(2), kit.world.during_pause(kit.cancel_renewal()));
    renewed.unwrap();
    kit.world.state().declined.clear();
    kit.deliver().await;
    assert_eq!(kit.connection().await.charges_unpaid(10).await.unwrap(), []);
    assert_eq!(kit.count("domains.charges WHERE state = 'canceled'").await, 1);
    // The purchase and the renewal of the request.
    assert_eq!((kit.world.charges(kit.org), kit.renewals()), ((2, 0), 1));
}

/// The request that charges it dies.
#[tokio::test(flavor = "multi_thread")]
async fn outbox_continues_the_charge_of_an_unbilled_renewal() {
    let kit = Kit::with_unbilled_renewal().await;
    kit.world.fault(kit.org, "charge", When::After, Fault::Kill);
    assert!(kit.world.run(None, kit.renew(1)).await.is_none());
    assert_eq!((kit.unbilled().await, kit.renewals()), (0, 0));
    kit.advance(LATER);
    kit.deliver().await;
    assert_eq!(kit.count("domains.charges WHERE state = 'paid'").await, 2);
    assert_eq!((kit.world.charges(kit.org), kit.world.state().orders.len()), ((2, 0), 2));
}

/// The request that charges it dies, and the card is declined afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn unbilled_renewal_stays_unbilled_if_the_outbox_cannot_charge_it() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.bought("b.example").await;
    kit.set_auto_renew(false).await;
    kit.move_expiry(YEAR).await;
    kit.world.state().declined.push(kit.org);
    kit.world.fault(kit.org, "charge", When::Before, Fault::Kill);
    assert!(kit.world.run(None, kit.renew(1)).await.is_none());
    assert_eq!(kit.unbilled().await, 0);
    kit.advance(LATER);
    kit.deliver().await;
    assert_eq!((kit.unbilled().await, kit.world.charges(kit.org)), (1, (2, 0)));
    assert!(kit.world.state().notices.is_empty());
    // The other domains of the organization are not affected.
    kit.domains.renew(&actor(), kit.org, "b.example", DomainRenewal { years: 1 }).await.unwrap();
    assert_eq!(kit.renewals(), 1);
}

/// The registrar renews at the expiry, and the daily read finds it later.
#[tokio::test(flavor = "multi_thread")]
async fn auto_renewal_at_the_expiry_decides_about_the_charge() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.advance(YEAR + 1);
    for enabled in [false, true, false] {
        kit.set_auto_renew(enabled).await;
        kit.advance(1);
    }
    kit.move_expiry(YEAR).await;
    assert_eq!((kit.unbilled().await, kit.world.charges(kit.org)), (0, (2, 0)));
}

/// A request renews the domain before the daily read finds the renewal by the registrar.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_charges_the_renewal_by_the_registrar_that_it_finds() {
    for (enabled, is_during_request) in [(true, false), (true, true), (false, false), (false, true)] {
        let kit = Kit::start().await;
        let before = kit.bought(NAME).await.expires_at.unwrap();
        kit.set_auto_renew(enabled).await;
        let renewed = if is_during_request {
            kit.world.fault(NAME, "renew", When::Before, Fault::Pause);
            let renew_automatically = async { kit.move_expiry_at_registrar(YEAR) };
            tokio::join!(kit.renew(2), kit.world.during_pause(renew_automatically)).0
        } else {
            kit.move_expiry_at_registrar(YEAR);
            kit.renew(2).await
        };
        assert_eq!(renewed.unwrap(), before.plus_seconds(3 * YEAR), "{enabled} {is_during_request}");
        kit.deliver().await;
        kit.read_daily().await;
        // The purchase, the renewal by the registrar, and the renewal of the request.
        assert_eq!(kit.world.charges(kit.org), (3, 0), "{enabled} {is_during_request}");
        let cents: i64 = kit.world.state().orders.iter().skip(1).map(|order| order.cents).sum();
        assert_eq!(cents, 3 * RENEWAL, "{enabled} {is_during_request}");
        let renewals = kit.events().await.into_iter().filter(|event| event == "domain.renew").count();
        assert_eq!((kit.renewals(), renewals), (1, 2), "{enabled} {is_during_request}");
        // Without auto-renewal, a renewal that is found before the request succeeds is recorded as not charged.
        let history = kit.domains.get(kit.org, NAME).await.unwrap().history;
        let automatic = history.iter().find(|change| change.data["automatic"] == true).unwrap();
        let is_charged = automatic.data["priceCents"] == RENEWAL;
        assert_eq!(is_charged, enabled || is_during_request, "{enabled} {is_during_request}");
    }
}

/// The registrar renews automatically during the request, and shows the requested years only later.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_waits_for_all_years_that_it_requested() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    kit.world.fault(NAME, "renew", When::Before, Fault::Pause);
    let renew_automatically = async {
        kit.move_expiry_at_registrar(YEAR);
        kit.world.state().stale_expiries.insert(NAME.to_owned(), before.plus_seconds(YEAR));
    };
    let (renewed, ()) = tokio::join!(kit.renew(2), kit.world.during_pause(renew_automatically));
    assert!(matches!(renewed, Err(DomainError::RegistrarFailed)));
    kit.world.state().stale_expiries.clear();
    assert_eq!(kit.renew(2).await.unwrap(), before.plus_seconds(3 * YEAR));
    kit.read_daily().await;
    let cents: i64 = kit.world.state().orders.iter().skip(1).map(|order| order.cents).sum();
    assert_eq!((cents, kit.renewals()), (3 * RENEWAL, 1));
}

/// The registrar responds to the renewal with success, and an operator ends it before the registrar shows the expiry.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_renewal_is_not_charged_until_it_is_ordered() {
    let kit = Kit::start().await;
    let before = kit.bought(NAME).await.expires_at.unwrap();
    kit.set_auto_renew(false).await;
    kit.world.state().stale_expiries.insert(NAME.to_owned(), before);
    assert!(matches!(kit.renew(1).await, Err(DomainError::RegistrarFailed)));
    let [saga] = &kit.store.saga_list(&SagaFilter::default()).await.unwrap()[..] else { panic!("not one") };
    assert_eq!(saga.step.as_deref(), Some("confirm"));
    assert!(kit.store.saga_abandon(&actor(), saga.id).await.unwrap());
    kit.resume().await;
    assert_eq!(kit.count("domains.charges WHERE purpose = 'renewal'").await, 0);
    kit.world.state().stale_expiries.clear();
    kit.read_daily().await;
    assert_eq!((kit.unbilled().await, kit.world.charges(kit.org)), (1, (1, 0)));
}

/// Only a renewal that succeeds orders the renewal by the registrar that it finds.
#[tokio::test(flavor = "multi_thread")]
async fn refused_renewal_leaves_the_renewal_that_it_finds_unbilled() {
    let kit = Kit::start().await;
    kit.bought(NAME).await;
    kit.set_auto_renew(false).await;
    kit.move_expiry_at_registrar(YEAR);
    kit.world.state().refusals.insert(NAME.to_owned(), RegistrarError::Rejected("status 422".to_owned()));
    assert!(matches!(kit.renew(10).await, Err(DomainError::RenewalRejected)));
    kit.read_daily().await;
    assert_eq!((kit.unbilled().await, kit.world.charges(kit.org)), (1, (1, 0)));
}
