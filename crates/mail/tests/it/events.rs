//! The events of the relay's service, and suppressed recipients.

use kernel::{MailId, Paging};
use mail::{DeliveryEvent, DeliveryEventKind, EventRecipient, OutgoingMail, Refusal, Relayed, Target};
use serde_json::json;
use testkit::four_at_a_time;

use crate::kit::{Kit, outgoing};

const DELIVERED: DeliveryEventKind = DeliveryEventKind::Delivered;
const BOUNCED: DeliveryEventKind = DeliveryEventKind::Bounced { permanent: true };
const DELAYED: DeliveryEventKind = DeliveryEventKind::Bounced { permanent: false };
const COMPLAINED: DeliveryEventKind = DeliveryEventKind::Complained;

fn event(kind: DeliveryEventKind, address: &str) -> DeliveryEvent {
    let detail = (kind != DELIVERED).then(|| "550 5.1.1 unknown\r\nuser".to_owned());
    DeliveryEvent { kind, recipients: vec![EventRecipient { address: address.to_owned(), detail }] }
}

impl Kit {
    async fn apply(&self, notification: &str, relay_id: &str, kind: DeliveryEventKind, address: &str) {
        self.mail.apply_event(notification, relay_id, &event(kind, address)).await.unwrap();
    }

    /// Sends a mail to which the relay gives this id.
    async fn send_as(&self, relay_id: &str, target: Target, to: &[&str]) -> MailId {
        self.relay.respond(Ok(Relayed { id: Some(relay_id.to_owned()), refused: Vec::new() }));
        self.send(target, to).await
    }

