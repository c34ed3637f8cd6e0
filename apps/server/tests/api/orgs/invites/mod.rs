//! Invitations: creation, preview, mail, acceptance and revocation.

mod mail;

use serde_json::{Value, json};

use crate::support::{ApiResponse, App, Caller, time};

const INVITES: &str = "/v1/orgs/acme/invites";

/// Signs in Ada and creates her organization `acme`.
async fn acme(app: &App) -> Caller {
    let ada = app.sign_in_with(json!({ "subject": "ada", "name": "Ada Lovelace" })).await;
    ada.post("/v1/orgs", json!({ "slug": "acme", "name": "Acme & Sons" })).await.expect(201);
    ada
}

async fn invite(admin: &Caller, email: &str, role: &str) -> ApiResponse {
    admin.post(INVITES, json!({ "email": email, "role": role })).await
}

/// Returns the token in an invitation link.
fn token(link: &Value) -> String {
    let link = link.as_str().unwrap();
    link.strip_prefix("http://localhost:3000/invites/").unwrap_or_else(|| panic!("{link}")).to_owned()
}

async fn invited(admin: &Caller, email: &str, role: &str) -> (Value, String) {
    let invite = invite(admin, email, role).await.expect(201).clone();
    let token = token(&invite["acceptUrl"]);
    (invite, token)
}

async fn preview(app: &App, token: &str) -> ApiResponse {
    app.anonymous().get(&format!("/v1/invites/{token}")).await
}

async fn accept(caller: &Caller, token: &str) -> ApiResponse {
    caller.send(reqwest::Method::POST, &format!("/v1/invites/{token}/accept"), |request| request).await
}

