//! The deliveries of webhooks.

use std::iter::repeat;
use std::time::Duration;

use sandbox::{Delivery, PAYMENTS_TOKEN, PRO_PRODUCT, PaymentsServer, SnsServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::browser;

/// Starts a service that responds to webhooks with these statuses, and then with 200. Redirects lead to an unused port.
async fn service(statuses: &'static [u16]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for status in statuses.iter().chain(repeat(&200)) {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !is_complete(&request) {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            let head = format!("HTTP/1.1 {status} .\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0");
            stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
        }
    });
    url
}

/// Returns whether a request has a whole body, which is JSON.
fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    text.split_once("\r\n\r\n").is_some_and(|(_, body)| serde_json::from_str::<Value>(body).is_ok())
}

/// Waits for the success of the last webhook. Returns the attempts and the last status of each webhook.
async fn outcomes(deliveries: impl Fn() -> Vec<Delivery>) -> Vec<(usize, Option<u16>)> {
    let last_is_delivered = async {
        while deliveries().last().is_none_or(|last| last.status != Some(200)) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), last_is_delivered).await.unwrap();
    deliveries().iter().map(|it| (it.attempts, it.status)).collect()
}

/// Buys the pro plan.
async fn buy(server: &PaymentsServer) {
    let body = json!({ "products": [PRO_PRODUCT], "external_customer_id": "org_1", "success_url": "http://app/done",
        "embed_origin": "http://app" });
    let request = browser().post(format!("{}/checkouts/", server.url())).bearer_auth(PAYMENTS_TOKEN);
    let checkout: Value = request.body(body.to_string()).send().await.unwrap().json().await.unwrap();
    assert_eq!(server.pay(checkout["url"].as_str().unwrap()), "http://app/done");
}

#[tokio::test]
async fn notification_service_repeats_a_message_only_after_429_and_5xx() {
    let service = SnsServer::start(Some(service(&[503, 429, 403, 302]).await)).await;
    for _ in 0..3 {
        service.subscribe();
    }
    let expected = [(3, Some(403)), (1, Some(302)), (1, Some(200))];
    assert_eq!(outcomes(|| service.deliveries()).await, expected);
}

#[tokio::test]
async fn only_the_newest_webhooks_are_kept() {
    let server = PaymentsServer::start(None).await;
    buy(&server).await;
    let created = server.deliveries()[0].clone();
    for _ in 0..1000 {
        server.set_subscription_status("org_1", "past_due");
    }
    let kept = server.deliveries();
    assert!(kept.len() == 1000 && !kept.contains(&created), "{}", kept.len());
    assert!(kept[999].body.contains("past_due"), "{}", kept[999].body);
}

#[tokio::test]
async fn payments_provider_repeats_a_webhook_after_every_failure() {
    let server = PaymentsServer::start(Some(service(&[302, 403]).await)).await;
    buy(&server).await;
    let outcomes = outcomes(|| server.deliveries()).await;
    assert_eq!(outcomes[0], (3, Some(200)));
    assert!(outcomes[1..].iter().all(|outcome| *outcome == (1, Some(200))), "{outcomes:?}");
}
