//! The assembled message.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use kernel::{Limits, MailId};
use mail::{Attachment, DkimSigner, OutgoingMail, dkim_record};
use mail_parser::{Message, MessageParser, MimeHeaders as _};
use ring::signature::{self, KeyPair as _, UnparsedPublicKey};

use crate::kit::{Kit, outgoing};

/// Sends a mail and returns its id and the bytes that the relay received.
async fn sent(kit: &Kit, mail: OutgoingMail) -> (MailId, Vec<u8>) {
    let shop = kit.project("shop").await;
    let id = kit.submit(shop, mail).await.unwrap();
    kit.relay().await;
    let (_, message) = kit.relay.sent().pop().unwrap();
    assert_eq!(kit.entry(shop, id).await.size_bytes, i64::try_from(message.len()).unwrap());
    (id, message)
}

fn parse(message: &[u8]) -> Message<'_> {
    assert!(message.is_ascii());
    let lines = message.split(|byte| *byte == b'\n');
    assert!(lines.clone().all(|line| line.len() <= 999), "a line is too long (RFC 5322 section 2.1.1)");
    let mut complete = lines.rev().skip(1);
    assert!(complete.all(|line| line.ends_with(b"\r")), "a line ends without CR");
    MessageParser::default().parse(message).unwrap()
}

