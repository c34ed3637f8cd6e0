//! Scopes and restrictions of tokens.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ALL, acme, create_token, names, refusal, restricted, with_scopes};
use crate::support::{App, site};

#[tokio::test(flavor = "multi_thread")]
async fn token_requires_the_scope_of_the_route() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let org = json!({ "slug": "new" });
    let cases: [(&str, &str, Method, &str, Value); 9] = [
        ("account:read", "org:read", Method::GET, "/v1/me", json!(null)),
        ("account:read", "org:write", Method::GET, "/v1/me/ssh-keys", json!(null)),
        ("org:read", "account:read", Method::GET, "/v1/orgs", json!(null)),
        ("org:read", "project:read", Method::GET, "/v1/orgs/acme/members", json!(null)),
        ("org:write", "org:read", Method::POST, "/v1/orgs", org),
        ("project:read", "org:read", Method::GET, "/v1/orgs/acme/projects/site", json!(null)),
        ("project:write", "project:read", Method::POST, "/v1/orgs/acme/projects", json!({ "name": "third" })),
        ("deploy", "project:write", Method::POST, "/v1/orgs/acme/projects/site/rollback", json!({ "version": 9 })),
        ("deploy", "project:read", Method::POST, "/v1/orgs/acme/projects/site/deployments", json!(null)),
    ];
    for (needed, other, method, path, body) in cases {
        let call = async |scopes: &[&str]| {
            let caller = with_scopes(&app, &ada, scopes).await;
            caller
                .send(method.clone(), path, |request| if body.is_null() { request } else { request.json(&body) })
                .await
        };
        for lacking in [vec![other], vec![]] {
            let response = call(&lacking).await;
            assert_eq!(
                response.expect_error(403, "insufficient_scope")["details"],
                json!({ "required": needed }),
                "{path}"
            );
            let metadata = "http://127.0.0.1/.well-known/oauth-protected-resource";
            let challenge =
                format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\", resource_metadata=\"{metadata}\"");
            assert_eq!(response.header("www-authenticate"), challenge);
        }
        let status = call(&[other, needed]).await.status;
        assert!(![401, 403].contains(&status), "{method} {path} with {needed}: {status}");
    }
    // Without the scope, a caller cannot find out whether an organization exists.
    let unscoped = with_scopes(&app, &ada, &["account:read"]).await;
    let at = |slug: &str| format!("/v1/orgs/{slug}/projects");
    let (existing, missing) = (unscoped.get(&at("acme")).await, unscoped.get(&at("nowhere")).await);
    assert_eq!(refusal(&existing, 403, "insufficient_scope"), refusal(&missing, 403, "insufficient_scope"));
}

