//! Sign-in, sign-out and stored credentials.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::billing::finished;
use crate::reverse_proxy;
use crate::support::{Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn credential_is_private_and_deleted_at_logout() {
    let platform = Platform::start().await;
    let machine = Machine::new(&platform.api);
    machine.svc(&["whoami"]).fails(3).stderr_contains("svc login");
    let ran = machine.svc(&["login", "--dev", "ada"]).succeeds();
    assert!(ran.out.contains("ada at dev"), "{ran:?}");
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = machine.credentials();
    assert_eq!((mode(path.as_path()), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(machine.json(&["whoami"])["subject"], "ada");

    let session = fs::read_to_string(&path).unwrap();
    machine.svc(&["logout"]).succeeds();
    machine.svc(&["whoami"]).fails(3);
    assert!(!fs::read_to_string(&path).unwrap().contains("svc_ses_"));
    machine.svc(&["logout"]).succeeds().stderr_contains("not signed in");
    // The API has ended the session too, so a copy of the credential is invalid.
    fs::write(&path, session).unwrap();
    machine.svc(&["whoami"]).fails(3).stderr_contains("code unauthenticated, request ");
    assert_eq!(machine.json(&["logout"]), Value::Null);
    assert_eq!(machine.json(&["logout"]), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_sign_in_ends_the_replaced_session() {
    let platform = Platform::start().await;
    let machine = platform.ada();
    let former = fs::read_to_string(machine.credentials()).unwrap();
    let login = machine.svc(&["login", "--dev", "grace"]).succeeds();
    assert!(!login.err.contains("warning"), "{login:?}");
    let current = fs::read_to_string(machine.credentials()).unwrap();
    // A copy of the former credential is invalid.
    fs::write(machine.credentials(), &former).unwrap();
    machine.svc(&["whoami"]).fails(3).stderr_contains("code unauthenticated, request ");
    fs::write(machine.credentials(), &current).unwrap();
    // The same session is not ended.
    let stored: Value = serde_json::from_str(&current).unwrap();
    let session = stored["credentials"][&platform.api].as_str().unwrap();
    machine.svc_with_stdin(session, &["login", "--token"]).succeeds();
    assert_eq!(machine.json(&["whoami"])["subject"], "grace");
}

#[tokio::test(flavor = "multi_thread")]
async fn logout_succeeds_while_the_api_is_unavailable() {
    let platform = Platform::start().await;
    let machine = platform.ada();
    drop(platform);
    machine
        .svc(&["logout"])
        .succeeds()
        .stderr_contains("warning: the API did not end the session")
        .stderr_contains("signed out");
    assert!(!fs::read_to_string(machine.credentials()).unwrap().contains("svc_ses_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn login_at_the_api_of_a_link_file_requires_confirmation_and_does_not_select_it() {
    let platform = Platform::start().await;
    let mut machine = Machine::new(&platform.api);
    machine.svc(&["init", "--org", "ada", "--project", "site"]).succeeds();
    let token = platform.ada().svc(&["tokens", "create", "ci", "--scope", "deploy"]).succeeds().out;
    machine.environment.remove("SVC_CLI_API");
    machine
        .svc_with_stdin(&token, &["login", "--token"])
        .fails(2)
        .stderr_contains("which only .svc/project.json names")
        .stderr_contains("SVC_CLI_API");
    assert!(!machine.credentials().exists());
    machine.svc_with_stdin(&token, &["login", "--token", "--api", &platform.api]).succeeds();
    machine.svc(&["logout"]).succeeds();

    fs::remove_file(machine.credentials()).unwrap();
    machine.svc(&["login", "--dev", "ada"]).succeeds().stderr_contains(&format!("Signing in at {}", platform.api));
    let stored: Value = serde_json::from_slice(&fs::read(machine.credentials()).unwrap()).unwrap();
    assert_eq!((&stored["current"], stored["credentials"].as_object().unwrap().len()), (&Value::Null, 1));
    assert_eq!(machine.json(&["whoami"])["subject"], "ada");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_base_url_is_reported_as_such() {
    let platform = Platform::start().await;
    let other = reverse_proxy::start(&platform, |_| Some(404)).await;
    for api in [format!("{}/v1", platform.api), other] {
        for method in [&["login", "--dev", "ada"][..], &["login", "--device"], &["login"]] {
            Machine::new(&api).svc(method).fails(5).stderr_contains("next: check that --api is the base URL");
        }
    }
    let disabled = reverse_proxy::start(&platform, |it| (it == "POST /v1/auth/dev/login").then_some(404)).await;
    let refused = Machine::new(&disabled).svc(&["login", "--dev", "ada"]).fails(1);
    refused.stderr_contains("the development login is disabled at");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_credentials_are_reported_before_the_sign_in() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    fs::write(ada.credentials(), "{broken").unwrap();
    for command in [&["login", "--dev", "ada"][..], &["logout"], &["whoami"]] {
        let refused = ada.svc(command).fails(1);
        refused.stderr_contains("credentials.json is damaged (").stderr_contains("correct or delete the file");
        assert_eq!(refused.out, "");
    }
    fs::remove_file(ada.credentials()).unwrap();
    ada.svc(&["login", "--dev", "ada"]).succeeds();
    // The failed sign-in created no session.
    assert_eq!(ada.json(&["sessions", "list"])["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn local_api_is_reached_without_a_proxy() {
    let platform = Platform::start().await;
    let mut ada = platform.ada();
    ada.environment.insert("http_proxy", "http://127.0.0.1:9".to_owned());
    ada.svc(&["whoami"]).succeeds();
    ada.svc(&["--api", "http://127.0.0.1.example.org", "login", "--dev", "ada"])
        .fails(7)
        .stderr_contains("is not https");
}

#[test]
fn search_for_a_link_stops_at_the_home() {
    let mut machine = Machine::new("http://127.0.0.1:9");
    machine.svc(&["init", "--org", "ada", "--project", "site"]).succeeds();
    fs::create_dir(machine.folder.join("inner")).unwrap();
    machine.folder.push("inner");
    machine.svc(&["projects", "list"]).fails(3);
    machine.environment.insert("HOME", machine.folder.display().to_string());
    machine.svc(&["deployments"]).fails(2).stderr_contains("no organization is selected");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_read_from_stdin_or_the_environment_but_not_from_arguments() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy"]).succeeds().out;
    assert!(token.starts_with("svc_pat_"));

    let mut other = Machine::new(&platform.api);
    other.svc(&["login", "--token", token.trim()]).fails(2);
    other.svc_with_stdin("\n", &["login", "--token"]).fails(2);
    other.svc_with_stdin("svc_pat_wrong\n", &["login", "--token"]).fails(3).stderr_contains("next: use a token");
    assert!(!other.credentials().exists());
    let ran = other.svc_with_stdin(&token, &["login", "--token"]).succeeds();
    assert!(ran.out.contains("the token ci") && !ran.out.contains(token.trim()), "{ran:?}");
    assert_eq!(other.json(&["whoami"])["name"], "ci");
    other.svc(&["tokens", "list"]).fails(4).stderr_contains("svc tokens create <name> --scope account:read");
    other.svc(&["tokens", "create", "more", "--scope", "deploy"]).fails(3).stderr_contains("svc login");

    other.svc(&["logout"]).succeeds();
    // The line break at the end of the token is ignored.
    other.environment.insert("SVC_CLI_TOKEN", token);
    assert_eq!(other.json(&["whoami"])["name"], "ci");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_token_in_the_environment_is_a_usage_error() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    for (token, message) in [
        (&b"svc_pat_a\nb"[..], "the credential, another header or the URL is not valid in HTTP"),
        (&b"svc_pat_\xff"[..], "SVC_CLI_TOKEN is not valid UTF-8"),
    ] {
        let mut command = ada.command(&["whoami"]);
        command.env("SVC_CLI_TOKEN", OsStr::from_bytes(token));
        finished(command.spawn().unwrap()).fails(2).stderr_contains(message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_stored_per_api_and_tokens_need_an_explicit_api() {
    let (one, two) = (Platform::start().await, Platform::start().await);
    let mut machine = one.ada_with_site();
    machine.environment.remove("SVC_CLI_API");
    // The link file names the API.
    assert_eq!(machine.json(&["projects", "list"])["items"][0]["name"], "site");
    machine.svc(&["--api", &two.api, "whoami"]).fails(3);
    machine.svc(&["--api", &format!("{}/", two.api), "login", "--dev", "bob"]).succeeds();
    assert_eq!(machine.json(&["--api", &two.api, "whoami"])["subject"], "bob");
    assert_eq!(machine.json(&["whoami"])["subject"], "ada");
    // In an unlinked folder, the API of the last sign-in applies.
    let unlinked = machine.unlinked();
    let folder = std::mem::replace(&mut machine.folder, unlinked);
    assert_eq!(machine.json(&["whoami"])["subject"], "bob");
    machine.folder = folder;

    machine.environment.insert("SVC_CLI_TOKEN", "svc_pat_mine".to_owned());
    machine.svc(&["whoami"]).fails(2).stderr_contains("SVC_CLI_API");
    machine.svc(&["--api", &one.api, "whoami"]).fails(3).stderr_contains("next: SVC_CLI_TOKEN is not valid");
    machine.svc(&["--api", "ftp://example.org", "whoami"]).fails(2);
    let stored: Value = serde_json::from_slice(&fs::read(machine.credentials()).unwrap()).unwrap();
    assert_eq!(stored["credentials"].as_object().unwrap().len(), 2);
}
