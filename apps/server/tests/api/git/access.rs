//! The access of git clients by role, scope and visibility.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Clone, GitNode, token};
use super::{Kit, REPO};
use crate::support::{client, eventually, use_short_waits};

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
    assert_eq!(response.text().await.unwrap().contains("unknown, expired or revoked"), status == 401);
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
async fn user_name_is_ignored() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let url = format!("http://127.0.0.1:{}/ada/site/app.git/info/refs?service=git-upload-pack", kit.node.http);
    for user in [b"".as_slice(), b"git", "m\u{fc}ller".as_bytes(), b"m\xfcller"] {
        let credentials = STANDARD.encode([user, b":", kit.token.as_bytes()].concat());
        let request = client().get(&url).header("authorization", format!("Basic {credentials}"));
        assert_eq!(request.send().await.unwrap().status(), 200, "{user:?}");
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

#[tokio::test(flavor = "multi_thread")]
async fn git_clients_use_their_tokens_and_keys() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let last_use = async |list: &str| kit.ada.get(list).await.expect(200)["items"][0]["lastUsedAt"].clone();
    for (list, url) in [("/v1/me/tokens", kit.url(&kit.token, "app")), ("/v1/me/ssh-keys", kit.ssh_url("app"))] {
        assert_eq!(last_use(list).await, json!(null));
        work.git(&["push", "--quiet", &url, "main"]);
        let is_recorded = async || Some(last_use(list).await).filter(Value::is_string);
        let first = eventually("the use of a push is recorded", is_recorded).await;
        kit.app.clock.advance(700);
        work.git(&["ls-remote", &url]);
        let is_recorded = async || Some(last_use(list).await).filter(|at| *at != first);
        eventually("the use of a fetch is recorded", is_recorded).await;
    }
}

/// Pushes to a URL, and makes a change while git holds the locks of a transaction, after this number of others. Returns
/// whether git succeeds, and its output for the user.
async fn push_during(
    (node, after): (&GitNode, usize),
    work: &Clone,
    url: &str,
    refs: &[&str],
    change: impl AsyncFnOnce(),
) -> (bool, String) {
    node.hold_pushes(after);
    let push = work.command(&[&["push", url], refs].concat()).stderr(Stdio::piped()).spawn().unwrap();
    node.wait_for_held_push().await;
    change().await;
    node.release_pushes();
    let output = push.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Each push is authorized when it begins. While it is in progress, the pusher loses the credential or the role.
#[tokio::test(flavor = "multi_thread")]
async fn revocation_applies_to_a_push_in_progress() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let first = work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);
    let bare = kit.bare().await;
    let refs = || work.git(&["--git-dir", bare.to_str().unwrap(), "for-each-ref", "--format=%(refname) %(objectname)"]);
    let unchanged = format!("refs/heads/main {first}");
    let second = work.commit("a", b"2");
    let member = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let membership = format!("/v1/orgs/ada/members/{}", member.user_id);
    let refused = |(is_success, printed): (bool, String), reason: &str| {
        assert!(!is_success, "{printed}");
        assert_eq!(printed.matches(&format!(": push refused: {reason}")).count(), 1, "{printed}");
        assert_eq!(refs(), unchanged);
    };

    let created = member.post("/v1/me/tokens", json!({ "name": "t", "scopes": ["git:write"] })).await;
    let created = created.expect(201).clone();
    let url = kit.url(created["token"].as_str().unwrap(), "app");
    let revoke = async || {
        member.delete(&format!("/v1/me/tokens/{}", created["id"].as_str().unwrap())).await.expect(204);
    };
    let pushed = push_during((&kit.node, 0), &work, &url, &["main", "main:second", "main:third"], revoke).await;
    refused(pushed, "the token or SSH key of the push is not valid any more");

    let key = kit.register_key(&member, &["-t", "ed25519"]).await;
    let revoke = async || {
        member.delete(&format!("/v1/me/ssh-keys/{key}")).await.expect(204);
    };
    let pushed = push_during((&kit.node, 0), &work, &kit.ssh_url("app"), &["main"], revoke).await;
    refused(pushed, "the token or SSH key of the push is not valid any more");

    let url = kit.url(&token(&member, &["git:write"]).await, "app");
    let lower = async || {
        kit.ada.put(&membership, json!({ "role": "viewer" })).await.expect(200);
    };
    let pushed = push_during((&kit.node, 0), &work, &url, &["--atomic", "main", "main:second"], lower).await;
    refused(pushed, "pushing requires the role member in the organization");

    kit.ada.put(&membership, json!({ "role": "member" })).await.expect(200);
    let remove = async || {
        kit.ada.delete(&membership).await.expect(204);
    };
    let pushed = push_during((&kit.node, 0), &work, &url, &["main"], remove).await;
    refused(pushed, "the repository was deleted, or you are not a member of its organization any more");

    assert_eq!(kit.push_decisions("refused").await, 4);
    // Refused pushes are not listed.
    work.git(&["push", "--quiet", "origin", "main"]);
    let listed: Vec<Value> = kit.ref_updates(2).await.iter().map(|update| update["new"].clone()).collect();
    assert_eq!(listed, [json!(first), json!(second)]);
}

