//! Orders of domains and their refunds, against the sandbox.

use kernel::Secret;
use providers::OutboundError;
use providers::payments::{Finalized, NewOrder, PaymentsClient, Refunded};
use sandbox::{CREDIT_PRODUCT, DOMAIN_PRODUCT, PAYMENTS_TOKEN, PaymentsFault, PaymentsServer};

use crate::outbound::server;

/// Returns a client, and the provider's id of a customer with a card.
async fn customer(server: &PaymentsServer) -> (PaymentsClient, String) {
    let client = PaymentsClient::new(&server.url().parse().unwrap(), Secret::new(PAYMENTS_TOKEN.to_owned())).unwrap();
    server.set_card("org_1", false);
    let customer = client.customer_id("org_1").await.unwrap().unwrap();
    (client, customer)
}

async fn create_order(client: &PaymentsClient, customer: &str, amount_cents: i64) -> Result<String, OutboundError> {
    let (product_id, org, purpose, reference) = (DOMAIN_PRODUCT, "org_1", "domain", "saga_1");
    let order = NewOrder { customer_id: customer, product_id, amount_cents, org, purpose, reference };
    Ok(client.create_order(&order).await?.unwrap())
}

#[tokio::test]
async fn domain_is_charged_once_and_refunded_once() {
    let server = PaymentsServer::start(None).await;
    let (client, customer) = customer(&server).await;
    // The response to the creation is lost. The draft charges nothing.
    server.inject_into("/orders/", PaymentsFault::LostResponse);
    create_order(&client, &customer, 1_299).await.unwrap_err();
    server.inject(None);
    let order = create_order(&client, &customer, 1_299).await.unwrap();
    assert_eq!((server.orders().len(), server.net_cents("org_1")), (2, 0));

    server.inject_into("/finalize", PaymentsFault::LostResponse);
    client.finalize_order(&order).await.unwrap_err();
    assert_eq!(server.net_cents("org_1"), 1_299);
    server.inject_into("/finalize", PaymentsFault::InProgress);
    assert_eq!(client.finalize_order(&order).await, Ok(Finalized::Paid));
    server.inject(None);
    assert_eq!(client.finalize_order(&order).await, Ok(Finalized::Paid));
    assert_eq!(server.net_cents("org_1"), 1_299);

    server.inject_into("/refunds/", PaymentsFault::LostResponse);
    client.refund_order(&order, 1_299).await.unwrap_err();
    server.inject(None);
    assert_eq!(client.refund_order(&order, 1_299).await, Ok(Refunded::Refunded));
    assert_eq!((server.refunds(), server.net_cents("org_1")), (vec![(order, 1_299)], 0));
}

#[tokio::test]
async fn refund_of_less_than_is_left_is_done_and_other_errors_are_not() {
    let server = PaymentsServer::start(None).await;
    let (client, customer) = customer(&server).await;
    let order = create_order(&client, &customer, 1_299).await.unwrap();
    // A draft has nothing to refund. The provider answers 404.
    assert_eq!(client.refund_order(&order, 1_299).await, Ok(Refunded::NotPaid));
    client.finalize_order(&order).await.unwrap();
    // An operator refunded a part at the provider's dashboard.
    client.refund_order(&order, 1_000).await.unwrap();
    assert_eq!(client.refund_order(&order, 1_299).await, Ok(Refunded::Refunded));
    assert_eq!(server.refunds(), [(order.clone(), 1_000)]);
    for (fault, status) in [(PaymentsFault::Unavailable, 503), (PaymentsFault::TooManyRequests, 429)] {
        server.inject(Some(fault));
        assert_eq!(client.refund_order(&order, 1).await, Err(OutboundError::Status(status)));
    }
    server.inject(Some(PaymentsFault::Html));
    assert_eq!(client.refund_order(&order, 1).await, Err(OutboundError::NotJson));
}

