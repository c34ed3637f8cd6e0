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
    // On the pro plan, mail is kept for 365 days.
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    kit.advance(335 * DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.objects(), 1);
    kit.advance(DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_cannot_be_deleted_does_not_keep_other_mail() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    // Projects are processed in the order of their ids.
    kit.advance(1);
    let blog = kit.project("blog").await;
    let mut stuck = Vec::new();
    // After nine consecutive failures, the run checks the store.
    for _ in 0..10 {
        let id = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
        // The store deletes only files.
        let object = kit.folder.path().join(shop.project.to_string()).join(id.to_string());
        std::fs::remove_file(&object).unwrap();
        std::fs::create_dir(&object).unwrap();
        stuck.push((id, object));
        kit.advance(1);
    }
    for project in [shop, blog] {
        kit.submit(project, outgoing(&["ada@example.org"])).await.unwrap();
    }
    kit.advance(30 * DAY + 1);
    kit.mail.purge_old().await.unwrap_err();
    assert_eq!((kit.db_number("SELECT count(*) FROM mail.messages").await, kit.objects()), (10, 10));
    for (id, object) in stuck {
        assert_eq!(kit.entry(shop, id).await.id, id);
        std::fs::remove_dir(object).unwrap();
    }
    kit.mail.purge_old().await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_kept_as_on_the_pro_plan_for_some_time_after_its_end() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.receive(shop, "eve@example.org").await;
    kit.advance(100 * DAY);
    let until = kit.now().plus_seconds(30 * DAY);
    kit.db_execute(&format!("UPDATE orgs.orgs SET plan = 'free', pro_retention_until = '{until}'")).await;
    kit.advance(30 * DAY - 1);
    kit.mail.purge_old().await.unwrap();
    assert_eq!((kit.db_number("SELECT count(*) FROM mail.messages").await, kit.objects()), (1, 1));
    kit.advance(1);
    kit.mail.purge_old().await.unwrap();
    assert_eq!((kit.db_number("SELECT count(*) FROM mail.messages").await, kit.objects()), (0, 0));
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
async fn mail_of_any_number_of_purged_projects_is_deleted() {
    let kit = Kit::start().await;
    // The ten earliest purges fail. After nine of them, the run checks the store and Postgres.
    kit.db_execute(
        "INSERT INTO mail.mailboxes (project_id, purged_at) \
         SELECT gen_random_uuid(), '2020-01-01 00:00:00Z'::timestamptz + n * interval '1 s' FROM generate_series(0, 204) n; \
         CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'a failure of this test'; END $$; \
         CREATE TRIGGER fail BEFORE DELETE ON mail.mailboxes FOR EACH ROW \
         WHEN (OLD.purged_at < '2020-01-01 00:00:10Z') EXECUTE FUNCTION public.fail()",
    )
    .await;
    kit.mail.purge_deleted().await.unwrap_err();
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.mailboxes").await, 10);
    kit.db_execute("DROP TRIGGER fail ON mail.mailboxes").await;
    kit.mail.purge_deleted().await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.mailboxes").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_bounces_are_forgotten_above_the_limit_of_suppressions() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    for project in [shop, blog] {
        kit.receive(project, "eve@example.org").await;
    }
    let suppress = async |reason: &str, first: u32, last: u32, project: kernel::ProjectId| {
        kit.db_execute(&format!(
            "INSERT INTO mail.suppressions SELECT '{}', n || '@{reason}.example', '{reason}', NULL,
                 now() + n * interval '1 second' FROM generate_series({first}, {last}) n",
            project.as_uuid()
        ))
        .await;
    };
    suppress("complaint", 1, 2, shop.project).await;
    suppress("bounce", 1, 20_001, shop.project).await;
    suppress("bounce", 1, 20_000, blog.project).await;
    kit.mail.purge_old().await.unwrap();
    let count =
        async |condition: &str| kit.db_number(&format!("SELECT count(*) FROM mail.suppressions {condition}")).await;
    assert_eq!(count("").await, 40_000);
    assert_eq!(count("WHERE reason = 'complaint'").await, 2);
    let project = shop.project.as_uuid();
    let deleted = "AND address IN ('1@bounce.example', '2@bounce.example', '3@bounce.example')";
    assert_eq!(count(&format!("WHERE project_id = '{project}' {deleted}")).await, 0);
    assert_eq!(count(&format!("WHERE project_id = '{project}' AND address = '4@bounce.example'")).await, 1);
    // Complaints are deleted only if there are no bounces.
    suppress("complaint", 3, 20_001, shop.project).await;
    kit.mail.purge_old().await.unwrap();
    assert_eq!(count(&format!("WHERE project_id = '{project}' AND reason = 'complaint'")).await, 20_000);
    assert_eq!(count(&format!("WHERE project_id = '{project}' AND address = '1@complaint.example'")).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_row_are_deleted_after_a_day() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    // The age of a message depends on the file system's clock, not on the clock of the tests.
    let days = (kernel::ClockRng::system().now().unix_seconds() - kit.now().unix_seconds()) / DAY;
    kit.advance(days * DAY);
    let kept = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    let write_orphan = || {
        let path = kit.folder.path().join(shop.project.to_string()).join(kit.new_id().to_string());
        std::fs::write(path, "of a killed process").unwrap();
    };
    write_orphan();
    // The project has not received mail, and the mail node never commits this upload.
    let blog = kit.project("blog").await;
    kit.upload(blog, kit.new_id(), crate::inbound::MESSAGE).await.unwrap();
    kit.mail.purge_orphans().await.unwrap();
    assert_eq!(kit.objects(), 4);
    kit.advance(2 * DAY);
    kit.mail.purge_orphans().await.unwrap();
    assert_eq!(kit.objects(), 2);
    assert!(kit.mail.raw(shop.project, kept).await.is_ok());
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
    // The clock of the tests starts on 2026-11-21. A mail from before the first run of the job is in the default
    // partition.
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

/// In production, the role of the server cannot create tables.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_need_no_right_to_create_tables() {
    let kit = Kit::start().await;
    let role = format!("role_{}", kit.new_id());
    let as_role = async |statement: &str| {
        kit.db_execute(&format!("SET ROLE {role}; {statement}; RESET ROLE")).await;
        kit.db_number("SELECT count(*) FROM pg_inherits WHERE inhparent = 'mail.messages'::regclass").await
    };
    kit.db_execute(&format!("CREATE ROLE {role}; GRANT USAGE ON SCHEMA mail TO {role}")).await;
    assert_eq!(as_role("SELECT mail.create_partition('2026-11-01'), mail.create_partition('2026-12-01')").await, 3);
    let denied = format!(
        "DO $$ BEGIN SET LOCAL ROLE {role}; CREATE TABLE mail.other (); RAISE 'created';
         EXCEPTION WHEN insufficient_privilege THEN NULL; END $$"
    );
    kit.db_execute(&denied).await;
    assert_eq!(as_role("SELECT mail.drop_partitions('2026-12-01')").await, 2);
    kit.db_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}
