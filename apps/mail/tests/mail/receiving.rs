//! Tests of receiving mail, and of its trace fields.

use super::control_plane::{BLOG, Received, SHOP};
use super::fixture::{Fixture, HOST};

/// Returns the trace fields and the rest of a mail.
fn split(received: &Received) -> (String, String) {
    let end = received.raw.match_indices("\r\n").map(|(position, _)| position + 2);
    let end = end.filter(|end| !received.raw[*end..].starts_with(['\t', ' '])).nth(2).unwrap();
    (received.raw[..end].to_owned(), received.raw[end..].to_owned())
}

#[tokio::test]
async fn extensions_are_offered_and_a_mail_is_received() {
    let fixture = Fixture::start().await;
    let mut client = fixture.connect().await;
    assert_eq!(
        client.command("EHLO client.example").await,
        format!(
            "250-{HOST}|250-SIZE 26214400|250-8BITMIME|250-SMTPUTF8|250-PIPELINING|250-ENHANCEDSTATUSCODES|250 STARTTLS"
        )
    );
    // A node without a certificate and an encrypted connection have the same help.
    let help = "214 2.0.0 EHLO HELO MAIL RCPT DATA RSET NOOP QUIT; EHLO lists the extensions";
    assert_eq!(client.command("HELP").await, help);
    let data = "From: Ada <ada@sender.example>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\n..dot\r\nGrüße";
    let queued = client.mail("Ada@Sender.Example", &[&format!("Hello+1@{}.", BLOG.to_uppercase())], data).await;
    let received = fixture.core.wait_for(1).await.remove(0);
    assert_eq!(queued, format!("250 2.0.0 queued as {}", received.id));
    let mail = &received.mail;
    assert_eq!((mail.project.as_str(), mail.from.as_str()), ("prj_blog", "Ada@sender.example"));
    assert_eq!(mail.to, [format!("Hello+1@{BLOG}")]);
    assert_eq!((mail.subject.as_deref(), mail.spf.as_str()), (Some("Grüße"), "none"));
    assert!(received.id.starts_with("mail_") && received.id.len() == 31, "{}", received.id);
    assert!(mail.received_at.ends_with('Z') && mail.received_at.len() == 24, "{}", mail.received_at);
    let (trace, rest) = split(&received);
    let expected = format!(
        "Return-Path: <Ada@sender.example>\r\n\
         Authentication-Results: {HOST};\r\n\tspf=none smtp.mailfrom=sender.example\r\n\
         Received: from client.example ([127.0.0.1])\r\n\tby {HOST} with ESMTP id {}\r\n\tfor <Hello+1@{BLOG}>;\r\n\t",
        received.id
    );
    assert!(trace.starts_with(&expected), "{trace}");
    assert_eq!(rest, data.replace("..dot", ".dot") + "\r\n");
    assert!(fixture.drain().await.len() == 1 && fixture.core.handovers().len() == 1);
    fixture.has_metric("svc_mx_mails_total{outcome=\"accepted\"}", "1").await;
    fixture.has_metric("svc_mx_open_connections", "1").await;
    assert!(fixture.get("/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn projects_receive_separate_copies_with_only_their_recipients() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    let to = [format!("a@{BLOG}"), format!("b@{SHOP}"), format!("c@{BLOG}"), format!("a@{BLOG}")];
    client.mail("x@sender.example", &to.each_ref().map(String::as_str), "Subject: s\r\n\r\nbody").await;
    let [blog, shop] = <[Received; 2]>::try_from(fixture.core.wait_for(2).await).unwrap();
    assert_eq!(blog.mail.to, [format!("a@{BLOG}"), format!("c@{BLOG}")]);
    assert_eq!(shop.mail.to, [format!("b@{SHOP}")]);
    assert!(blog.id != shop.id && !blog.raw.contains(SHOP) && !shop.raw.contains(BLOG));
    let [blog, shop] = [split(&blog), split(&shop)];
    assert!(!blog.0.contains("for <"), "{}", blog.0);
    assert!(shop.0.contains(&format!("\tfor <b@{SHOP}>;")), "{}", shop.0);
    assert_eq!(blog.1, shop.1);
}

#[tokio::test]
async fn envelopes_have_all_kinds_of_addresses() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    client.command("HELO [192.0.2.7]").await;
    client.mail("", &[&format!("\"a b\"@{BLOG}")], "Subject: 1\r\n\r\n").await;
    client.mail("x@[192.0.2.1]", &[&format!("@relay.example:c@{BLOG}")], "Subject: 2\r\n\r\n").await;
    client.command(r#"MAIL FROM:<"; spf=pass smtp.mailfrom=bank.example"@bücher.example> SMTPUTF8"#).await;
    client.command(&format!("RCPT TO:<ü@{BLOG}>")).await;
    client.command("DATA").await;
    client.send("Subject: 3\r\n\r\n.\r\n").await;
    assert!(client.reply().await.starts_with("250 "));
    let mails = fixture.core.wait_for(3).await;
    let envelope = |index: usize| (mails[index].mail.from.as_str(), mails[index].mail.to[0].clone());
    assert_eq!(envelope(0), ("", format!("\"a b\"@{BLOG}")));
    assert_eq!(envelope(1), ("x@[192.0.2.1]", format!("c@{BLOG}")));
    let quoted = r#""; spf=pass smtp.mailfrom=bank.example"@xn--bcher-kva.example"#;
    assert_eq!(envelope(2), (quoted, format!("ü@{BLOG}")));
    let trace = |index: usize| split(&mails[index]).0;
    assert!(trace(0).contains("\tspf=none smtp.helo=\"[192.0.2.7]\"\r\n"), "{}", trace(0));
    assert!(trace(0).contains(" with SMTP id "), "{}", trace(0));
    assert!(trace(0).starts_with("Return-Path: <>\r\n"), "{}", trace(0));
    assert!(trace(2).starts_with(&format!("Return-Path: <{quoted}>\r\n")), "{}", trace(2));
    assert!(trace(1).contains("\tspf=none smtp.mailfrom=\"[192.0.2.1]\"\r\n"), "{}", trace(1));
    assert!(trace(2).contains("\tspf=none smtp.mailfrom=xn--bcher-kva.example\r\nReceived"), "{}", trace(2));
}

#[tokio::test]
async fn pipelined_commands_are_answered_in_order() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    let unknown = "nobody@other.acme.mail.example";
    client
        .send(format!(
            "MAIL FROM:<x@sender.example> SIZE=100 BODY=8BITMIME\r\nRCPT TO:<a@{BLOG}>\r\nRCPT TO:<{unknown}>\r\n\
             RCPT TO:<a@elsewhere.example>\r\nDATA\r\n"
        ))
        .await;
    let mut replies = Vec::new();
    for _ in 0..5 {
        replies.push(client.reply().await);
    }
    assert_eq!(replies[1..4], ["250 2.1.5 OK", "550 5.1.1 no such address", "550 5.7.1 relaying denied"]);
    assert!(replies[4].starts_with("354 "));
    // A client can send the end of a mail and the next mail together.
    client.send(format!("Subject: 1\r\n\r\n.\r\nMAIL FROM:<>\r\nRCPT TO:<b@{BLOG}>\r\nDATA\r\n")).await;
    for start in ["250 2.0.0", "250 2.1.0", "250 2.1.5", "354 "] {
        assert!(client.reply().await.starts_with(start));
    }
    client.send("Subject: 2\r\n\r\n.\r\nQUIT\r\n").await;
    assert!(client.reply().await.starts_with("250 2.0.0"));
    assert_eq!(client.reply().await, "221 2.0.0 bye");
    assert_eq!(client.reply().await, "");
    assert_eq!(fixture.core.wait_for(2).await.len(), 2);
}

#[tokio::test]
async fn results_under_our_name_are_replaced() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    let forged = format!(
        "Return-Path: <bank@bank.example>\r\nAuthentication-Results: (x) {HOST} 1;\r\n\tspf=pass smtp.mailfrom=bank.example\r\n\
         From: a@b.example\r\nAuthentication-Results: upstream.example; dkim=pass\r\n\
         AUTHENTICATION-RESULTS:\r\n {};\r\n dkim=pass\r\nSubject: 1\r\n\r\nAuthentication-Results: {HOST}; body",
        HOST.to_uppercase()
    );
    client.mail("x@sender.example", &[&format!("a@{BLOG}")], &forged).await;
    client.mail("x@sender.example", &[&format!("a@{BLOG}")], " dkim=pass\r\nSubject: 2\r\n\r\n").await;
    client.mail("x@sender.example", &[&format!("a@{BLOG}")], "\tdkim=pass").await;
    client.mail("x@sender.example", &[&format!("a@{BLOG}")], "\r\nFrom: body").await;
    let mails = fixture.drain().await;
    let mut rests: Vec<_> = mails.iter().map(|received| split(received).1).collect();
    rests.sort();
    assert_eq!(
        rests,
        [
            "\r\n\tdkim=pass\r\n".to_owned(),
            "\r\n dkim=pass\r\nSubject: 2\r\n\r\n\r\n".to_owned(),
            "\r\nFrom: body\r\n".to_owned(),
            "From: a@b.example\r\nAuthentication-Results: upstream.example; dkim=pass\r\nSubject: 1\r\n\r\n".to_owned()
                + &format!("Authentication-Results: {HOST}; body\r\n"),
        ]
    );
    for received in &mails {
        let (header, _) = received.raw.split_once("\r\n\r\n").unwrap();
        assert_eq!(header.to_lowercase().matches(&format!("{HOST};")).count(), 1, "{header}");
        assert!(header.starts_with("Return-Path: <x@sender.example>\r\n") && !header.contains("bank.example"));
    }
}

