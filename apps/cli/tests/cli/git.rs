//! `svc repos` and `svc git`.

use std::fs;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::reverse_proxy::{self, Action};
use crate::support::{Machine, Platform};

/// The request of git for the password of the git node.
const REQUEST: &str = "protocol=https\nhost=git.example\n\n";

/// Changes the file with the credentials.
fn edit_credentials(machine: &Machine, edit: impl FnOnce(&mut Value)) {
    let path = machine.credentials();
    let mut content: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut content);
    fs::write(path, content.to_string()).unwrap();
}

/// Asserts that a user has created tokens and that all are revoked. Signs the user in.
#[track_caller]
fn assert_tokens_are_revoked(machine: &Machine, subject: &str) {
    machine.svc(&["login", "--dev", subject]).succeeds();
    let tokens = machine.json(&["tokens", "list"]);
    let tokens = tokens["items"].as_array().unwrap();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| !token["revokedAt"].is_null()), "{tokens:?}");
}

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

#[tokio::test(flavor = "multi_thread")]
async fn creation_warns_if_the_platform_has_no_address_for_repositories() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let created = ada.svc(&["repos", "create", "app", "--deploy-branch", "main"]).succeeds();
    created.stderr_contains("created the repository app");
    created.stderr_contains("warning: this platform has no address for repositories: ask its operator\n");
    assert!(created.out == "–\n" && !created.err.to_lowercase().contains("push"), "{created:?}");
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
    // After git rejects this password or all passwords of the host, svc creates a new token.
    for rejected in [filled.as_str(), REQUEST] {
        let stored = fill("git.example").unwrap();
        ada.git_with_stdin(rejected, &["credential", "reject"]);
        assert_ne!(fill("git.example").unwrap(), stored);
    }
    let tokens = ada.json(&["tokens", "list"]);
    let tokens = tokens["items"].as_array().unwrap();
    assert_eq!(tokens.len(), 3);
    assert!(
        tokens.iter().all(|token| token["scopes"] == json!(["deploy", "git:write"]) && !token["expiresAt"].is_null())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn url_of_an_existing_remote_is_replaced_after_a_confirmation() {
    let platform = Platform::with(&[("SVC_GIT_URL", "https://git.example".to_owned())]).await;
    let ada = platform.ada_with_site();
    ada.svc(&["repos", "create", "app"]).succeeds();
    ada.git(&["init", "--quiet"]);
    ada.git(&["remote", "add", "origin", "https://ada:hush@old.example/app.git"]);
    let refused = ada.svc(&["git", "setup", "app"]).fails(2);
    refused.stderr_contains("The remote origin has the URL https://old.example/app.git\n");
    refused.stderr_contains("nothing was changed: confirm with --yes");
    assert_eq!(ada.git(&["remote", "get-url", "origin"]), "https://ada:hush@old.example/app.git\n");
    let replaced = ada.svc(&["git", "setup", "app", "--yes"]).succeeds();
    replaced.stderr_contains("https://old.example/app.git\n").stderr_contains("git push origin now works");
    assert!(ada.git(&["remote", "get-url", "origin"]).starts_with("https://git.example/"));
    ada.git(&["remote", "set-url", "--push", "origin", "https://ada:hush@old.example/push.git"]);
    ada.git(&["remote", "set-url", "--push", "--add", "origin", "https://hush@copy.example/push.git"]);
    let warned = ada.svc(&["git", "setup", "app"]).succeeds();
    warned.stderr_contains(
        "warning: git push origin does not go to this repository, but to https://old.example/push.git and \
         https://copy.example/push.git\n",
    );
    assert!(!warned.err.contains("now works"), "{warned:?}");
}

/// The token of git belongs to the user who was signed in when `svc` created it.
#[tokio::test(flavor = "multi_thread")]
async fn token_of_git_ends_with_the_sign_in() {
    let platform = Platform::with(&[("SVC_GIT_URL", "https://git.example".to_owned())]).await;
    let machine = platform.ada();
    let answer = || machine.svc_with_stdin(REQUEST, &["git", "credential", "get"]);
    let of_ada = answer().succeeds().out;
    assert!(of_ada.contains("password=svc_pat_"), "{of_ada}");
    let login = machine.svc(&["login", "--dev", "grace"]).succeeds();
    assert!(!login.err.contains("warning"), "{login:?}");
    assert_tokens_are_revoked(&Machine::new(&platform.api), "ada");
    assert_ne!(answer().succeeds().out, of_ada);

    let logout = machine.svc(&["logout"]).succeeds();
    assert!(!logout.err.contains("warning"), "{logout:?}");
    assert!(!fs::read_to_string(machine.credentials()).unwrap().contains("svc_pat_"));
    answer().fails(3);
    assert_tokens_are_revoked(&machine, "grace");

    // An expired token needs no revocation.
    answer().succeeds();
    edit_credentials(&machine, |content| content["git_tokens"][&platform.api][0]["expiresAt"] = json!(1));
    let logout = machine.svc(&["logout"]).succeeds();
    assert!(!logout.err.contains("warning"), "{logout:?}");

    const NOT_REVOKED: &str = "warning: the token of git was not revoked";
    machine.svc(&["login", "--dev", "grace"]).succeeds();
    answer().succeeds();
    edit_credentials(&machine, |content| content["credentials"] = json!({}));
    machine.svc(&["logout"]).succeeds().stderr_contains(NOT_REVOKED).stderr_contains("you are not signed in");
    machine.svc(&["login", "--dev", "grace"]).succeeds();
    answer().succeeds();
    drop(platform);
    machine.svc(&["logout"]).succeeds().stderr_contains(NOT_REVOKED);
    assert!(!fs::read_to_string(machine.credentials()).unwrap().contains("svc_pat_"));
}

/// Each session has its own token, which its later commands use again.
#[tokio::test(flavor = "multi_thread")]
async fn stored_token_of_git_is_not_used_with_another_credential() {
    let platform = Platform::with(&[("SVC_GIT_URL", "https://git.example".to_owned())]).await;
    let mut machine = platform.ada();
    let answer = |machine: &Machine| machine.svc_with_stdin(REQUEST, &["git", "credential", "get"]);
    let of_session = answer(&machine).succeeds().out;
    let token = machine.svc(&["tokens", "create", "ci", "--scope", "account:read"]).succeeds().out;
    machine.environment.insert("SVC_CLI_TOKEN", token.trim_end().to_owned());
    answer(&machine).fails(3).stderr_contains("code session_required");
    let stored: Value = serde_json::from_slice(&fs::read(platform.ada().credentials()).unwrap()).unwrap();
    let other = stored["credentials"][&platform.api].as_str().unwrap();
    machine.environment.insert("SVC_CLI_TOKEN", other.to_owned());
    let of_other = answer(&machine).succeeds().out;
    assert_ne!(of_other, of_session);
    assert_eq!(answer(&machine).succeeds().out, of_other);
    machine.environment.remove("SVC_CLI_TOKEN");
    assert_eq!(answer(&machine).succeeds().out, of_session);

    let logout = machine.svc(&["logout"]).succeeds();
    assert!(!logout.err.contains("warning"), "{logout:?}");
    let tokens = platform.ada().json(&["tokens", "list"]);
    let of_git = tokens["items"].as_array().unwrap().iter().filter(|token| token["name"] == "svc git");
    assert_eq!(of_git.map(|token| token["revokedAt"].is_string()).collect::<Vec<_>>(), [true, true], "{tokens}");
}

/// `svc logout` runs while `svc` creates the token.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_logout_revokes_the_token_of_git() {
    let platform = Platform::with(&[("SVC_GIT_URL", "https://git.example".to_owned())]).await;
    let logout = Arc::new(Mutex::new((None::<Command>, None::<Child>)));
    let started = Arc::clone(&logout);
    let proxy = reverse_proxy::start_with(&platform, move |request| {
        if request == "POST /v1/me/tokens" {
            let (command, child) = &mut *started.lock().unwrap();
            *child = command.take().map(|mut command| command.spawn().unwrap());
        }
        Action::Forward
    });
    let machine = Machine::new(&proxy.await);
    machine.svc(&["login", "--dev", "ada"]).succeeds();
    logout.lock().unwrap().0 = Some(machine.command(&["logout"]));
    machine.svc_with_stdin(REQUEST, &["git", "credential", "get"]).succeeds();
    let child = logout.lock().unwrap().1.take().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !String::from_utf8(output.stderr).unwrap().contains("warning"));
    assert_tokens_are_revoked(&machine, "ada");
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
