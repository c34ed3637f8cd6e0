//! Tests of purchases: results, refusals and resumption.

use std::time::Duration;

use domains::{DomainError, DomainPurchase, DomainState, Prices, RegistrarError};
use kernel::ApiError as _;
use serde_json::json;
use store::saga::SagaFilter;

use crate::kit::{CANARY, Kit, LATER, NAMESERVERS, actor, purchase};
use crate::providers::{FIRST_YEAR, Fault, RENEWAL, When, YEAR, in_days};

#[tokio::test]
async fn purchase_charges_registers_and_hosts() {
    let kit = Kit::start().await;
    let new = DomainPurchase { years: Some(3), auto_renew: Some(false), ..purchase("MÜNCHEN.example.") };
    let created = kit.domains.purchase(&actor(), kit.org, new).await.unwrap();
    let (domain, now) = (&created.domain, kit.now());
    assert!(created.is_new);
    assert_eq!((domain.name.as_str(), domain.state), ("xn--mnchen-3ya.example", DomainState::Active));
    assert_eq!((domain.locked, domain.auto_renew), (Some(true), false));
    assert_eq!(domain.nameservers, NAMESERVERS);
    assert_eq!((domain.registered_at, domain.expires_at), (Some(now), Some(now.plus_seconds(3 * YEAR))));
    assert_eq!(domain.transferable_at, Some(in_days(now, 60)));
    assert_eq!(kit.world.charges(kit.org), (1, 0));
    let total = FIRST_YEAR + 2 * RENEWAL;
    assert_eq!(kit.world.state().orders[0].cents, total);
    let detail = kit.domains.get(kit.org, "münchen.example").await.unwrap();
    assert_eq!((&detail.domain, detail.renewal_cents), (domain, Some(RENEWAL)));
    let [change] = &detail.history[..] else { panic!("{:?}", detail.history) };
    let data = json!({ "domain": "xn--mnchen-3ya.example", "years": 3, "priceCents": total });
    assert_eq!((change.event.as_str(), &change.data), ("domain.purchase", &data));
    assert_eq!(kit.events().await, ["domain.purchase"]);
    // If the organization has the domain, a purchase returns it and ignores the values of the request.
    let again = DomainPurchase { expected_price_cents: Some(1), ..purchase("xn--mnchen-3ya.example") };
    let again = kit.domains.purchase(&actor(), kit.org, again).await.unwrap();
    assert_eq!((again.domain, again.is_new), (domain.clone(), false));
    kit.advance(61 * 24 * 3600);
    assert_eq!(kit.domains.get(kit.org, "münchen.example").await.unwrap().domain.transferable_at, None);
}

/// Each refusal ends the purchase, frees the name, and refunds the charge.
#[tokio::test]
async fn refusal_frees_the_name_and_refunds() {
    let kit = Kit::start().await;
    let premium = (Prices { first_year_cents: 500_000, renewal_cents: 500_000 }, true);
    {
        let mut state = kit.world.state();
        state.prices.insert("premium.example".to_owned(), premium);
        for (name, refusal) in [
            ("rejected.example", RegistrarError::Rejected("status 422".to_owned())),
            ("lost.example", RegistrarError::NameUnavailable("status 409".to_owned())),
        ] {
            state.refusals.insert(name.to_owned(), refusal);
        }
        let taken = kit.world.registered(1, true);
        state.account.insert("gone.example".to_owned(), taken);
    }
    let priced = |name: &str, cents| DomainPurchase { expected_price_cents: cents, ..purchase(name) };
    for (new, code, refunded) in [
        (priced("gone.example", None), "domain_unavailable", 0),
        (priced("never.unsold", None), "domain_unavailable", 0),
        (priced("cheap.example", Some(1)), "price_changed", 0),
        (priced("premium.example", None), "bad_request", 0),
        (priced("rejected.example", None), "registrar_rejected", 1),
        (priced("lost.example", Some(FIRST_YEAR)), "domain_unavailable", 2),
    ] {
        let name = new.name.clone();
        let error = kit.domains.purchase(&actor(), kit.org, new).await.unwrap_err();
        assert_eq!(error.code().name, code, "{name}");
        assert_eq!(kit.world.charges(kit.org), (0, refunded), "{name}");
        assert_eq!((kit.state(&name).await, kit.count("test.names").await), (None, 0), "{name}");
    }
    assert_eq!(kit.events().await, ["domain.refund", "domain.refund"]);
    // The next purchase uses a new key, because the registrar replays its refusals for an old one.
    kit.world.state().refusals.clear();
    kit.bought("rejected.example").await;
    assert_eq!(kit.world.charges(kit.org), (1, 2));
    let bought = kit.domains.purchase(&actor(), kit.org, priced("premium.example", Some(500_000))).await.unwrap();
    assert_eq!(bought.domain.state, DomainState::Active);
}

