//! The sign-in of a project's users.

use reqwest::Method;
use serde_json::{Value, json};
use server::config::CoreLink;

use super::{AUTH, CANARY, ada_with_project};
use crate::databases::kit::Kit;
use crate::support::{App, Caller};

const PROJECT: &str = "/v1/orgs/ada/projects/site";
const DATABASE: &str = "/v1/orgs/ada/projects/site/database";

fn provider(name: &str) -> String {
    format!("{AUTH}/providers/{name}")
}

fn client(id: &str, secret: &str) -> Value {
    json!({ "clientId": id, "clientSecret": secret })
}

fn defaults() -> Value {
    json!({ "sessionDays": 30, "brandName": null, "brandColor": null, "brandLogoUrl": null })
}

fn status(granted: bool, settings: Value, providers: Value) -> Value {
    json!({ "granted": granted, "settings": settings, "providers": providers, "hosts": ["site-ada.localhost"] })
}

impl Kit {
    /// Returns the audit events about app sign-in with their data, oldest first.
    async fn auth_audit(&self) -> Vec<(String, Value)> {
        let rows = "SELECT event, data FROM store.audit WHERE event LIKE 'auth.%' ORDER BY id";
        let event = |row: Value| (row["event"].as_str().unwrap().to_owned(), row["data"].clone());
        self.app.db_rows(rows).await.into_iter().map(event).collect()
    }

