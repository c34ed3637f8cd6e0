//! Uploads, deployments and rollbacks.

use std::path::Path;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{App, Caller, bundle, eventually, site};

const PROJECT: &str = "/v1/orgs/ada/projects/site";
const DEPLOYMENTS: &str = "/v1/orgs/ada/projects/site/deployments";
const ROLLBACK: &str = "/v1/orgs/ada/projects/site/rollback";

async fn project(app: &App) -> Caller {
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let below = entries.flat_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path) } else { vec![path.display().to_string()] }
    });
    below.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_is_live_immediately_and_can_be_rolled_back() {
    let app = App::start().await;
    let ada = project(&app).await;
    let upload = |page: &str| {
        let (ada, page) = (ada.clone(), site(page));
        async move { ada.upload(DEPLOYMENTS, page).await.expect(201).clone() }
    };
    let one = upload("one").await;
    assert_eq!((&one["version"], &one["live"], &one["assetCount"]), (&json!(1), &json!(true), &json!(1)));
    assert_eq!((&one["hasWorker"], &one["createdBy"]["subject"]), (&json!(false), &json!("ada")));
    assert_eq!(one["git"], json!({ "commit": null, "message": null, "branch": null, "dirty": null }));
    let two = upload("two").await;
    let three = upload("one").await;
    assert_eq!(three["version"], 3);
    assert_eq!(three["digest"], one["digest"]);
    assert_ne!(two["digest"], one["digest"]);

    let back = ada.post(ROLLBACK, json!({ "version": 2 })).await.expect(200).clone();
    assert_eq!((&back["id"], &back["live"]), (&two["id"], &json!(true)));
    // JSON does not distinguish 2.0 from 2.
    ada.post(ROLLBACK, json!({ "version": 2.0 })).await.expect(200);
    ada.post(ROLLBACK, json!({ "version": 9 })).await.expect_error(404, "not_found");
    let list = ada.get(DEPLOYMENTS).await.expect(200).clone();
    let shown: Vec<(i64, bool)> = list["items"].as_array().unwrap().iter().map(version_and_live).collect();
    assert_eq!(shown, [(3, false), (2, true), (1, false)]);
    let detail = ada.get(PROJECT).await.expect(200).clone();
    assert_eq!((&detail["live"]["version"], &detail["placement"]["state"]), (&json!(2), &json!("pending")));
    let events = app.db_audit("ada").await;
    assert_eq!(events[1..], ["deployment.create", "deployment.create", "deployment.create", "deployment.rollback"]);
    // The store contains two distinct bundles, and no temporary files.
    assert_eq!(files(&app.bundles).len(), 2);
}