fn addresses(list: Option<&mail_parser::Address<'_>>) -> Vec<String> {
    list.into_iter().flat_map(|list| list.iter()).filter_map(|it| it.address().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_parts_have_the_given_content() {
    let kit = Kit::start().await;
    let long = format!("<{}@example.org>", "x".repeat(70));
    let mail = OutgoingMail {
        from: Some("Jörg Müller, \"Shop\" <support@shop.acme.mail.example>".to_owned()),
        reply_to: Some("help@example.org".to_owned()),
        to: vec!["Ada <ada@example.org>".to_owned(), "bob@müller.example".to_owned()],
        cc: vec!["cy@example.org".to_owned()],
        bcc: vec!["eve@example.org".to_owned(), "ADA@example.org".to_owned()],
        subject: format!("Grüße, 世界 🎉 {}", "sehr ".repeat(40)),
        text: Some("Zeile 1\nZeile 2\r\nZeile 3\rEnde ü".to_owned()),
        html: Some("<p>Grüße</p>".to_owned()),
        headers: BTreeMap::from([
            ("In-Reply-To".to_owned(), long.clone()),
            ("References".to_owned(), [&*long; 20].join(" ")),
            ("X-Note".to_owned(), "größer".to_owned()),
        ]),
        attachments: vec![
            Attachment {
                filename: "Übersicht 2026.csv".to_owned(),
                content_type: "text/csv; charset=utf-8".to_owned(),
                content: "YQpiDQpjDQ==".to_owned(),
            },
            Attachment {
                filename: "a\"b\\c; d.bin".to_owned(),
                content_type: "application/octet-stream".to_owned(),
                content: "AAECAw==".to_owned(),
            },
        ],
    };
    let subject = mail.subject.clone();
    let (id, bytes) = sent(&kit, mail).await;
    let message = parse(&bytes);
    let from = message.from().unwrap().first().unwrap();
    assert_eq!(from.name(), Some("Jörg Müller, \"Shop\""));
    assert_eq!(from.address(), Some("support@shop.acme.mail.example"));
    assert_eq!(addresses(message.to()), ["ada@example.org", "bob@xn--mller-kva.example"]);
    assert_eq!(addresses(message.cc()), ["cy@example.org"]);
    assert_eq!(addresses(message.reply_to()), ["help@example.org"]);
    assert!(message.bcc().is_none() && !String::from_utf8_lossy(&bytes).contains("eve@"));
    assert_eq!(message.subject().map(str::trim_end), Some(subject.trim_end()));
    assert_eq!(message.message_id(), Some(&*format!("{id}@shop.acme.mail.example")));
    assert_eq!(message.date().unwrap().to_timestamp(), kit.now().unix_seconds());
    assert_eq!(message.in_reply_to().as_text(), Some(long.trim_matches(['<', '>'])));
    assert_eq!(message.references().as_text_list().unwrap().len(), 20);
    assert!(message.header_raw("X-Note").is_some());
    assert_eq!(message.body_text(0).unwrap().replace("\r\n", "\n").trim_end(), "Zeile 1\nZeile 2\nZeile 3\nEnde ü");
    assert_eq!(message.body_html(0).unwrap().trim_end(), "<p>Grüße</p>");
    let attachments: Vec<_> = message.attachments().collect();
    assert_eq!(attachments[0].attachment_name(), Some("Übersicht 2026.csv"));
    assert_eq!(attachments[0].contents(), b"a\nb\r\nc\r");
    assert_eq!(attachments[1].attachment_name(), Some("a\"b\\c; d.bin"));
    assert_eq!(attachments[1].contents(), [0, 1, 2, 3]);
    let (envelope, _) = kit.relay.sent().pop().unwrap();
    assert_eq!(envelope.from, "support@shop.acme.mail.example");
    // The envelope contains each recipient once.
    let recipients = ["ada@example.org", "bob@xn--mller-kva.example", "cy@example.org", "eve@example.org"];
    assert_eq!(envelope.to, recipients);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_without_content_is_a_valid_message() {
    let kit = Kit::start().await;
    let (_, bytes) = sent(&kit, OutgoingMail { text: None, ..outgoing(&["ada@example.org"]) }).await;
    assert_eq!(parse(&bytes).body_text(0).unwrap().trim_end(), "");
}

/// RFC 5322 section 2.1.1. The function `parse` checks the lines.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_recipients_are_folded() {
    let many = |field: &str| (10..35).map(|n| format!("{field}{n:x<46}@example.org")).collect::<Vec<_>>();
    let (to, cc) = (many("to"), many("cc"));
    let mut named = cc.clone();
    named[1] = format!("Müller, Jörg <{}>", cc[1]);
    let (_, bytes) = sent(&Kit::start().await, OutgoingMail { to: to.clone(), cc: named, ..outgoing(&[]) }).await;
    let message = parse(&bytes);
    assert_eq!((addresses(message.to()), addresses(message.cc())), (to, cc));
    assert_eq!(message.cc().unwrap().iter().filter_map(|it| it.name()).collect::<Vec<_>>(), ["Müller, Jörg"]);
}

/// RFC 5322 section 2.1.1. The other lines of a subject are folded at its spaces.
#[tokio::test(flavor = "multi_thread")]
async fn long_subjects_survive() {
    for subject in ["x".repeat(1000), format!("a{}b", " ".repeat(998)), "🎉".repeat(1000)] {
        let mail = OutgoingMail { subject: subject.clone(), ..outgoing(&["ada@example.org"]) };
        let (_, bytes) = sent(&Kit::start().await, mail).await;
        assert_eq!(parse(&bytes).subject(), Some(&*subject));
    }
}

/// Receivers drop white space between encoded words (RFC 2047 section 6.2).
#[tokio::test(flavor = "multi_thread")]
async fn repeated_spaces_survive() {
    let long = format!("東京{}大阪", " ".repeat(100));
    for text in ["Grüße  Jörg <ada@example.org> ü", "Grüße an 世界   🎉", "a Größe  Übersicht b", &*long] {
        let headers = BTreeMap::from([("Comments".to_owned(), text.to_owned())]);
        let mail = OutgoingMail { subject: text.to_owned(), headers, ..outgoing(&["ada@example.org"]) };
        let (_, bytes) = sent(&Kit::start().await, mail).await;
        let message = parse(&bytes);
        assert_eq!(message.subject(), Some(text));
        assert_eq!(message.header("Comments").unwrap().as_text(), Some(text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subject_that_looks_encoded_is_not_decoded() {
    let subject = "=?utf-8?b?SGk=?= Ada =?utf-8?q?a=20b?=".to_owned();
    let mail = OutgoingMail { subject: subject.clone(), ..outgoing(&["ada@example.org"]) };
    let (_, bytes) = sent(&Kit::start().await, mail).await;
    assert_eq!(parse(&bytes).subject(), Some(&*subject));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lines_and_dots_survive() {
    let kit = Kit::start().await;
    let text = format!(".\n..\n{}\nFrom me\n", "x".repeat(5000));
    let (_, bytes) = sent(&kit, OutgoingMail { text: Some(text.clone()), ..outgoing(&["ada@example.org"]) }).await;
    assert_eq!(parse(&bytes).body_text(0).unwrap().replace("\r\n", "\n").trim_end(), text.trim_end());
}

const RSA_KEY: &str = include_str!("rsa.pem");
const ED25519_KEY: &str = include_str!("ed25519.pem");

#[tokio::test(flavor = "multi_thread")]
async fn signature_covers_headers_and_body() {
    let ed25519 = signature::Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der(ED25519_KEY)).unwrap();
    let ed25519_key = ed25519.public_key().as_ref().to_vec();
    let rsa_key = signature::RsaKeyPair::from_pkcs8(&der(RSA_KEY)).unwrap().public_key().as_ref().to_vec();
    for (pem, algorithm) in [(ED25519_KEY, "ed25519-sha256"), (RSA_KEY, "rsa-sha256")] {
        let signer = DkimSigner::new(pem, "s1").unwrap();
        let kit = Kit::with(Limits::default(), |mail| mail.with_dkim(Some(signer))).await;
        let one_click = [
            ("List-Unsubscribe", "<https://shop.example/unsubscribe?id=1>"),
            ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ];
        let headers = one_click.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mail = OutgoingMail { html: Some("<p>Hello</p>".to_owned()), headers, ..outgoing(&["ada@example.org"]) };
        let (_, bytes) = sent(&kit, mail).await;
        parse(&bytes);
        let text = String::from_utf8(bytes).unwrap();
        let tags = dkim_tags(&text);
        assert_eq!((&*tags["d"], &*tags["s"], &*tags["a"]), ("mail.example", "s1", algorithm));
        assert_eq!((&*tags["c"], &*tags["v"]), ("relaxed/relaxed", "1"));
        let verify = |message: &str| {
            let (body_hash, signed) = canonical(message, &tags);
            assert_eq!(tags["bh"], body_hash);
            let (signed, signature) = (signed.as_bytes(), decode(&tags["b"]));
            let digest = ring::digest::digest(&ring::digest::SHA256, signed);
            match algorithm {
                "rsa-sha256" => {
                    UnparsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, &rsa_key).verify(signed, &signature)
                }
                _ => UnparsedPublicKey::new(&signature::ED25519, &ed25519_key).verify(digest.as_ref(), &signature),
            }
        };
        assert!(verify(&text).is_ok(), "{algorithm}: {text}");
        // A second header breaks the signature (RFC 6376 section 8.15).
        for name in ["From", "To", "Subject", "Content-Type", "List-Unsubscribe"] {
            let added = text.replacen(&format!("\r\n{name}:"), &format!("\r\n{name}: added\r\n{name}:"), 1);
            assert!(verify(&added).is_err(), "{algorithm}: {added}");
        }
        // A server that adds a header which the message does not have breaks the signature.
        let signed: Vec<_> = tags["h"].split(':').map(str::to_ascii_lowercase).collect();
        assert!(
            ["from", "to", "cc", "subject", "references", "list-unsubscribe", "list-unsubscribe-post"]
                .iter()
                .all(|it| signed.contains(&(*it).to_owned()))
        );
        // A relay can replace these headers.
        assert!(["date", "message-id"].iter().all(|it| !signed.contains(&(*it).to_owned())));
    }
    for text in ["", "key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        assert!(DkimSigner::new(text, "s1").is_err(), "{text}");
    }
}

/// DMARC compares the signature's domain with the sender's.
#[tokio::test(flavor = "multi_thread")]
async fn signature_names_the_mail_domain_at_which_the_project_enabled_email() {
    let signer = DkimSigner::new(ED25519_KEY, "s1").unwrap();
    let kit = Kit::with(Limits::default(), |mail| mail.with_dkim(Some(signer))).await;
    let shop = kit.ungranted("shop").await;
    let project = shop.project.as_uuid();
    let grant = format!("INSERT INTO resources.email_domains VALUES ('{project}', 'shop.acme.mail.old.example')");
    kit.db_execute(&grant).await;
    kit.send(shop, &["ada@example.org"]).await;
    let (envelope, bytes) = kit.relay.sent().pop().unwrap();
    assert_eq!(envelope.from, "noreply@shop.acme.mail.old.example");
    assert_eq!(dkim_tags(&String::from_utf8(bytes).unwrap())["d"], "mail.old.example");
}

/// Runs Debian's `opendkim-testmsg`, which only root can direct to another name server.
#[tokio::test(flavor = "multi_thread")]
async fn opendkim_verifies_the_signature() {
    let is_installed = |program: &&str| Command::new("which").arg(program).output().is_ok_and(|it| it.status.success());
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root || !["opendkim-testmsg", "unshare", "python3"].iter().all(is_installed) {
        eprintln!("skipped: needs root, opendkim-testmsg, unshare and python3");
        return;
    }
    // opendkim does not know Ed25519.
    let signer = DkimSigner::new(RSA_KEY, "s1").unwrap();
    let kit = Kit::with(Limits::default(), |mail| mail.with_dkim(Some(signer))).await;
    let attachment = Attachment {
        filename: "ü.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        content: "R3LDvMOfZQ==".to_owned(),
    };
    let (subject, attachments) = ("Grüße ".repeat(30), vec![attachment]);
    let (_, bytes) = sent(&kit, OutgoingMail { subject, attachments, ..outgoing(&["ada@example.org"]) }).await;
    let record = dkim_record(RSA_KEY).unwrap();
    let verify = |message: &str| {
        // The program reads lines that end with a line feed.
        let file = kit.folder.path().join("message.eml");
        std::fs::write(&file, message.replace("\r\n", "\n")).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/opendkim.py");
        let mut verify = Command::new("unshare");
        verify.args(["--net", "--mount", "python3", script, "s1._domainkey.mail.example", &record]);
        verify.stdin(std::fs::File::open(file).unwrap()).output().unwrap()
    };
    let message = String::from_utf8(bytes).unwrap();
    let verified = verify(&message);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    assert!(!verify(&message.replacen("Hello", "Hullo", 1)).status.success());
}

/// Returns the tags of the signature without white space (RFC 6376 section 3.2).
fn dkim_tags(message: &str) -> BTreeMap<String, String> {
    let header = message.strip_prefix("DKIM-Signature:").unwrap();
    let end = header.match_indices("\r\n").find(|(at, _)| !header[at + 2..].starts_with([' ', '\t'])).unwrap().0;
    let compact: String = header[..end].chars().filter(|c| !c.is_whitespace()).collect();
    let tags = compact.split(';').filter_map(|tag| tag.split_once('='));
    tags.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the hash of the body and the signed text, both in relaxed form (RFC 6376 sections 3.4 and 3.7). This code is
/// independent of the library that signs.
fn canonical(message: &str, tags: &BTreeMap<String, String>) -> (String, String) {
    let (head, body) = message.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<String> = body.split("\r\n").map(relaxed_line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    let body: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let hash = encode(ring::digest::digest(&ring::digest::SHA256, body.as_bytes()).as_ref());
    let mut headers: Vec<String> = Vec::new();
    for line in head.split("\r\n") {
        match headers.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.push_str(line),
            _ => headers.push(line.to_owned()),
        }
    }
    let relaxed = |header: &str| {
        let (name, value) = header.split_once(':').unwrap();
        format!("{}:{}", name.trim().to_ascii_lowercase(), relaxed_line(value).trim())
    };
    let mut signed = String::new();
    for name in tags["h"].split(':') {
        let at = headers.iter().rposition(|header| header.split_once(':').unwrap().0.eq_ignore_ascii_case(name));
        if let Some(at) = at {
            signed.push_str(&relaxed(&headers.remove(at)));
            signed.push_str("\r\n");
        }
    }
    let own = relaxed(&headers.into_iter().find(|header| header.starts_with("DKIM-Signature:")).unwrap());
    let at = own.rfind("; b=").unwrap() + 2;
    assert!(!own[at..].contains(';') || own[at..].ends_with(';'), "b is the last tag");
    signed.push_str(&own[..at + 2]);
    if own.ends_with(';') {
        signed.push(';');
    }
    (hash, signed)
}

/// Reduces white space to single spaces, and removes it at the end of the line.
fn relaxed_line(line: &str) -> String {
    let mut relaxed = String::new();
    for c in line.chars() {
        match c {
            ' ' | '\t' if relaxed.ends_with(' ') => {}
            ' ' | '\t' => relaxed.push(' '),
            c => relaxed.push(c),
        }
    }
    relaxed.trim_end_matches(' ').to_owned()
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn der(pem: &str) -> Vec<u8> {
    decode(&pem.lines().filter(|line| !line.starts_with('-')).collect::<String>())
}
