//! Hostile dialogues. Each one gets documented replies, leaves no mail that should not exist, and does not affect the
//! next client.

use std::time::Duration;

use super::control_plane::{BLOG, Received, SHOP};
use super::fixture::{Client, Fixture, HOST};

/// The expected state of the connection after a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Open,
    Closed,
}
use After::{Closed, Open};

/// A dialogue: the bytes that the client sends at once, and the expected codes of the replies.
struct Dialogue {
    name: String,
    steps: Vec<(Vec<u8>, &'static str)>,
    after: After,
    /// The expected number of accepted mails.
    mails: usize,
}

fn dialogue(name: impl Into<String>, steps: &[(&str, &'static str)], after: After, mails: usize) -> Dialogue {
    let steps = steps.iter().map(|(bytes, codes)| (bytes.as_bytes().to_vec(), *codes)).collect();
    Dialogue { name: name.into(), steps, after, mails }
}

/// A dialogue that sends bytes after DATA.
fn data(name: impl Into<String>, bytes: impl AsRef<[u8]>, codes: &'static str, after: After, mails: usize) -> Dialogue {
    let envelope = format!("EHLO c.example\r\nMAIL FROM:<x@sender.example>\r\nRCPT TO:<a@{BLOG}>\r\n");
    let mut steps = Vec::new();
    for line in envelope.split_inclusive("\r\n") {
        steps.push((line.as_bytes().to_vec(), "250"));
    }
    steps.push((b"DATA\r\n".to_vec(), "354"));
    steps.push((bytes.as_ref().to_vec(), codes));
    Dialogue { name: name.into(), steps, after, mails }
}

/// Runs the dialogues in order, and returns the mails of each.
async fn run(fixture: &Fixture, dialogues: Vec<Dialogue>) -> Vec<Vec<Received>> {
    let mut all = Vec::new();
    for Dialogue { name, steps, after, mails } in dialogues {
        let mut client = fixture.connect().await;
        for (bytes, codes) in steps {
            let sent = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            client.send(bytes).await;
            for code in codes.split_whitespace() {
                let reply = client.reply().await;
                assert_eq!(reply.get(..3), Some(code), "{name}: {reply:?} to {sent:?}");
            }
        }
        match after {
            Open => assert_eq!(client.command("NOOP").await, "250 2.0.0 OK", "{name}"),
            Closed => assert_eq!(client.reply().await, "", "{name}"),
        }
        let received = fixture.drain().await;
        assert_eq!(received.len(), mails, "{name}: {received:?}");
        all.push(received);
    }
    all
}

/// Returns a mail that contains another mail after the separator.
fn smuggled(separator: &[u8]) -> Vec<u8> {
    let inner =
        format!("MAIL FROM:<evil@bank.example>\r\nRCPT TO:<a@{BLOG}>\r\nDATA\r\nSubject: evil\r\n\r\nx\r\n.\r\n");
    [b"Subject: outer\r\n\r\ntext", separator, inner.as_bytes()].concat()
}

#[tokio::test]
async fn no_other_sequence_ends_a_mail() {
    let separators: [&[u8]; 20] = [
        b"\n.\n",
        b"\n.\r\n",
        b"\r\n.\n",
        b"\r.\r",
        b"\r.\r\n",
        b"\r.\n",
        b"\r\n.\r",
        b"\n.\r",
        b"\r\n.\r\r\n",
        b"\r\r\n.\r\n",
        b"\n\r\n.\r\n",
        b"\n\n.\r\n",
        b"\r\n.\0\r\n",
        b"\r\n\0.\r\n",
        b"\0\n.\r\n",
        b"\r\0\n.\r\n",
        b"\r\n.\r\0\n",
        b"\n\r.\n\r",
        b"\n.\n.\r\n",
        b"\r\n.\r.\r\n",
    ];
    let fixture = Fixture::start().await;
    let refused = separators.map(|separator| data(format!("{separator:?}"), smuggled(separator), "554", Closed, 0));
    run(&fixture, refused.into()).await;
    // These separators are text, so the mail contains the whole text.
    let text: [&[u8]; 6] = [
        b"\r\n .\r\n",
        b"\r\n..\r\n",
        b"\x0b.\x0b",
        b"\xc2\x85.\xc2\x85",
        b"\xe2\x80\xa8.\xe2\x80\xa8",
        b"\r\n\x0c.\r\n",
    ];
    let accepted = text.map(|separator| data(format!("{separator:?}"), smuggled(separator), "250", Open, 1));
    for mails in run(&fixture, accepted.into()).await {
        assert_eq!(mails[0].mail.subject.as_deref(), Some("outer"));
        assert!(mails[0].raw.ends_with("DATA\r\nSubject: evil\r\n\r\nx\r\n"));
    }
}

#[tokio::test]
async fn commands_are_not_hidden_in_other_bytes() {
    let fixture = Fixture::start().await;
    let mail = format!("MAIL FROM:<x@sender.example>\r\nRCPT TO:<a@{BLOG}>\r\n");
    let early = format!("EHLO c.example\r\n{mail}");
    let early_data = format!("{mail}DATA\r\nSubject: early\r\n\r\nx\r\n.\r\n");
    let chunk = format!("{mail}BDAT 60 LAST\r\nSubject: x\r\n\r\n{mail}DATA\r\nx\r\n.\r\n");
    let hello = ("EHLO c.example\r\n", "250");
    run(
        &fixture,
        vec![
            dialogue("commands after EHLO", &[(&early, "554")], Closed, 0),
            dialogue("commands after HELO", &[("HELO c.example\r\nMAIL FROM:<>\r\n", "554")], Closed, 0),
            dialogue("data after DATA", &[hello, (&early_data, "250 250 554")], Closed, 0),
            dialogue("commands after STARTTLS", &[hello, ("STARTTLS\r\nEHLO evil.example\r\n", "554")], Closed, 0),
            dialogue("BDAT", &[hello, (&chunk, "250 250 502")], Closed, 0),
            dialogue("BDAT without a mail", &[hello, ("BDAT 0 LAST\r\n", "502")], Closed, 0),
            dialogue("HTTP", &[("POST / HTTP/1.1\r\nHost: x\r\n\r\nMAIL FROM:<>\r\n", "502")], Closed, 0),
            dialogue("HTTP GET", &[("GET / HTTP/1.1\r\n\r\n", "502")], Closed, 0),
            dialogue("HTTP/2", &[("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "502")], Closed, 0),
            dialogue("TLS without STARTTLS", &[("\x16\x03\x01\x02\n", "554")], Closed, 0),
            dialogue("LF after a command", &[("EHLO c.example\nMAIL FROM:<>\r\n", "554")], Closed, 0),
            dialogue("CR in a command", &[("NOOP\rMAIL FROM:<>\r\n", "554")], Closed, 0),
            dialogue("NUL in a command", &[hello, ("MAIL FROM:<\0>\r\n", "500")], Open, 0),
            dialogue("a tab in a command", &[hello, ("MAIL\tFROM:<>\r\n", "500")], Open, 0),
        ],
    )
    .await;
    let mut invalid = fixture.greet().await;
    invalid.send(b"NOOP \xff\xfe\r\n").await;
    assert_eq!(invalid.reply().await, "500 5.5.2 the command has invalid characters");
}

#[tokio::test]
async fn commands_out_of_order_and_malformed_ones_are_refused() {
    let fixture = Fixture::start().await;
    let hello = ("EHLO c.example\r\n", "250");
    let mail = ("MAIL FROM:<x@sender.example>\r\n", "250");
    let long = format!("NOOP {}\r\n", "x".repeat(5000));
    let endless = format!("{}\r\n", "x".repeat(200_000));
    let local = format!("RCPT TO:<{}@{BLOG}>\r\n", "x".repeat(65));
    let quotes = format!("\"{}\"@{}", r#"\""#.repeat(64), ["a.".repeat(126), "a".to_owned()].concat());
    let (quoted_from, quoted_to) = (format!("MAIL FROM:<{quotes}>\r\n"), format!("RCPT TO:<{quotes}>\r\n"));
    let recipient = format!("RCPT TO:<a@{BLOG}>\r\n");
    let literal = "RCPT TO:<a@[127.0.0.1]>\r\n";
    let percent = format!("RCPT TO:<a%b.example@{BLOG}>\r\n");
    let errors: String = "FOO\r\n".repeat(20);
    let noops: String = "NOOP\r\n".repeat(1001);
    let no_codes: &'static str = "500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 421";
    run(
        &fixture,
        vec![
            dialogue("MAIL without EHLO", &[("MAIL FROM:<>\r\n", "503")], Open, 0),
            dialogue("RCPT without MAIL", &[hello, (&recipient, "503")], Open, 0),
            dialogue("DATA without MAIL", &[hello, ("DATA\r\n", "503")], Open, 0),
            dialogue("DATA without RCPT", &[hello, mail, ("DATA\r\n", "554")], Open, 0),
            dialogue("two MAIL", &[hello, mail, ("MAIL FROM:<>\r\n", "503")], Open, 0),
            dialogue("RSET", &[hello, mail, ("RSET\r\n", "250"), (&recipient, "503")], Open, 0),
            dialogue("EHLO resets", &[hello, mail, hello, (&recipient, "503")], Open, 0),
            dialogue("AUTH", &[hello, ("AUTH PLAIN AGEAYg==\r\n", "502")], Open, 0),
            dialogue("VRFY and EXPN", &[hello, ("VRFY root\r\nEXPN list\r\n", "252 502")], Open, 0),
            dialogue("HELP, NOOP and unknown", &[("HELP\r\nNOOP x\r\nFOO\r\n\r\n", "214 250 500 500")], Open, 0),
            dialogue("EHLO with a result", &[("EHLO x;spf=pass\r\n", "501"), ("EHLO (spf=pass)\r\n", "501")], Open, 0),
            dialogue("EHLO with text after it", &[("EHLO x spf=pass\r\n", "250")], Open, 0),
            dialogue("a long EHLO", &[(&format!("EHLO {}\r\n", "x".repeat(300)), "501")], Open, 0),
            dialogue("a long command", &[(&long, "500")], Open, 0),
            dialogue("a very long command", &[(&endless, "500")], Open, 0),
            dialogue("a long local part", &[hello, mail, (&local, "501")], Open, 0),
            dialogue("a long sender", &[hello, (&quoted_from, "501")], Open, 0),
            dialogue("a long recipient", &[hello, mail, (&quoted_to, "501")], Open, 0),
            dialogue("a relay", &[hello, mail, ("RCPT TO:<a@elsewhere.example>\r\n", "550")], Open, 0),
            dialogue("a relay by literal", &[hello, mail, (literal, "550")], Open, 0),
            dialogue("a percent hack is a local part", &[hello, mail, (&percent, "250")], Open, 0),
            dialogue("postmaster", &[hello, mail, ("RCPT TO:<postmaster>\r\n", "550")], Open, 0),
            dialogue("an empty recipient", &[hello, mail, ("RCPT TO:<>\r\n", "501")], Open, 0),
            dialogue("UTF-8 without SMTPUTF8", &[hello, ("MAIL FROM:<ü@sender.example>\r\n", "553")], Open, 0),
            dialogue("a declared size", &[hello, ("MAIL FROM:<> SIZE=26214401\r\n", "552")], Open, 0),
            dialogue("a huge size", &[hello, ("MAIL FROM:<> SIZE=9223372036854775807\r\n", "552")], Open, 0),
            dialogue("BINARYMIME", &[hello, ("MAIL FROM:<> BODY=BINARYMIME\r\n", "555")], Open, 0),
            dialogue("errors", &[(&errors, no_codes)], Closed, 0),
            Dialogue {
                name: "commands without a mail".to_owned(),
                steps: vec![(noops.into_bytes(), Box::leak(format!("{}421", "250 ".repeat(1000)).into_boxed_str()))],
                after: Closed,
                mails: 0,
            },
        ],
    )
    .await;
}

#[tokio::test]
async fn a_mail_has_at_most_100_recipients() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    client.command("MAIL FROM:<>").await;
    for number in 0..100 {
        assert_eq!(client.command(&format!("RCPT TO:<{number}@{BLOG}>")).await, "250 2.1.5 OK");
    }
    let too_many = "452 4.5.3 too many recipients; send the mail to the others separately";
    assert_eq!(client.command(&format!("RCPT TO:<100@{BLOG}>")).await, too_many);
    client.command("DATA").await;
    client.send("Subject: many\r\n\r\n.\r\n").await;
    assert!(client.reply().await.starts_with("250 2.0.0"));
    assert_eq!(fixture.drain().await[0].mail.to.len(), 100);

    // The 10,000 unknown recipients end the session with 421, before the client can send the mail.
    client.command("MAIL FROM:<>").await;
    let rcpts: String = (0..10_000).map(|number| format!("RCPT TO:<{number}@{BLOG}>\r\n")).collect();
    client.send(rcpts).await;
    let mut codes = Vec::new();
    loop {
        let reply = client.reply().await;
        if reply.is_empty() {
            break;
        }
        codes.push(reply[..3].to_owned());
    }
    assert_eq!(codes.iter().filter(|code| *code == "250").count(), 100);
    assert!(codes.len() <= 1001 && codes.last().unwrap() == "421", "{}", codes.len());
}

#[tokio::test]
async fn addresses_that_are_guessed_cost_the_connection() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    client.command("MAIL FROM:<>").await;
    for number in 0..20 {
        let reply = client.command(&format!("RCPT TO:<a@guess{number}.acme.mail.example>")).await;
        assert_eq!(reply, "550 5.1.1 no such address");
    }
    assert_eq!(client.reply().await, "421 4.7.0 too many errors");
}

#[tokio::test]
async fn headers_are_bounded_and_bodies_are_not_parsed() {
    let fixture = Fixture::start().await;
    let fields = |count: usize, field: &str| format!("{}\r\n\r\n.\r\n", [field].repeat(count).join("\r\n"));
    let long = |length: usize| format!("Subject: s\r\n\r\n{}\r\n.\r\n", "x".repeat(length));
    let mut nested =
        "Subject: nested\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n".to_owned();
    for depth in 0..5000 {
        nested += &format!("--b{depth}\r\nContent-Type: multipart/mixed; boundary=b{depth}\r\n\r\n");
    }
    let bomb =
        format!("Content-Type: message/rfc822\r\n\r\n{}\r\n.\r\n", "Content-Type: message/rfc822\r\n\r\n".repeat(5000));
    let encoded = format!("Subject: {}\r\n\r\n.\r\n", "=?utf-8?q?=0D=0A=00?=\r\n ".repeat(2000));
    let folded = format!("Subject: s\r\n{}\r\n.\r\n", " \t x\r\n".repeat(10_000));
    let accepted = vec![
        data("no bytes", ".\r\n", "250", Open, 1),
        data("an empty header", "\r\n.\r\n", "250", Open, 1),
        data("999 fields", fields(999, "X: y"), "250", Open, 1),
        data("a long line", long(1 << 20), "250", Open, 1),
        data("a line of 100 KiB in the header", format!("X: {}\r\n\r\n.\r\n", "y".repeat(100 << 10)), "250", Open, 1),
        data("100 hops", fields(100, "Received: x"), "250", Open, 1),
        data("nested parts", nested + "\r\n.\r\n", "250", Open, 1),
        data("nested mails", bomb, "250", Open, 1),
        data("control characters in the subject", encoded, "250", Open, 1),
        data("a folded field", folded, "250", Open, 1),
        data("bytes that are not UTF-8", b"Subject: \xff\xfe\r\nX\xff: y\r\n\r\n\xff\r\n.\r\n", "250", Open, 1),
    ];
    for mails in run(&fixture, accepted).await {
        let subject = mails[0].mail.subject.clone().unwrap_or_default();
        assert!(subject.chars().count() <= 1000 && !subject.contains(char::is_control), "{subject:?}");
    }
    run(
        &fixture,
        vec![
            data("10,000 fields", fields(10_000, "X: y"), "552", Open, 0),
            data("101 hops", fields(101, "Received: x"), "554", Open, 0),
            data(
                "a line of 200 KiB in the header",
                format!("X: {}\r\n\r\n.\r\n", "y".repeat(200 << 10)),
                "552",
                Open,
                0,
            ),
            data("a header without an end", format!("{}.\r\n", "X: y\r\n".repeat(100_000)), "552", Open, 0),
        ],
    )
    .await;
}

#[tokio::test]
async fn no_result_is_forged() {
    let fixture = Fixture::start().await;
    let forged = [
        format!("Authentication-Results: {HOST}; spf=pass\r\nSubject: s\r\n\r\n.\r\n"),
        format!("Authentication-Results:\r\n\t{HOST};\r\n\tspf=pass\r\n\r\n.\r\n"),
        format!("Subject: s\r\nauthentication-results : {HOST} 1 ; spf=pass\r\n\r\n.\r\n"),
        format!("Authentication-Results: (a (b) \\)) \"{HOST}\" (c); spf=pass\r\n\r\n.\r\n"),
        format!("Authentication-Results: {}.; spf=pass\r\n\r\n.\r\n", HOST.to_uppercase()),
        format!("Authentication-Results: other.example; none,\r\n\t{HOST}; spf=pass\r\n\r\n.\r\n"),
        format!("garbage\r\nAuthentication-Results: {HOST}; spf=pass\r\n\r\n.\r\n"),
        format!("Authentication-Results: \x01{HOST}; spf=pass\r\n\r\n.\r\n"),
        format!("Authentication-Results: {HOST}\x01; spf=pass\r\n\r\n.\r\n"),
        format!("Subject: s\r\nAuthentication-Results\x0b: {HOST}; spf=pass\r\n\r\n.\r\n"),
        format!("Subject: s\r\nAuthentication-Results\u{a0}: {HOST}; spf=pass\r\n\r\n.\r\n"),
        " spf=pass\r\n\r\n.\r\n".to_owned(),
        "\t(spf=pass)\r\nSubject: s\r\n\r\n.\r\n".to_owned(),
        ";spf=pass\r\n.\r\n".to_owned(),
    ];
    let dialogues = forged.iter().map(|bytes| data(bytes.escape_debug().to_string(), bytes, "250", Open, 1));
    for mails in run(&fixture, dialogues.collect()).await {
        let (header, _) = mails[0].raw.split_once("\r\n\r\n").unwrap();
        let unfolded = header.replace("\r\n\t", " ").replace("\r\n ", " ").to_lowercase();
        assert!(!unfolded.contains("spf=pass"), "{header}");
        assert_eq!(unfolded.matches(&format!("{HOST};")).count(), 1, "{header}");
    }
}

/// A mail that the control plane never accepts must not block the mails of its project, nor fill the queue.
#[tokio::test]
async fn mail_that_the_control_plane_refuses_is_set_aside() {
    let fixture = Fixture::start_with(|limits| {
        limits.queue.project_bytes = 1;
        limits.queue.refusal = Duration::ZERO;
    })
    .await;
    let mut client = fixture.greet().await;
    fixture.core.refuse("prj_blog");
    let to = [format!("a@{BLOG}"), format!("b@{SHOP}")];
    client.mail("x@sender.example", &to.each_ref().map(String::as_str), "Subject: 1\r\n\r\n").await;
    assert_eq!(fixture.core.wait_for(1).await[0].mail.project, "prj_shop");
    fixture.has_metric("svc_mx_handovers_total{outcome=\"refused\"}", "1").await;
    fixture.has_metric("svc_mx_queue_mails", "0").await;
    let files = std::fs::read_dir(fixture.directory.path().join("queue")).unwrap().map(|file| file.unwrap().path());
    let mut extensions: Vec<_> = files.filter_map(|file| Some(file.extension()?.to_owned())).collect();
    assert_eq!(extensions.pop().unwrap(), "refused");
    assert!(extensions.is_empty() && fixture.core.handovers().len() == 2);
    // The mail does not count against its project any more.
    client.command("MAIL FROM:<x@sender.example>").await;
    assert_eq!(client.command(&format!("RCPT TO:<a@{BLOG}>")).await, "250 2.1.5 OK");
}

#[tokio::test]
async fn large_mails_are_refused() {
    let fixture = Fixture::start_with(|limits| (limits.mail_bytes, limits.data_bytes) = (1 << 20, 4 << 20)).await;
    let mail = |length: usize| format!("Subject: s\r\n\r\n{}\r\n.\r\n", "x".repeat(length));
    run(
        &fixture,
        vec![
            data("at the limit", mail((1 << 20) - 16), "250", Open, 1),
            data("above the limit", mail((1 << 20) - 15), "552", Open, 0),
            data("at three times the limit", mail(3 << 20), "552", Open, 0),
            data("far above the limit", mail(9 << 19), "552", Closed, 0),
        ],
    )
    .await;
    // A client that disconnects leaves no file behind.
    let mut client = fixture.greet().await;
    client.command("MAIL FROM:<>").await;
    client.command(&format!("RCPT TO:<a@{BLOG}>")).await;
    client.command("DATA").await;
    client.send("x".repeat(200_000)).await;
    drop(client);
    assert_eq!(fixture.drain().await, []);
}

#[tokio::test]
async fn a_client_that_never_reads_does_not_disturb_others() {
    let fixture = Fixture::start_with(|limits| limits.commands = 1_000_000).await;
    let mut deaf = fixture.greet().await;
    let flood = tokio::spawn(async move {
        for _ in 0..30 {
            deaf.send("HELP\r\n".repeat(10_000)).await;
        }
    });
    for _ in 0..3 {
        let mut client: Client = fixture.greet().await;
        assert!(client.mail("", &[&format!("a@{BLOG}")], "Subject: s\r\n\r\n").await.starts_with("250 "));
    }
    assert_eq!(fixture.drain().await.len(), 3);
    flood.abort();
}