fn version_and_live(deployment: &Value) -> (i64, bool) {
    (deployment["version"].as_i64().unwrap(), deployment["live"].as_bool().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_shows_its_manifest_and_provenance() {
    let app = App::start().await;
    let ada = project(&app).await;
    let body = bundle(&[
        ("svc.json", br#"{"auth":true,"database":true,"custom":1}"#),
        ("worker/index.js", b"export default {}"),
    ]);
    let response = ada
        .send(Method::POST, DEPLOYMENTS, |request| {
            request
                .header("content-type", "application/gzip")
                .header("x-svc-git-commit", "0123ABC")
                .header("x-svc-git-message", "Gr%C3%BC%C3%9Fe%0Asecond line")
                .header("x-svc-git-branch", "%ff")
                .header("x-svc-git-dirty", "true")
                .body(body)
        })
        .await;
    let shown = response.expect(201);
    assert_eq!(shown["git"], json!({ "commit": "0123abc", "message": "Grüße", "branch": null, "dirty": true }));
    assert_eq!((&shown["declares"]["auth"], &shown["declares"]["email"]), (&json!(true), &json!(false)));
    assert_eq!((&shown["hasWorker"], &shown["assetCount"]), (&json!(true), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_bundle_leaves_no_files() {
    let app = App::start().await;
    let ada = project(&app).await;
    let truncated = {
        let mut whole = site("page");
        whole.truncate(40);
        whole
    };
    for (body, reason) in [
        (b"hello".to_vec(), None),
        (truncated, None),
        (bundle(&[("assets/index.html", b"hi")]), Some("manifest_missing")),
        (bundle(&[("svc.json", b"{}"), ("etc/passwd", b"x")]), None),
        (bundle(&[("svc.json", b"{}")]), None),
    ] {
        let response = ada.upload(DEPLOYMENTS, body).await;
        let details = &response.expect_error(400, "invalid_bundle")["details"];
        assert!(details["reason"].is_string(), "{details}");
        assert!(reason.is_none_or(|reason| details["reason"] == reason), "{details}");
    }
    let wrong_type = ada.send(Method::POST, DEPLOYMENTS, |request| request.body("x")).await;
    wrong_type.expect_error(415, "unsupported_media_type");
    assert_eq!(files(&app.bundles), Vec::<String>::new());
    assert_eq!(ada.get(DEPLOYMENTS).await.expect(200)["items"], json!([]));
    assert_eq!(app.db_audit("ada").await, ["project.create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_above_the_plan_limit_is_rejected() {
    let app = App::with(|config| config.limits.free.bundle.compressed = 1000).await;
    let ada = project(&app).await;
    let noise: String =
        (0..4000u32).map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26)).collect();
    let response = ada.upload(DEPLOYMENTS, site(&noise)).await;
    assert_eq!(response.expect_error(413, "payload_too_large")["details"]["limit"], 1000);
    assert_eq!(files(&app.bundles), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_above_the_limit_of_the_organization_are_rejected() {
    let first = site("first");
    let limit = first.len() + 10;
    let app = App::with(|config| config.limits.free.bundle_bytes = limit as u64).await;
    let ada = project(&app).await;
    ada.upload(DEPLOYMENTS, first.clone()).await.expect(201);
    let stored = files(&app.bundles);
    let refused = ada.upload(DEPLOYMENTS, site("second")).await;
    let details = refused.expect_error(409, "bundle_bytes_limit")["details"].clone();
    assert_eq!((&details["limit"], &details["plan"]), (&json!(limit), &json!("free")));
    assert_eq!(files(&app.bundles), stored);
    ada.upload(DEPLOYMENTS, first).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_above_the_daily_limit_are_rejected() {
    let app = App::with(|config| config.abuse_limits.deployments_per_project = 1).await;
    let ada = project(&app).await;
    ada.upload(DEPLOYMENTS, site("page")).await.expect(201);
    let refused = ada.upload(DEPLOYMENTS, site("page")).await;
    assert_eq!(refused.expect_error(429, "rate_limited")["details"], json!({ "limit": 1 }));
    let retry_after: i64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=24 * 3600).contains(&retry_after), "{retry_after}");
    assert_eq!(app.db_audit("ada").await, ["project.create", "deployment.create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_upload_leaves_no_files() {
    let app = App::start().await;
    let ada = project(&app).await;
    let whole = site(&"page ".repeat(1000));
    let half = whole[..whole.len() / 2].to_vec();
    let body = futures_util::stream::iter([Ok(half), Err(std::io::Error::other("connection lost"))]);
    let sent = crate::support::client()
        .post(format!("{}{DEPLOYMENTS}", app.base))
        .bearer_auth(ada.token.clone().unwrap())
        .header("content-type", "application/gzip")
        .header("content-length", whole.len())
        .body(reqwest::Body::wrap_stream(body))
        .send()
        .await;
    assert!(sent.is_err());
    eventually("the upload is deleted", async || files(&app.bundles).is_empty().then_some(())).await;
    assert_eq!(ada.get(DEPLOYMENTS).await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_are_numbered_without_gaps() {
    let app = App::with(|config| config.database.connections = 48).await;
    let ada = project(&app).await;
    let mut versions = Vec::new();
    // Start as many concurrent uploads as a user may have.
    for round in 0..5 {
        let uploads = (0..4).map(|n| {
            let (ada, body) = (ada.clone(), site(&format!("page {round} {n}")));
            async move { ada.upload(DEPLOYMENTS, body).await.expect(201)["version"].as_i64().unwrap() }
        });
        versions.extend(join_all(uploads).await);
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=20).collect::<Vec<_>>());
    let list = ada.get(DEPLOYMENTS).await.expect(200).clone();
    let live: Vec<_> =
        list["items"].as_array().unwrap().iter().map(version_and_live).filter(|(_, live)| *live).collect();
    assert_eq!(live, [(20, true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_rollback_and_upload_leave_one_of_them_live() {
    let app = App::start().await;
    let ada = project(&app).await;
    ada.upload(DEPLOYMENTS, site("first")).await.expect(201);
    for round in 2..22 {
        let (upload, back) = tokio::join!(
            ada.upload(DEPLOYMENTS, site(&format!("page {round}"))),
            ada.post(ROLLBACK, json!({ "version": 1 }))
        );
        let version = upload.expect(201)["version"].clone();
        back.expect(200);
        let live = ada.get(PROJECT).await.expect(200)["live"]["version"].clone();
        assert!(live == version || live == 1, "{live}");
    }
}
