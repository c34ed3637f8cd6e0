//! The access of git clients by role, scope and visibility.

use serde_json::json;

use super::kit::token;
use super::{Kit, REPO};
use crate::support::client;

/// Returns the status of the first request of a fetch or push with this password.
async fn status(kit: &Kit, name: &str, service: &str, password: Option<&str>) -> u16 {
    let url = format!("http://127.0.0.1:{}/ada/site/{name}.git/info/refs?service=git-{service}", kit.node.http);
    let request = client().get(url);
    let request = match password {
        Some(password) => request.basic_auth("git", Some(password)),
        None => request,
    };
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    assert_eq!(response.headers().contains_key("www-authenticate"), status == 401);
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_depend_on_role_scope_and_visibility() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let viewer = kit.app.add_member(&kit.ada, "ada", "vic", "viewer").await;
    let member = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let stranger = kit.app.sign_in("sam").await;
    let (read, write) = (&["git:read"][..], &["git:write"][..]);
    let viewer = token(&viewer, write).await;
    let stranger = token(&stranger, write).await;
    let (member_reads, member_writes) = (token(&member, read).await, token(&member, write).await);
    let without_scope = token(&member, &["project:read"]).await;
    let session = member.token.clone().unwrap();
    // A password, and the expected statuses of fetch and push: first of the private repository, then of the public one.
    let private = [
        (None, 401, 401),
        (Some("svc_pat_unknown"), 401, 401),
        (Some(session.as_str()), 401, 401),
        (Some(stranger.as_str()), 404, 404),
        (Some(viewer.as_str()), 200, 403),
        (Some(member_reads.as_str()), 200, 403),
        (Some(member_writes.as_str()), 200, 200),
        (Some(without_scope.as_str()), 403, 403),
    ];
    for (password, fetch, push) in private {
        assert_eq!(status(&kit, "app", "upload-pack", password).await, fetch, "{password:?}");
        assert_eq!(status(&kit, "app", "receive-pack", password).await, push, "{password:?}");
    }
    for password in [None, Some(member_writes.as_str())] {
        let expected = if password.is_none() { 401 } else { 404 };
        assert_eq!(status(&kit, "unknown", "upload-pack", password).await, expected);
        assert_eq!(status(&kit, "%2e%2e", "upload-pack", password).await, expected);
    }
    kit.ada.patch(REPO, json!({ "visibility": "public" })).await.expect(204);
    let public = [
        (None, 200, 401),
        (Some("svc_pat_unknown"), 401, 401),
        (Some(stranger.as_str()), 200, 403),
        (Some(viewer.as_str()), 200, 403),
        (Some(member_writes.as_str()), 200, 200),
    ];
    for (password, fetch, push) in public {
        assert_eq!(status(&kit, "app", "upload-pack", password).await, fetch, "{password:?}");
        assert_eq!(status(&kit, "app", "receive-pack", password).await, push, "{password:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_applies_to_the_next_request() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let created = kit.ada.post("/v1/me/tokens", json!({ "name": "t", "scopes": ["git:write"] })).await;
    let created = created.expect(201).clone();
    let password = created["token"].as_str();
    assert_eq!(status(&kit, "app", "receive-pack", password).await, 200);
    kit.ada
        .delete(&format!(
            "/v1/me/tokens/{}",
            created["accessToken"]["id"].as_str().unwrap_or_else(|| created["id"].as_str().unwrap())
        ))
        .await
        .expect(204);
    assert_eq!(status(&kit, "app", "receive-pack", password).await, 401);
    let removed = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let password = token(&removed, &["git:write"]).await;
    assert_eq!(status(&kit, "app", "receive-pack", Some(&password)).await, 200);
    kit.ada.delete(&format!("/v1/orgs/ada/members/{}", removed.user_id)).await.expect(204);
    assert_eq!(status(&kit, "app", "receive-pack", Some(&password)).await, 404);
}

/// A repository is identified by its id. A new repository with the same name is empty, and a renamed one keeps its
/// contents.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_reused_without_contents() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let head = work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);
    kit.ada.patch(REPO, json!({ "name": "renamed" })).await.expect(204);
    assert!(work.fails(&["fetch"]).contains("not found"));
    assert!(work.git(&["ls-remote", &kit.url(&kit.token, "renamed")]).contains(&head));
    kit.create("app").await;
    assert_eq!(work.git(&["ls-remote", "origin"]), "");
    kit.ada.delete(REPO).await.expect(204);
    kit.create("app").await;
    assert_eq!(work.git(&["ls-remote", "origin"]), "");
    // HEAD follows the default branch.
    work.git(&["push", "--quiet", "origin", "main:trunk"]);
    kit.ada.patch(REPO, json!({ "defaultBranch": "trunk" })).await.expect(204);
    assert!(work.git(&["ls-remote", "--symref", "origin", "HEAD"]).starts_with("ref: refs/heads/trunk\tHEAD"));
}
