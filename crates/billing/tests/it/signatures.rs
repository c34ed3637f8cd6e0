//! Webhooks that are not authentic.

use billing::{Billing, BillingConfig, Ports, Products, WebhookError};
use kernel::Limits;
use webhooks::{InvalidMessage, SignedMessage, SigningKey};

use crate::kit::{Kit, SECRET, subscription};

#[tokio::test]
async fn webhook_that_is_not_authentic_changes_nothing() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let body = subscription(org, "sub_1", "active", 0).to_string();
    let now = kit.now().unix_seconds();
    let signed =
        |key: &str, id: &str, at: i64| SigningKey::parse(key).unwrap().sign(id, &at.to_string(), body.as_bytes());
    for (id, sent, signatures, expected) in [
        ("msg_1", now, signed("another", "msg_1", now), InvalidMessage::Signature),
        ("msg_1", now, signed(SECRET, "msg_2", now), InvalidMessage::Signature),
        ("msg_1", now - 301, signed(SECRET, "msg_1", now - 301), InvalidMessage::Expired),
        ("msg_1", now + 301, signed(SECRET, "msg_1", now + 301), InvalidMessage::Expired),
        ("msg.1", now, signed(SECRET, "msg.1", now), InvalidMessage::Id),
    ] {
        let timestamp = sent.to_string();
        let message = SignedMessage { id, timestamp: &timestamp, signatures: &signatures, body: body.as_bytes() };
        match kit.billing.receive(message).await {
            Err(WebhookError::NotAuthentic(error)) => assert_eq!(error, expected, "{id} {sent}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((kit.count("webhooks").await, kit.plan(org).await.as_str()), (0, "free"));
    // A body without a valid signature is not parsed.
    let forged = SignedMessage { id: "msg_1", timestamp: "1", signatures: "v1,AAAA", body: b"{" };
    assert!(matches!(kit.billing.receive(forged).await, Err(WebhookError::NotAuthentic(_))));
}

#[tokio::test]
async fn hook_without_a_secret_is_off() {
    let kit = Kit::start().await;
    let config = BillingConfig {
        products: Products::default(),
        sandbox: false,
        webhook_keys: None,
        return_addresses: "https://dashboard.example".parse().unwrap(),
        catalog: billing::Catalog::default(),
    };
    let ports = Ports { payments: None, organizations: kit.organizations() };
    let billing = Billing::new(kit.store.clone(), Limits::default(), config, ports);
    let message = SignedMessage { id: "msg_1", timestamp: "1", signatures: "v1,AAAA", body: b"{}" };
    assert!(matches!(billing.receive(message).await, Err(WebhookError::Off)));
}
