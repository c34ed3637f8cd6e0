//! The outcomes of sent mail, from the relay through the notification service to the log and the suppression list.

use futures_util::stream::{self, StreamExt as _};
use sandbox::{SnsFault, SnsServer};
use serde_json::{Value, json};
use testkit::reserved_address;

use super::super::{Kit, LOG};
use super::{Hook, delivery, use_service};

const SUPPRESSIONS: &str = "/v1/orgs/ada/projects/site/email/suppressions";

/// Starts a server and a notification service that reports the outcomes of its mail.
async fn start() -> (Kit, SnsServer) {
    let listen = reserved_address();
    let service = SnsServer::start(Some(format!("http://{listen}/v1/hooks/mailer"))).await;
    let kit = Kit::with(|config| {
        config.listen = listen;
        use_service(config, &service);
    })
    .await;
    service.report_outcomes(&kit.relay);
    (kit, service)
}

async fn suppressions(kit: &Kit) -> Vec<Value> {
    kit.ada.get(SUPPRESSIONS).await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_reach_the_log_and_the_suppression_list() {
    let (kit, service) = start().await;
    let delivered = kit.send(json!({ "to": ["ada@navy.example"] })).await;
    kit.wait_for(&delivered, "delivered").await;
    assert!(service.is_confirmed());
    assert_eq!(suppressions(&kit).await, Vec::<Value>::new());

    let bounced = kit.send(json!({ "to": ["ada@navy.example", "bounce@navy.example"] })).await;
    let entry = kit.wait_for(&bounced, "bounced").await;
    assert!(entry["detail"].as_str().unwrap().contains("550 5.1.1 user unknown"), "{entry}");
    let complained = kit.send(json!({ "to": ["complain@navy.example"] })).await;
    kit.wait_for(&complained, "complained").await;
    let listed = suppressions(&kit).await;
    let reason = |address: &str| {
        listed.iter().find(|it| it["address"] == address).map(|it| it["reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(reason("bounce@navy.example").as_deref(), Some("bounce"));
    assert_eq!(reason("complain@navy.example").as_deref(), Some("complaint"));
    assert_eq!(listed.len(), 2);
    for to in ["bounce@navy.example", "complain@navy.example"] {
        assert_eq!(kit.refusal(json!({ "to": [to] })).await, "suppressed", "{to}");
    }

    // A temporary bounce only adds to the detail.
    let soft = kit.send(json!({ "to": ["softbounce@navy.example"] })).await;
    let detail = crate::support::eventually("the detail", async || {
        let entry = kit.ada.get(&format!("{LOG}/{soft}")).await.expect(200).clone();
        entry["detail"].as_str().map(|detail| (entry["outcome"].clone(), detail.to_owned()))
    })
    .await;
    assert_eq!(detail.0, "sent");
    assert!(detail.1.contains("452 4.2.2 mailbox full"), "{detail:?}");
    assert_eq!(suppressions(&kit).await.len(), 2);
    // A member can allow mail again.
    kit.ada.delete(&format!("{SUPPRESSIONS}/bounce%40navy.example")).await.expect(204);
    kit.send(json!({ "to": ["bounce@navy.example"] })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_refuses_recipients_and_messages() {
    let (kit, _service) = start().await;
    let id = kit.send(json!({ "to": ["ada@navy.example", "refuse@navy.example"] })).await;
    let entry = kit.wait_for(&id, "bounced").await;
    assert!(entry["detail"].as_str().unwrap().contains("550 5.1.1 <refuse@navy.example>: user unknown"), "{entry}");
    assert_eq!(kit.relay.wait_for(1).await[0].to, ["ada@navy.example"]);
    let id = kit.send(json!({ "to": ["refuse@army.example"] })).await;
    kit.wait_for(&id, "bounced").await;
    assert_eq!(kit.relay.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_arrive_after_an_outage_of_the_certificate_host() {
    let (kit, service) = start().await;
    service.inject(Some(SnsFault::Unavailable));
    let id = kit.send(json!({ "to": ["bounce@navy.example"] })).await;
    crate::support::eventually("an attempt that failed", async || {
        service.deliveries().iter().any(|it| it.status == Some(503)).then_some(())
    })
    .await;
    assert_eq!(suppressions(&kit).await, Vec::<Value>::new());
    service.inject(None);
    kit.wait_for(&id, "bounced").await;
    assert!(service.is_confirmed());
}

/// The same events in every order, each many times and concurrently.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_redeliveries_are_applied_once() {
    let service = SnsServer::start(None).await;
    let kit = Kit::with(|config| {
        use_service(config, &service);
        config.database.connections = 16;
    })
    .await;
    let id = kit.send(json!({ "to": ["ada@navy.example"] })).await;
    kit.wait_for(&id, "sent").await;
    let relay_id = kit.relay.wait_for(1).await[0].id.clone();
    let about = |event: Value| {
        let mut event = event;
        event["mail"] = json!({ "messageId": relay_id });
        let fields = service.notification(&event.to_string());
        Value::from(SnsServer::sign(fields, "2")).to_string()
    };
    let bounce = |kind: &str| {
        json!({ "notificationType": "Bounce", "bounce": { "bounceType": kind,
            "bouncedRecipients": [{ "emailAddress": "ADA@navy.example", "diagnosticCode": format!("smtp; {kind}") }] } })
    };
    let complaint = json!({ "eventType": "Complaint",
        "complaint": { "complainedRecipients": [{ "emailAddress": "ada@navy.example" }] } });
    let messages = [
        about(delivery(&relay_id, "ada@navy.example")),
        about(bounce("Transient")),
        about(bounce("Permanent")),
        about(complaint),
    ];
    let again = about(delivery(&relay_id, "ada@navy.example"));
    let hook = Hook { app: kit.app, service };
    let deliveries = (0..1_000).map(|number| {
        let (hook, body) = (&hook, messages[number % messages.len()].clone());
        async move { hook.post(body).await.status }
    });
    let statuses: Vec<u16> = stream::iter(deliveries).buffer_unordered(20).collect().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!((hook.recorded().await, hook.service.requests().len()), (4, 1));
    let entry = kit.ada.get(&format!("{LOG}/{id}")).await.expect(200).clone();
    assert_eq!(entry["outcome"], "complained");
    let detail = entry["detail"].as_str().unwrap();
    assert!(
        detail.matches("smtp; Permanent").count() <= 1 && detail.matches("smtp; Transient").count() <= 1,
        "{detail}"
    );
    let suppressed = kit.ada.get(SUPPRESSIONS).await.expect(200)["items"].as_array().unwrap().len();
    assert_eq!(suppressed, 1);
    // A later delivery does not set the outcome back.
    assert_eq!(hook.post(again).await.status, 200);
    assert_eq!(kit.ada.get(&format!("{LOG}/{id}")).await.expect(200)["outcome"], "complained");
}