/// The provider refunds an amount without tax, and adds the tax.
#[tokio::test]
async fn price_with_tax_is_refunded_completely_and_once() {
    let server = PaymentsServer::start(None).await;
    server.set_tax(19);
    let (client, customer) = customer(&server).await;
    let order = create_order(&client, &customer, 1_299).await.unwrap();
    // A draft has nothing to refund. The provider answers 422, not 404, because the amount is more than the price
    // without tax.
    assert_eq!(client.refund_order(&order, 1_299).await, Ok(Refunded::NotPaid));
    client.finalize_order(&order).await.unwrap();
    assert_eq!(server.net_cents("org_1"), 1_299);
    for _ in 0..2 {
        assert_eq!(client.refund_order(&order, 1_299).await, Ok(Refunded::Refunded));
        assert_eq!((server.refunds(), server.net_cents("org_1")), (vec![(order.clone(), 1_299)], 0));
    }
}

/// The provider refuses the first request, which includes the tax, and executes the second one.
#[tokio::test]
async fn refund_without_tax_whose_response_is_lost_is_not_repeated() {
    let server = PaymentsServer::start(None).await;
    server.set_tax(19);
    let (client, customer) = customer(&server).await;
    let order = create_order(&client, &customer, 1_299).await.unwrap();
    client.finalize_order(&order).await.unwrap();
    server.inject_into("/refunds/", PaymentsFault::LostSuccess);
    client.refund_order(&order, 1_299).await.unwrap_err();
    assert_eq!(server.refunds(), [(order.clone(), 1_299)]);
    server.inject(None);
    assert_eq!(client.refund_order(&order, 1_299).await, Ok(Refunded::Refunded));
    assert_eq!((server.refunds(), server.net_cents("org_1")), (vec![(order, 1_299)], 0));
}

/// A proxy in front of the provider does not know the customer or the order.
#[tokio::test]
async fn page_with_an_error_status_is_not_a_refusal() {
    let server = PaymentsServer::start(None).await;
    let (client, customer) = customer(&server).await;
    let order = create_order(&client, &customer, 1_299).await.unwrap();
    for status in [400, 402, 403, 404, 409, 412, 422] {
        server.inject(Some(PaymentsFault::HtmlError(status)));
        assert_eq!(client.customer_id("org_1").await, Err(OutboundError::NotJson), "{status}");
        assert_eq!(client.has_payment_method("org_1").await, Err(OutboundError::NotJson), "{status}");
        let session = client.create_customer_session("org_1", None).await;
        assert_eq!(session.err(), Some(OutboundError::NotJson), "{status}");
        assert_eq!(client.set_cancel_at_period_end("sub_1", true).await, Err(OutboundError::NotJson), "{status}");
        assert_eq!(create_order(&client, &customer, 1_299).await, Err(OutboundError::NotJson), "{status}");
        assert_eq!(client.finalize_order(&order).await, Err(OutboundError::NotJson), "{status}");
        assert_eq!(client.refund_order(&order, 1_299).await, Err(OutboundError::NotJson), "{status}");
    }
    server.inject(None);
    assert_eq!(client.finalize_order(&order).await, Ok(Finalized::Paid));
}

