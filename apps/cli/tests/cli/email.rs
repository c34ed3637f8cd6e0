//! `svc email`.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use crate::support::Platform;

async fn with_mail(store: &TempDir) -> Platform {
    let store = format!("file://{}", store.path().display());
    Platform::with(&[("SVC_MAIL_DOMAIN", "mail.localhost".to_owned()), ("SVC_MAIL_STORE", store)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn address_is_enabled_by_command_or_by_the_manifest() {
    let store = TempDir::new().unwrap();
    let platform = with_mail(&store).await;
    let ada = platform.ada_with_site();
    let email = |command: &str| ada.svc(&["email", command]);
    let status = email("status").succeeds().out;
    let address = "address   any@site.ada.mail.localhost\nfrom      noreply@site.ada.mail.localhost\n";
    assert!(status.starts_with(&format!("enabled   no\n{address}sent      0 of 50 in the last hour")), "{status}");
    email("enable").succeeds().stderr_contains("env.email");
    assert!(email("status").succeeds().out.starts_with("enabled   yes\n"));
    email("disable").succeeds().stderr_contains("the log is kept");
    ada.write("svc.json", r#"{ "email": true }"#);
    ada.svc(&["deploy", "--no-wait"]).succeeds().stderr_contains("enabled email");
    assert_eq!(ada.json(&["email", "status"])["granted"], true);
    assert_eq!(ada.json(&["email", "log"])["items"], json!([]));
    ada.svc(&["email", "status", "--project", "none"]).fails(5);

    let off = Platform::start().await;
    off.ada_with_site().svc(&["email", "enable"]).fails(1).stderr_contains("email_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_and_suppressed_recipients_are_shown() {
    let store = TempDir::new().unwrap();
    let platform = with_mail(&store).await;
    let ada = platform.ada_with_site();
    let project = ada.json(&["projects", "show", "site"])["id"].as_str().unwrap().to_owned();
    let insert = |id: u8, values: &str| {
        format!(
            "INSERT INTO mail.messages (id, project_id, direction, sender, recipients, subject, outcome, detail,
                 size_bytes, spf, has_raw, stored_bytes, created_at)
             SELECT '019b0000-0000-7000-8000-00000000000{id}', id, {values}, 0, now() FROM projects.projects;"
        )
    };
    let sent = "'out', 'noreply@site.ada.mail.localhost', '{eve@navy.example,bob@navy.example}', 'Hi\u{1b}[2J',
        'bounced', '550 5.1.1 user unknown', 2048, NULL, true";
    let received = "'in', '', '{sales@site.ada.mail.localhost}', NULL, 'received', NULL, 100, 'none', false";
    let suppressed = "INSERT INTO mail.suppressions
        SELECT id, 'eve@navy.example', 'bounce', '550 5.1.1 user unknown', now() FROM projects.projects";
    platform.database.run(&format!("{}{}{suppressed}", insert(1, sent), insert(2, received))).await;

    let log = ada.svc(&["email", "log"]).succeeds().out;
    let rows: Vec<&str> = log.lines().collect();
    assert!(rows[0].starts_with("TIME") && rows[0].ends_with("OUTCOME"), "{log}");
    assert!(rows[1].contains("  in         –") && rows[1].ends_with("–        received"), "{log}");
    assert!(rows[2].contains("eve@navy.example, bob@navy.example  Hi\u{fffd}[2J   bounced"), "{log}");
    let out = ada.json(&["email", "log", "--direction", "out"]);
    assert_eq!(out["items"].as_array().unwrap().len(), 1);
    let id = out["items"][0]["id"].as_str().unwrap();
    ada.svc(&["email", "log", "--direction", "up"]).fails(2);
    ada.svc(&["email", "log", "--limit", "1"]).succeeds().stderr_contains("--cursor ");

    let shown = ada.svc(&["email", "show", id]).succeeds().out;
    assert!(
        shown.contains("outcome    bounced\ndetail     550 5.1.1 user unknown\nSPF        –\nsize       2.00 KiB"),
        "{shown}"
    );
    assert!(shown.ends_with(&format!("raw        svc email raw {id}\n")), "{shown}");
    // The bytes are not text.
    let message = b"Subject: x\r\n\r\n\xff\0\x1b\n";
    fs::create_dir_all(store.path().join(&project)).unwrap();
    fs::write(store.path().join(&project).join(id), message).unwrap();
    let raw = ada.command(&["email", "raw", id]).output().unwrap();
    assert!(raw.status.success() && raw.stdout == message, "{raw:?}");
    let received = ada.json(&["email", "log", "--direction", "in"])["items"][0]["id"].as_str().unwrap().to_owned();
    ada.svc(&["email", "raw", &received]).fails(5);

    let suppressions = ada.svc(&["email", "suppressions"]).succeeds().out;
    let row = suppressions.lines().nth(1).unwrap();
    assert!(row.starts_with("eve@navy.example  bounce  ") && row.ends_with("  550 5.1.1 user unknown"), "{row}");
    let cleared = ada.svc(&["email", "unsuppress", "eve@navy.example"]).succeeds();
    cleared.stderr_contains("eve@navy.example is not suppressed");
    ada.svc(&["email", "unsuppress", "notanaddress"]).fails(1).stderr_contains("must be an e-mail address");
    assert_eq!(ada.json(&["email", "suppressions"])["items"], json!([]));
}