#[tokio::test]
async fn declined_payment_registers_nothing() {
    let kit = Kit::start().await;
    kit.world.state().declined.push(kit.org);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::PaymentFailed)));
    kit.world.state().declined.clear();
    kit.world.state().no_card.push(kit.org);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::PaymentFailed)));
    assert_eq!((kit.world.calls("register"), kit.world.charges(kit.org)), (0, (0, 0)));
    assert_eq!((kit.state("a.example").await, kit.events().await.len()), (None, 0));
    kit.world.state().no_card.clear();
    kit.bought("a.example").await;
}

/// The first attempt does not reach the provider, so a later one learns that the order can never be paid.
#[tokio::test]
async fn purchase_whose_order_can_never_be_paid_ends() {
    let kit = Kit::start().await;
    kit.world.fault(kit.org, "charge", When::Before, Fault::Fail);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::Incomplete)));
    kit.world.state().not_payable.push(kit.org);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::PaymentFailed)));
    assert_eq!((kit.state("a.example").await, kit.count("test.names").await), (None, 0));
    assert_eq!(kit.count("domains.charges WHERE state = 'canceled'").await, 1);
    kit.world.state().not_payable.clear();
    kit.bought("a.example").await;
    assert_eq!(kit.world.charges(kit.org), (1, 0));
}

/// A 502 keeps the name reserved. A repeated request requests neither the price nor the availability again.
#[tokio::test]
async fn failure_keeps_the_reservation_until_the_request_is_repeated() {
    let kit = Kit::start().await;
    kit.world.fault(kit.org, "charge", When::Before, Fault::Fail);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::Incomplete)));
    assert_eq!(kit.domains.get(kit.org, "a.example").await.unwrap().domain.state, DomainState::Registering);
    let other = kit.org().await;
    let taken = kit.domains.purchase(&actor(), other, purchase("a.example")).await;
    assert!(matches!(taken, Err(DomainError::Taken(_) | DomainError::ZoneTaken(_))), "{taken:?}");
    kit.world.fault("a.example", "register", When::After, Fault::Fail);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::RegistrarFailed)));
    kit.bought("a.example").await;
    assert_eq!((kit.world.calls("check"), kit.world.state().registrations.len()), (1, 1));
    assert_eq!((kit.world.charges(kit.org), kit.world.charges(other)), ((1, 0), (0, 0)));
}

/// The registrar continues a registration after its caller has stopped waiting. Until it ends, it refuses the repeated
/// request.
#[tokio::test]
async fn refusal_during_a_registration_in_progress_does_not_end_the_purchase() {
    for refusal in [
        RegistrarError::NameUnavailable("status 409".to_owned()),
        RegistrarError::Rejected("status 422".to_owned()),
        RegistrarError::Deferred("status 402".to_owned()),
    ] {
        let kit = Kit::start().await;
        kit.world.state().slow.insert("a.example".to_owned(), refusal.clone());
        for _ in 0..3 {
            assert!(matches!(kit.buy("a.example").await, Err(DomainError::RegistrarFailed)), "{refusal}");
        }
        assert_eq!(kit.world.calls("register"), 3, "{refusal}");
        kit.world.state().complete_slow_calls();
        kit.bought("a.example").await;
        assert_eq!((kit.world.charges(kit.org), kit.world.state().registrations.len()), ((1, 0), 1), "{refusal}");
    }
}

#[tokio::test]
async fn refusal_ends_the_purchase_when_no_registration_can_be_in_progress() {
    let kit = Kit::start().await;
    let refusal = RegistrarError::NameUnavailable("status 409".to_owned());
    kit.world.state().slow.insert("a.example".to_owned(), refusal);
    for _ in 0..2 {
        assert!(matches!(kit.buy("a.example").await, Err(DomainError::RegistrarFailed)));
    }
    kit.advance(LATER);
    // It makes no call, so it does not make the next refusal inconclusive.
    kit.without_registrar().resume().await.unwrap();
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::NameUnavailable(_))));
    assert_eq!((kit.world.charges(kit.org), kit.state("a.example").await), ((0, 1), None));
}

#[tokio::test]
async fn time_of_a_registration_in_progress_does_not_depend_on_the_clocks_of_servers() {
    let kit = Kit::start().await;
    let refusal = RegistrarError::NameUnavailable("status 409".to_owned());
    kit.world.state().slow.insert("a.example".to_owned(), refusal);
    let other = kit.server_ahead(24 * 3600);
    for _ in 0..2 {
        let bought = other.purchase(&actor(), kit.org, purchase("a.example")).await;
        assert!(matches!(bought, Err(DomainError::RegistrarFailed)), "{bought:?}");
    }
    kit.advance(LATER);
    let bought = kit.buy("a.example").await;
    assert!(matches!(bought, Err(DomainError::NameUnavailable(_))), "{bought:?}");
}

