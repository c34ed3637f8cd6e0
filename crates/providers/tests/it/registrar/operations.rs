//! The operations on a domain, and the rate limit.

use chrono::Datelike as _;
use providers::registrar::{DsRecord, NewRegistration, RegistrarError, Renewal};
use sandbox::{RegistrarFault, RegistrarOperation, RegistrarServer};

use super::{client, contact, register};

const NAME: &str = "shop.com";

#[tokio::test]
async fn domain_is_registered_changed_and_transferred_away() {
    let server = RegistrarServer::start().await;
    let client = client(&server);
    assert_eq!(client.read(NAME).await, Ok(None));
    let registered = register(&client, NAME, "key-1").await.unwrap();
    assert!(registered.locked && registered.transfer_lock_expires_at > Some(registered.registered_at));
    assert_eq!(registered.renewal_cents, Some(1_599));
    assert_eq!(client.read(NAME).await, Ok(Some(registered.clone())));

    let nameservers = ["ns1.svc.example", "ns2.svc.example"].map(str::to_owned);
    client.set_nameservers(NAME, &nameservers).await.unwrap();
    assert_eq!(client.read(NAME).await.unwrap().unwrap().nameservers, nameservers);

    assert_eq!(client.set_locked(NAME, true).await, Err(RegistrarError::Refused(409)));
    assert!(!client.set_locked(NAME, false).await.unwrap().locked);
    assert!(!client.read(NAME).await.unwrap().unwrap().locked);
    assert!(!client.auth_code(NAME).await.unwrap().reveal().is_empty());

    let renewal = Renewal { name: NAME, price_cents: 3_198, years: 2, idempotency_key: "key-2" };
    let renewed = client.renew(&renewal).await.unwrap();
    assert_eq!(renewed.expires_at.year(), registered.expires_at.year() + 2);
    // The registrar ignores the key of a renewal.
    let again = client.renew(&renewal).await.unwrap();
    assert_eq!(again.expires_at.year(), renewed.expires_at.year() + 2);
    assert_eq!(client.renew(&Renewal { price_cents: 1, ..renewal }).await, Err(RegistrarError::Refused(400)));

    server.transfer_away(NAME);
    assert_eq!(client.read(NAME).await, Ok(None));
    assert_eq!(client.set_locked(NAME, true).await, Err(RegistrarError::NotFound));
    assert_eq!(client.auth_code(NAME).await.map(drop), Err(RegistrarError::NotFound));
    assert_eq!(client.check(&[NAME]).await.unwrap()[0].offer, None);
    assert_eq!(server.orders().iter().map(|order| order.cents).collect::<Vec<_>>(), [1_299, 3_198, 3_198]);
}

#[tokio::test]
async fn ds_records_are_listed_added_and_removed() {
    let server = RegistrarServer::start().await;
    let client = client(&server);
    register(&client, NAME, "key-1").await.unwrap();
    let record = DsRecord { key_tag: 2_371, algorithm: 13, digest_type: 2, digest: "AB".repeat(32) };
    assert_eq!(client.ds_records(NAME).await, Ok(Vec::new()));
    client.add_ds_record(NAME, &record).await.unwrap();
    assert_eq!(client.add_ds_record(NAME, &record).await, Err(RegistrarError::Refused(409)));
    assert_eq!(client.ds_records(NAME).await, Ok(vec![record.clone()]));
    client.remove_ds_record(NAME, &record.digest).await.unwrap();
    assert_eq!(server.calls().last().unwrap(), "Ds shop.com: 204");
    assert_eq!(client.remove_ds_record(NAME, &record.digest).await, Err(RegistrarError::NotFound));
    assert_eq!(client.ds_records(NAME).await, Ok(Vec::new()));
    // The response that providers.md names.
    server.inject(Some(RegistrarFault::Response(200, "application/json", "{}".to_owned())));
    assert_eq!(client.remove_ds_record(NAME, &record.digest).await, Ok(()));

    // A 404 for a domain in the account means that it has no DS records.
    server.inject_into(RegistrarOperation::Ds, RegistrarFault::refusal(404));
    assert_eq!(client.ds_records(NAME).await, Ok(Vec::new()));
    server.transfer_away(NAME);
    assert_eq!(client.ds_records(NAME).await, Err(RegistrarError::NotFound));
}

#[tokio::test]
async fn registration_is_executed_once_for_its_key() {
    let server = RegistrarServer::start().await;
    let client = client(&server);
    server.inject_into(RegistrarOperation::Register, RegistrarFault::LostResponse);
    let lost = register(&client, NAME, "key-1").await;
    assert!(matches!(lost, Err(RegistrarError::Failed(_))), "{lost:?}");
    server.inject(None);
    // The name is registered now. Only the key of the registration still succeeds.
    assert_eq!(register(&client, NAME, "key-2").await, Err(RegistrarError::Refused(409)));
    let repeated = register(&client, NAME, "key-1").await.unwrap();
    assert_eq!(client.read(NAME).await, Ok(Some(repeated)));

    // The registrar also repeats a refusal for the same key, even after the reason is gone.
    let invalid = providers::registrar::RegistrarContact { zip: "00000".to_owned(), ..contact() };
    let registration = NewRegistration {
        name: "other.com",
        contact: &invalid,
        price_cents: 1_299,
        years: 1,
        idempotency_key: "key-3",
    };
    assert_eq!(client.register(&registration).await, Err(RegistrarError::Refused(422)));
    assert_eq!(register(&client, "other.com", "key-3").await, Err(RegistrarError::Refused(422)));
    register(&client, "other.com", "key-4").await.unwrap();
    assert_eq!(server.orders().len(), 2);
}

#[tokio::test]
async fn names_select_behaviors() {
    let server = RegistrarServer::start().await;
    let client = client(&server);
    for (name, first, second) in [
        ("fail-register-before-1.com", false, true),
        ("fail-register-after-1.com", false, true),
        ("html-register-1.com", false, true),
        ("limit-register-1.com", false, true),
        ("status-register-402-1.com", false, false),
    ] {
        assert_eq!(register(&client, name, name).await.is_ok(), first, "{name}");
        assert_eq!(register(&client, name, name).await.is_ok(), second, "{name}");
    }
    assert_eq!(server.orders().len(), 4);
}
