//! Notifications of an organization.

use futures_util::stream::{self, StreamExt as _};
use mail_parser::MessageParser;
use sandbox::{Encryption, SmtpServer};
use serde_json::{Value, json};
use server::config::MailConfig;

use crate::support::{App, Caller, eventually};

const NOTIFICATIONS: &str = "/v1/orgs/acme/notifications";
const PROJECTS: &str = "/v1/orgs/acme/projects";

/// Signs in Ada and creates her organization `acme`, which is at its project limit.
async fn acme_at_limit(app: &App) -> Caller {
    let ada = app.sign_in_with(json!({ "subject": "ada", "email": "ada@example.org" })).await;
    ada.post("/v1/orgs", json!({ "slug": "acme", "name": "Acme Inc." })).await.expect(201);
    for n in 0..3 {
        ada.post(PROJECTS, json!({ "name": format!("p{n}") })).await.expect(201);
    }
    ada
}

async fn exceed_limit(caller: &Caller) {
    caller.post(PROJECTS, json!({ "name": "more" })).await.expect_error(409, "project_limit");
}

async fn listed(caller: &Caller) -> Vec<Value> {
    caller.get(NOTIFICATIONS).await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn project_limit_is_notified_once_a_day() {
    let app = App::start().await;
    let ada = acme_at_limit(&app).await;
    let viewer = app.add_member(&ada, "acme", "viewer", "viewer").await;
    let member = app.add_member(&ada, "acme", "member", "member").await;
    assert_eq!(listed(&viewer).await, Vec::<Value>::new());
    for caller in [&member, &ada, &ada] {
        exceed_limit(caller).await;
    }
    let all = listed(&viewer).await;
    assert_eq!(all.len(), 1);
    assert!(all[0]["id"].as_str().unwrap().starts_with("ntf_"));
    assert_eq!((&all[0]["kind"], &all[0]["project"]), (&json!("limit.projects"), &json!(null)));
    assert!(all[0]["message"].as_str().unwrap().contains('3'));
    // Mail is not configured.
    assert_eq!(all[0]["sentAt"], json!(null));
    let raised = "SELECT event FROM store.audit WHERE event = 'notification.raise'";
    assert_eq!(app.db_rows(raised).await.len(), 1);

    app.clock.advance_days(2);
    exceed_limit(&ada).await;
    let all = listed(&viewer).await;
    assert_eq!(all.len(), 2);
    // The list begins with the newest notification.
    assert!(all[0]["createdAt"].as_str().unwrap() > all[1]["createdAt"].as_str().unwrap());
    let page = viewer.get(&format!("{NOTIFICATIONS}?limit=1")).await.expect(200).clone();
    assert_eq!(page["items"], json!(all[..1]));
    let next = page["nextCursor"].as_str().unwrap();
    let page = viewer.get(&format!("{NOTIFICATIONS}?limit=1&cursor={next}")).await.expect(200).clone();
    assert_eq!((&page["items"], &page["nextCursor"]), (&json!(all[1..]), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_limit_errors_raise_one_notification() {
    let app = App::start().await;
    let ada = acme_at_limit(&app).await;
    // The service makes four changes of an organization at a time; others wait for less than a second.
    stream::iter(0..20).map(|_| exceed_limit(&ada)).buffer_unordered(4).collect::<Vec<_>>().await;
    assert_eq!(listed(&ada).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_with_an_address_are_mailed() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let (server, from) = (smtp.url().parse().unwrap(), "hello@svc.example".parse().unwrap());
    let app = App::with(|config| config.mail = Some(MailConfig { server, from })).await;
    let ada = acme_at_limit(&app).await;
    for (subject, role) in [("bob", "admin"), ("member", "member"), ("no-email", "admin")] {
        if subject != "no-email" {
            app.sign_in_with(json!({ "subject": subject, "email": format!("{subject}@example.org") })).await;
        }
        app.add_member(&ada, "acme", subject, role).await;
    }
    exceed_limit(&ada).await;
    let mut received = smtp.wait_for(2).await;
    received.sort_by(|a, b| a.to.cmp(&b.to));
    let to: Vec<&str> = received.iter().map(|mail| mail.to[0].as_str()).collect();
    assert_eq!(to, ["ada@example.org", "bob@example.org"]);
    let notification = listed(&ada).await[0].clone();
    for mail in &received {
        let mail = MessageParser::default().parse(&mail.raw).unwrap();
        assert_eq!(mail.subject().unwrap(), format!("Acme Inc.: {}", notification["title"].as_str().unwrap()));
        let message = notification["message"].as_str().unwrap();
        assert!(mail.body_text(0).unwrap().contains(message) && mail.body_html(0).unwrap().contains(message));
    }
    eventually("sentAt is set", async || Some(listed(&ada).await[0]["sentAt"].clone()).filter(Value::is_string)).await;
    exceed_limit(&ada).await;
    eventually("the outbox is empty", async || {
        app.db_rows("SELECT 1 AS one FROM store.outbox").await.is_empty().then_some(())
    })
    .await;
    assert_eq!(smtp.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_require_membership() {
    let app = App::start().await;
    acme_at_limit(&app).await;
    app.sign_in("outsider").await.get(NOTIFICATIONS).await.expect_error(403, "forbidden");
    app.anonymous().get(NOTIFICATIONS).await.expect_error(401, "unauthenticated");
    app.sign_in("ada").await.get("/v1/orgs/nowhere/notifications").await.expect_error(404, "not_found");
}