    async fn auth_part(&self) -> Value {
        self.node.part(&self.project, "auth").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_is_granted_and_revoked_idempotently() {
    let kit = Kit::start().await;
    let ada = &kit.ada;
    assert_eq!(ada.get(AUTH).await.expect(200), &status(false, defaults(), json!([])));
    ada.delete(AUTH).await.expect(204);
    ada.post(AUTH, json!({})).await.expect_error(409, "database_required");
    ada.post(DATABASE, json!({})).await.expect(200);
    for number in [1, 2] {
        for _ in 0..2 {
            // The body is ignored.
            let granted = ada.send(Method::POST, AUTH, |request| request.body("anything")).await;
            assert_eq!(granted.expect(200), &status(true, defaults(), json!([])));
        }
        assert_eq!(ada.get(AUTH).await.expect(200), &status(true, defaults(), json!([])));
        assert_eq!(ada.get(PROJECT).await.expect(200)["resources"]["auth"], true);
        let part = kit.auth_part().await;
        let brand = json!({ "name": null, "color": null, "logoUrl": null });
        assert_eq!(
            part,
            json!({ "grant": number, "sessionDays": 30, "brand": brand, "providerRevision": 0, "providers": [] })
        );
        for _ in 0..2 {
            ada.delete(AUTH).await.expect(204);
        }
        assert_eq!(ada.get(AUTH).await.expect(200), &status(false, defaults(), json!([])));
        assert_eq!(kit.auth_part().await, Value::Null);
    }
    let events = ["auth.grant", "auth.revoke", "auth.grant", "auth.revoke"];
    assert_eq!(kit.auth_audit().await, events.map(|event| (event.to_owned(), json!({}))));
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_with_an_idempotency_key_repeats_the_response() {
    let kit = Kit::enabled().await;
    let first = kit.ada.post_with_key("key-1", AUTH, json!({})).await;
    first.expect(200);
    kit.ada.patch(AUTH, json!({ "sessionDays": 7 })).await.expect(200);
    let retry = kit.ada.post_with_key("key-1", AUTH, json!({})).await;
    assert_eq!((retry.header("idempotent-replayed"), retry.expect(200)), ("true", first.expect(200)));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_change_partially() {
    let kit = Kit::enabled().await;
    let ada = &kit.ada;
    ada.patch(AUTH, json!({ "sessionDays": 7 })).await.expect_error(404, "not_granted");
    ada.post(AUTH, json!({})).await.expect(200);
    let settings = json!({
        "sessionDays": 365, "brandName": "Ada & Söhne", "brandColor": "#0A7Cff",
        "brandLogoUrl": "https://ada.example:8443/logo.svg?v=2",
    });
    let changed = ada.patch(AUTH, settings.clone()).await.expect(200).clone();
    assert_eq!(changed, status(true, settings.clone(), json!([])));
    let brand = json!({ "name": "Ada & Söhne", "color": "#0a7cff", "logoUrl": settings["brandLogoUrl"] });
    let part = kit.auth_part().await;
    assert_eq!((&part["sessionDays"], &part["brand"]), (&json!(365), &brand));
    for nothing in [json!({}), json!({ "sessionDays": 365 }), settings.clone()] {
        assert_eq!(ada.patch(AUTH, nothing).await.expect(200), &changed);
    }
    let reset = json!({ "brandColor": null, "brandLogoUrl": null });
    let mut expected = settings.clone();
    (expected["brandColor"], expected["brandLogoUrl"]) = (Value::Null, Value::Null);
    assert_eq!(ada.patch(AUTH, reset.clone()).await.expect(200)["settings"], expected);
    // Settings stay while sign-in is disabled.
    ada.delete(AUTH).await.expect(204);
    ada.patch(AUTH, json!({ "sessionDays": 7 })).await.expect_error(404, "not_granted");
    ada.patch(AUTH, json!({})).await.expect_error(404, "not_granted");
    assert_eq!(ada.get(AUTH).await.expect(200), &status(false, expected.clone(), json!([])));
    assert_eq!(ada.post(AUTH, json!({})).await.expect(200)["settings"], expected);
    let audited = kit.auth_audit().await;
    let changes: Vec<_> = audited.iter().filter(|(event, _)| event == "auth.settings").map(|(_, data)| data).collect();
    assert_eq!(changes, [&settings, &reset]);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_settings_are_rejected() {
    let kit = Kit::enabled().await;
    kit.ada.post(AUTH, json!({})).await.expect(200);
    for (field, values) in [
        ("sessionDays", json!([0, 366, -1, 1.5, "30", null, true, 99_999_999_999_i64])),
        ("brandName", json!(["", " ", "a\u{0}b", "a\nb", "a".repeat(101), 7, []])),
        ("brandColor", json!(["", "red", "#fff", "#12345g", "123456", "#1234567", 7])),
        (
            "brandLogoUrl",
            json!(["", "http://a.example/x", "//a.example", "https://u@a.example", "javascript:x", "data:,", 7]),
        ),
        ("unknown", json!([1])),
    ] {
        for value in values.as_array().unwrap() {
            let refused = kit.ada.patch(AUTH, json!({ field: value })).await;
            let fields = refused.expect_error(400, "bad_request")["details"]["fields"].clone();
            assert_eq!(fields[0]["path"], field, "{value}: {fields}");
        }
    }
    for body in [json!([]), json!(null), json!("x")] {
        kit.ada.patch(AUTH, body).await.expect_error(400, "bad_request");
    }
    assert_eq!(kit.ada.get(AUTH).await.expect(200)["settings"], defaults());
    assert_eq!(kit.auth_audit().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_are_registered_replaced_and_deleted() {
    let kit = Kit::enabled().await;
    let ada = &kit.ada;
    ada.put(&provider("codehost"), client("id", CANARY)).await.expect_error(404, "not_granted");
    ada.delete(&provider("codehost")).await.expect(204);
    ada.post(AUTH, json!({})).await.expect(200);
    for name in ["messenger", "codehost", "webaccount"] {
        ada.put(&provider(name), client(name, CANARY)).await.expect(200);
    }
    let shown = |ids: [&str; 3]| {
        let names = ["codehost", "webaccount", "messenger"];
        Value::from_iter(names.iter().zip(ids).map(|(name, id)| json!({ "provider": name, "clientId": id })))
    };
    let providers = shown(["codehost", "webaccount", "messenger"]);
    assert_eq!(ada.get(AUTH).await.expect(200), &status(true, defaults(), providers));
    let of_node = async |name: &str| {
        let part = kit.auth_part().await;
        part["providers"].as_array().unwrap().iter().find(|it| it["provider"] == name).cloned().unwrap_or_default()
    };
    let expected = |registration: i64, id: &str, secret: &str| json!({ "provider": "codehost", "registration": registration, "clientId": id, "clientSecret": secret });
    assert_eq!(of_node("codehost").await, expected(2, "codehost", CANARY));
    let replaced = shown(["new", "webaccount", "messenger"]);
    for _ in 0..2 {
        let set = ada.put(&provider("codehost"), client("new", "rotated")).await;
        assert_eq!(set.expect(200), &status(true, defaults(), replaced.clone()));
    }
    assert_eq!(of_node("codehost").await, expected(2, "new", "rotated"));
    for _ in 0..2 {
        ada.delete(&provider("codehost")).await.expect(204);
    }
    assert_eq!(of_node("codehost").await, Value::Null);
    assert_eq!(kit.auth_part().await["providerRevision"], 4);
    ada.put(&provider("codehost"), client("new", "rotated")).await.expect(200);
    assert_eq!(of_node("codehost").await, expected(5, "new", "rotated"));
    // Providers stay while sign-in is disabled.
    ada.delete(AUTH).await.expect(204);
    assert_eq!(ada.get(AUTH).await.expect(200)["providers"], replaced);
    ada.put(&provider("codehost"), client("id", "secret")).await.expect_error(404, "not_granted");
    ada.delete(&provider("messenger")).await.expect(204);
    assert_eq!(kit.auth_part().await, Value::Null);
    assert_eq!(ada.post(AUTH, json!({})).await.expect(200)["providers"].as_array().unwrap().len(), 2);
    assert_eq!(of_node("codehost").await, expected(5, "new", "rotated"));
    let set = |name: &str, id: &str| ("auth.provider.set".to_owned(), json!({ "provider": name, "clientId": id }));
    let deleted = |name: &str| ("auth.provider.delete".to_owned(), json!({ "provider": name }));
    let plain = |event: &str| (event.to_owned(), json!({}));
    let audited = [
        plain("auth.grant"),
        set("messenger", "messenger"),
        set("codehost", "codehost"),
        set("webaccount", "webaccount"),
        set("codehost", "new"),
        deleted("codehost"),
        set("codehost", "new"),
        plain("auth.revoke"),
        deleted("messenger"),
        plain("auth.grant"),
    ];
    assert_eq!(kit.auth_audit().await, audited);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_providers_and_clients_are_rejected() {
    let kit = Kit::enabled().await;
    let ada = &kit.ada;
    ada.post(AUTH, json!({})).await.expect(200);
    for name in ["github", "Codehost", "codehost%20", "x", "auth%2Fcodehost"] {
        // The name is checked before the body.
        for body in [client("id", "secret"), json!({})] {
            ada.put(&provider(name), body).await.expect_error(400, "invalid_provider");
        }
        ada.delete(&provider(name)).await.expect_error(400, "invalid_provider");
    }
    for empty in [client("", CANARY), client("id", "")] {
        let refused = ada.put(&provider("codehost"), empty).await;
        refused.expect_error(400, "invalid_provider");
        assert!(!refused.body.to_string().contains(CANARY));
    }
    for malformed in [
        json!({}),
        json!({ "clientId": "id" }),
        json!({ "clientSecret": CANARY }),
        json!({ "clientId": "id", "clientSecret": CANARY, "more": 1 }),
        client("a\nb", CANARY),
        client("é", CANARY),
        client(&"a".repeat(513), CANARY),
        client("id", &format!("{CANARY}\n")),
        client("id", &CANARY.repeat(400)),
        json!({ "clientId": "id", "clientSecret": { "value": CANARY } }),
        json!({ "clientId": "id", "clientSecret": null }),
    ] {
        let refused = ada.put(&provider("codehost"), malformed).await;
        refused.expect_error(400, "bad_request");
        assert!(!refused.body.to_string().contains(CANARY), "{}", refused.body);
    }
    assert_eq!(ada.get(AUTH).await.expect(200)["providers"], json!([]));
    assert_eq!(kit.auth_audit().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_secrets_are_stored_only_in_sealed_form() {
    let kit = Kit::enabled().await;
    kit.ada.post(AUTH, json!({})).await.expect(200);
    let set = kit.ada.put(&provider("codehost"), client("id", CANARY)).await;
    assert!(!set.body.to_string().contains(CANARY));
    assert!(!kit.ada.get(AUTH).await.body.to_string().contains(CANARY));
    let tables = "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables \
                  WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    for table in kit.app.db_rows(tables).await {
        let table = table["name"].as_str().unwrap();
        // Postgres prints bytes in hexadecimal.
        let hex = kernel::hex(CANARY.as_bytes());
        let found =
            format!("SELECT 1 AS found FROM {table} t WHERE t::text LIKE '%{CANARY}%' OR t::text LIKE '%{hex}%'");
        assert_eq!(kit.app.db_rows(&found).await, Vec::<Value>::new(), "{table}");
    }
    let stored = kit.app.db_rows("SELECT desired FROM convergence.parts WHERE part = 'auth'").await;
    assert_eq!(stored, [json!({ "desired": {} })]);
    assert_eq!(kit.auth_part().await["providers"][0]["clientSecret"], CANARY);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_client_secret_makes_only_its_part_unavailable() {
    let kit = Kit::enabled().await;
    let ada = &kit.ada;
    ada.post(AUTH, json!({})).await.expect(200);
    ada.put(&provider("codehost"), client("id", "secret")).await.expect(200);
    let corrupt = "UPDATE resources.auth_providers SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)";
    kit.app.db_execute(corrupt).await.unwrap();
    let unavailable = async || {
        let desired = kit.node.send(Method::GET, "desired?since=0", |request| request).await;
        desired.expect(200)["unavailable"].clone()
    };
    assert_eq!(unavailable().await, json!([{ "project": kit.project, "part": "auth" }]));
    assert!(!kit.part().await.is_null());
    // The API still shows the provider, and setting it again makes it readable.
    assert_eq!(ada.get(AUTH).await.expect(200)["providers"][0]["clientId"], "id");
    ada.put(&provider("codehost"), client("id", "secret")).await.expect(200);
    assert_eq!(unavailable().await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_the_active_hostnames_with_the_default_first() {
    let kit = Kit::start().await;
    for host in ["a.example.net", "b.example.net"] {
        kit.ada.post(&format!("{PROJECT}/hostnames"), json!({ "name": host })).await.expect(200);
    }
    let hosts = async || kit.ada.get(AUTH).await.expect(200)["hosts"].clone();
    assert_eq!(hosts().await, json!(["site-ada.localhost"]));
    let activate = "UPDATE projects.hostnames SET state = 'active' WHERE name = 'a.example.net'";
    kit.app.db_execute(activate).await.unwrap();
    assert_eq!(hosts().await, json!(["site-ada.localhost", "a.example.net"]));
}

/// Calls all routes of app sign-in, and returns the status of each response.
async fn call_all(caller: &Caller) -> [u16; 6] {
    [
        caller.get(AUTH).await.status,
        caller.post(AUTH, json!({})).await.status,
        caller.patch(AUTH, json!({})).await.status,
        caller.put(&provider("codehost"), client("id", "secret")).await.status,
        caller.delete(&provider("codehost")).await.status,
        caller.delete(AUTH).await.status,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_required() {
    let kit = Kit::enabled().await;
    let member = kit.app.add_member(&kit.ada, "ada", "max", "member").await;
    let viewer = kit.app.add_member(&kit.ada, "ada", "vera", "viewer").await;
    assert_eq!(call_all(&viewer).await, [200, 403, 403, 403, 403, 403]);
    assert_eq!(call_all(&member).await, [200, 200, 200, 403, 403, 403]);
    assert_eq!(call_all(&kit.ada).await, [200, 200, 200, 200, 204, 204]);
    assert_eq!(call_all(&kit.app.sign_in("eve").await).await, [403; 6]);
    for path in [AUTH.to_owned(), provider("codehost")] {
        let missing = path.replace("/site/", "/other/");
        kit.ada.delete(&missing).await.expect_error(404, "not_found");
    }
    kit.ada.patch(&AUTH.replace("/site/", "/other/"), json!({})).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_needs_the_link_to_the_nodes() {
    let app = App::with(|config| config.core = CoreLink::Off).await;
    let ada = ada_with_project(&app).await;
    assert_eq!(call_all(&ada).await, [503; 6]);
    ada.get(AUTH).await.expect_error(503, "no_core");
    ada.delete(&provider("codehost")).await.expect_error(503, "no_core");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_project_leaves_nothing_to_its_successor() {
    let kit = Kit::enabled().await;
    let ada = &kit.ada;
    ada.post(AUTH, json!({})).await.expect(200);
    ada.patch(AUTH, json!({ "brandName": "Old" })).await.expect(200);
    ada.put(&provider("codehost"), client("id", CANARY)).await.expect(200);
    let delete = ada.send(Method::DELETE, PROJECT, |request| request.json(&json!({ "confirm": "site" })));
    delete.await.expect(204);
    assert_eq!(kit.auth_part().await, Value::Null);
    assert_eq!(kit.app.db_rows("SELECT secret_name FROM resources.auth_providers").await, Vec::<Value>::new());
    ada.get(AUTH).await.expect_error(404, "not_found");
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    assert_eq!(ada.get(AUTH).await.expect(200), &status(false, defaults(), json!([])));
}
