//! The mail address of a project.

use serde_json::{Value, json};
use server::config::CoreLink;

use super::{DOMAIN, EMAIL, Kit, LOG};
use crate::support::{App, ManualNode};

const ROUTES: [&str; 3] = ["get", "post", "delete"];

#[tokio::test(flavor = "multi_thread")]
async fn address_is_granted_and_revoked_idempotently() {
    let app = App::with(|config| config.gateway.site.mail_domain = Some("mail.localhost".to_owned())).await;
    let (node, ada) = (ManualNode::new(&app).await, app.sign_in("ada").await);
    let project = ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201)["id"].clone();
    let status = |granted: bool| {
        json!({
            "granted": granted, "address": DOMAIN, "from": format!("noreply@{DOMAIN}"), "hourlyLimit": 50,
            "sentLastHour": 0, "sentLast24h": 0, "receivedLast24h": 0, "keepDays": 30,
            "receivedBytes": 0, "sentBytes": 0, "maxBytes": 1_u64 << 30,
        })
    };
    assert_eq!(ada.get(EMAIL).await.expect(200), &status(false));
    assert_eq!(ada.get(LOG).await.expect(200), &json!({ "items": [], "nextCursor": null }));
    ada.delete(EMAIL).await.expect(204);
    for _ in 0..2 {
        // The body is ignored.
        let granted = ada.send(reqwest::Method::POST, EMAIL, |request| request.body("anything")).await;
        assert_eq!(granted.expect(200), &status(true));
    }
    assert_eq!(ada.get(EMAIL).await.expect(200), &status(true));
    assert_eq!(node.part(&project, "email").await, json!({ "domain": DOMAIN }));
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["resources"]["email"], true);
    for _ in 0..2 {
        ada.delete(EMAIL).await.expect(204);
    }
    assert_eq!(ada.get(EMAIL).await.expect(200), &status(false));
    assert_eq!(node.part(&project, "email").await, Value::Null);
    assert_eq!(app.db_audit("ada").await[1..], ["email.grant", "email.revoke"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_address_stays_when_the_project_is_renamed() {
    let app = App::with(|config| config.gateway.site.mail_domain = Some("mail.localhost".to_owned())).await;
    let ada = app.sign_in("ada").await;
    let other = "/v1/orgs/ada/projects/other/email";
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.post(EMAIL, json!({})).await.expect(200);
    ada.patch("/v1/orgs/ada/projects/site", json!({ "name": "other" })).await.expect(200);
    assert_eq!(ada.get(other).await.expect(200)["address"], DOMAIN);
    // A new project has the old name, but not the address.
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.post(EMAIL, json!({})).await.expect_error(409, "email_address_taken");
    assert_eq!(ada.get(EMAIL).await.expect(200)["granted"], false);
    // A revoked grant frees the address immediately, and a new grant uses the current name.
    ada.delete(other).await.expect(204);
    assert_eq!(ada.post(other, json!({})).await.expect(200)["address"], "other.ada.mail.localhost");
    ada.post(EMAIL, json!({})).await.expect(200);
    // The deletion of the project frees the address, too.
    ada.send(reqwest::Method::DELETE, "/v1/orgs/ada/projects/site", |it| it.json(&json!({ "confirm": "site" })))
        .await
        .expect(204);
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    assert_eq!(ada.post(EMAIL, json!({})).await.expect(200)["address"], DOMAIN);
    let domains = app.db_rows("SELECT domain FROM resources.email_domains ORDER BY domain").await;
    assert_eq!(domains, [json!({ "domain": "other.ada.mail.localhost" }), json!({ "domain": DOMAIN })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_owner_of_a_name_inherits_no_mail() {
    let kit = Kit::start().await;
    kit.send(json!({})).await;
    let received = kit.receive("Subject: Hi\r\n\r\nHello\r\n").await;
    kit.ada
        .send(reqwest::Method::DELETE, "/v1/orgs/ada/projects/site", |it| it.json(&json!({ "confirm": "site" })))
        .await
        .expect(204);
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    kit.ada.post(EMAIL, json!({})).await.expect(200);
    assert_eq!(kit.ada.get(LOG).await.expect(200)["items"], json!([]));
    kit.ada.get(&format!("{LOG}/{received}")).await.expect_error(404, "not_found");
    assert_eq!(kit.claim(&kit.node).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn email_needs_a_mail_domain_and_the_link_to_the_nodes() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.post(EMAIL, json!({})).await.expect_error(409, "email_unavailable");
    let status = ada.get(EMAIL).await.expect(200).clone();
    assert_eq!((&status["granted"], &status["address"], &status["from"]), (&json!(false), &json!(""), &json!("")));
    ada.delete(EMAIL).await.expect(204);
    let detached = app.another_with(|config| config.core = CoreLink::Off).await;
    let ada = detached.connect(&ada);
    for method in ROUTES {
        let response = ada.send(method.to_uppercase().parse().unwrap(), EMAIL, |request| request).await;
        response.expect_error(503, "no_core");
    }
    // The log does not need the nodes.
    ada.get(LOG).await.expect(200);
}
