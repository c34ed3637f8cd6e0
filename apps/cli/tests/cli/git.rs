//! `svc repos` and `svc git`.

use serde_json::json;

use crate::support::{Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_managed() {
    let platform = Platform::with(&[("SVC_GIT_URL", "https://git.example".to_owned())]).await;
    let ada = platform.ada_with_site();
    let created = ada.svc(&["repos", "create", "app"]).succeeds();
    assert!(created.out.starts_with("https://git.example/ada/"), "{created:?}");
    created.stderr_contains("created the repository app");
    ada.svc(&["repos", "create", "app"]).fails(1);
    ada.svc(&["repos", "create", "docs", "--public", "--default-branch", "trunk"]).succeeds();
    assert_eq!(ada.svc(&["repos", "deploy-branch", "app"]).succeeds().out, "–\n");
    ada.svc(&["repos", "deploy-branch", "app", "main"]).succeeds().stderr_contains("a push to main of app is deployed");
    assert_eq!(ada.svc(&["repos", "deploy-branch", "app"]).succeeds().out, "main\n");
    ada.svc(&["repos", "deploy-branch", "app", "--off"]).succeeds().stderr_contains("pushes to app are not deployed");
    assert_eq!(ada.json(&["repos", "deploy-branch", "app"])["deployBranch"], json!(null));
    ada.svc(&["repos", "deploy-branch", "app", "main", "--off"]).fails(2);
    ada.svc(&["repos", "create", "live", "--deploy-branch", "main"]).succeeds().stderr_contains("A push to main");
    ada.svc(&["repos", "delete", "live"]).fails(2).stderr_contains("nothing was deleted: confirm with --yes");
    ada.svc(&["repos", "delete", "live", "--yes"]).succeeds();
    let listed = ada.svc(&["repos", "list"]).succeeds().out;
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows[1..], [["docs", "public", "trunk"], ["app", "private", "main"]]);
    ada.svc(&["repos", "visibility", "app", "public"]).succeeds().stderr_contains("app is public");
    ada.svc(&["repos", "visibility", "app", "secret"]).fails(2);
    let changed = ada.svc(&["repos", "default-branch", "app", "trunk"]).succeeds();
    changed.stderr_contains("the default branch of app is trunk");
    let shown = ada.svc(&["repos", "show", "app"]).succeeds().out;
    for line in ["visibility      public\n", "default branch  trunk\n", "deploy branch   –\n", "SSH             –\n"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    ada.svc(&["repos", "rename", "app", "web"]).succeeds().stderr_contains("renamed app to web");
    assert_eq!(ada.json(&["repos", "delete", "web", "--yes"]), json!(null));
    ada.svc(&["repos", "delete", "web", "--yes"]).fails(5);
}

/// git asks `svc` for the password of the remote. Another host receives none.
#[tokio::test(flavor = "multi_thread")]
async fn git_receives_a_token_for_the_git_node_only() {
    let platform = Platform::with(&[("SVC_GIT_URL", "https://git.example".to_owned())]).await;
    let ada = platform.ada_with_site();
    ada.svc(&["repos", "create", "app"]).succeeds();
    ada.svc(&["git", "setup", "app"]).fails(1).stderr_contains("git remote failed");
    ada.git(&["init", "--quiet"]);
    for _ in 0..2 {
        ada.svc(&["git", "setup", "app"]).succeeds().stderr_contains("git push origin now works");
    }
    assert!(ada.git(&["remote", "get-url", "origin"]).ends_with("/app.git\n"));
    let fill = |host: &str| ada.git_with_stdin(&format!("protocol=https\nhost={host}\n\n"), &["credential", "fill"]);
    let filled = fill("git.example").unwrap();
    assert!(filled.contains("username=svc\npassword=svc_pat_"), "{filled}");
    // A later command uses the same token.
    assert_eq!(fill("git.example").unwrap(), filled);
    let asked = "protocol=https\nhost=evil.example\n\n";
    assert_eq!(ada.svc_with_stdin(asked, &["git", "credential", "get"]).succeeds().out, "");
    // After git rejects the password, svc creates a new token.
    ada.git_with_stdin(&filled, &["credential", "reject"]);
    assert_ne!(fill("git.example").unwrap(), filled);
    let tokens = ada.json(&["tokens", "list"]);
    let tokens = tokens["items"].as_array().unwrap();
    assert_eq!(tokens.len(), 2);
    assert!(
        tokens.iter().all(|token| token["scopes"] == json!(["deploy", "git:write"]) && !token["expiresAt"].is_null())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn git_is_not_set_up_without_a_login_session() {
    let platform = Platform::with(&[("SVC_GIT_URL", "https://git.example".to_owned())]).await;
    let ada = platform.ada_with_site();
    ada.svc(&["repos", "create", "app"]).succeeds();
    let scopes = ["--scope", "git:write", "--scope", "git:read", "--scope", "account:read"];
    let token = ada.svc(&[&["tokens", "create", "laptop"][..], &scopes].concat()).succeeds().out;
    let laptop = Machine::new(&platform.api);
    laptop.svc_with_stdin(&token, &["login", "--token"]).succeeds();
    laptop.git(&["init", "--quiet"]);
    let refused = laptop.svc(&["git", "setup", "app", "--org", "ada", "--project", "site"]).fails(3);
    refused.stderr_contains("code session_required").stderr_contains("sign in with `svc login`");
    assert_eq!(laptop.git(&["remote"]), "");
}
