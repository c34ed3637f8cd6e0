//! Who is signed in, and where that is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::kit::{Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn the_development_login_is_kept_for_its_owner_alone_until_logout() {
    let platform = Platform::start().await;
    let machine = Machine::new(&platform.api);
    machine.svc(&["whoami"]).fails(3).says("svc login");
    let ran = machine.svc(&["login", "--dev", "ada"]).succeeds();
    assert!(ran.out.contains("ada at dev"), "{ran:?}");
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let kept = machine.credentials();
    assert_eq!((mode(kept.as_path()), mode(kept.parent().unwrap())), (0o600, 0o700));
    assert_eq!(machine.json(&["whoami"])["subject"], "ada");

    let session = fs::read_to_string(&kept).unwrap();
    machine.svc(&["logout"]).succeeds();
    machine.svc(&["whoami"]).fails(3);
    assert!(!fs::read_to_string(&kept).unwrap().contains("svc_ses_"));
    machine.svc(&["logout"]).succeeds().says("not signed in");
    // The session has ended there, too, and what one machine still has of it is no way in.
    fs::write(&kept, session).unwrap();
    machine.svc(&["whoami"]).fails(3).says("code unauthenticated, request ");
    assert_eq!(machine.json(&["logout"]), Value::Null);
    assert_eq!(machine.json(&["logout"]), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_signs_out_has_even_when_the_api_is_away() {
    let platform = Platform::start().await;
    let machine = platform.ada();
    drop(platform);
    machine.svc(&["logout"]).succeeds().says("warning: the session lives on").says("signed out");
    assert!(!fs::read_to_string(machine.credentials()).unwrap().contains("svc_ses_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_alone_does_not_choose_where_a_pasted_token_goes_or_what_is_current() {
    let platform = Platform::start().await;
    let mut machine = Machine::new(&platform.api);
    machine.svc(&["init", "--org", "ada", "--project", "site"]).succeeds();
    let token = platform.ada().svc(&["tokens", "create", "ci", "--scope", "deploy"]).succeeds().out;
    machine.environment.remove("SVC_CLI_API");
    machine.svc_given(&token, &["login", "--token"]).fails(2).says("only the folder says").says("SVC_CLI_API");
    assert!(!machine.credentials().exists());
    machine.svc_given(&token, &["login", "--token", "--api", &platform.api]).succeeds();
    machine.svc(&["logout"]).succeeds();

    fs::remove_file(machine.credentials()).unwrap();
    machine.svc(&["login", "--dev", "ada"]).succeeds().says(&format!("Signing in at {}", platform.api));
    let kept: Value = serde_json::from_slice(&fs::read(machine.credentials()).unwrap()).unwrap();
    assert_eq!((&kept["current"], kept["credentials"].as_object().unwrap().len()), (&Value::Null, 1));
    assert_eq!(machine.json(&["whoami"])["subject"], "ada");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_is_asked_for_an_api_on_this_machine() {
    let platform = Platform::start().await;
    let mut ada = platform.ada();
    ada.environment.insert("http_proxy", "http://127.0.0.1:9".to_owned());
    ada.svc(&["whoami"]).succeeds();
    ada.svc(&["--api", "http://127.0.0.1.example.org", "login", "--dev", "ada"]).fails(7).says("is not https");
}

#[test]
fn a_link_is_not_looked_for_above_a_home() {
    let mut machine = Machine::new("http://127.0.0.1:9");
    machine.svc(&["init", "--org", "ada", "--project", "site"]).succeeds();
    fs::create_dir(machine.folder.join("inner")).unwrap();
    machine.folder.push("inner");
    machine.svc(&["projects", "list"]).fails(3);
    machine.environment.insert("HOME", machine.folder.display().to_string());
    machine.svc(&["deployments"]).fails(2).says("which organization?");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_comes_from_stdin_or_the_environment_and_never_from_an_argument() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy"]).succeeds().out;
    assert!(token.starts_with("svc_pat_"));

    let mut other = Machine::new(&platform.api);
    other.svc(&["login", "--token", token.trim()]).fails(2);
    other.svc_given("\n", &["login", "--token"]).fails(2);
    other.svc_given("svc_pat_wrong\n", &["login", "--token"]).fails(3);
    assert!(!other.credentials().exists());
    let ran = other.svc_given(&token, &["login", "--token"]).succeeds();
    assert!(ran.out.contains("the token ci") && !ran.out.contains(token.trim()), "{ran:?}");
    assert_eq!(other.json(&["whoami"])["name"], "ci");
    other.svc(&["tokens", "list"]).fails(4).says("svc tokens create <name> --scope account:read");
    other.svc(&["tokens", "create", "more", "--scope", "deploy"]).fails(3).says("svc login");

    other.svc(&["logout"]).succeeds();
    other.environment.insert("SVC_CLI_TOKEN", token.trim().to_owned());
    assert_eq!(other.json(&["whoami"])["name"], "ci");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_api_has_its_own_credential_and_a_folder_does_not_choose_who_gets_a_token() {
    let (one, two) = (Platform::start().await, Platform::start().await);
    let mut machine = one.ada_with_site();
    machine.environment.remove("SVC_CLI_API");
    // The folder says where it belongs.
    assert_eq!(machine.json(&["projects", "list"])["items"][0]["name"], "site");
    machine.svc(&["--api", &two.api, "whoami"]).fails(3);
    machine.svc(&["--api", &format!("{}/", two.api), "login", "--dev", "bob"]).succeeds();
    assert_eq!(machine.json(&["--api", &two.api, "whoami"])["subject"], "bob");
    assert_eq!(machine.json(&["whoami"])["subject"], "ada");
    // Elsewhere it is who signed in at last.
    let unlinked = machine.unlinked();
    let folder = std::mem::replace(&mut machine.folder, unlinked);
    assert_eq!(machine.json(&["whoami"])["subject"], "bob");
    machine.folder = folder;

    machine.environment.insert("SVC_CLI_TOKEN", "svc_pat_mine".to_owned());
    machine.svc(&["whoami"]).fails(2).says("SVC_CLI_API");
    machine.svc(&["--api", &one.api, "whoami"]).fails(3);
    machine.svc(&["--api", "ftp://example.org", "whoami"]).fails(2);
    let kept: Value = serde_json::from_slice(&fs::read(machine.credentials()).unwrap()).unwrap();
    assert_eq!(kept["credentials"].as_object().unwrap().len(), 2);
}
