//! The limits on the bytes of stored mail.

use futures_util::future::join_all;
use kernel::Limits;
use mail::{MailDirection, RecipientOwner, Refusal};
use serde_json::json;

use crate::inbound::MESSAGE;
use crate::kit::{Kit, outgoing};

const DAY: i64 = 24 * 3600;

fn limits(mail_bytes: u64) -> Limits {
    let mut limits = Limits::default();
    limits.free.mail_bytes = mail_bytes;
    limits
}

impl Kit {
    /// Returns the counters of the mailboxes, after a comparison with the stored messages.
    async fn stored_bytes(&self) -> Vec<serde_json::Value> {
        let sum = |direction: &str| {
            format!(
                "(SELECT coalesce(sum(size_bytes), 0) FROM mail.messages m
                  WHERE m.project_id = b.project_id AND has_raw AND direction = '{direction}')"
            )
        };
        let differences = self
            .db_rows(&format!(
                "SELECT project_id FROM mail.mailboxes b WHERE received_bytes <> {} OR sent_bytes <> {}",
                sum("in"),
                sum("out")
            ))
            .await;
        assert!(differences.is_empty(), "{differences:?}");
        self.db_rows("SELECT received_bytes, sent_bytes FROM mail.mailboxes").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_mailbox_refuses_senders_until_mail_is_deleted() {
    let size = MESSAGE.len() as u64;
    let kit = Kit::with(limits(2 * size), |mail| mail).await;
    let shop = kit.project("shop").await;
    let owner = async || kit.mail.recipient_owner("shop.acme.mail.example").await.unwrap();
    kit.receive(shop, "eve@example.org").await;
    assert_eq!(owner().await, RecipientOwner::Project(shop.project));
    kit.receive(shop, "eve@example.org").await;
    assert_eq!(owner().await, RecipientOwner::Full);
    // The mail node acknowledged this mail before.
    let id = kit.receive(shop, "eve@example.org").await;
    kit.mail.receive(kit.inbound(id, shop, "eve@example.org")).await.unwrap();
    assert_eq!(kit.stored_bytes().await, [json!({ "received_bytes": 3 * size, "sent_bytes": 0 })]);
    let status = kit.mail.status(shop).await.unwrap();
    assert_eq!((status.received_bytes.unsigned_abs(), status.sent_bytes, status.max_bytes), (3 * size, 0, 2 * size));
    kit.advance(30 * DAY + 1);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.stored_bytes().await, [json!({ "received_bytes": 0, "sent_bytes": 0 })]);
    assert_eq!(owner().await, RecipientOwner::Project(shop.project));
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_of_the_pro_plan_does_not_fill_the_mailbox_while_it_is_kept() {
    let kit = Kit::with(limits(1), |mail| mail).await;
    let shop = kit.project("shop").await;
    let owner = async || kit.mail.recipient_owner("shop.acme.mail.example").await.unwrap();
    let status = async || {
        let status = kit.mail.status(shop).await.unwrap();
        (status.hourly_limit, status.max_bytes)
    };
    kit.receive(shop, "eve@example.org").await;
    assert_eq!(owner().await, RecipientOwner::Full);
    let until = kit.now().plus_seconds(30 * DAY);
    kit.db_execute(&format!("UPDATE orgs.orgs SET pro_retention_until = '{until}'")).await;
    kit.advance(30 * DAY - 1);
    assert_eq!(owner().await, RecipientOwner::Project(shop.project));
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    assert_eq!(status().await, (50, Limits::default().pro.mail_bytes));
    kit.advance(1);
    assert_eq!(owner().await, RecipientOwner::Full);
    let refused = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap_err();
    assert_eq!((refused, status().await), (Refusal::MailboxFull { limit: 1 }, (50, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_mails_do_not_exceed_the_bytes_of_sent_mail() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    let size = kit.entry(shop, id).await.size_bytes.unsigned_abs();

    let limit = 3 * size + size / 2;
    let kit = Kit::with(limits(limit), |mail| mail).await;
    let shop = kit.project("shop").await;
    // Received mail does not prevent sending.
    while kit.mail.status(shop).await.unwrap().received_bytes.unsigned_abs() < limit {
        kit.receive(shop, "eve@example.org").await;
    }
    let results = join_all((0..8).map(|_| kit.submit(shop, outgoing(&["ada@example.org"])))).await;
    let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(refused, [&Refusal::MailboxFull { limit }; 5]);
    assert_eq!(kit.count(shop, MailDirection::Out).await, 3);
    // A suppressed recipient leaves a row without a message.
    let project = shop.project.as_uuid();
    kit.db_execute(&format!("INSERT INTO mail.suppressions VALUES ('{project}', 'a@b.org', 'bounce', NULL, now())"))
        .await;
    kit.stored_bytes().await;
    kit.advance(30 * DAY + 1);
    kit.mail.purge_old().await.unwrap();
    let refused = kit.submit(shop, outgoing(&["a@b.org"])).await.unwrap_err();
    assert!(matches!(refused, Refusal::Suppressed(_)), "{refused:?}");
    assert_eq!(kit.stored_bytes().await, [json!({ "received_bytes": 0, "sent_bytes": 0 })]);
}