/// Without `--atomic`, git changes each ref in a separate transaction.
#[tokio::test(flavor = "multi_thread")]
async fn revocation_applies_between_the_transactions_of_a_push() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    let created = kit.ada.post("/v1/me/tokens", json!({ "name": "t", "scopes": ["git:write"] })).await;
    let created = created.expect(201).clone();
    let url = kit.url(created["token"].as_str().unwrap(), "app");
    let revoke = async || {
        kit.ada.delete(&format!("/v1/me/tokens/{}", created["id"].as_str().unwrap())).await.expect(204);
        // The decision about the first transaction applies for a second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    };
    let refs = ["main:first", "main:second"];
    let (is_success, printed) = push_during((&kit.node, 1), &work, &url, &refs, revoke).await;
    assert!(!is_success && printed.contains("remote: push refused: the token or SSH key"), "{printed}");
    let bare = kit.bare().await;
    let refs = work.git(&["--git-dir", bare.to_str().unwrap(), "for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs.lines().count(), 1, "{refs}");
    assert_eq!(kit.ref_updates(1).await[0]["ref"], refs.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn push_in_progress_follows_a_renamed_repository_and_not_a_deleted_one() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let first = work.commit("a", b"1");
    let renamed = kit.bare().await;
    let project = "/v1/orgs/ada/projects/site";
    let rename = async || {
        kit.ada.patch(REPO, json!({ "name": "renamed" })).await.expect(204);
        kit.ada.patch(project, json!({ "name": "shop" })).await.expect(200);
        // The names belong to another repository now.
        kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        kit.create("app").await;
    };
    let (is_success, printed) = push_during((&kit.node, 0), &work, "origin", &["main"], rename).await;
    assert!(is_success, "{printed}");
    assert_eq!(work.git(&["ls-remote", "origin"]), "");
    let new = kit.bare().await;
    let shop = kit.url(&kit.token, "renamed").replace("/site/", "/shop/");
    assert!(work.git(&["ls-remote", &shop]).contains(&first));

    let refused = |(is_success, printed): (bool, String)| {
        assert!(!is_success && printed.contains("remote: push refused: the repository was deleted"), "{printed}");
    };
    let delete = async || {
        kit.ada.delete("/v1/orgs/ada/projects/shop/repos/renamed").await.expect(204);
    };
    refused(push_during((&kit.node, 0), &work, &shop, &["main:other"], delete).await);
    let delete = async || {
        let confirm = json!({ "confirm": "site" });
        let deleted = kit.ada.send(Method::DELETE, project, |request| request.json(&confirm)).await;
        deleted.expect(204);
    };
    refused(push_during((&kit.node, 0), &work, "origin", &["main:other"], delete).await);
    let refs = |bare: &Path| work.git(&["--git-dir", bare.to_str().unwrap(), "for-each-ref", "--format=%(refname)"]);
    assert_eq!((refs(&renamed), refs(&new)), ("refs/heads/main".to_owned(), String::new()));
}

/// The client is notified that the push failed, so it can push again.
#[tokio::test(flavor = "multi_thread")]
async fn push_in_progress_is_refused_without_the_control_plane() {
    let mut kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    let bare = kit.bare().await;
    let stop = async || kit.app.shut_down().await;
    let (is_success, printed) = push_during((&kit.node, 0), &work, "origin", &["main"], stop).await;
    let reason = "remote: push refused: the service is not available; push again in a moment";
    assert!(!is_success && printed.contains(reason), "{printed}");
    assert_eq!(work.git(&["--git-dir", bare.to_str().unwrap(), "for-each-ref"]), "");
    assert_eq!(kit.push_decisions("unavailable").await, 1);
}

/// The control plane returns 503 while it waits too long for a lock, and git clients do not repeat a request.
#[tokio::test(flavor = "multi_thread")]
async fn short_outage_of_the_control_plane_delays_clients() {
    let kit = Kit::with(use_short_waits, &[]).await;
    kit.create("app").await;
    let work = kit.init("work");
    let head = work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);
    let lock = "BEGIN; LOCK TABLE identity.access_tokens IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(1.6); COMMIT";
    let locked = "SELECT 1 AS one FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted \
        AND relation = 'identity.access_tokens'::regclass";
    let read = async {
        eventually("the lock", async || (!kit.app.db_rows(locked).await.is_empty()).then_some(())).await;
        assert!(work.git(&["ls-remote", "origin"]).contains(&head));
    };
    let ((), locking) = tokio::join!(read, kit.app.db_execute(lock));
    locking.unwrap();
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