#[tokio::test]
async fn mail_is_refused_temporarily_without_the_control_plane() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    client.command("MAIL FROM:<>").await;
    let recipient = format!("RCPT TO:<a@{BLOG}>");
    fixture.core.fail_lookups(true);
    let unavailable = "451 4.3.0 the recipient cannot be checked; try again later";
    assert_eq!(client.command(&recipient).await, unavailable);
    fixture.core.fail_lookups(false);
    assert_eq!(client.command(&recipient).await, "250 2.1.5 OK");
    client.command("DATA").await;
    fixture.core.stop().await;
    let refused = client.command("Subject: 1\r\n\r\n.").await;
    assert_eq!(refused, "451 4.3.0 a recipient cannot be confirmed; try again later");
    assert_eq!(fixture.drain().await, []);
    client.command("MAIL FROM:<>").await;
    assert_eq!(client.command(&recipient).await, unavailable);
}

#[tokio::test]
async fn change_of_an_owner_applies_immediately() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    let to = format!("a@{BLOG}");
    let (rcpt, other) = (format!("RCPT TO:<{to}>"), format!("RCPT TO:<b@{SHOP}>"));
    client.mail("", &[&to], "Subject: 1\r\n\r\n").await;
    client.command("MAIL FROM:<>").await;
    for _ in 0..2 {
        fixture.core.give(BLOG, None);
        assert_eq!(client.command(&rcpt).await, "550 5.1.1 no such address");
        fixture.core.give(BLOG, Some("prj_new"));
        assert_eq!(client.command(&rcpt).await, "250 2.1.5 OK");
    }
    client.command("DATA").await;
    assert!(client.command("Subject: 2\r\n\r\n.").await.starts_with("250 "));
    // While a mail arrives, its recipient gets another owner.
    client.command("MAIL FROM:<>").await;
    client.command(&rcpt).await;
    client.command("DATA").await;
    fixture.core.give(BLOG, Some("prj_next"));
    assert!(client.command("Subject: 3\r\n\r\n.").await.starts_with("250 "));
    let received = fixture.core.wait_for(3).await;
    let projects: Vec<&str> = received.iter().map(|it| it.mail.project.as_str()).collect();
    assert_eq!(projects, ["prj_blog", "prj_new", "prj_next"]);
    // A recipient loses its owner. The sender must repeat the mail, because only RCPT can refuse a single recipient.
    client.command("MAIL FROM:<>").await;
    for recipient in [&rcpt, &other] {
        assert_eq!(client.command(recipient).await, "250 2.1.5 OK");
    }
    client.command("DATA").await;
    fixture.core.give(BLOG, None);
    let refused = client.command("Subject: 4\r\n\r\n.").await;
    assert_eq!(refused, "451 4.3.0 a recipient cannot be confirmed; try again later");
    assert_eq!(fixture.drain().await.len(), 3);
    fixture.has_metric("svc_mx_mails_total{outcome=\"recipient\"}", "1").await;
}

