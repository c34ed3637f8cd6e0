//! The payments provider: its API, its pages, and its webhooks, which the tests receive and verify.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use sandbox::{CREDIT_PRODUCT, DOMAIN_PRODUCT, PAYMENTS_TOKEN, PAYMENTS_WEBHOOK_SECRET, PRO_PRODUCT, TOPUP_PRODUCT};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{TestSandbox, header};

/// A received webhook: its id and its body.
type Webhook = (String, Value);

/// Starts a service that verifies webhooks, and responds to the first one with 500.
async fn service() -> (String, mpsc::UnboundedReceiver<Webhook>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (received, webhooks) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut status = 500;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let (head, body) = loop {
                stream.read_buf(&mut request).await.unwrap();
                let text = String::from_utf8_lossy(&request).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let head = head.to_ascii_lowercase();
                let length = field(&head, "content-length").parse::<usize>().unwrap();
                if body.len() == length {
                    break (head, body.to_owned());
                }
            };
            assert!(head.starts_with("post /v1/hooks/payments "), "{head}");
            // The key is the text of the secret. The head was converted to lower case, so compare the tag in lower
            // case.
            let key = hmac::Key::new(hmac::HMAC_SHA256, PAYMENTS_WEBHOOK_SECRET.as_bytes());
            let signed = format!("{}.{}.{body}", field(&head, "webhook-id"), field(&head, "webhook-timestamp"));
            let tag = format!("v1,{}", STANDARD.encode(hmac::sign(&key, signed.as_bytes()))).to_ascii_lowercase();
            assert_eq!(field(&head, "webhook-signature"), tag);
            received.send((field(&head, "webhook-id"), serde_json::from_str(&body).unwrap())).unwrap();
            let response = format!("HTTP/1.1 {status} .\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(response.as_bytes()).await.unwrap();
            status = 200;
        }
    });
    (url, webhooks)
}

fn field(head: &str, name: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_default().to_owned()
}

