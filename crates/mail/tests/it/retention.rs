//! Retention, partitions, and the deletion of purged projects' mail.

use store::Connection;

use crate::kit::{Kit, outgoing};

const DAY: i64 = 24 * 3600;

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_deleted_after_the_days_of_the_plan() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    kit.receive(shop, "eve@example.org").await;
    kit.advance(DAY);
    let kept = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    kit.advance(29 * DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!((kit.db_number("SELECT count(*) FROM mail.messages").await, kit.objects()), (3, 3));
    kit.advance(1);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.entry(shop, kept).await.id, kept);
    assert_eq!((kit.db_number("SELECT count(*) FROM mail.messages").await, kit.objects()), (1, 1));
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.deliveries").await, 0);
    // The mail of the pro plan is kept for 365 days.
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    kit.advance(335 * DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.objects(), 1);
    kit.advance(DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_of_a_purged_project_is_deleted() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    kit.receive(shop, "eve@example.org").await;
    for project in [shop, blog] {
        kit.send(project, &["ada@example.org"]).await;
        let id = project.project.as_uuid();
        kit.db_execute(&format!("INSERT INTO mail.suppressions VALUES ('{id}', 'a@b.org', 'bounce', NULL, now())"))
            .await;
    }
    // A message without a row.
    std::fs::write(kit.folder.path().join(shop.project.to_string()).join(kit.new_id().to_string()), "x").unwrap();
    kit.mail.purge_deleted().await.unwrap();
    assert_eq!(kit.objects(), 4);
    kit.store
        .transaction_unaudited(async |tx: &mut Connection| kit.mail.purge(tx, &[shop.project]).await)
        .await
        .unwrap();
    kit.mail.purge_deleted().await.unwrap();
    assert_eq!(kit.objects(), 1);
    for table in ["messages", "suppressions", "mailboxes"] {
        let rows = kit.db_rows(&format!("SELECT project_id FROM mail.{table}")).await;
        assert_eq!(rows, [serde_json::json!({ "project_id": blog.project.as_uuid() })], "{table}");
    }
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.deliveries").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_created_ahead_and_dropped_when_they_are_empty() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let partitions = async || {
        let names = "SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                     WHERE i.inhparent = 'mail.messages'::regclass AND c.relname <> 'messages_default' ORDER BY 1";
        let rows = kit.db_rows(names).await;
        rows.iter().map(|row| row["name"].as_str().unwrap().replace("messages_", "")).collect::<Vec<_>>()
    };
    // The clock of the tests starts on 2026-11-21. A mail from before the first run is in the default partition.
    let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages_default").await, 1);
    for _ in 0..2 {
        kit.mail.maintain_partitions().await.unwrap();
        assert_eq!(partitions().await, ["2026_11", "2026_12", "2027_01"]);
    }
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages_default").await, 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages_2026_11").await, 1);
    assert_eq!(kit.entry(shop, id).await.id, id);
    kit.relay().await;
    assert_eq!(kit.outcome(shop, id).await.0, "sent");
    kit.advance(42 * DAY);
    kit.mail.maintain_partitions().await.unwrap();
    assert_eq!(partitions().await, ["2026_11", "2026_12", "2027_01", "2027_02", "2027_03"]);
    kit.mail.purge_old().await.unwrap();
    kit.mail.maintain_partitions().await.unwrap();
    assert_eq!(partitions().await, ["2026_12", "2027_01", "2027_02", "2027_03"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_are_never_committed_are_deleted() {
    let kit = Kit::start().await;
    kit.upload(kit.new_id(), crate::inbound::MESSAGE).await.unwrap();
    kit.mail.purge_old().await.unwrap();
    // The age of an upload depends on the file system's clock, not on the clock of the tests.
    let days = (kernel::ClockRng::system().now().unix_seconds() - kit.now().unix_seconds()) / DAY;
    kit.advance((days + 6) * DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.objects(), 1);
    kit.advance(2 * DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.objects(), 0);
}
