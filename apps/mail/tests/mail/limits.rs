//! Limits and timeouts.

use std::time::Duration;

use super::control_plane::{BLOG, FULL, SHOP};
use super::fixture::{Client, Fixture};

#[tokio::test]
async fn connections_are_limited_per_client_and_in_total() {
    let fixture = Fixture::start_with(|limits| limits.connections_per_client = 2).await;
    let (first, _second) = (fixture.connect().await, fixture.connect().await);
    let mut third = Client::connect(fixture.address).await;
    assert_eq!(third.reply().await, "421 4.7.0 too many connections from your address");
    assert_eq!(third.reply().await, "");
    drop(first);
    loop {
        if Client::connect(fixture.address).await.reply().await.starts_with("220 ") {
            break;
        }
    }
    let fixture = Fixture::start_with(|limits| limits.connections = 1).await;
    let _first = fixture.connect().await;
    assert_eq!(Client::connect(fixture.address).await.reply().await, "421 4.3.2 too many connections");
    fixture.has_metric("svc_mx_connections_total{outcome=\"node_limit\"}", "1").await;
}

#[tokio::test]
async fn mails_are_limited_per_client() {
    let fixture = Fixture::start_with(|limits| limits.mails_per_minute = 2).await;
    let mut client = fixture.greet().await;
    for _ in 0..2 {
        assert!(client.mail("", &[&format!("a@{BLOG}")], "Subject: 1\r\n\r\n").await.starts_with("250 "));
    }
    assert_eq!(
        fixture.greet().await.command("MAIL FROM:<>").await,
        "451 4.7.1 too many mails from your address; try again later"
    );
}

#[tokio::test]
async fn mail_for_a_full_mailbox_is_refused_temporarily() {
    let fixture = Fixture::start().await;
    let mut client = fixture.greet().await;
    client.command("MAIL FROM:<>").await;
    let refused = client.command(&format!("RCPT TO:<a@{FULL}>")).await;
    assert_eq!(refused, "452 4.2.2 the mailbox is full; try again later");
    // The mail reaches the other recipients.
    client.command(&format!("RCPT TO:<a@{BLOG}>")).await;
    client.command("DATA").await;
    assert!(client.command("Subject: 1\r\n\r\n.").await.starts_with("250 "));
    assert_eq!(fixture.drain().await.len(), 1);
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let short = Duration::from_millis(150);
    // Also on a busy machine, a client can send several commands in this time.
    let long = Duration::from_secs(5);
    let fixture = Fixture::start_with(|limits| limits.timeouts.command = short).await;
    let mut client = fixture.connect().await;
    client.send("EHLO cli").await;
    assert_eq!(client.reply().await, "421 4.4.2 timeout");

    // While most connections are in use, clients have less time.
    let fixture = Fixture::start_with(|limits| (limits.connections, limits.timeouts.busy_command) = (10, long)).await;
    let mut clients = Vec::new();
    for _ in 0..9 {
        clients.push(fixture.connect().await);
    }
    let mut last = clients.pop().unwrap();
    assert_eq!(last.command("NOOP").await, "250 2.0.0 OK");
    assert_eq!(last.reply().await, "421 4.4.2 timeout");

    for part in ["block", "rate", "total"] {
        let fixture = Fixture::start_with(|limits| match part {
            "block" => limits.timeouts.data_block = short,
            "rate" => limits.timeouts.data_grace = short,
            _ => limits.timeouts.connection = long,
        })
        .await;
        let mut client = fixture.greet().await;
        client.command("MAIL FROM:<>").await;
        client.command(&format!("RCPT TO:<a@{BLOG}>")).await;
        client.command("DATA").await;
        client.send("Subject: slow\r\n").await;
        assert_eq!(client.reply().await, "421 4.4.2 timeout", "{part}");
        assert_eq!(fixture.drain().await, [], "{part}");
    }
}

#[tokio::test]
async fn mail_is_refused_without_space() {
    let fixture = Fixture::start_with(|limits| limits.queue.free_bytes = u64::MAX).await;
    let reply = fixture.greet().await.command("MAIL FROM:<>").await;
    assert_eq!(reply, "452 4.3.1 the server has no space; try again later");
    assert!(fixture.get("/healthz").await.starts_with("HTTP/1.1 503"));
}

#[tokio::test]
async fn project_with_too_much_waiting_mail_is_refused() {
    let fixture = Fixture::start_with(|limits| limits.queue.project_bytes = 1).await;
    fixture.core.fail(Some("prj_blog"));
    let mut client = fixture.greet().await;
    let to = format!("a@{BLOG}");
    assert!(client.mail("", &[&to], "Subject: 1\r\n\r\n").await.starts_with("250 "));
    client.command("MAIL FROM:<>").await;
    let refused = client.command(&format!("RCPT TO:<{to}>")).await;
    assert_eq!(refused, "452 4.3.1 too much mail for the recipient waits; try again later");
    assert_eq!(client.command(&format!("RCPT TO:<a@{SHOP}>")).await, "250 2.1.5 OK");
    client.command("RSET").await;
    fixture.core.fail(None);
    assert_eq!(fixture.drain().await.len(), 1);
    // The file is removed shortly before the count ends.
    loop {
        client.command("MAIL FROM:<>").await;
        let reply = client.command(&format!("RCPT TO:<{to}>")).await;
        client.command("RSET").await;
        if reply == "250 2.1.5 OK" {
            break;
        }
    }
}

#[tokio::test]
async fn mail_in_transmission_is_finished_before_a_stop() {
    let mut fixture = Fixture::start().await;
    let (mut idle, mut busy) = (fixture.greet().await, fixture.greet().await);
    busy.command("MAIL FROM:<>").await;
    busy.command(&format!("RCPT TO:<a@{BLOG}>")).await;
    busy.command("DATA").await;
    let finish = async move {
        assert_eq!(idle.reply().await, "421 4.3.2 the server stops; try again later");
        busy.send("Subject: last\r\n\r\n.\r\n").await;
        assert!(busy.reply().await.starts_with("250 2.0.0 queued"));
        assert_eq!(busy.reply().await, "421 4.3.2 the server stops; try again later");
    };
    tokio::join!(fixture.stop(), finish);
}
