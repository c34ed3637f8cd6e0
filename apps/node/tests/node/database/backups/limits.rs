//! Dumps that reach the limits of the node.

use std::time::Duration;

use node::database::config::ProgramLimits;

use super::Rig;
use super::rig::NEVER;
use crate::storage::store::{Kind, TestStore};

const STORED: &str = "SELECT count(*) FROM svc.dumps WHERE stored";

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_needs_too_much_memory_ends_its_operation() {
    let limits = ProgramLimits { memory_bytes: 200 << 20, ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let (large, small) = (rig.create("prj_1").await, rig.create("prj_2").await);
    // pg_dump holds a whole row in its memory.
    large.session.batch_execute("CREATE TABLE t AS SELECT repeat('x', 120000000) AS x").await.unwrap();
    let error = rig.try_seal(&large, "opn_1").await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("needs more than 200 MiB of memory"), "{error}");
    small.session.batch_execute("CREATE TABLE t AS SELECT 1 AS n").await.unwrap();
    rig.seal(&small, "opn_2").await;
    assert_eq!(rig.count(STORED).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_takes_too_long_ends_its_operation() {
    let limits = ProgramLimits { dump_time: Duration::from_secs(10), ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let source = rig.create("prj_1").await;
    source.session.batch_execute("CREATE TABLE t ()").await.unwrap();
    source.session.batch_execute("BEGIN; LOCK TABLE t").await.unwrap();
    let error = rig.try_seal(&source, "opn_1").await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_permanent()), ("pg_dump takes longer than 10 s", true));
    source.session.batch_execute("COMMIT").await.unwrap();
    rig.seal(&source, "opn_2").await;
}
