//! The endpoints of repositories, without their contents.

use serde_json::json;

use super::{REPO, REPOS};
use crate::support::{ApiResponse, App};

#[tokio::test(flavor = "multi_thread")]
async fn repository_is_created_changed_and_deleted() {
    let app = App::with(|config| {
        config.gateway.site.git_url = Some("https://git.example".to_owned());
        config.gateway.site.ssh_host = Some("ssh.example:2222".to_owned());
    })
    .await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let created = ada.post(REPOS, json!({ "name": "app" })).await;
    let repo = created.expect(201).clone();
    assert!(repo["id"].as_str().unwrap().starts_with("rep_"));
    let shown = ["name", "visibility", "defaultBranch", "cloneUrls"].map(|field| &repo[field]);
    let urls = json!({
        "https": "https://git.example/ada/site/app.git",
        "ssh": "ssh://git@ssh.example:2222/ada/site/app.git"
    });
    assert_eq!(shown, [&json!("app"), &json!("private"), &json!("main"), &urls]);
    assert_eq!(ada.get(REPO).await.expect(200), &repo);
    ada.post(REPOS, json!({ "name": "app" })).await.expect_error(409, "repo_exists");
    ada.post(REPOS, json!({ "name": "docs", "visibility": "public", "defaultBranch": "trunk" })).await.expect(201);
    let listed = ada.get(REPOS).await;
    let names: Vec<_> = listed.expect(200)["items"].as_array().unwrap().iter().map(|repo| &repo["name"]).collect();
    assert_eq!(names, ["docs", "app"]);

    ada.patch(REPO, json!({ "name": "docs" })).await.expect_error(409, "repo_exists");
    ada.patch(REPO, json!({})).await.expect(204);
    ada.patch(REPO, json!({ "name": "app", "visibility": "private" })).await.expect(204);
    ada.patch(REPO, json!({ "name": "web", "defaultBranch": "feature/x" })).await.expect(204);
    ada.get(REPO).await.expect_error(404, "not_found");
    let web = format!("{REPOS}/web");
    assert_eq!(ada.get(&web).await.expect(200)["defaultBranch"], "feature/x");
    assert_eq!(ada.get(&format!("{web}/ref-updates")).await.expect(200)["items"], json!([]));
    ada.delete(&web).await.expect(204);
    ada.delete(&web).await.expect_error(404, "not_found");
    // The name is free, and the new repository has another id.
    let again = ada.post(REPOS, json!({ "name": "web" })).await;
    assert_ne!(again.expect(201)["id"], repo["id"]);
    let events: Vec<String> = app.db_audit("ada").await.into_iter().filter(|it| it.starts_with("repo.")).collect();
    assert_eq!(events, ["repo.create", "repo.create", "repo.update", "repo.delete", "repo.create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_repositories_above_the_limit_prevent_a_creation() {
    let app = App::with(|config| config.abuse_limits.deleted_repositories_per_org = 1).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.post(REPOS, json!({ "name": "app" })).await.expect(201);
    ada.delete(REPO).await.expect(204);
    let refused = ada.post(REPOS, json!({ "name": "app" })).await;
    let details = refused.expect_error(409, "deleted_repo_limit")["details"].clone();
    assert_eq!(details["limit"], json!(1));
    assert!(details["eraseAt"].as_str().is_some_and(|at| at.parse::<kernel::Time>().is_ok()), "{details}");
    app.clock.advance(30 * 24 * 3600);
    let ada = app.sign_in("ada").await;
    ada.post(REPOS, json!({ "name": "app" })).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_names_and_branches_are_named() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    for name in ["", ".", "..", "a.git", ".a", "-a", "_a", "A", "a b", "a/b", "\u{e9}", &"a".repeat(65)] {
        ada.post(REPOS, json!({ "name": name })).await.expect_error(400, "bad_request");
    }
    for branch in ["", "a b", "a..b", "-a", "a.lock", "/a", "a/", "a~1", "HEAD:x", "@{", "a\\b", "a//b", "a."] {
        let refused = ada.post(REPOS, json!({ "name": "app", "defaultBranch": branch })).await;
        refused.expect_error(400, "bad_request");
    }
    ada.post(REPOS, json!({ "name": &"a".repeat(64) })).await.expect(201);
    let paths = |response: &ApiResponse| {
        let fields = response.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap().clone();
        fields.iter().map(|field| field["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let new = json!({ "name": "a.git", "defaultBranch": "a..b", "deployBranch": "a.lock", "visibility": "x" });
    let refused = ada.post(REPOS, new).await;
    assert_eq!(paths(&refused), ["defaultBranch", "deployBranch", "name", "visibility"]);
    assert_eq!(
        refused.body["details"]["fields"][1],
        json!({ "path": "deployBranch", "message": "must be a name that git accepts for a branch" })
    );
    assert_eq!(refused.body["details"]["fields"][2], json!({ "path": "name", "message": "must not end with .git" }));
    let change = json!({ "name": "b.git", "defaultBranch": "HEAD", "deployBranch": "a..b", "visibility": "x" });
    let refused = ada.patch(&format!("{REPOS}/{}", "a".repeat(64)), change).await;
    assert_eq!(paths(&refused), ["defaultBranch", "deployBranch", "name", "visibility"]);
    assert_eq!(ada.get(REPOS).await.expect(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn restricted_token_reads_public_repositories_like_an_outsider() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    for project in ["site", "other"] {
        ada.post("/v1/orgs/ada/projects", json!({ "name": project })).await.expect(201);
    }
    ada.post(REPOS, json!({ "name": "app" })).await.expect(201);
    let mut callers = vec![app.sign_in("eve").await];
    for restrict in [json!({ "org": "acme" }), json!({ "org": "ada", "projects": ["other"] })] {
        let body = json!({ "name": "ci", "scopes": ["git:read"], "restrict": restrict });
        let token = ada.post("/v1/me/tokens", body).await.expect(201)["token"].clone();
        callers.push(app.with_token(token.as_str().unwrap()));
    }
    for (visibility, status) in [("private", 403), ("public", 200)] {
        ada.patch(REPO, json!({ "visibility": visibility })).await.expect(204);
        for caller in &callers {
            caller.get(REPO).await.expect(status);
            for path in [REPOS.to_owned(), format!("{REPOS}/missing"), format!("{REPO}/ref-updates")] {
                caller.get(&path).await.expect_error(403, "forbidden");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creations_create_one() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let creations = (0..10).map(|_| ada.post(REPOS, json!({ "name": "app" })));
    let created = futures_util::future::join_all(creations).await;
    assert_eq!(created.iter().filter(|response| response.status == 201).count(), 1);
    let counts = app.db_rows("SELECT repositories FROM git.counts").await;
    assert_eq!(counts[0]["repositories"], 1);
}
