//! Output: stdout, stderr, `--json` and colors.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn json_prints_the_api_response_and_messages_go_to_stderr() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    let created = ada.svc(&["--json", "orgs", "create", "acme"]).succeeds();
    let members = |value: &Value| {
        value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    // All fields of the response, including fields that svc does not use.
    let expected = ["createdAt", "id", "name", "personal", "plan", "projectLimit", "role", "slug"];
    assert_eq!(members(&created.json()), expected);
    created.stderr_contains("created the organization acme");

    let refused = ada.svc(&["orgs", "create", "acme", "--json"]).fails(1);
    assert_eq!(members(&refused.json()), ["code", "details", "message", "requestId"]);
    let id = refused.json()["requestId"].as_str().unwrap().to_owned();
    refused.stderr_contains("error: ").stderr_contains(&id);
    // An error that does not come from the API prints no document.
    assert_eq!(ada.svc(&["projects", "list", "--json"]).fails(2).out, "");
}

#[test]
fn unreachable_api_exits_with_code_7() {
    let mut machine = Machine::new("http://127.0.0.1:9");
    machine.environment.insert("SVC_CLI_TOKEN", "svc_pat_x".to_owned());
    let ran = machine.svc(&["whoami"]).fails(7);
    ran.stderr_contains("error: the API is unreachable").stderr_contains("next: ");
    assert!(!ran.err.contains("svc_pat_x"), "{ran:?}");
}

#[test]
fn colors_follow_no_color_and_clicolor_force() {
    let mut machine = Machine::new("http://127.0.0.1:9");
    let plain = machine.svc(&["whoami"]).fails(3).err;
    machine.environment.insert("CLICOLOR_FORCE", "1".to_owned());
    let colored = machine.svc(&["whoami"]).fails(3).err;
    assert!(colored.contains("\u{1b}[1;31merror:\u{1b}[0m "), "{colored:?}");
    machine.environment.insert("NO_COLOR", "1".to_owned());
    assert_eq!(machine.svc(&["whoami"]).fails(3).err, plain);
    assert!(!plain.contains('\u{1b}'));
}

#[test]
fn control_characters_in_untrusted_text_are_replaced() {
    let mut machine = Machine::new("ftp://\u{1b}[2Jexample\u{9b}1m.org");
    machine.environment.insert("CLICOLOR_FORCE", "1".to_owned());
    let stderr = machine.svc(&["whoami"]).fails(2).err;
    assert!(stderr.contains("ftp://\u{fffd}[2Jexample\u{fffd}1m.org"), "{stderr:?}");
    // Only the escape sequences around the label `error:` remain.
    assert_eq!(stderr.matches('\u{1b}').count(), 2, "{stderr:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_stdout_is_not_an_error() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    let mut child = ada.command(&["orgs", "list"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_stdout_does_not_hide_a_failure() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.svc(&["hostnames", "add", "www.example.org"]).succeeds();
    let mut child = ada.command(&["hostnames", "verify", "www.example.org"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(8), "{err}");
    assert!(err.contains("error: www.example.org"), "{err}");
}
