//! Organizations, members and the audit log.

use serde_json::{Value, json};
use testkit::four_at_a_time;

use crate::support::{App, Caller};

async fn acme(app: &App) -> Caller {
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme", "name": "Acme Inc." })).await.expect(201);
    ada
}

#[tokio::test(flavor = "multi_thread")]
async fn organizations_are_created_and_listed() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let org = ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201).clone();
    assert_eq!((&org["name"], &org["role"], &org["personal"]), (&json!("acme"), &json!("admin"), &json!(false)));
    assert!(org["id"].as_str().unwrap().starts_with("org_"));
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect_error(409, "slug_taken");
    app.sign_in("bob").await.post("/v1/orgs", json!({ "slug": "acme" })).await.expect_error(409, "slug_taken");
    let list = ada.get("/v1/orgs").await.expect(200).clone();
    let slugs: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|org| &org["slug"]).collect();
    assert_eq!(slugs, ["ada", "acme"]);
    assert_eq!(list["nextCursor"], json!(null));
    assert_eq!(app.db_audit("acme").await, ["org.create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn organizations_that_a_user_created_are_limited() {
    let app = App::with(|config| config.abuse_limits.orgs_per_user = 1).await;
    let ada = acme(&app).await;
    let refused = ada.post("/v1/orgs", json!({ "slug": "other" })).await;
    assert_eq!(refused.expect_error(409, "org_limit")["details"], json!({ "limit": 1, "count": 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_have_a_visible_character_and_keep_the_text_direction() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let rename = async |name: &str| ada.patch("/v1/orgs/acme", json!({ "name": name })).await;
    let rule = "must be 1 to 100 characters, one of them visible, without control or text direction characters";
    let blank =
        ["", " ", "\u{a0}\u{3000}", "\u{200b}", "\u{2028}", "\u{feff}\u{ad}\u{2060}\u{206f}", "\u{3164}", "\u{2800}"];
    let ignorable = ["\u{34f}\u{61c}\u{17b4}\u{17b5}", "\u{115f}\u{1160}\u{ffa0}", "\u{180b}\u{fe00}\u{fe0f}\u{fff0}"];
    let refused = ["a\nb", "a\u{85}b", "a\u{202e}b", "\u{2066}a\u{2069}", "\u{202a}"];
    for name in blank.into_iter().chain(ignorable).chain(refused) {
        let fields = rename(name).await.expect_error(400, "bad_request")["details"]["fields"].clone();
        assert_eq!(fields, json!([{ "path": "name", "message": rule }]), "{name:?}");
    }
    rename(&"\u{e9}".repeat(101)).await.expect_error(400, "bad_request");
    let longest = "\u{e9}".repeat(100);
    let arabic = "\u{200f}\u{634}\u{631}\u{643}\u{629}";
    for name in [" Acme ", arabic, "\u{1f469}\u{200d}\u{1f4bb}", "\u{2764}\u{fe0f}", "\u{2026}", &longest] {
        assert_eq!(rename(name).await.expect(200)["name"], name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paginated_by_cursor() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for n in 0..6 {
        ada.post("/v1/orgs", json!({ "slug": format!("org-{n}") })).await.expect(201);
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/orgs?limit=3".to_owned());
    let mut pages = 0;
    loop {
        let page = ada.get(&path).await.expect(200).clone();
        pages += 1;
        seen.extend(page["items"].as_array().unwrap().iter().map(|org| org["slug"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else {
            break;
        };
        path = format!("/v1/orgs?limit=3&cursor={cursor}");
    }
    assert_eq!((pages, seen.len()), (3, 7));
    for large in ["5000", "99999999999999999999999999"] {
        let page = ada.get(&format!("/v1/orgs?limit={large}")).await;
        assert_eq!(page.expect(200)["items"].as_array().unwrap().len(), 7);
    }
    for query in
        ["limit=0", "limit=-1", "limit=%2B5", "limit=", "limit=x", "cursor=x", "cursor=bm9wZQ", "limit=1&limit=2"]
    {
        let response = ada.get(&format!("/v1/orgs?{query}")).await;
        let name = query.split('=').next().unwrap();
        assert_eq!(response.expect_error(400, "bad_request")["details"]["fields"][0]["path"], json!(name), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_added_changed_and_removed() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let members = "/v1/orgs/acme/members";
    let add = |subject: &str| json!({ "provider": "dev", "subject": subject, "role": "viewer" });
    let error = ada.post(members, add("bob")).await.expect_error(404, "user_not_found").clone();
    assert!(error["message"].as_str().unwrap().starts_with("no user bob of the provider dev has signed in"), "{error}");
    let bob = app.sign_in("bob").await;
    let member = ada.post(members, add("bob")).await.expect(201).clone();
    assert_eq!((&member["userId"], &member["role"]), (&json!(bob.user_id), &json!("viewer")));
    ada.post(members, add("bob")).await.expect_error(409, "already_member");
    let at = format!("{members}/{}", bob.user_id);
    let changed = ada.put(&at, json!({ "role": "member" })).await.expect(200).clone();
    assert_eq!(changed["role"], "member");
    ada.put(&at, json!({ "role": "member" })).await.expect(200);
    let list = bob.get(members).await.expect(200).clone();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    bob.delete(&format!("{members}/{}", ada.user_id)).await.expect_error(403, "forbidden");
    ada.delete(&at).await.expect(204);
    ada.delete(&at).await.expect_error(404, "not_found");
    ada.put(&at, json!({ "role": "admin" })).await.expect_error(404, "not_found");
    // The removal takes effect with the next request.
    bob.get(members).await.expect_error(403, "forbidden");
    // Setting the same role again writes no audit event.
    assert_eq!(app.db_audit("acme").await, ["org.create", "member.add", "member.role", "member.remove"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_admin_cannot_leave_or_be_demoted() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let me = format!("/v1/orgs/acme/members/{}", ada.user_id);
    ada.put(&me, json!({ "role": "viewer" })).await.expect_error(409, "last_admin");
    ada.delete(&me).await.expect_error(409, "last_admin");
    app.add_member(&ada, "acme", "bob", "admin").await;
    ada.delete(&me).await.expect(204);
    assert_eq!(app.db_audit("acme").await, ["org.create", "member.add", "member.leave"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_admins_who_demote_each_other_leave_one_admin() {
    let app = App::start().await;
    for round in 0..20 {
        let (left, right, org) = (format!("left-{round}"), format!("right-{round}"), format!("duel-{round}"));
        let ada = app.sign_in(&left).await;
        ada.post("/v1/orgs", json!({ "slug": org })).await.expect(201);
        let bob = app.add_member(&ada, &org, &right, "admin").await;
        let member = |of: &Caller| format!("/v1/orgs/{org}/members/{}", of.user_id);
        let (a, b) = (member(&ada), member(&bob));
        let (first, second) =
            tokio::join!(ada.put(&b, json!({ "role": "viewer" })), bob.put(&a, json!({ "role": "viewer" })));
        let admins = format!(
            "SELECT count(*) FROM orgs.members m JOIN orgs.orgs o ON o.id = m.org_id WHERE o.slug = '{org}' AND role = 'admin'"
        );
        assert_eq!(app.db_rows(&admins).await, [json!({ "count": 1 })], "{first:?} {second:?}");
        let mut codes = [first.status, second.status];
        codes.sort_unstable();
        // The second request fails with a conflict, or its caller was already demoted.
        assert!(codes == [200, 409] || codes == [200, 403], "{codes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_of_a_slug_create_one_organization() {
    let app = App::with(|config| config.database.connections = 48).await;
    let ada = app.sign_in("ada").await;
    let responses = four_at_a_time((0..20).map(|_| ada.post("/v1/orgs", json!({ "slug": "acme" })))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 201).count(), 1);
    assert_eq!(responses.iter().filter(|response| response.status == 409).count(), 19);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_is_append_only() {
    let app = App::start().await;
    acme(&app).await;
    for statement in ["UPDATE store.audit SET event = 'x'", "DELETE FROM store.audit", "TRUNCATE store.audit"] {
        let error = app.db_execute(statement).await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_rename_an_organization() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let rename = async |name: &str| ada.patch("/v1/orgs/acme", json!({ "name": name })).await;
    assert_eq!(rename("Acme & Sons").await.expect(200)["name"], "Acme & Sons");
    assert_eq!(rename("Acme & Sons").await.expect(200)["slug"], "acme");
    rename("").await.expect_error(400, "bad_request");
    assert_eq!(app.db_audit("acme").await, ["org.create", "org.rename"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_is_paginated_and_filtered() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let bob = app.add_member(&ada, "acme", "bob", "admin").await;
    for name in ["one", "two", "three"] {
        app.clock.advance_days(1);
        bob.patch("/v1/orgs/acme", json!({ "name": name })).await.expect(200);
    }
    let read = async |query: &str| {
        let page = ada.get(&format!("/v1/orgs/acme/audit{query}")).await.expect(200).clone();
        let events = page["items"].as_array().unwrap().clone();
        (events, page["nextCursor"].as_str().map(str::to_owned))
    };
    let (all, none) = read("").await;
    let names: Vec<&str> = all.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["org.rename", "org.rename", "org.rename", "member.add", "org.create"]);
    assert_eq!(none, None);
    let newest = &all[0];
    assert_eq!((&newest["actor"], &newest["data"]), (&json!(bob.user_id), &json!({ "name": "three" })));
    assert!(newest["target"].as_str().unwrap().starts_with("org_") && newest["requestId"].is_string());

    let (mut seen, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let (events, cursor) = read(&query).await;
        seen.extend(events);
        let Some(cursor) = cursor else { break };
        query = format!("?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, all);

    let newest_at = newest["createdAt"].as_str().unwrap();
    assert_eq!(read("?event=member.add").await.0, all[3..4]);
    assert_eq!(read(&format!("?actor={}", ada.user_id)).await.0, all[3..]);
    assert_eq!(read(&format!("?event=org.rename&actor={}", ada.user_id)).await.0, [] as [Value; 0]);
    assert_eq!(read(&format!("?since={newest_at}")).await.0, all[..1]);
    assert_eq!(read(&format!("?until={newest_at}")).await.0, all[1..]);
    for wrong in
        ["actor=ada", "since=yesterday", "until=1", "until=%2B12345-01-01T00:00:00Z", "cursor=x", "event=a&event=b"]
    {
        ada.get(&format!("/v1/orgs/acme/audit?{wrong}")).await.expect_error(400, "bad_request");
    }
    // The audit log contains no events of other organizations and no sign-ins.
    assert!(all.iter().all(|event| event["event"] != "session.start"));
}