/// Returns the client of a provider that sends this response to one request.
async fn client_of(status: u16, body: &str) -> PaymentsClient {
    let response = format!("HTTP/1.1 {status} .\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    PaymentsClient::new(&server(response, false).await, Secret::new(PAYMENTS_TOKEN.to_owned())).unwrap()
}

/// The client requires only the fields that providers.md names.
#[tokio::test]
async fn orders_need_only_the_documented_fields() {
    for (body, expected) in [
        (r#"{"id":"ord_1"}"#, Ok("ord_1".to_owned())),
        (r#"{"id":"ord_1","paid":null,"status":7}"#, Ok("ord_1".to_owned())),
        (r#"{"status":"draft"}"#, Err(OutboundError::NotJson)),
    ] {
        assert_eq!(create_order(&client_of(201, body).await, "cus_1", 100).await, expected, "{body}");
    }
    for (body, expected) in [
        ("{}", Ok(Finalized::Paid)),
        (r#"{"status":"paid"}"#, Ok(Finalized::Paid)),
        (r#"{"paid":true}"#, Ok(Finalized::Paid)),
        (r#"{"paid":false}"#, Err(OutboundError::NotJson)),
        ("<p>paid</p>", Err(OutboundError::NotJson)),
    ] {
        assert_eq!(client_of(200, body).await.finalize_order("ord_1").await, expected, "{body}");
    }
}

#[tokio::test]
async fn rejected_charges_are_definite() {
    let server = PaymentsServer::start(None).await;
    let (client, customer) = customer(&server).await;
    for (customer_id, product_id) in [("unknown", DOMAIN_PRODUCT), (customer.as_str(), CREDIT_PRODUCT)] {
        let (org, purpose, reference) = ("org_1", "domain", "saga_1");
        let order = NewOrder { customer_id, product_id, amount_cents: 100, org, purpose, reference };
        assert_eq!(client.create_order(&order).await, Ok(None), "{order:?}");
    }
    assert!(server.orders().is_empty());
}

#[tokio::test]
async fn forbidden_charges_are_definite() {
    let server = PaymentsServer::start(None).await;
    let (client, customer) = customer(&server).await;
    let order = create_order(&client, &customer, 1_299).await.unwrap();
    let paid = create_order(&client, &customer, 100).await.unwrap();
    assert_eq!(client.finalize_order(&paid).await, Ok(Finalized::Paid));
    server.inject(Some(PaymentsFault::OffSessionForbidden));
    let (product_id, org, purpose, reference) = (DOMAIN_PRODUCT, "org_1", "domain", "saga_1");
    let new = NewOrder { customer_id: &customer, product_id, amount_cents: 100, org, purpose, reference };
    assert_eq!(client.create_order(&new).await, Ok(None));
    assert_eq!(client.finalize_order(&order).await, Ok(Finalized::Forbidden));
    // An earlier attempt charged this order.
    assert_eq!(client.finalize_order(&paid).await, Ok(Finalized::Paid));
    server.inject(None);
    assert_eq!(client.finalize_order(&order).await, Ok(Finalized::Paid));
    assert_eq!((server.orders().len(), server.net_cents("org_1")), (2, 1_399));
}

#[tokio::test]
async fn pending_order_is_in_progress_and_a_void_one_is_never_paid() {
    let server = PaymentsServer::start(None).await;
    let (client, customer) = customer(&server).await;
    let order = async |cents| create_order(&client, &customer, cents).await.unwrap();
    let (pending, void) = (order(1_299).await, order(100).await);
    server.inject(Some(PaymentsFault::Pending));
    for _ in 0..2 {
        assert_eq!(client.finalize_order(&pending).await, Err(OutboundError::Status(409)));
    }
    // The refund is repeated until the result of the payment is known.
    assert_eq!(client.refund_order(&pending, 1_299).await, Err(OutboundError::Status(409)));
    server.inject(Some(PaymentsFault::NotDraft));
    assert_eq!(client.finalize_order(&void).await, Err(OutboundError::Status(412)));
    server.inject(None);
    assert_eq!(client.finalize_order(&void).await, Err(OutboundError::Status(412)));
    assert_eq!(client.refund_order(&void, 100).await, Ok(Refunded::NotPaid));
    assert_eq!(client.finalize_order(&pending).await, Ok(Finalized::Paid));
    assert_eq!(server.net_cents("org_1"), 1_299);
}

#[tokio::test]
async fn declined_card_charges_nothing() {
    let server = PaymentsServer::start(None).await;
    let (client, customer) = customer(&server).await;
    server.set_card("org_1", true);
    let order = create_order(&client, &customer, 1_299).await.unwrap();
    assert_eq!(client.finalize_order(&order).await, Ok(Finalized::Declined));
    assert_eq!(server.net_cents("org_1"), 0);
    server.set_card("org_1", false);
    assert_eq!(client.finalize_order(&order).await, Ok(Finalized::Paid));
}
