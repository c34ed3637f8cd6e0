//! What goes where, and how it looks.

use serde_json::Value;

use crate::kit::{Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn json_is_what_the_api_answered_and_words_go_elsewhere() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    let created = ada.svc(&["--json", "orgs", "create", "acme"]).succeeds();
    let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    // Also what this release of the command has no use for.
    let expected = ["createdAt", "id", "name", "personal", "plan", "projectLimit", "role", "slug"];
    assert_eq!(members(&created.json()), expected);
    created.says("created the organization acme");

    let refused = ada.svc(&["orgs", "create", "acme", "--json"]).fails(1);
    assert_eq!(members(&refused.json()), ["code", "details", "message", "requestId"]);
    let id = refused.json()["requestId"].as_str().unwrap().to_owned();
    refused.says("error: ").says(&id);
    // What is no answer of the API is no document.
    assert_eq!(ada.svc(&["projects", "list", "--json"]).fails(2).out, "");
}

#[test]
fn an_api_that_is_away_is_told_from_one_that_refuses() {
    let mut machine = Machine::new("http://127.0.0.1:9");
    machine.environment.insert("SVC_CLI_TOKEN", "svc_pat_x".to_owned());
    let ran = machine.svc(&["whoami"]).fails(7);
    ran.says("error: the API cannot be reached").says("next: ");
    assert!(!ran.err.contains("svc_pat_x"), "{ran:?}");
}

#[test]
fn colours_are_for_who_wants_them() {
    let mut machine = Machine::new("http://127.0.0.1:9");
    let plain = machine.svc(&["whoami"]).fails(3).err;
    machine.environment.insert("CLICOLOR_FORCE", "1".to_owned());
    let coloured = machine.svc(&["whoami"]).fails(3).err;
    assert!(coloured.contains("\u{1b}[1;31merror:\u{1b}[0m "), "{coloured:?}");
    machine.environment.insert("NO_COLOR", "1".to_owned());
    assert_eq!(machine.svc(&["whoami"]).fails(3).err, plain);
    assert!(!plain.contains('\u{1b}'));
}

#[test]
fn what_others_wrote_moves_no_cursor() {
    let mut machine = Machine::new("ftp://\u{1b}[2Jexample\u{9b}1m.org");
    machine.environment.insert("CLICOLOR_FORCE", "1".to_owned());
    let said = machine.svc(&["whoami"]).fails(2).err;
    assert!(said.contains("ftp://\u{fffd}[2Jexample\u{fffd}1m.org"), "{said:?}");
    // Our own colours are around the one word.
    assert_eq!(said.matches('\u{1b}').count(), 2, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_leaves_early_is_no_failure() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    let mut child = ada.command(&["orgs", "list"]).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.len()), (Some(0), 0));
}
