//! What an organization is notified of.

use mail_parser::MessageParser;
use sandbox::{Encryption, SmtpServer};
use serde_json::{Value, json};
use server::config::MailConfig;

use crate::kit::{App, Caller, eventually};

const NOTIFICATIONS: &str = "/v1/orgs/acme/notifications";
const PROJECTS: &str = "/v1/orgs/acme/projects";

/// Ada, admin of `acme`, whose projects are used up.
async fn full(app: &App) -> Caller {
    let ada = app.sign_in_with(json!({ "subject": "ada", "email": "ada@example.org" })).await;
    ada.post("/v1/orgs", json!({ "slug": "acme", "name": "Acme Inc." })).await.expect(201);
    for n in 0..3 {
        ada.post(PROJECTS, json!({ "name": format!("p{n}") })).await.expect(201);
    }
    ada
}

async fn one_too_many(caller: &Caller) {
    caller.post(PROJECTS, json!({ "name": "more" })).await.refused(409, "project_limit");
}

async fn listed(caller: &Caller) -> Vec<Value> {
    caller.get(NOTIFICATIONS).await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_projects_is_told_once_a_day() {
    let app = App::start().await;
    let ada = full(&app).await;
    let viewer = app.joined(&ada, "acme", "viewer", "viewer").await;
    let member = app.joined(&ada, "acme", "member", "member").await;
    assert_eq!(listed(&viewer).await, Vec::<Value>::new());
    for caller in [&member, &ada, &ada] {
        one_too_many(caller).await;
    }
    let all = listed(&viewer).await;
    assert_eq!(all.len(), 1);
    assert!(all[0]["id"].as_str().unwrap().starts_with("ntf_"));
    assert_eq!((&all[0]["kind"], &all[0]["project"]), (&json!("limit.projects"), &json!(null)));
    assert!(all[0]["message"].as_str().unwrap().contains('3'));
    // Nobody is mailed where no mail is configured.
    assert_eq!(all[0]["sentAt"], json!(null));
    let raised = "SELECT event FROM store.audit WHERE event = 'notification.raise'";
    assert_eq!(app.db_rows(raised).await.len(), 1);

    app.clock.advance_days(2);
    one_too_many(&ada).await;
    let all = listed(&viewer).await;
    assert_eq!(all.len(), 2);
    // Newest first.
    assert!(all[0]["createdAt"].as_str().unwrap() > all[1]["createdAt"].as_str().unwrap());
    let page = viewer.get(&format!("{NOTIFICATIONS}?limit=1")).await.expect(200).clone();
    assert_eq!(page["items"], json!(all[..1]));
    let next = page["nextCursor"].as_str().unwrap();
    let page = viewer.get(&format!("{NOTIFICATIONS}?limit=1&cursor={next}")).await.expect(200).clone();
    assert_eq!((&page["items"], &page["nextCursor"]), (&json!(all[1..]), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_the_limit_at_once_raise_one() {
    let app = App::with(|config| config.database.connections = 32).await;
    let ada = full(&app).await;
    futures_util::future::join_all((0..20).map(|_| one_too_many(&ada))).await;
    assert_eq!(listed(&ada).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_with_an_address_are_mailed() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let (server, from) = (smtp.url().parse().unwrap(), "hello@svc.example".parse().unwrap());
    let app = App::with(|config| config.mail = Some(MailConfig { server, from })).await;
    let ada = full(&app).await;
    for (subject, role) in [("bob", "admin"), ("member", "member"), ("nobody", "admin")] {
        if subject != "nobody" {
            app.sign_in_with(json!({ "subject": subject, "email": format!("{subject}@example.org") })).await;
        }
        app.joined(&ada, "acme", subject, role).await;
    }
    one_too_many(&ada).await;
    let mut received = smtp.wait_for(2).await;
    received.sort_by(|a, b| a.to.cmp(&b.to));
    let to: Vec<&str> = received.iter().map(|mail| mail.to[0].as_str()).collect();
    assert_eq!(to, ["ada@example.org", "bob@example.org"]);
    let told = listed(&ada).await[0].clone();
    for mail in &received {
        let mail = MessageParser::default().parse(&mail.raw).unwrap();
        assert_eq!(mail.subject().unwrap(), format!("Acme Inc.: {}", told["title"].as_str().unwrap()));
        let message = told["message"].as_str().unwrap();
        assert!(mail.body_text(0).unwrap().contains(message) && mail.body_html(0).unwrap().contains(message));
    }
    eventually("sentAt is told", async || Some(listed(&ada).await[0]["sentAt"].clone()).filter(Value::is_string)).await;
    one_too_many(&ada).await;
    eventually("the queue is empty", async || {
        app.db_rows("SELECT 1 AS one FROM store.outbox").await.is_empty().then_some(())
    })
    .await;
    assert_eq!(smtp.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_look_is_refused() {
    let app = App::start().await;
    full(&app).await;
    app.sign_in("outsider").await.get(NOTIFICATIONS).await.refused(403, "forbidden");
    app.anyone().get(NOTIFICATIONS).await.refused(401, "unauthenticated");
    app.sign_in("ada").await.get("/v1/orgs/nowhere/notifications").await.refused(404, "not_found");
}