async fn listed(admin: &Caller) -> Vec<Value> {
    admin.get(INVITES).await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_is_created_previewed_and_accepted() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let response = invite(&ada, "Bob@Example.org", "member").await;
    let mut created = response.expect(201).clone();
    assert_eq!(response.header("cache-control"), "no-store");
    let link = created.as_object_mut().unwrap().remove("acceptUrl").unwrap();
    let token = token(&link);
    assert!(created["id"].as_str().unwrap().starts_with("inv_"));
    assert_eq!((&created["email"], &created["role"]), (&json!("Bob@Example.org"), &json!("member")));
    assert_eq!((&created["state"], &created["invitedBy"]), (&json!("pending"), &json!(ada.user_id)));
    assert_eq!(time(&created["expiresAt"]), time(&created["createdAt"]).plus_seconds(7 * 24 * 3600));
    // The link is not returned again. Mail is not configured, so the outbox is empty.
    assert_eq!(listed(&ada).await, [created.clone()]);
    assert_eq!(created["sentAt"], json!(null));
    assert_eq!(app.db_rows("SELECT * FROM store.outbox").await, Vec::<Value>::new());

    let seen = preview(&app, &token).await.expect(200).clone();
    let expected = json!({ "state": "pending", "orgName": "Acme & Sons", "orgSlug": "acme", "role": "member",
        "expiresAt": created["expiresAt"] });
    assert_eq!(seen, expected);

    accept(&app.anonymous(), &token).await.expect_error(401, "unauthenticated");
    // Any user with the link can accept.
    let carol = app.sign_in("carol").await;
    carol.get("/v1/orgs/acme/projects").await.expect_error(403, "forbidden");
    let joined = accept(&carol, &token).await.expect(200).clone();
    assert_eq!((&joined["role"], &joined["alreadyMember"]), (&json!("member"), &json!(false)));
    assert_eq!((&joined["org"]["slug"], &joined["org"]["role"]), (&json!("acme"), &json!("member")));
    carol.get("/v1/orgs/acme/projects").await.expect(200);
    assert_eq!(listed(&ada).await, Vec::<Value>::new());
    assert_eq!(preview(&app, &token).await.expect(200)["state"], "used");
    for caller in [&carol, &app.sign_in("dave").await] {
        accept(caller, &token).await.expect_error(409, "invite_used");
    }
    assert_eq!(app.db_audit("acme").await, ["org.create", "member.invite", "member.accept"]);
    let audit = app.db_rows("SELECT data FROM store.audit WHERE event = 'member.accept'").await;
    assert_eq!(audit[0]["data"]["email"], "Bob@Example.org");
    assert_eq!(audit[0]["data"]["user"], json!(carol.user_id));
    let everything = app.db_rows("SELECT * FROM store.audit").await;
    assert!(!serde_json::to_string(&everything).unwrap().contains(&token));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_invitation_invalidates_the_old_link() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let (first, old) = invited(&ada, "bob@example.org", "viewer").await;
    app.clock.advance_days(3);
    let again = invite(&ada, "BOB@example.ORG", "admin").await.expect(200).clone();
    assert_eq!((&again["id"], &again["createdAt"]), (&first["id"], &first["createdAt"]));
    assert_eq!((&again["role"], &again["state"]), (&json!("admin"), &json!("pending")));
    assert_ne!(again["expiresAt"], first["expiresAt"]);
    let new = token(&again["acceptUrl"]);
    assert_ne!(new, old);
    assert_eq!(listed(&ada).await.len(), 1);
    preview(&app, &old).await.expect_error(404, "not_found");
    let bob = app.sign_in("bob").await;
    accept(&bob, &old).await.expect_error(404, "not_found");
    // An expired invitation stays listed and can be renewed.
    app.clock.advance_days(8);
    assert_eq!(listed(&app.sign_in("ada").await).await[0]["state"], "expired");
    assert_eq!(preview(&app, &new).await.expect(200)["state"], "expired");
    accept(&bob, &new).await.expect_error(409, "invite_expired");
    let third = invite(&ada, "bob@example.org", "viewer").await.expect(200).clone();
    assert_eq!(third["id"], first["id"]);
    assert_eq!(accept(&bob, &token(&third["acceptUrl"])).await.expect(200)["role"], "viewer");
    // A used invitation does not block a new one.
    invited(&ada, "bob@example.org", "viewer").await;
    let again = async |again: bool| {
        let rows = app.db_rows("SELECT data->'again' AS again FROM store.audit WHERE event = 'member.invite'").await;
        rows.iter().filter(|row| row["again"] == again).count()
    };
    assert_eq!((again(true).await, again(false).await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_invitation_cannot_be_accepted() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let (created, token) = invited(&ada, "bob@example.org", "member").await;
    let at = format!("{INVITES}/{}", created["id"].as_str().unwrap());
    // The invitation is not accessible through another organization.
    ada.delete(&at.replace("acme", "ada")).await.expect_error(404, "not_found");
    ada.delete(&at).await.expect(204);
    ada.delete(&at).await.expect_error(404, "not_found");
    ada.delete(&format!("{INVITES}/inv_01h455vb4pex5vsknk084sn02q")).await.expect_error(404, "not_found");
    assert_eq!(listed(&ada).await, Vec::<Value>::new());
    assert_eq!(preview(&app, &token).await.expect(200)["state"], "revoked");
    let bob = app.sign_in("bob").await;
    accept(&bob, &token).await.expect_error(409, "invite_revoked");
    // The state remains visible for 30 days.
    app.clock.advance_days(29);
    assert_eq!(preview(&app, &token).await.expect(200)["state"], "revoked");
    app.clock.advance_days(2);
    preview(&app, &token).await.expect_error(404, "not_found");
    accept(&app.sign_in("bob").await, &token).await.expect_error(404, "not_found");
    assert_eq!(app.db_audit("acme").await, ["org.create", "member.invite", "member.uninvite"]);

    let ada = app.sign_in("ada").await;
    let (used, token) = invited(&ada, "carol@example.org", "member").await;
    accept(&app.sign_in("carol").await, &token).await.expect(200);
    ada.delete(&format!("{INVITES}/{}", used["id"].as_str().unwrap())).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_who_accepts_an_invitation_keeps_their_role() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let bob = app.add_member(&ada, "acme", "bob", "viewer").await;
    for (caller, role) in [(&bob, "viewer"), (&ada, "admin")] {
        let (_, token) = invited(&ada, &format!("{role}@example.org"), "member").await;
        let joined = accept(caller, &token).await.expect(200).clone();
        assert_eq!((&joined["role"], &joined["alreadyMember"]), (&json!(role), &json!(true)));
        assert_eq!(joined["org"]["role"], role);
        // The invitation is used nevertheless.
        accept(&app.sign_in("carol").await, &token).await.expect_error(409, "invite_used");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_invitations_are_rejected() {
    let app = App::with(|config| config.limits.free.invites = 3).await;
    let ada = acme(&app).await;
    app.sign_in_with(json!({ "subject": "bob", "email": "bob@example.org" })).await;
    let member = json!({ "provider": "dev", "subject": "bob", "role": "viewer" });
    ada.post("/v1/orgs/acme/members", member).await.expect(201);
    invite(&ada, "BOB@example.org", "member").await.expect_error(409, "already_member");

    for body in [
        json!({}),
        json!({ "email": "carol", "role": "viewer" }),
        json!({ "email": "carol@example.org" }),
        json!({ "email": "carol@example.org", "role": "owner" }),
        json!({ "email": "carol@example.org\r\nBcc: eve@example.org", "role": "viewer" }),
        json!({ "email": "carol@example.org,eve@example.org", "role": "viewer" }),
        json!({ "email": format!("{}@example.org", "a".repeat(300)), "role": "viewer" }),
        json!({ "email": "carol@example.org", "role": "viewer", "token": "mine" }),
    ] {
        ada.post(INVITES, body.clone()).await.expect_error(400, "bad_request");
    }
    for n in 0..3 {
        invited(&ada, &format!("user-{n}@example.org"), "viewer").await;
    }
    let refused = invite(&ada, "one-more@example.org", "viewer").await;
    assert_eq!(refused.expect_error(409, "too_many_invites")["details"], json!({ "limit": 3 }));
    // Renewed and expired invitations do not count towards the limit.
    invite(&ada, "user-0@example.org", "viewer").await.expect(200);
    app.clock.advance_days(8);
    let ada = app.sign_in("ada").await;
    invited(&ada, "one-more@example.org", "viewer").await;
    invite(&ada, "user-0@example.org", "viewer").await.expect(200);
    invite(&ada, "user-1@example.org", "viewer").await.expect(200);
    invite(&ada, "user-2@example.org", "viewer").await.expect_error(409, "too_many_invites");

    ada.post("/v1/orgs/nowhere/invites", json!({ "email": "a@example.org", "role": "viewer" }))
        .await
        .expect_error(404, "not_found");
    app.add_member(&ada, "acme", "viewer", "viewer").await.get(INVITES).await.expect_error(403, "forbidden");
    app.add_member(&ada, "acme", "member", "member").await.get(INVITES).await.expect_error(403, "forbidden");
    app.sign_in("outsider").await.get(INVITES).await.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_invite_token_is_rejected() {
    let app = App::start().await;
    let bob = app.sign_in("bob").await;
    let unknown = format!("svc_inv_{}", "A".repeat(43));
    for token in ["x", "svc_inv_x", &unknown, bob.token.as_deref().unwrap(), "inv_01h455vb4pex5vsknk084sn02q"] {
        preview(&app, token).await.expect_error(404, "not_found");
        accept(&bob, token).await.expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_accepts_succeed_once() {
    let app = App::with(|config| config.database.connections = 32).await;
    let ada = acme(&app).await;
    let (_, token) = invited(&ada, "bob@example.org", "member").await;
    let mut callers = Vec::new();
    for n in 0..20 {
        callers.push(app.sign_in(&format!("user-{n}")).await);
    }
    let responses = futures_util::future::join_all(callers.iter().map(|caller| accept(caller, &token))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    for refused in responses.iter().filter(|response| response.status != 200) {
        refused.expect_error(409, "invite_used");
    }
    let members = ada.get("/v1/orgs/acme/members").await.expect(200)["items"].as_array().unwrap().len();
    assert_eq!(members, 2);
    assert_eq!(app.db_audit("acme").await, ["org.create", "member.invite", "member.accept"]);
}
