//! Tokens of a database.

use serde_json::{Value, json};

use super::kit::{Kit, status};
use super::{CONNECT, DATABASE, TOKENS};
use crate::support::time;

fn path(user: &Value) -> String {
    format!("{TOKENS}/{}", user.as_str().unwrap())
}

/// Returns the logins of the tokens in a part.
fn users(part: &Value) -> Vec<&Value> {
    part["tokens"].as_array().unwrap().iter().map(|token| &token["user"]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn token_shows_its_password_once() {
    let kit = Kit::enabled().await;
    let body = json!({ "name": "reports", "expiresInSeconds": 3600 });
    let created = kit.ada.post(TOKENS, body).await.expect(201).clone();
    let seconds = time(&created["expiresAt"]).unix_millis() - time(&created["createdAt"]).unix_millis();
    assert_eq!((created["name"].as_str(), seconds), (Some("reports"), 3_600_000));
    assert!(created["user"].as_str().unwrap().starts_with("tok_"));
    assert!(created["password"].as_str().unwrap().len() >= 32, "a short password");
    let forever = kit.ada.post(TOKENS, json!({})).await.expect(201).clone();
    assert_eq!((&forever["name"], &forever["expiresAt"]), (&Value::Null, &Value::Null));
    assert_ne!(created["password"], forever["password"]);
    // The list begins with the newest token, and contains no passwords.
    let mut items = vec![forever.clone(), created.clone()];
    items.iter_mut().for_each(|item| drop(item.as_object_mut().unwrap().remove("password")));
    let all = json!({ "items": items, "nextCursor": null });
    assert_eq!(kit.ada.get(TOKENS).await.expect(200), &all);
    let page = kit.ada.get(&format!("{TOKENS}?limit=1")).await.expect(200).clone();
    assert_eq!(page["items"], json!(items[..1]));
    let next = page["nextCursor"].as_str().unwrap();
    let page = kit.ada.get(&format!("{TOKENS}?limit=1&cursor={next}")).await.expect(200).clone();
    assert_eq!(page, json!({ "items": items[1..], "nextCursor": null }));
    // The node receives the login with its expiry.
    let part = kit.part().await;
    let logins = part["tokens"].as_array().unwrap();
    let login = logins.iter().find(|login| login["user"] == created["user"]).unwrap();
    assert_eq!(login["expiresAt"], created["expiresAt"]);
    assert!(login["verifier"].as_str().unwrap().starts_with("SCRAM-SHA-256$4096:"));
    assert_eq!(kit.audit().await, ["database.grant", "database.token.create", "database.token.create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_token_is_rejected_with_its_fields() {
    let kit = Kit::enabled().await;
    for (body, path) in [
        (json!({ "name": "" }), "name"),
        (json!({ "name": "\u{200b}" }), "name"),
        (json!({ "name": "x".repeat(65) }), "name"),
        (json!({ "name": "a\nb" }), "name"),
        (json!({ "name": 7 }), "name"),
        (json!({ "expiresInSeconds": 59 }), "expiresInSeconds"),
        (json!({ "expiresInSeconds": 2_592_001 }), "expiresInSeconds"),
        (json!({ "expiresInSeconds": "60" }), "expiresInSeconds"),
        (json!({ "expiresInSeconds": 60.5 }), "expiresInSeconds"),
        (json!({ "password": "mine" }), "password"),
        (json!([]), ""),
    ] {
        let refused = kit.ada.post(TOKENS, body.clone()).await;
        let fields = &refused.expect_error(400, "bad_request")["details"]["fields"];
        assert_eq!(fields[0]["path"], path, "{body}");
    }
    for body in [
        json!({ "name": "x".repeat(64), "expiresInSeconds": 60 }),
        json!({ "name": "größe 1", "expiresInSeconds": 2_592_000 }),
        json!({ "name": null, "expiresInSeconds": null }),
    ] {
        kit.ada.post(TOKENS, body).await.expect(201);
    }
    kit.ada.get(&format!("{TOKENS}?limit=0")).await.expect_error(400, "bad_request");
    kit.ada.get(&format!("{TOKENS}?cursor=x")).await.expect_error(400, "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_tokens_is_limited_by_the_plan() {
    let kit = Kit::with(|config| config.limits.free.database_tokens = 2).await;
    kit.ada.post(DATABASE, json!({})).await.expect(200);
    for _ in 0..2 {
        kit.ada.post(TOKENS, json!({ "expiresInSeconds": 60 })).await.expect(201);
    }
    let refused = kit.ada.post(TOKENS, json!({})).await;
    let details = &refused.expect_error(409, "token_limit")["details"];
    assert_eq!(*details, json!({ "limit": 2, "count": 2, "plan": "free" }));
    // An expired token does not count, and is not listed.
    kit.app.clock.advance(61);
    assert_eq!(kit.ada.get(TOKENS).await.expect(200)["items"], json!([]));
    kit.ada.post(TOKENS, json!({})).await.expect(201);
    assert_eq!(kit.part().await["tokens"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_returns_when_the_node_refuses_the_login() {
    let kit = Kit::enabled().await;
    let [revoked, kept] = [
        kit.ada.post(TOKENS, json!({})).await.expect(201)["user"].clone(),
        kit.ada.post(TOKENS, json!({})).await.expect(201)["user"].clone(),
    ];
    let before = kit.apply().await;
    let done = std::sync::atomic::AtomicBool::new(false);
    let revoke = async {
        kit.ada.delete(&path(&revoked)).await.expect(204);
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let node = async {
        let part = kit.changed(&before).await;
        assert_eq!(users(&part), [&kept]);
        // A report of the previous revision does not confirm the revocation.
        kit.report("database", status(&before, json!({}))).await.expect(200);
        kit.ada.get(DATABASE).await.expect(200);
        assert!(!done.load(std::sync::atomic::Ordering::SeqCst), "the revocation was not confirmed yet");
        kit.report("database", status(&part, json!({}))).await.expect(200);
    };
    tokio::join!(revoke, node);
    let listed = kit.ada.get(TOKENS).await.expect(200)["items"].clone();
    assert_eq!(listed.as_array().unwrap().iter().map(|item| &item["user"]).collect::<Vec<_>>(), [&kept]);
    kit.ada.delete(&path(&revoked)).await.expect_error(404, "not_found");
    assert_eq!(kit.audit().await.last().map(String::as_str), Some("database.token.revoke"));
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_of_an_unreachable_node_is_unavailable_and_can_be_repeated() {
    let kit = Kit::enabled().await;
    let user = kit.ada.post(TOKENS, json!({})).await.expect(201)["user"].clone();
    let before = kit.apply().await;
    let refused = kit.ada.delete(&path(&user)).await;
    refused.expect_error(503, "unavailable");
    assert!(!refused.header("retry-after").is_empty());
    // The desired state no longer contains the login, so the node refuses it as soon as it is back.
    let part = kit.part().await;
    assert!(part["revision"].as_i64() > before["revision"].as_i64() && users(&part).is_empty(), "{part}");
    assert_eq!(kit.ada.get(TOKENS).await.expect(200)["items"], json!([]));
    // The repeated request waits, too. If the node confirms the revocation before the request, the token no longer
    // exists.
    let path = path(&user);
    let (repeated, _) = tokio::join!(kit.ada.delete(&path), kit.apply());
    assert!([204, 404].contains(&repeated.status), "{}: {}", repeated.status, repeated.body);
    kit.ada.delete(&path).await.expect_error(404, "not_found");
    let revocations = kit.audit().await.into_iter().filter(|event| event == "database.token.revoke").count();
    assert_eq!(revocations, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_another_project_or_of_no_form_is_not_found() {
    let kit = Kit::enabled().await;
    let user = kit.ada.post(TOKENS, json!({})).await.expect(201)["user"].clone();
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "blog" })).await.expect(201);
    kit.ada.post("/v1/orgs/ada/projects/blog/database", json!({})).await.expect(200);
    let elsewhere = format!("/v1/orgs/ada/projects/blog/database/tokens/{}", user.as_str().unwrap());
    kit.ada.delete(&elsewhere).await.expect_error(404, "not_found");
    let app_login = kit.ada.get(CONNECT).await.expect(200)["user"].clone();
    for user in [
        json!("tok_01h455vb4pex5vsknk084sn02q"),
        json!("tok_"),
        json!("nonsense"),
        json!(user.as_str().unwrap().to_uppercase()),
        app_login,
    ] {
        kit.ada.delete(&path(&user)).await.expect_error(404, "not_found");
    }
    assert_eq!(users(&kit.part().await), [&user]);
}