/// Sends a request to the API. Returns the status and the body.
async fn call(sandbox: &TestSandbox, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/polar/v1{path}", sandbox.base);
    let request = sandbox.browser.request(method.parse().unwrap(), url).bearer_auth(PAYMENTS_TOKEN);
    let response = request.body(body.to_string()).send().await.unwrap();
    (response.status().as_u16(), serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

/// Creates a checkout, and returns the path of its page.
async fn check_out(sandbox: &TestSandbox, product: &str, amount: Value) -> String {
    check_out_for(sandbox, "org_1", product, amount).await
}

async fn check_out_for(sandbox: &TestSandbox, org: &str, product: &str, amount: Value) -> String {
    let mut body = json!({ "products": [product], "external_customer_id": org, "success_url": "http://app/done",
        "embed_origin": "http://app", "metadata": { "org": org } });
    if !amount.is_null() {
        body["amount"] = amount;
    }
    let (status, created) = call(sandbox, "POST", "/checkouts/", &body).await;
    assert_eq!(status, 201, "{created}");
    created["url"].as_str().unwrap().strip_prefix(&sandbox.base).unwrap().to_owned()
}

#[tokio::test]
async fn buyer_pays_declines_and_abandons() {
    let (api, mut webhooks) = service().await;
    let sandbox = TestSandbox::with_api(&api).await;
    let customer = call(&sandbox, "GET", "/customers/external/org_1/payment-methods", &json!({})).await;
    assert_eq!(customer.0, 404);

    let abandoned = check_out(&sandbox, PRO_PRODUCT, Value::Null).await;
    let page = sandbox.submit(&abandoned, &[("action", "abandon")]).await.text().await.unwrap();
    assert!(page.contains("This checkout is expired."), "{page}");
    for action in ["pay", "abandon"] {
        let page = sandbox.submit(&abandoned, &[("action", action)]).await.text().await.unwrap();
        assert!(page.contains("checkout is not open.") && page.contains("This checkout is expired."), "{page}");
    }
    assert_eq!(sandbox.submit("/payments/checkouts/unknown", &[("action", "pay")]).await.status(), 404);

    let checkout = check_out(&sandbox, PRO_PRODUCT, Value::Null).await;
    assert!(sandbox.text(&checkout).await.contains("$20.00"));
    let page = sandbox.submit(&checkout, &[("action", "decline")]).await.text().await.unwrap();
    assert!(page.contains("The card was declined."), "{page}");
    let paid = sandbox.submit(&checkout, &[("action", "pay")]).await;
    assert_eq!((paid.status().as_u16(), header(&paid, "location").as_str()), (302, "http://app/done"));

    // The first webhook is repeated after the error, with the same id and before the next webhook.
    let mut received = Vec::new();
    for _ in 0..6 {
        received.push(webhooks.recv().await.unwrap());
    }
    let events: Vec<&str> = received.iter().map(|(_, body)| body["type"].as_str().unwrap()).collect();
    let expected = [
        "subscription.created",
        "subscription.created",
        "subscription.active",
        "subscription.updated",
        "order.created",
        "order.paid",
    ];
    assert_eq!(events, expected);
    assert_eq!(received[0], received[1]);
    let subscription = &received[2].1["data"];
    assert_eq!(
        (&subscription["status"], &subscription["product_id"], &subscription["customer"]["external_id"]),
        (&json!("active"), &json!(PRO_PRODUCT), &json!("org_1"))
    );
    let order = &received[5].1["data"];
    assert_eq!(
        (&order["net_amount"], &order["currency"], &order["metadata"]["org"]),
        (&json!(2000), &json!("usd"), &json!("org_1"))
    );
    let methods = call(&sandbox, "GET", "/customers/external/org_1/payment-methods", &json!({})).await.1;
    assert_eq!(methods["items"].as_array().unwrap().len(), 1);
    assert!(sandbox.text("/payments").await.contains("order.paid"));
}

/// As at the real provider, the email selects the customer of an organization that was not a customer before.
#[tokio::test]
async fn email_selects_the_customer() {
    let sandbox = TestSandbox::start().await;
    let check_out = async |org: &str| check_out_for(&sandbox, org, CREDIT_PRODUCT, json!(500)).await;
    let pay = async |checkout: &str, email: &str| {
        sandbox.submit(checkout, &[("action", "pay"), ("email", email)]).await.status().as_u16()
    };
    let customer = async |org: &str| call(&sandbox, "GET", &format!("/customers/external/{org}"), &json!({})).await;
    let (first, second) = (check_out("org_1").await, check_out("org_1").await);
    assert_eq!(pay(&first, "ada@example.com").await, 302);
    let refused = sandbox.submit(&second, &[("action", "pay"), ("email", "other@example.com")]).await;
    assert!(refused.text().await.unwrap().contains("The email is not accepted"));
    assert_eq!(pay(&check_out("org_2").await, "Ada@example.com").await, 302);
    assert_eq!(customer("org_2").await.0, 404);
    assert_eq!(pay(&check_out("org_2").await, "ada+2@example.com").await, 302);
    // The checkout of a customer does not ask for an email.
    let checkout = check_out("org_2").await;
    assert!(!sandbox.text(&checkout).await.contains("name=email"));
    assert_eq!(pay(&checkout, "ada@example.com").await, 302);
    let page = sandbox.text("/payments").await;
    for org in ["org_1", "org_2"] {
        let (status, found) = customer(org).await;
        let orders = page.matches(&format!("of customer {}:", found["id"].as_str().unwrap())).count();
        assert_eq!((status, orders), (200, 2), "{org}");
    }
}

fn session() -> Value {
    json!({ "external_customer_id": "org_1", "return_url": "http://app/billing" })
}

/// Creates a session of the customer. Returns the path of the portal, and the ids of the subscriptions on its page.
async fn portal(sandbox: &TestSandbox) -> (String, Vec<String>) {
    let (status, created) = call(sandbox, "POST", "/customer-sessions/", &session()).await;
    assert_eq!(status, 201);
    let portal = created["customer_portal_url"].as_str().unwrap().strip_prefix(&sandbox.base).unwrap().to_owned();
    let page = sandbox.text(&portal).await;
    let ids = page.split("name=subscription value=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    (portal, ids.collect())
}

#[tokio::test]
async fn customer_uses_the_portal() {
    let sandbox = TestSandbox::start().await;
    assert_eq!(call(&sandbox, "POST", "/customer-sessions/", &session()).await.0, 422);
    for (product, amount, methods) in [(CREDIT_PRODUCT, json!(500), 0), (PRO_PRODUCT, Value::Null, 1)] {
        let checkout = check_out(&sandbox, product, amount).await;
        sandbox.submit(&checkout, &[("action", "pay")]).await;
        // Only the payment of the plan saves the card.
        let saved = call(&sandbox, "GET", "/customers/external/org_1/payment-methods", &json!({})).await.1;
        assert_eq!(saved["items"].as_array().unwrap().len(), methods, "{product}");
    }
    let (portal, subscriptions) = portal(&sandbox).await;
    let page = sandbox.text(&portal).await;
    for shown in ["$5.00", "$20.00", "card: works", "renews", "http://app/billing"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    for (action, shown) in [
        ("cancel", "ends at"),
        ("resume", "renews at"),
        ("declined", "card: is declined"),
        ("card", "card: works"),
        ("remove", "card: none"),
    ] {
        sandbox.submit(&portal, &[("action", action), ("subscription", subscriptions[0].as_str())]).await;
        assert!(sandbox.text(&portal).await.contains(shown), "{action}");
    }
    let methods = call(&sandbox, "GET", "/customers/external/org_1/payment-methods", &json!({})).await.1;
    assert_eq!(methods["items"], json!([]));
}

#[tokio::test]
async fn portal_changes_the_subscription_of_the_button() {
    let sandbox = TestSandbox::start().await;
    for _ in 0..2 {
        let checkout = check_out(&sandbox, PRO_PRODUCT, Value::Null).await;
        sandbox.submit(&checkout, &[("action", "pay")]).await;
    }
    let (portal, subscriptions) = portal(&sandbox).await;
    let cancel =
        async |id: &str| sandbox.submit(&portal, &[("action", "cancel"), ("subscription", id)]).await.status().as_u16();
    assert_eq!((cancel(&subscriptions[0]).await, cancel("unknown").await), (302, 404));
    for (id, is_canceled) in [(&subscriptions[0], true), (&subscriptions[1], false)] {
        let (_, found) = call(&sandbox, "GET", &format!("/subscriptions/{id}"), &json!({})).await;
        assert_eq!(found["cancel_at_period_end"], is_canceled, "{id}");
    }
}

/// Buys the plan, and returns a request for an order of 1,299 cents.
async fn order_of_a_customer(sandbox: &TestSandbox) -> Value {
    let checkout = check_out(sandbox, PRO_PRODUCT, Value::Null).await;
    sandbox.submit(&checkout, &[("action", "pay")]).await;
    let (_, customer) = call(sandbox, "GET", "/customers/external/org_1", &json!({})).await;
    json!({ "customer_id": customer["id"], "product_id": DOMAIN_PRODUCT, "amount": 1299, "currency": "usd" })
}

#[tokio::test]
async fn order_requires_a_product_with_a_fixed_price() {
    let sandbox = TestSandbox::start().await;
    let mut order = order_of_a_customer(&sandbox).await;
    for (product, status) in
        [(PRO_PRODUCT, 422), (CREDIT_PRODUCT, 422), ("unknown", 422), (TOPUP_PRODUCT, 201), (DOMAIN_PRODUCT, 201)]
    {
        order["product_id"] = product.into();
        assert_eq!(call(&sandbox, "POST", "/orders/", &order).await.0, status, "{product}");
    }
}

#[tokio::test]
async fn refund_is_limited_to_the_price_without_tax() {
    let sandbox = TestSandbox::start().await;
    sandbox.submit("/payments", &[("tax", "19")]).await;
    let order = order_of_a_customer(&sandbox).await;
    let (_, order) = call(&sandbox, "POST", "/orders/", &order).await;
    let refund = async |cents: i64| {
        let body = json!({ "order_id": order["id"], "reason": "other", "amount": cents });
        call(&sandbox, "POST", "/refunds/", &body).await
    };
    let (status, error) = refund(1_092).await;
    assert_eq!((status, &error["error"]), (404, &json!("RefundUnknownPayment")));
    let path = format!("/orders/{}", order["id"].as_str().unwrap());
    let (status, paid) = call(&sandbox, "POST", &format!("{path}/finalize"), &json!({})).await;
    let amounts = |order: &Value| {
        let fields = ["total_amount", "net_amount", "tax_amount", "refunded_amount", "refunded_tax_amount"];
        fields.map(|field| order[field].as_i64().unwrap())
    };
    assert_eq!((status, amounts(&paid)), (200, [1_299, 1_092, 207, 0, 0]));
    for (cents, status, refundable, shown) in [
        (1_093, 422, 1_092, "$12.99 with $2.07 tax"),
        (92, 201, 1_000, "$12.99 with $2.07 tax, $1.09 refunded"),
        (1_000, 201, 0, "$12.99 with $2.07 tax, $12.99 refunded"),
        (1, 403, 0, "$12.99 with $2.07 tax, $12.99 refunded"),
    ] {
        assert_eq!(refund(cents).await.0, status, "{cents}");
        assert_eq!(call(&sandbox, "GET", &path, &json!({})).await.1["refundable_amount"], refundable, "{cents}");
        assert!(sandbox.text("/payments").await.contains(shown), "{cents}");
    }
    let (_, refunded) = call(&sandbox, "GET", &path, &json!({})).await;
    assert_eq!((&refunded["status"], amounts(&refunded)), (&json!("refunded"), [1_299, 1_092, 207, 1_092, 207]));
}

#[tokio::test]
async fn pending_order_is_paid_when_the_fault_ends() {
    let (api, mut webhooks) = service().await;
    let sandbox = TestSandbox::with_api(&api).await;
    let order = order_of_a_customer(&sandbox).await;
    let (_, order) = call(&sandbox, "POST", "/orders/", &order).await;
    let path = format!("/orders/{}", order["id"].as_str().unwrap());
    let finalize = format!("{path}/finalize");
    sandbox.submit("/payments", &[("fault", "order pending")]).await;
    assert_eq!(call(&sandbox, "POST", &finalize, &json!({})).await.0, 412);
    assert_eq!(call(&sandbox, "GET", &path, &json!({})).await.1["status"], "pending");
    sandbox.submit("/payments", &[("fault", "none")]).await;
    // The events of the plan come first.
    let paid = loop {
        let (_, event) = webhooks.recv().await.unwrap();
        if event["data"]["id"] == order["id"] {
            break event;
        }
    };
    assert_eq!((&paid["type"], &paid["data"]["paid"]), (&json!("order.paid"), &json!(true)));
    assert_eq!(call(&sandbox, "POST", &finalize, &json!({})).await.0, 412);
    assert_eq!(call(&sandbox, "GET", &path, &json!({})).await.1["status"], "paid");
}

/// A schedule that exists and one that does not exist are refused with different statuses, like at the real provider.
#[tokio::test]
async fn repeated_change_of_a_subscription_is_refused() {
    let (api, mut webhooks) = service().await;
    let sandbox = TestSandbox::with_api(&api).await;
    let checkout = check_out(&sandbox, PRO_PRODUCT, Value::Null).await;
    sandbox.submit(&checkout, &[("action", "pay")]).await;
    let (_, event) = webhooks.recv().await.unwrap();
    let path = format!("/subscriptions/{}", event["data"]["id"].as_str().unwrap());
    for (cancel, status, error) in [
        (false, 400, json!("BadRequest")),
        (true, 200, Value::Null),
        (true, 403, json!("AlreadyCanceledSubscription")),
        (false, 200, Value::Null),
        (false, 400, json!("BadRequest")),
    ] {
        let (found, body) = call(&sandbox, "PATCH", &path, &json!({ "cancel_at_period_end": cancel })).await;
        assert_eq!((found, &body["error"]), (status, &error), "{body}");
    }
    let id = event["data"]["id"].as_str().unwrap();
    sandbox.submit("/payments", &[("subscription", id), ("status", "canceled")]).await;
    for (cancel, status) in [(true, 403), (false, 410)] {
        assert_eq!(call(&sandbox, "PATCH", &path, &json!({ "cancel_at_period_end": cancel })).await.0, status);
    }
    assert_eq!(call(&sandbox, "GET", &path, &json!({})).await.1["status"], "canceled");
}

#[tokio::test]
async fn api_refuses_what_the_real_one_refuses() {
    let sandbox = TestSandbox::start().await;
    let url = format!("{}/polar/v1/checkouts/", sandbox.base);
    assert_eq!(sandbox.browser.post(url).body("{}").send().await.unwrap().status(), 401);
    let valid = json!({ "products": [PRO_PRODUCT], "external_customer_id": "org_1", "success_url": "http://app/",
        "embed_origin": "http://app" });
    for (member, value) in [
        ("products", json!([])),
        ("products", json!(["unknown"])),
        ("amount", json!(1000)),
        ("external_customer_id", json!("")),
        ("unknown", json!(1)),
    ] {
        let mut body = valid.clone();
        body[member] = value;
        let (status, error) = call(&sandbox, "POST", "/checkouts/", &body).await;
        assert_eq!((status, &error["error"]), (422, &json!("RequestValidationError")), "{body}");
    }
    let missing = call(&sandbox, "PATCH", "/subscriptions/sub_1", &json!({ "cancel_at_period_end": true })).await;
    assert_eq!(missing.0, 404);
}
