//! Sessions of customers, and cancellations of subscriptions, against the sandbox.

use kernel::Secret;
use providers::OutboundError;
use providers::payments::{NewCheckout, PaymentsClient};
use sandbox::{PAYMENTS_TOKEN, PRO_PRODUCT, PaymentsServer};
use serde_json::json;
use url::Url;

use crate::outbound::server;

fn client(url: &Url) -> PaymentsClient {
    PaymentsClient::new(url, Secret::new(PAYMENTS_TOKEN.to_owned())).unwrap()
}

#[tokio::test]
async fn session_hides_its_token_and_has_the_url_of_a_page() {
    let provider = PaymentsServer::start(None).await;
    provider.set_card("org_1", false);
    let session = client(&provider.url().parse().unwrap()).create_customer_session("org_1", None).await;
    let session = session.unwrap().unwrap();
    assert!(session.portal_url.reveal().ends_with(session.token.reveal()));
    assert!(!format!("{session:?}").contains(session.token.reveal()), "{session:?}");
    for url in ["", "/portal", "javascript:alert(1)"] {
        let body = json!({
            "token": "polar_cst_1", "customer_id": "cus_1", "expires_at": session.expires_at, "customer_portal_url": url,
        });
        let body = body.to_string();
        let response = format!("HTTP/1.1 201 .\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let session = client(&server(response, false).await).create_customer_session("org_1", None).await;
        assert_eq!(session, Err(OutboundError::NotJson), "{url}");
    }
}

/// The provider refuses both cancellations with the same error.
#[tokio::test]
async fn cancellation_of_an_ended_subscription_is_not_a_repetition() {
    let server = PaymentsServer::start(None).await;
    let client = client(&server.url().parse().unwrap());
    let checkout = NewCheckout {
        product: PRO_PRODUCT,
        external_customer_id: "org_1",
        success_url: "http://app/done",
        embed_origin: "http://app",
        credit_cents: None,
    };
    let checkout = client.create_checkout(&checkout).await.unwrap();
    let _ = server.pay(checkout.as_str());
    let id = server.subscriptions()[0].0.clone();
    assert!(client.set_cancel_at_period_end(&id, true).await.unwrap().unwrap().cancel_at_period_end);
    let ended = || Err(OutboundError::Status(410));
    for (status, expected) in [
        ("active", Ok(None)),
        ("past_due", Ok(None)),
        ("trialing", Ok(None)),
        ("unpaid", ended()),
        ("canceled", ended()),
    ] {
        server.set_subscription_status("org_1", status);
        assert_eq!(client.set_cancel_at_period_end(&id, true).await, expected, "{status}");
    }
    assert_eq!(client.set_cancel_at_period_end(&id, false).await, ended());
}

/// The provider refuses the request that reads the subscription, too.
#[tokio::test]
async fn repeated_cancellation_succeeds_if_the_subscription_cannot_be_read() {
    let body = r#"{"error":"AlreadyCanceledSubscription"}"#;
    let response = format!("HTTP/1.1 403 .\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(client(&server(response, false).await).set_cancel_at_period_end("sub_1", true).await, Ok(None));
}