    async fn suppressed(&self, target: Target) -> Vec<(String, String)> {
        let page = self.mail.suppressions(target.project, &Paging::default()).await.unwrap();
        page.items.into_iter().map(|it| (it.address, it.reason.to_string())).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outcome_never_goes_backwards() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let kinds = [DELIVERED, BOUNCED, COMPLAINED];
    let words = ["delivered", "bounced", "complained"];
    // All orders of the three events.
    for (number, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate() {
        let (relay_id, address) = (format!("id-{number}"), format!("a{number}@example.org"));
        let id = kit.send_as(&relay_id, shop, &[&address]).await;
        let mut highest = 0;
        for at in order {
            kit.apply(&format!("{number}-{at}"), &relay_id, kinds[at], &address).await;
            highest = highest.max(at);
            assert_eq!(kit.outcome(shop, id).await.0, words[highest], "{order:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_bounce_only_adds_to_the_detail() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.send_as("abc", shop, &["ada@example.org"]).await;
    kit.apply("n1", "abc", DELAYED, "ada@example.org").await;
    let line = "ada@example.org: 550 5.1.1 unknown  user";
    assert_eq!(kit.outcome(shop, id).await, ("sent".to_owned(), Some(line.to_owned())));
    kit.apply("n2", "abc", DELIVERED, "ada@example.org").await;
    assert_eq!(kit.outcome(shop, id).await, ("delivered".to_owned(), Some(line.to_owned())));
    assert_eq!(kit.suppressed(shop).await, []);
    kit.apply("n3", "abc", BOUNCED, "ada@example.org").await;
    assert_eq!(kit.outcome(shop, id).await, ("bounced".to_owned(), Some(format!("{line}; {line}"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_that_arrives_1000_times_is_applied_once() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.send_as("abc", shop, &["ada@example.org"]).await;
    for _ in 0..50 {
        four_at_a_time((0..20).map(|_| kit.apply("n1", "abc", DELAYED, "ada@example.org"))).await;
    }
    let detail = kit.outcome(shop, id).await.1.unwrap();
    assert_eq!(detail.matches("ada@example.org").count(), 1, "{detail}");
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.notifications").await, 1);
    // A notification with another id and the same content is another event.
    kit.apply("n2", "abc", DELAYED, "ada@example.org").await;
    assert_eq!(kit.outcome(shop, id).await.1.unwrap().matches("ada@example.org").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_is_not_applied_again_while_its_mail_exists() {
    const DAY: i64 = 24 * 3600;
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    kit.send_as("abc", shop, &["ada@example.org"]).await;
    // Returns the number of suppressions.
    let complain = async || {
        kit.apply("n1", "abc", COMPLAINED, "ada@example.org").await;
        kit.suppressed(shop).await.len()
    };
    assert_eq!(complain().await, 1);
    kit.mail.suppression_clear(&kit.actor, shop, "ada@example.org").await.unwrap();
    // The numbers of mails and of recorded notifications.
    let purge = async |days: i64| {
        kit.advance(days * DAY);
        kit.mail.purge_old().await.unwrap();
        kit.mail.apply_pending_events().await.unwrap();
        let count = async |table: &str| kit.db_number(&format!("SELECT count(*) FROM mail.{table}")).await;
        (count("messages").await, count("notifications").await)
    };
    assert_eq!((purge(364).await, complain().await), ((1, 1), 0));
    // The relay uses the id again, so the notification is kept for the other mail.
    kit.send_as("abc", shop, &["bob@example.org"]).await;
    assert_eq!((purge(2).await, complain().await), ((1, 1), 0));
    assert_eq!(purge(364).await, (0, 0));
    // Without a mail, a repetition has no effect, and is deleted after more than a day.
    assert_eq!(complain().await, 0);
    assert_eq!(purge(0).await, (0, 1));
    assert_eq!(purge(2).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_is_deleted_with_a_mail_that_is_purged_while_its_event_expires() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.send_as("abc", shop, &["ada@example.org"]).await;
    // The event waits for a mail to Bob with the same id.
    kit.apply("n1", "abc", BOUNCED, "bob@example.org").await;
    kit.db_execute(
        "CREATE FUNCTION purge() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN DELETE FROM mail.messages; RETURN NEW; END $$;
         CREATE TRIGGER purge BEFORE UPDATE ON mail.notifications FOR EACH ROW EXECUTE FUNCTION purge()",
    )
    .await;
    kit.advance(24 * 3600 + 1);
    kit.mail.apply_pending_events().await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages").await, 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.notifications").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_precedes_the_relays_response_is_applied_later() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.apply("n1", "abc", BOUNCED, "ada@example.org").await;
    kit.apply("n2", "never", BOUNCED, "ada@example.org").await;
    assert_eq!(kit.suppressed(shop).await, []);
    let id = kit.send_as("abc", shop, &["ada@example.org"]).await;
    assert_eq!(kit.outcome(shop, id).await.0, "bounced");
    assert_eq!(kit.suppressed(shop).await, [("ada@example.org".to_owned(), "bounce".to_owned())]);
    // The background job applies an event that arrived after the relay's response and before the commit of this
    // response.
    let other = kit.send_as("def", shop, &["bob@example.org"]).await;
    kit.db_execute(
        "INSERT INTO mail.notifications VALUES ('n3', 'def',
             '{\"kind\": \"complained\", \"recipients\": [{\"address\": \"bob@example.org\", \"detail\": null}]}', now())",
    )
    .await;
    kit.mail.apply_pending_events().await.unwrap();
    assert_eq!(kit.outcome(shop, other).await.0, "complained");
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.notifications WHERE pending IS NOT NULL").await, 1);
    kit.advance(24 * 3600 + 1);
    kit.mail.apply_pending_events().await.unwrap();
    assert_eq!(
        kit.db_rows("SELECT id FROM mail.notifications ORDER BY id").await,
        [json!({ "id": "n1" }), json!({ "id": "n3" })]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn early_events_of_each_mail_are_applied_separately() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let mut sent = Vec::new();
    for (number, relay_id) in ["a", "b", "c"].into_iter().enumerate() {
        sent.push(kit.send_as(relay_id, shop, &["ada@example.org"]).await);
        // The second event is malformed.
        let kind = if relay_id == "b" { "unknown" } else { "delivered" };
        let event = format!("{{\"kind\": \"{kind}\", \"recipients\": [{{\"address\": \"ada@example.org\"}}]}}");
        kit.db_execute(&format!("INSERT INTO mail.notifications VALUES ('n{number}', '{relay_id}', '{event}', now())"))
            .await;
    }
    kit.mail.apply_pending_events().await.unwrap_err();
    let outcomes =
        [kit.outcome(shop, sent[0]).await.0, kit.outcome(shop, sent[1]).await.0, kit.outcome(shop, sent[2]).await.0];
    assert_eq!(outcomes, ["delivered", "sent", "delivered"]);
}

/// The event of another tenant's mail arrives before the relay's response to this mail, with the id of an earlier mail.
#[tokio::test(flavor = "multi_thread")]
async fn early_event_with_a_repeated_id_waits_for_its_mail() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    let ada = kit.send_as("same", shop, &["ada@example.org"]).await;
    let mut bounced = event(BOUNCED, "bob@example.org");
    bounced.recipients.extend(event(BOUNCED, "cy@example.org").recipients);
    kit.mail.apply_event("n1", "same", &bounced).await.unwrap();
    let stored_by = "SELECT xmin::text::bigint FROM mail.notifications";
    let before = kit.db_number(stored_by).await;
    kit.mail.apply_pending_events().await.unwrap();
    assert_eq!(kit.db_number(stored_by).await, before, "the unchanged event was stored again");
    assert_eq!((kit.outcome(shop, ada).await.0, kit.suppressed(shop).await), ("sent".to_owned(), Vec::new()));
    let bob = kit.send_as("same", blog, &["bob@example.org"]).await;
    assert_eq!(kit.outcome(blog, bob).await.0, "bounced");
    // Each recipient of the event can belong to another mail.
    let cy = kit.send_as("same", shop, &["cy@example.org"]).await;
    assert_eq!(kit.outcome(shop, cy).await.0, "bounced");
    assert_eq!(kit.outcome(shop, ada).await.0, "sent");
    assert_eq!(kit.suppressed(blog).await, [("bob@example.org".to_owned(), "bounce".to_owned())]);
    assert_eq!(kit.suppressed(shop).await, [("cy@example.org".to_owned(), "bounce".to_owned())]);
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.notifications WHERE pending IS NOT NULL").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_about_another_recipient_belongs_to_the_only_mail_when_it_expires() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let forwarded = kit.send_as("one", shop, &["ada@example.org"]).await;
    let repeated = kit.send_as("two", shop, &["bob@example.org"]).await;
    kit.send_as("two", shop, &["cy@example.org"]).await;
    for (notification, relay_id) in [("n1", "one"), ("n2", "two")] {
        kit.apply(notification, relay_id, COMPLAINED, "eve@example.org").await;
    }
    kit.mail.apply_pending_events().await.unwrap();
    assert_eq!(kit.outcome(shop, forwarded).await.0, "sent");
    kit.advance(24 * 3600 + 1);
    kit.mail.apply_pending_events().await.unwrap();
    assert_eq!(kit.outcome(shop, forwarded).await.0, "complained");
    assert_eq!(kit.outcome(shop, repeated).await.0, "sent");
    assert_eq!(kit.suppressed(shop).await, [("eve@example.org".to_owned(), "complaint".to_owned())]);
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.notifications WHERE pending IS NOT NULL").await, 0);
}

/// A run of the job expires the events of 100 ids.
#[tokio::test(flavor = "multi_thread")]
async fn expired_events_beyond_a_batch_are_applied_by_the_next_run() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.send_as("abc", shop, &["ada@example.org"]).await;
    let event = r#"{"kind": "complained", "recipients": [{"address": "eve@example.org", "detail": null}]}"#;
    kit.db_execute(&format!(
        "INSERT INTO mail.messages SELECT (jsonb_populate_record(m,
                 jsonb_build_object('id', gen_random_uuid(), 'relay_id', 'r' || n))).*
             FROM mail.messages m, generate_series(1, 101) n;
         INSERT INTO mail.notifications SELECT 'n' || n, 'r' || n, '{event}', '{}' FROM generate_series(1, 101) n",
        kit.now()
    ))
    .await;
    let complained = "SELECT count(*) FROM mail.messages WHERE outcome = 'complained'";
    let pending = "SELECT count(*) FROM mail.notifications WHERE pending IS NOT NULL";
    kit.mail.apply_pending_events().await.unwrap();
    assert_eq!((kit.db_number(complained).await, kit.db_number(pending).await), (0, 101));
    kit.advance(24 * 3600 + 1);
    for applied in [100, 101] {
        kit.mail.apply_pending_events().await.unwrap();
        assert_eq!((kit.db_number(complained).await, kit.db_number(pending).await), (applied, 101 - applied));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_without_recipients_belongs_to_the_only_mail() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.send_as("abc", shop, &["ada@example.org"]).await;
    let about = |kind| DeliveryEvent { kind, recipients: Vec::new() };
    kit.mail.apply_event("n1", "abc", &about(DELIVERED)).await.unwrap();
    assert_eq!(kit.outcome(shop, id).await, ("delivered".to_owned(), None));
    kit.mail.apply_event("n2", "abc", &about(BOUNCED)).await.unwrap();
    assert_eq!(kit.outcome(shop, id).await, ("bounced".to_owned(), Some("bounced".to_owned())));
    assert_eq!(kit.suppressed(shop).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_id_of_the_relay_belongs_to_the_mail_of_the_recipient() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let ada = kit.send_as("same", shop, &["ada@example.org"]).await;
    let bob = kit.send_as("same", shop, &["bob@example.org"]).await;
    kit.apply("n1", "same", DELIVERED, "Ada@Example.org").await;
    kit.apply("n2", "same", BOUNCED, "bob@example.org").await;
    kit.apply("n3", "same", COMPLAINED, "eve@example.org").await;
    assert_eq!(
        (kit.outcome(shop, ada).await.0, kit.outcome(shop, bob).await.0),
        ("delivered".into(), "bounced".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_postgres_cannot_store_have_no_effect() {
    let kit = Kit::start().await;
    let long = "x".repeat(100_000);
    for (notification, relay_id) in [("a\0", "b"), ("a", "b\0"), (&*long, "b"), ("a", &*long)] {
        kit.apply(notification, relay_id, BOUNCED, "ada\0@example.org").await;
    }
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.notifications").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn suppressed_recipient_refuses_the_whole_mail() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    kit.send_as("abc", shop, &["ada@example.org", "bob@example.org"]).await;
    kit.apply("n1", "abc", BOUNCED, "Ada@example.org").await;
    kit.apply("n2", "abc", COMPLAINED, "bob@example.org").await;
    kit.apply("n3", "abc", BOUNCED, "bob@example.org").await;
    let (ada, bob) = ("ada@example.org".to_owned(), "bob@example.org".to_owned());
    assert_eq!(kit.suppressed(shop).await, [(ada, "bounce".to_owned()), (bob, "complaint".to_owned())]);
    let bcc = vec!["ADA@example.org".to_owned()];
    let mail = || OutgoingMail { bcc: bcc.clone(), ..outgoing(&["cy@example.org"]) };
    let id = kit.new_id();
    for _ in 0..2 {
        let refusal = kit.submit_as(id, shop, mail()).await.unwrap_err();
        assert!(matches!(&refusal, Refusal::Suppressed(text) if text.contains("ada@example.org")), "{refusal:?}");
    }
    let (outcome, detail) = kit.outcome(shop, id).await;
    assert_eq!(outcome, "rejected");
    assert!(detail.unwrap().contains("bounced permanently"));
    assert!(!kit.entry(shop, id).await.has_raw);
    // A refused mail does not count, and another project is not affected.
    assert_eq!(kit.mail.status(shop).await.unwrap().sent_last_hour, 1);
    kit.submit(blog, mail()).await.unwrap();
    // A worker that ignores the refusal does not fill the log.
    for _ in 0..60 {
        kit.submit(shop, mail()).await.unwrap_err();
    }
    let rejected = "SELECT count(*) FROM mail.messages WHERE outcome = 'rejected'";
    assert_eq!(kit.db_number(rejected).await, 50);
    kit.audited().await;
    for _ in 0..2 {
        kit.mail.suppression_clear(&kit.actor, shop, "ADA@example.org").await.unwrap();
    }
    let audited: Vec<String> = kit.audited().await.into_iter().map(|row| row.event).collect();
    assert_eq!(audited, ["suppression.delete"]);
    kit.submit(shop, mail()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn suppressions_are_paged_in_the_order_of_their_addresses() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let project = shop.project.as_uuid();
    kit.db_execute(&format!(
        "INSERT INTO mail.suppressions SELECT '{project}', 'a' || n || '@example.org', 'bounce', NULL, now() \
         FROM generate_series(10, 34) n"
    ))
    .await;
    let mut seen = Vec::new();
    let mut paging = Paging { limit: 10, after: None };
    loop {
        let page = kit.mail.suppressions(shop.project, &paging).await.unwrap();
        seen.extend(page.items.into_iter().map(|it| it.address));
        let Some(cursor) = page.next_cursor else { break };
        paging = Paging::after(10, &cursor).unwrap();
    }
    assert_eq!(seen, (10..35).map(|n| format!("a{n}@example.org")).collect::<Vec<_>>());
}
