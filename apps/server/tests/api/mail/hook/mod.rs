//! The hook of the relay's notification service over HTTP.

mod hostile;
mod outcomes;

use reqwest::Method;
use sandbox::{SNS_TOPIC, SnsFault, SnsServer};
use serde_json::{Map, Value, json};
use server::Config;
use server::config::MailHookConfig;
use webhooks::sns::{CertificateHosts, SnsTopic};

use crate::support::{ApiResponse, App};

const HOOK: &str = "/v1/hooks/mailer";

type Fields = Map<String, Value>;

/// Configures the hook for this service.
fn use_service(config: &mut Config, service: &SnsServer) {
    let hosts: CertificateHosts = service.host().parse().unwrap();
    let topic = SnsTopic::new(SNS_TOPIC.to_owned(), hosts.clone());
    config.mail_hook = Some(MailHookConfig { topic, hosts, ca: Some(service.authority().to_owned()) });
}

/// A server with the hook, and a notification service that sends nothing itself.
struct Hook {
    app: App,
    service: SnsServer,
}

impl Hook {
    async fn start() -> Self {
        let service = SnsServer::start(None).await;
        let app = App::with(|config| use_service(config, &service)).await;
        Self { app, service }
    }

    async fn post(&self, body: impl Into<reqwest::Body>) -> ApiResponse {
        let header = ("content-type", "text/plain; charset=UTF-8");
        let response =
            self.app.anonymous().send(Method::POST, HOOK, |it| it.header(header.0, header.1).body(body)).await;
        assert_eq!(response.body, Value::Null, "{response:?}");
        response
    }

    async fn deliver(&self, fields: &Fields) -> u16 {
        self.post(Value::from(fields.clone()).to_string()).await.status
    }

    /// Signs and delivers a notification about a mail with this id of the relay.
    async fn notify(&self, event: &Value) -> u16 {
        self.deliver(&SnsServer::sign(self.service.notification(&event.to_string()), "2")).await
    }

    /// Returns the number of notifications that were recorded.
    async fn recorded(&self) -> i64 {
        self.app.database.number("SELECT count(*) FROM mail.notifications").await
    }
}

fn delivery(relay_id: &str, recipient: &str) -> Value {
    json!({ "notificationType": "Delivery", "mail": { "messageId": relay_id },
        "delivery": { "recipients": [recipient] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn both_signature_versions_are_accepted_and_each_message_is_recorded_once() {
    let hook = Hook::start().await;
    for version in ["1", "2"] {
        let fields = hook.service.notification(&delivery("unknown", "ada@navy.example").to_string());
        let fields = SnsServer::sign(fields, version);
        assert_eq!((hook.deliver(&fields).await, hook.deliver(&fields).await), (200, 200), "version {version}");
    }
    assert_eq!((hook.recorded().await, hook.service.requests().len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn report_that_a_mail_is_not_spam_has_no_effect() {
    let hook = Hook::start().await;
    let complaint = |feedback: &str| {
        json!({ "notificationType": "Complaint", "mail": { "messageId": "unknown" }, "complaint": {
            "complainedRecipients": [{ "emailAddress": "ada@navy.example" }], "complaintFeedbackType": feedback } })
    };
    assert_eq!((hook.notify(&complaint("not-spam")).await, hook.recorded().await), (200, 0));
    assert_eq!((hook.notify(&complaint("abuse")).await, hook.recorded().await), (200, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_without_a_topic_is_off() {
    let app = App::start().await;
    for body in ["", "{}", "{\"Type\":\"Notification\"}"] {
        let response = app.anonymous().send(Method::POST, HOOK, |request| request.body(body)).await;
        assert_eq!((response.status, &response.body), (501, &Value::Null), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_confirmed_and_a_failed_confirmation_is_repeated() {
    let hook = Hook::start().await;
    let fields = SnsServer::sign(hook.service.subscription_confirmation(), "1");
    for fault in [SnsFault::Confirmation, SnsFault::Redirect] {
        // The certificate is fetched before the fault begins.
        assert_eq!(hook.notify(&json!({})).await, 200);
        hook.service.inject(Some(fault));
        assert_eq!(hook.deliver(&fields).await, 503, "{fault:?}");
        assert!(!hook.service.is_confirmed(), "{fault:?}");
        hook.service.inject(None);
    }
    assert_eq!(hook.deliver(&fields).await, 200);
    assert!(hook.service.is_confirmed());
    // The end of the subscription fetches nothing.
    let requests = hook.service.requests().len();
    let end = SnsServer::sign(hook.service.unsubscribe_confirmation(), "2");
    assert_eq!(hook.deliver(&end).await, 200);
    assert_eq!((hook.service.requests().len(), hook.recorded().await), (requests, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_certificate_is_503_and_the_message_is_applied_later() {
    let hook = Hook::start().await;
    let event = delivery("unknown", "ada@navy.example").to_string();
    let fields = SnsServer::sign(hook.service.notification(&event), "2");
    for fault in [SnsFault::Unavailable, SnsFault::Html, SnsFault::Redirect, SnsFault::Large] {
        hook.service.inject(Some(fault));
        assert_eq!(hook.deliver(&fields).await, 503, "{fault:?}");
    }
    for fault in [SnsFault::Expired, SnsFault::NotYetValid] {
        hook.service.inject(Some(fault));
        assert_eq!(hook.deliver(&fields).await, 403, "{fault:?}");
    }
    assert_eq!(hook.recorded().await, 0);
    hook.service.inject(None);
    assert_eq!((hook.deliver(&fields).await, hook.recorded().await), (200, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_known_meaning_have_no_effect() {
    let hook = Hook::start().await;
    for text in [
        "Successfully validated SNS topic for Amazon SES event publishing.".to_owned(),
        "{".to_owned(),
        "[]".to_owned(),
        json!({ "notificationType": "AmazonSnsSubscriptionSucceeded" }).to_string(),
        json!({ "eventType": "Open", "mail": { "messageId": "1" } }).to_string(),
        json!({ "notificationType": "Bounce", "mail": { "messageId": 1 } }).to_string(),
        delivery("a\0b", "ada@navy.example").to_string(),
        delivery(&"x".repeat(300), "ada@navy.example").to_string(),
        delivery("unknown", "a\0b").to_string(),
    ] {
        let fields = SnsServer::sign(hook.service.notification(&text), "2");
        assert_eq!(hook.deliver(&fields).await, 200, "{text:.100}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_is_not_rate_limited() {
    let service = SnsServer::start(None).await;
    let app = App::with(|config| {
        use_service(config, &service);
        config.gateway.rate_limits.sign_in = std::num::NonZeroU32::MIN;
        config.gateway.rate_limits.credential = std::num::NonZeroU32::MIN;
    })
    .await;
    let hook = Hook { app, service };
    for _ in 0..30 {
        assert_eq!(hook.notify(&json!({})).await, 200);
    }
}