#[tokio::test(flavor = "multi_thread")]
async fn write_scope_includes_read_but_not_vice_versa() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let writer = with_scopes(&app, &ada, &["org:write", "project:write"]).await;
    for path in ["/v1/orgs", "/v1/orgs/acme/members", "/v1/orgs/acme/projects", "/v1/orgs/acme/projects/site"] {
        writer.get(path).await.expect(200);
    }
    writer.get("/v1/me").await.expect_error(403, "insufficient_scope");
    writer.upload("/v1/orgs/acme/projects/site/deployments", site("hi")).await.expect_error(403, "insufficient_scope");
    let reader = with_scopes(&app, &ada, &["org:read", "project:read"]).await;
    reader.post("/v1/orgs", json!({ "slug": "new" })).await.expect_error(403, "insufficient_scope");
    reader.post("/v1/orgs/acme/projects", json!({ "name": "third" })).await.expect_error(403, "insufficient_scope");
    let deployer = with_scopes(&app, &ada, &["deploy"]).await;
    deployer.upload("/v1/orgs/acme/projects/site/deployments", site("hi")).await.expect(201);
    deployer.get("/v1/orgs/acme/projects/site").await.expect_error(403, "insufficient_scope");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_can_only_be_managed_with_a_session() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let (token, created) = create_token(&app, &ada, json!({ "name": "ci", "scopes": ALL })).await;
    let id = created["id"].as_str().unwrap();
    let body = json!({ "name": "another", "scopes": ALL });
    let key = json!({ "title": "laptop", "key": "ssh-ed25519 AAAA" });
    for (method, path, body) in [
        (Method::POST, "/v1/me/tokens".to_owned(), body),
        (Method::DELETE, format!("/v1/me/tokens/{id}"), json!(null)),
        (Method::POST, "/v1/me/ssh-keys".to_owned(), key),
        (Method::DELETE, "/v1/me/ssh-keys/key_01h455vb4pex5vsknk084sn02q".to_owned(), json!(null)),
        (Method::GET, "/v1/me/sessions".to_owned(), json!(null)),
        (Method::DELETE, "/v1/me/sessions/ses_01h455vb4pex5vsknk084sn02q".to_owned(), json!(null)),
        (Method::POST, "/v1/auth/logout".to_owned(), json!(null)),
    ] {
        token.send(method, &path, |request| request.json(&body)).await.expect_error(401, "session_required");
    }
    token.get("/v1/me/tokens").await.expect(200);
    token.get("/v1/me/ssh-keys").await.expect(200);
    assert_eq!(names(&ada.get("/v1/me/tokens").await, "name"), ["ci"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_restricted_to_an_organization_accesses_no_other() {
    let app = App::start().await;
    let ada = acme(&app).await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "own" })).await.expect(201);
    let token = restricted(&app, &ada, json!({ "org": "acme" })).await;
    assert_eq!(names(&token.get("/v1/orgs").await, "slug"), ["acme"]);
    let me = token.get("/v1/me").await.expect(200).clone();
    assert_eq!((me["orgs"].as_array().unwrap().len(), &me["orgs"][0]["slug"]), (1, &json!("acme")));

    for path in ["members", "invites", "audit", "notifications", "projects", "projects/site"] {
        token.get(&format!("/v1/orgs/acme/{path}")).await.expect(200);
    }
    token.post("/v1/orgs/acme/projects", json!({ "name": "third" })).await.expect(201);
    token.upload("/v1/orgs/acme/projects/site/deployments", site("hi")).await.expect(201);

    // The token has no access to the user's other organizations.
    let mut refusals = Vec::new();
    for path in ["members", "invites", "audit", "notifications", "projects", "projects/own", "projects/none"] {
        refusals.push(refusal(&token.get(&format!("/v1/orgs/ada/{path}")).await, 403, "forbidden"));
    }
    refusals.push(refusal(&token.post("/v1/orgs/ada/projects", json!({ "name": "x" })).await, 403, "forbidden"));
    assert!(refusals.iter().all(|refusal| refusal == &refusals[0]), "{refusals:?}");
    token.get("/v1/orgs/nowhere/projects").await.expect_error(404, "not_found");

    token.post("/v1/orgs", json!({ "slug": "new" })).await.expect_error(403, "forbidden");
    token.get("/v1/me/tokens").await.expect_error(403, "forbidden");
    token.get("/v1/me/ssh-keys").await.expect_error(403, "forbidden");
    token.post("/v1/invites/x/accept", json!({})).await.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_restricted_to_a_project_accesses_nothing_else() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let (token, created) = {
        let restrict = json!({ "org": "acme", "projects": ["site", "site"] });
        create_token(&app, &ada, json!({ "name": "ci", "scopes": ALL, "restrict": restrict })).await
    };
    assert_eq!(created["restrict"], json!({ "org": "acme", "projects": ["site"], "zones": null }));

    let at = |rest: &str| format!("/v1/orgs/acme/projects{rest}");
    token.upload(&at("/site/deployments"), site("one")).await.expect(201);
    token.upload(&at("/site/deployments"), site("two")).await.expect(201);
    token.post(&at("/site/rollback"), json!({ "version": 1 })).await.expect(200);
    assert_eq!(token.get(&at("/site")).await.expect(200)["live"]["version"], 1);
    token.get(&at("/site/deployments")).await.expect(200);
    assert_eq!(names(&token.get(&at("")).await, "name"), ["site"]);

    // The response does not reveal whether another project exists.
    for rest in ["", "/deployments"] {
        let (existing, missing) =
            (token.get(&at(&format!("/blog{rest}"))).await, token.get(&at(&format!("/none{rest}"))).await);
        assert_eq!(refusal(&existing, 403, "forbidden"), refusal(&missing, 403, "forbidden"));
    }
    let (existing, missing) = (
        token.upload(&at("/blog/deployments"), site("x")).await,
        token.upload(&at("/none/deployments"), site("x")).await,
    );
    assert_eq!(refusal(&existing, 403, "forbidden"), refusal(&missing, 403, "forbidden"));

    token.post(&at(""), json!({ "name": "third" })).await.expect_error(403, "forbidden");
    for path in ["members", "invites", "audit", "notifications"] {
        token.get(&format!("/v1/orgs/acme/{path}")).await.expect_error(403, "forbidden");
    }
    token.patch("/v1/orgs/acme", json!({ "name": "x" })).await.expect_error(403, "forbidden");
    token.delete(&format!("/v1/orgs/acme/members/{}", ada.user_id)).await.expect_error(403, "forbidden");
    token.get("/v1/orgs/ada/projects").await.expect_error(403, "forbidden");
    token.post("/v1/orgs", json!({ "slug": "new" })).await.expect_error(403, "forbidden");
    assert_eq!(token.get("/v1/me").await.expect(200)["orgs"], json!([]));
    assert_eq!(names(&token.get("/v1/orgs").await, "slug"), Vec::<String>::new());
    assert_eq!(names(&ada.get(&at("")).await, "name").len(), 2);
}
