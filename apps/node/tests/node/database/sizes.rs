//! The limits on the size and on the number of files.

use std::fs::{File, remove_file};
use std::path::PathBuf;

use tokio_postgres::error::SqlState;

use super::kit::{Kit, number};

/// Creates a table of about 28 MiB.
const FILL: &str = "CREATE TABLE t AS SELECT repeat(md5(i::text), 8) AS text FROM generate_series(1, 100000) i";

#[tokio::test(flavor = "multi_thread")]
async fn large_database_is_read_only_and_a_larger_one_is_refused() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let session = kit.session("prj_a").await;
    session
        .batch_execute("CREATE TABLE t AS SELECT repeat(md5(i::text), 8) AS text FROM generate_series(1, 40000) i")
        .await
        .unwrap();
    kit.change("prj_a", |desired| desired.size_bytes = 12 << 20);
    let report = kit.reported("prj_a", "the limit", |report| report.read_only).await;
    assert!(report.ready && report.size_bytes > 12 << 20, "{report:?}");
    // The open session was ended.
    assert!(session.batch_execute("INSERT INTO t VALUES ('x')").await.is_err());
    let session = kit.session("prj_a").await;
    let error = session.batch_execute("INSERT INTO t VALUES ('x')").await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
    // Space can be freed. The sweep finds the new size.
    session.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    session.batch_execute("TRUNCATE t").await.unwrap();
    kit.reported("prj_a", "the lifted limit", |report| !report.read_only && report.size_bytes < 12 << 20).await;
    let session = kit.session("prj_a").await;
    session
        .batch_execute("INSERT INTO t SELECT repeat(md5(i::text), 8) FROM generate_series(1, 100000) i")
        .await
        .unwrap();
    // The database exceeds its limit, so the members are notified as if it had been read-only first.
    kit.reported("prj_a", "the refusal", |report| !report.ready && report.read_only).await;
    assert!(session.batch_execute("SELECT").await.is_err());
    assert!(kit.log_in(&kit.app("prj_a"), super::kit::PASSWORD, &kit.name("prj_a")).await.is_err());
    kit.change("prj_a", |desired| desired.size_bytes = 1 << 30);
    kit.applied("prj_a").await;
    kit.session("prj_a").await.batch_execute("INSERT INTO t VALUES ('x')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lower_limit_closes_no_logins_and_the_database_can_shrink() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute(FILL).await.unwrap();
    kit.change("prj_a", |desired| desired.size_bytes = 12 << 20);
    let report = kit.applied("prj_a").await;
    assert!(report.read_only && report.size_bytes > 24 << 20, "{report:?}");
    let session = kit.session("prj_a").await;
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 100_000);
    let error = session.batch_execute("INSERT INTO t VALUES ('x')").await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
    // The state of the node outlives its process.
    kit.restart_node();
    kit.change("prj_a", |_| ());
    let report = kit.applied("prj_a").await;
    assert!(report.read_only, "{report:?}");
    // The documentation describes these statements.
    let session = kit.session("prj_a").await;
    session.batch_execute("BEGIN READ WRITE; DELETE FROM t WHERE text <> repeat(md5('1'), 8); COMMIT").await.unwrap();
    session.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    session.batch_execute("VACUUM FULL t").await.unwrap();
    kit.reported("prj_a", "the lifted limit", |report| report.ready && !report.read_only).await;
    kit.session("prj_a").await.batch_execute("INSERT INTO t VALUES ('x')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn database_above_a_lower_limit_is_refused_when_it_grows() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute(FILL).await.unwrap();
    kit.change("prj_a", |desired| desired.size_bytes = 12 << 20);
    kit.applied("prj_a").await;
    let session = kit.session("prj_a").await;
    session.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    // The node can end the session while the table grows.
    drop(session.batch_execute("INSERT INTO t SELECT * FROM t").await);
    kit.reported("prj_a", "the refusal", |report| !report.ready && report.read_only).await;
    assert!(kit.log_in(&kit.app("prj_a"), super::kit::PASSWORD, &kit.name("prj_a")).await.is_err());
    kit.change("prj_a", |desired| desired.size_bytes = 1 << 30);
    kit.applied("prj_a").await;
    kit.session("prj_a").await.batch_execute("INSERT INTO t VALUES ('x')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn database_with_too_many_files_is_read_only() {
    const FOLDER: &str = "
        SELECT format('%s/base/%s', current_setting('data_directory'), oid) FROM pg_database WHERE datname = $1";
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let row = kit.superuser("svc_node").await.query_one(FOLDER, &[&kit.name("prj_a")]).await.unwrap();
    let folder: PathBuf = row.get::<_, String>(0).into();
    // This is faster than 100,000 tables.
    let files: Vec<PathBuf> = (0..100_000).map(|number| folder.join(format!("file_{number}"))).collect();
    for file in &files {
        File::create(file).unwrap();
    }
    let report = kit.reported("prj_a", "the limit", |report| report.read_only).await;
    assert!(report.ready, "{report:?}");
    let error = kit.session("prj_a").await.batch_execute("CREATE TABLE t ()").await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
    for file in &files {
        remove_file(file).unwrap();
    }
    kit.reported("prj_a", "the lifted limit", |report| report.ready && !report.read_only).await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t ()").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_database_admits_nobody() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let session = kit.session("prj_a").await;
    kit.change("prj_a", |desired| desired.suspended = true);
    let revision = kit.desired("prj_a").revision;
    kit.reported("prj_a", "the suspension", |report| !report.ready && report.revision == revision).await;
    assert!(session.batch_execute("SELECT").await.is_err());
    assert!(kit.log_in(&kit.app("prj_a"), super::kit::PASSWORD, &kit.name("prj_a")).await.is_err());
    kit.change("prj_a", |desired| desired.suspended = false);
    kit.applied("prj_a").await;
    kit.session("prj_a").await.batch_execute("SELECT").await.unwrap();
}
