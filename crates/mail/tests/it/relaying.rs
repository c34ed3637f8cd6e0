//! The relay of queued mail.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::OrgId;
use mail::{Envelope, MailRelay, RefusedRecipient, Relay, RelayError, Relayed};
use store::outbox::Retry;
use tokio::sync::{Notify, mpsc};

use crate::kit::{Kit, outgoing};

#[tokio::test(flavor = "multi_thread")]
async fn accepted_mail_is_sent_and_stored_as_relayed() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    assert_eq!(kit.outcome(shop, id).await, ("queued".to_owned(), None));
    kit.relay().await;
    assert_eq!(kit.outcome(shop, id).await, ("sent".to_owned(), None));
    let (_, message) = kit.relay.sent().pop().unwrap();
    let path = kit.folder.path().join(shop.project.to_string()).join(id.to_string());
    assert_eq!(std::fs::read(path).unwrap(), message);
    let (size, _) = kit.mail.raw(shop.project, id).await.unwrap();
    assert_eq!(size, message.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_sends_the_same_bytes() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.relay.respond(Err(RelayError::Transient("the connection broke after the message".to_owned())));
    let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    kit.relay().await;
    assert_eq!(kit.outcome(shop, id).await.0, "queued");
    kit.advance(10);
    kit.relay().await;
    assert_eq!(kit.outcome(shop, id).await.0, "sent");
    let sent = kit.relay.sent();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1]);
}

/// A relay that replies when it is released.
#[derive(Default)]
struct SlowRelay {
    started: Notify,
    released: Notify,
}

#[async_trait]
impl Relay for SlowRelay {
    async fn send(&self, _: &Envelope, _: &[u8]) -> Result<Relayed, RelayError> {
        self.started.notify_one();
        self.released.notified().await;
        Ok(Relayed { id: Some("slow".to_owned()), refused: Vec::new() })
    }
}

/// Another attempt would send a mail again that the relay has accepted.
#[tokio::test]
async fn slow_reply_of_the_relay_is_awaited() {
    let (kit, relay) = (Kit::start().await, Arc::new(SlowRelay::default()));
    let shop = kit.project("shop").await;
    let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    let worker = kit.store.spawn_outbox_worker(Arc::new(MailRelay::new(kit.mail.clone(), relay.clone())));
    relay.started.notified().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(15 * 60)).await;
    tokio::time::resume();
    relay.released.notify_one();
    worker.stop().await;
    assert_eq!(kit.outcome(shop, id).await.0, "sent");
}

/// A relay that never replies. Sends the sender of each message to the test.
struct StuckRelay(mpsc::UnboundedSender<String>);

#[async_trait]
impl Relay for StuckRelay {
    async fn send(&self, envelope: &Envelope, _: &[u8]) -> Result<Relayed, RelayError> {
        self.0.send(envelope.from.clone()).unwrap();
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_does_not_occupy_all_sessions_with_the_relay() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    let other: OrgId = kit.store.clock_rng().id();
    kit.db_execute(&format!(
        "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at)
             VALUES ('{other}', 'other', 'Other', 'free', false, now());
         UPDATE projects.projects SET org_id = '{other}' WHERE name = 'blog'",
        other = other.as_uuid()
    ))
    .await;
    for _ in 0..9 {
        kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    }
    let (relay, mut senders) = mpsc::unbounded_channel();
    let relay = MailRelay::new(kit.mail.clone(), Arc::new(StuckRelay(relay)));
    let _worker = kit.store.spawn_outbox_worker(Arc::new(relay));
    for _ in 0..4 {
        assert_eq!(senders.recv().await.unwrap(), "noreply@shop.acme.mail.example");
    }
    kit.submit(blog, outgoing(&["ada@example.org"])).await.unwrap();
    assert_eq!(senders.recv().await.unwrap(), "noreply@blog.acme.mail.example");
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_was_relayed_is_not_sent_again() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.send(shop, &["ada@example.org"]).await;
    // Queue the same message again, as if an operator retried it.
    let message = serde_json::json!({ "mail": id });
    kit.store
        .transaction_unaudited(async |tx: &mut store::Connection| {
            kit.store.enqueue(tx, "mail.relay", &id.to_string(), &message).await
        })
        .await
        .unwrap();
    kit.relay().await;
    assert_eq!(kit.relay.sent().len(), 1);
    assert_eq!(kit.outcome(shop, id).await.0, "sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_recipients_and_messages_are_bounced_with_the_reply() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let refused = RefusedRecipient { address: "bob@example.org".to_owned(), reply: "550 5.1.1 no\r\nuser".to_owned() };
    kit.relay.respond(Ok(Relayed { id: Some("abc".to_owned()), refused: vec![refused] }));
    let id = kit.send(shop, &["ada@example.org", "bob@example.org"]).await;
    let detail = "bob@example.org: 550 5.1.1 no  user".to_owned();
    assert_eq!(kit.outcome(shop, id).await, ("bounced".to_owned(), Some(detail)));
    kit.relay.respond(Err(RelayError::Permanent("554 5.6.0 rejected".to_owned())));
    let id = kit.send(shop, &["ada@example.org"]).await;
    assert_eq!(kit.outcome(shop, id).await, ("bounced".to_owned(), Some("554 5.6.0 rejected".to_owned())));
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
    // The relay may have refused the mail because of the sender, so the recipient is not suppressed.
    kit.submit(shop, outgoing(&["bob@example.org"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_the_relay_does_not_accept_for_two_days_is_bounced() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for _ in 0..3 {
        kit.relay.respond(Err(RelayError::Transient("451 4.7.1 try again".to_owned())));
    }
    let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    // No attempt is made for a week, as during an outage of all servers.
    kit.advance(7 * 24 * 3600);
    for wait in [48 * 3600 - 1, 600] {
        kit.relay().await;
        assert_eq!(kit.outcome(shop, id).await.0, "queued");
        kit.advance(wait);
    }
    kit.relay().await;
    let (outcome, detail) = kit.outcome(shop, id).await;
    assert_eq!(outcome, "bounced");
    assert!(detail.unwrap().ends_with("within 48 hours: 451 4.7.1 try again"));
}

/// The mail store is down for longer than the outbox retries a message.
#[tokio::test(flavor = "multi_thread")]
async fn mail_of_a_dead_letter_is_bounced_and_never_sent() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    let folder = kit.folder.path().join(shop.project.to_string());
    let aside = kit.folder.path().join("aside");
    std::fs::rename(&folder, &aside).unwrap();
    // A file in place of the folder. Without the file, the message would be missing, which is a permanent error.
    std::fs::write(&folder, "").unwrap();
    kit.relay().await;
    kit.advance(72 * 3600);
    kit.relay().await;
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox WHERE dead_lettered_at IS NOT NULL").await, 1);
    let bounced = ("bounced".to_owned(), Some("the service could not send the mail".to_owned()));
    assert_eq!(kit.outcome(shop, id).await, bounced);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    // An operator retries the dead letter.
    assert_eq!(kit.store.outbox_retry(&kit.actor, Retry::All).await.unwrap(), 1);
    kit.relay().await;
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
    assert!(kit.relay.sent().is_empty());
    assert_eq!(kit.outcome(shop, id).await, bounced);
}