/// A registration that the end of the request cuts off has an unknown result.
#[tokio::test]
async fn request_without_enough_time_leaves_the_registration_to_the_job() {
    let kit = Kit::start().await;
    let domains = kit.with_request_timeout(Duration::from_secs(2));
    let error = domains.purchase(&actor(), kit.org, purchase("a.example")).await.unwrap_err();
    assert!(matches!(error, DomainError::RegistrarFailed | DomainError::Incomplete), "{error:?}");
    assert_eq!(kit.world.calls("register"), 0);
    kit.advance(LATER);
    kit.resume().await;
    assert_eq!(kit.state("a.example").await.as_deref(), Some("active"));
    assert_eq!((kit.world.charges(kit.org), kit.world.calls("register")), ((1, 0), 1));
}

/// For the same key, the registrar repeats a temporary refusal, such as that of an account without funds.
#[tokio::test]
async fn refusal_for_now_is_repeated_with_a_new_key() {
    let kit = Kit::start().await;
    let refusal = RegistrarError::Deferred("status 402".to_owned());
    kit.world.state().refusals.insert("a.example".to_owned(), refusal);
    for _ in 0..2 {
        assert!(matches!(kit.buy("a.example").await, Err(DomainError::RegistrarFailed)));
    }
    kit.world.state().refusals.clear();
    kit.bought("a.example").await;
    assert_eq!(kit.world.charges(kit.org), (1, 0));
}

#[tokio::test]
async fn background_job_completes_a_purchase_and_backs_off() {
    let kit = Kit::start().await;
    for _ in 0..3 {
        kit.world.fault("a.example", "register", When::Before, Fault::Fail);
    }
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::RegistrarFailed)));
    kit.resume().await;
    assert_eq!(kit.world.calls("register"), 1, "not due yet");
    for _ in 0..4 {
        kit.advance(LATER);
        kit.resume().await;
    }
    assert_eq!(kit.state("a.example").await.as_deref(), Some("active"));
    assert_eq!(kit.events().await, ["domain.purchase"]);
}

/// An operator ends a purchase that cannot complete.
#[tokio::test]
async fn abandoned_purchase_is_refunded() {
    let kit = Kit::start().await;
    kit.world.fault("a.example", "register", When::Before, Fault::Fail);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::RegistrarFailed)));
    let [saga] = &kit.store.saga_list(&SagaFilter::default()).await.unwrap()[..] else { panic!("not one") };
    assert_eq!((saga.kind.as_str(), saga.step.as_deref()), ("domains.purchase", Some("register")));
    assert!(kit.store.saga_abandon(&actor(), saga.id).await.unwrap());
    kit.resume().await;
    assert_eq!((kit.world.charges(kit.org), kit.state("a.example").await), ((0, 1), None));
    let [saga] = &kit.store.saga_list(&SagaFilter { finished: true, kind: None }).await.unwrap()[..] else { panic!() };
    assert_eq!(saga.state, store::saga::SagaState::Abandoned);
    assert_eq!(kit.events().await, ["saga.abandon", "domain.refund"]);
    kit.bought("a.example").await;
}

/// A refused purchase of an imported domain leaves the domain imported.
#[tokio::test]
async fn imported_domain_can_be_bought() {
    let kit = Kit::start().await;
    let import = || domains::DomainImport { name: "a.example".to_owned() };
    kit.domains.import(&actor(), kit.org, import()).await.unwrap();
    kit.world.state().declined.push(kit.org);
    assert!(matches!(kit.buy("a.example").await, Err(DomainError::PaymentFailed)));
    assert_eq!(kit.state("a.example").await.as_deref(), Some("external"));
    kit.world.state().declined.clear();
    assert_eq!(kit.bought("a.example").await.state, DomainState::Active);
    assert_eq!(kit.count("test.zones").await, 1);
}

/// A contact is stored only in sealed form: no table contains its text, and the row states the id of its sealing key.
#[tokio::test]
async fn contact_is_found_only_sealed() {
    let kit = Kit::start().await;
    kit.world.fault("a.example", "register", When::Before, Fault::Fail);
    kit.buy("a.example").await.unwrap_err();
    let tables = "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) AS name FROM pg_tables \
        WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    for table in kit.db_rows(tables).await {
        let name = table["name"].as_str().unwrap();
        let plain = format!("(SELECT t::text AS row FROM {name} t) r WHERE row LIKE '%{CANARY}%'");
        assert_eq!(kit.count(&plain).await, 0, "{name}");
    }
    let rows = kit.db_rows("SELECT domain_id, key_id, encode(sealed, 'base64') AS sealed FROM domains.contacts").await;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row["key_id"], "test");
    kit.bought("a.example").await;
}

/// If no product for domains is configured, nothing is charged.
#[tokio::test]
async fn domains_are_free_without_a_product() {
    let kit = Kit::start().await;
    let free = kit.without_payments();
    assert!(free.purchase(&actor(), kit.org, purchase("a.example")).await.unwrap().is_new);
    assert_eq!(kit.count("domains.charges").await, 0);
    assert!(kit.world.state().orders.is_empty());
}