#[tokio::test]
async fn copies_are_handed_over_independently() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    fixture.core.fail(Some("prj_blog"));
    let to = [format!("a@{BLOG}"), format!("b@{SHOP}")];
    client.mail("", &to.each_ref().map(String::as_str), "Subject: 1\r\n\r\n").await;
    assert_eq!(fixture.core.wait_for(1).await[0].mail.project, "prj_shop");
    fixture.core.fail(None);
    assert_eq!(fixture.core.wait_for(2).await.len(), 2);
    let shop = fixture.core.received()[0].id.clone();
    assert_eq!(fixture.core.handovers().iter().filter(|id| **id == shop).count(), 1);
    // The copy of a project that no longer exists is dropped.
    fixture.core.remove("prj_blog");
    client.mail("", &to.each_ref().map(String::as_str), "Subject: 2\r\n\r\n").await;
    assert_eq!(fixture.drain().await.len(), 3);
}

#[tokio::test]
async fn a_wrong_server_at_the_address_of_the_control_plane_loses_no_mail() {
    let fixture = Fixture::start().await;
    fixture.core.reject_uploads(true);
    let mut client = fixture.greet().await;
    client.mail("", &[&format!("a@{BLOG}")], "Subject: 1\r\n\r\n").await;
    while fixture.metric("svc_mx_handovers_total{outcome=\"failed\"}").await.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.core.received(), []);
    fixture.core.reject_uploads(false);
    assert_eq!(fixture.core.wait_for(1).await.len(), 1);
}

/// The cause can be the control plane, such as one of an older release.
#[tokio::test]
async fn refused_mail_is_handed_over_when_the_control_plane_accepts_it() {
    let fixture = Fixture::start().await;
    fixture.core.refuse("prj_blog");
    let mut client = fixture.greet().await;
    client.mail("", &[&format!("a@{BLOG}")], "Subject: 1\r\n\r\n").await;
    while fixture.core.handovers().is_empty() {
        tokio::task::yield_now().await;
    }
    fixture.core.accept("prj_blog");
    assert_eq!(fixture.drain().await.len(), 1);
    // A refusal does not count if another attempt follows.
    fixture.has_metric("svc_mx_handovers_total{outcome=\"received\"}", "1").await;
    assert_eq!(fixture.metric("svc_mx_handovers_total{outcome=\"refused\"}").await.as_deref(), Some("0"));
}
