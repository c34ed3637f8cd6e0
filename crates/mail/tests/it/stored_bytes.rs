//! The limits on the bytes of stored mail.

use futures_util::future::join_all;
use kernel::Limits;
use mail::{MailDirection, NewInboundMail, OutgoingMail, RecipientOwner, Refusal, Target};
use serde_json::json;

use crate::inbound::{MESSAGE, STORED_BYTES};
use crate::kit::{Kit, outgoing};

const DAY: i64 = 24 * 3600;

/// The bytes of the row of a refused mail to [`SUPPRESSED`].
const ROW: i64 = 4096 + 7 + 7;

const SUPPRESSED: &str = "a@b.org";

fn limits(mail_bytes: u64) -> Limits {
    let mut limits = Limits::default();
    limits.free.mail_bytes = mail_bytes;
    limits
}

impl Kit {
    /// Returns the counters of the mailboxes, after a comparison with the log.
    async fn stored_bytes(&self) -> Vec<serde_json::Value> {
        let sum = |direction: &str| {
            format!(
                "(SELECT coalesce(sum(stored_bytes), 0) FROM mail.messages m
                  WHERE m.project_id = b.project_id AND direction = '{direction}')"
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

    async fn suppress(&self, target: Target) {
        let project = target.project.as_uuid();
        self.db_execute(&format!(
            "INSERT INTO mail.suppressions VALUES ('{project}', '{SUPPRESSED}', 'bounce', NULL, now())"
        ))
        .await;
    }
}

/// Many small mails to many recipients would otherwise fill the database.
#[tokio::test(flavor = "multi_thread")]
async fn mail_counts_at_least_4_kib_and_its_recipients_and_subject() {
    static LARGE: [u8; 10_000] = [b'x'; 10_000];
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let status = async || {
        let status = kit.mail.status(shop).await.unwrap();
        (status.received_bytes, status.sent_bytes)
    };
    let receive = async |message: &'static [u8], to: Vec<String>, subject: Option<String>| {
        let id = kit.new_id();
        kit.upload(shop, id, message).await.unwrap();
        let size_bytes = message.len() as u64;
        kit.mail.receive(NewInboundMail { to, subject, size_bytes, ..kit.inbound(id, shop, "") }).await.unwrap();
    };
    let to = format!("{}@shop.acme.mail.example", "a".repeat(64));
    receive(MESSAGE, vec![to.clone(); 100], Some("é".repeat(1000))).await;
    let received = 4096 + 100 * 87 + 2000;
    assert_eq!(status().await, (received, 0));
    receive(&LARGE, vec![to], None).await;
    assert_eq!(status().await, (received + 10_000 + 87, 0));
    let bcc = (0..49).map(|n| format!("{n:02}@example.org")).collect();
    kit.submit(shop, OutgoingMail { bcc, ..outgoing(&["ada@example.org"]) }).await.unwrap();
    assert_eq!(status().await.1, 4096 + 15 + 49 * 14 + 7);
    kit.stored_bytes().await;
    kit.advance(30 * DAY + 1);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(status().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn full_mailbox_refuses_senders_until_mail_is_deleted() {
    let kit = Kit::with(limits(2 * STORED_BYTES), |mail| mail).await;
    let shop = kit.project("shop").await;
    let owner = async || kit.mail.recipient_owner("shop.acme.mail.example").await.unwrap();
    kit.receive(shop, "eve@example.org").await;
    assert_eq!(owner().await, RecipientOwner::Project(shop.project));
    kit.receive(shop, "eve@example.org").await;
    assert_eq!(owner().await, RecipientOwner::Full);
    // The mail node acknowledged this mail before.
    let id = kit.receive(shop, "eve@example.org").await;
    kit.mail.receive(kit.inbound(id, shop, "eve@example.org")).await.unwrap();
    assert_eq!(kit.stored_bytes().await, [json!({ "received_bytes": 3 * STORED_BYTES, "sent_bytes": 0 })]);
    let status = kit.mail.status(shop).await.unwrap();
    let bytes = (status.received_bytes.unsigned_abs(), status.sent_bytes, status.max_bytes);
    assert_eq!(bytes, (3 * STORED_BYTES, 0, 2 * STORED_BYTES));
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
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    let size = kit.mail.status(shop).await.unwrap().sent_bytes.unsigned_abs();

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
    kit.stored_bytes().await;
}

/// A suppressed recipient leaves a row without a message.
#[tokio::test(flavor = "multi_thread")]
async fn row_of_a_refused_mail_counts_and_must_fit() {
    let kit = Kit::with(limits(2 * ROW.unsigned_abs() + 100), |mail| mail).await;
    let shop = kit.project("shop").await;
    kit.suppress(shop).await;
    let mail = || outgoing(&[SUPPRESSED]);
    let long = OutgoingMail { bcc: (0..49).map(|n| format!("{n:02}@example.org")).collect(), ..mail() };
    // The second one does not fit, and the fourth one is refused before its recipients are checked.
    for (submitted, is_suppressed, rows) in [(mail(), true, 1), (long, true, 1), (mail(), true, 2), (mail(), false, 2)]
    {
        let refusal = kit.submit(shop, submitted).await.unwrap_err();
        assert_eq!(matches!(refusal, Refusal::Suppressed(_)), is_suppressed, "{refusal:?}");
        assert_eq!(kit.stored_bytes().await, [json!({ "received_bytes": 0, "sent_bytes": rows * ROW })]);
        assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages").await, rows);
    }
    kit.advance(30 * DAY + 1);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.stored_bytes().await, [json!({ "received_bytes": 0, "sent_bytes": 0 })]);
}

/// Concurrent submissions are decided before the first one has stored its row.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_concurrent_refused_mails_do_not_exceed_the_limits() {
    let mut one_per_hour = Limits::default();
    one_per_hour.free.mails_per_hour = 1;
    // The bytes after the first row suffice for a mail without recipients, but not for another row.
    for limits in [limits(ROW.unsigned_abs() + 4100), one_per_hour] {
        let kit = Kit::with(limits, |mail| mail).await;
        let shop = kit.project("shop").await;
        kit.suppress(shop).await;
        let results = join_all((0..8).map(|_| kit.submit(shop, outgoing(&[SUPPRESSED])))).await;
        for result in results {
            assert!(matches!(result, Err(Refusal::Suppressed(_))), "{result:?}");
        }
        assert_eq!(kit.stored_bytes().await, [json!({ "received_bytes": 0, "sent_bytes": ROW })]);
        assert_eq!(kit.count(shop, MailDirection::Out).await, 1);
    }
}
