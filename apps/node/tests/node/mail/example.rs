//! The example `mail-bot`.

use std::path::Path;
use std::{array, fs};

use protocol::{DeliveryResult, MailRefusal, OutgoingMail};
use serde_json::json;

use super::{address, workerd};
use crate::control_plane::ControlPlane;
use crate::node_process::NodeProcess;
use crate::running::eventually;

const HOST: &str = "bot.localhost";

/// Starts a node with the example as the project `bot`. Returns `None` without `workerd`.
async fn start() -> Option<(NodeProcess, tempfile::TempDir)> {
    workerd()?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mail-bot");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let names = ["worker/index.js", "worker/mails.js", "worker/pages.js", "worker/words.js", "assets/style.css"];
    let contents = names.map(read);
    let files: [_; 5] = array::from_fn(|number| (names[number], contents[number].as_slice()));
    let core = ControlPlane::start().await;
    core.set_part("bot", "email", address("bot"));
    core.set_part("bot", "storage", json!({ "prefix": "sto_bot", "quotaBytes": 1 << 20 }));
    core.deploy_with(str::from_utf8(&read("svc.json")).unwrap(), "bot", &files);
    let objects = tempfile::tempdir().unwrap();
    let storage = format!("file://{}", objects.path().display());
    let node = NodeProcess::start(core, [("SVC_NODE_STORAGE", storage)]).await;
    node.visitor().sees(HOST, "/", 200, "No mail yet.").await;
    Some((node, objects))
}

async fn handles(node: &NodeProcess, raw: &str) -> String {
    let id = node.core.receive_mail("bot", raw.to_owned());
    assert_eq!(node.core.mail_result(&id).await, DeliveryResult::Handled, "{raw}");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn bot_replies_once_and_shows_the_last_ten_mails() {
    let Some((node, _objects)) = start().await else { return };
    let raw = "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe_?=\r\n =?UTF-8?B?PGI+?=\r\nMessage-ID: <1@example.com>\r\n\r\nHi\r\n";
    let id = handles(&node, raw).await;
    node.core.redeliver_mail(&id);
    assert_eq!(node.core.mail_result(&id).await, DeliveryResult::Handled);
    let submitted = node.core.submitted_mail();
    assert_eq!(submitted.len(), 1);
    let headers =
        [("Auto-Submitted", "auto-replied"), ("In-Reply-To", "<1@example.com>"), ("References", "<1@example.com>")];
    let expected = OutgoingMail {
        from: Some("hello@bot.ada.example".to_owned()),
        to: vec!["ada@example.com".to_owned()],
        subject: "Re: Grüße <b>".to_owned(),
        text: Some(format!("Thank you for your mail. It has {} bytes.\n", raw.len())),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..OutgoingMail::default()
    };
    assert_eq!(submitted[0].mail, expected);
    let page = node.visitor().get(HOST, "/").await.body;
    assert!(page.contains("<p>Grüße &lt;b&gt;</p>") && page.contains("a…@example.com"), "{page}");

    for number in 1..=11 {
        handles(&node, &format!("Subject: number {number}.\r\n\r\n")).await;
    }
    let page = node.visitor().get(HOST, "/").await.body;
    let subjects: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("<p>")).collect();
    let expected: Vec<String> = (2..=11).rev().map(|number| format!("number {number}.</p>")).collect();
    assert_eq!(subjects, expected);
}

/// The platform accepts no other subject.
#[tokio::test(flavor = "multi_thread")]
async fn subject_of_the_reply_is_one_short_line_of_whole_characters() {
    let Some((node, _objects)) = start().await else { return };
    let letters = "a".repeat(198);
    handles(&node, &format!("Subject: {letters} =?utf-8?q?=F0=9F=98=80b?=\r\n\r\n")).await;
    handles(&node, "Subject: =?utf-8?q?one=0D=0Atwo=00?=\r\n\r\n").await;
    let submitted = node.core.submitted_mail();
    let subjects: Vec<&str> = submitted.iter().map(|it| it.mail.subject.as_str()).collect();
    assert_eq!(subjects, [format!("Re: {letters} \u{1f600}").as_str(), "Re: one  two "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bot_does_not_reply_to_programs() {
    let Some((node, _objects)) = start().await else { return };
    for headers in [
        "Auto-Submitted: auto-replied",
        "Auto-Submitted: auto-generated; type=x",
        "Precedence: bulk",
        "List-Id: <list.example.com>",
    ] {
        handles(&node, &format!("{headers}\r\n\r\n")).await;
    }
    let bounce = node.core.receive_mail_from("", "bot", "Subject: bounce\r\n\r\n");
    assert_eq!(node.core.mail_result(&bounce).await, DeliveryResult::Handled);
    assert_eq!(node.core.submitted_mail(), []);
    // The worker fails after a temporary refusal, so the mail is delivered again. It ignores a permanent refusal.
    node.core.refuse_mail(Some(MailRefusal::RateLimited));
    let id = node.core.receive_mail("bot", "Subject: later\r\n\r\n");
    assert!(matches!(node.core.mail_result(&id).await, DeliveryResult::Failed(_)));
    node.core.refuse_mail(Some(MailRefusal::Suppressed));
    // The node repeats the temporary refusal for a moment.
    eventually("the mail is handled", async || {
        node.core.redeliver_mail(&id);
        (node.core.mail_result(&id).await == DeliveryResult::Handled).then_some(())
    })
    .await;
    node.visitor().sees(HOST, "/", 200, "later").await;
}
