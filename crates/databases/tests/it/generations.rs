//! Generations.

use databases::{GenerationKind, Target};
use futures_util::{StreamExt as _, stream};
use kernel::{Limits, Plan};

use crate::kit::{Kit, record};

const DAY: i64 = 24 * 3600;

impl Kit {
    async fn pairs(&self, at: Target) -> Vec<(i64, i64)> {
        self.generations(at).await.iter().map(|generation| (generation.epoch, generation.seq)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_and_repeated_reports_have_unique_numbers() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let report = async |number: i64| {
        let key = format!("{}/{}.dump", at.project, number % 20);
        let created_at = kit.now().plus_seconds(number % 20 - 20);
        kit.receive_generation(at, record(id, &key, 1, GenerationKind::Scheduled, created_at)).await;
    };
    // The pool has 32 connections.
    stream::iter(0..60).map(report).buffer_unordered(20).collect::<Vec<()>>().await;
    let listed = kit.generations(at).await;
    let mut seqs: Vec<i64> = listed.iter().map(|generation| generation.seq).collect();
    seqs.sort_unstable();
    assert!(seqs.into_iter().eq(1..=20));
    assert!(listed.is_sorted_by_key(|generation| std::cmp::Reverse(generation.seq)));
    let last = kit.databases.last_generation(at.project).await.unwrap().unwrap();
    assert_eq!(last, listed[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_are_listed_as_long_as_they_are_kept() {
    let mut limits = Limits::default();
    (limits.free.backup_days, limits.pro.backup_days) = (2, 4);
    let kit = Kit::with(limits).await;
    let (at, id) = kit.database("shop").await;
    for (key, kind) in
        [("a", GenerationKind::Scheduled), ("b", GenerationKind::PreRestore), ("c", GenerationKind::Scheduled)]
    {
        kit.advance(1);
        kit.receive_generation(at, record(id, key, 1, kind, kit.now())).await;
    }
    assert_eq!(kit.pairs(at).await, [(1, 3), (1, 2), (1, 1)]);
    // The retention of the oldest generation ends in two seconds.
    kit.advance(2 * DAY - 4);
    assert_eq!(kit.pairs(at).await, [(1, 3), (1, 2), (1, 1)]);
    kit.advance(4);
    // The node would create the database from the newest generation, so it is kept.
    assert_eq!(kit.pairs(at).await, [(1, 3), (1, 2)]);
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    assert_eq!(kit.pairs(at).await, [(1, 3), (1, 2), (1, 1)]);
    kit.advance(28 * DAY);
    assert_eq!(kit.pairs(at).await, [(1, 3)]);
    kit.databases.purge().await.unwrap();
    assert_eq!(kit.pairs(at).await, [(1, 3)]);
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_are_kept_as_on_the_pro_plan_for_some_time_after_its_end() {
    let mut limits = Limits::default();
    (limits.free.backup_days, limits.pro.backup_days) = (2, 4);
    let kit = Kit::with(limits).await;
    let (at, id) = kit.database("shop").await;
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    for key in ["a", "b"] {
        kit.advance(1);
        kit.receive_generation(at, record(id, key, 1, GenerationKind::Scheduled, kit.now())).await;
    }
    kit.advance(3 * DAY);
    let until = kit.now().plus_seconds(DAY / 2);
    kit.db_execute(&format!("UPDATE orgs.orgs SET plan = 'free', pro_retention_until = '{until}'")).await;
    kit.advance(DAY / 2 - 1);
    assert_eq!(kit.databases.purge().await.unwrap(), 0);
    assert_eq!(kit.pairs(at).await, [(1, 2), (1, 1)]);
    let part = kit.part(at).await.unwrap();
    assert_eq!((part.plan, part.retention_plan), (Plan::Free, Plan::Pro));
    kit.advance(1);
    assert_eq!(kit.pairs(at).await, [(1, 2)]);
    let part = kit.part(at).await.unwrap();
    assert_eq!((part.plan, part.retention_plan), (Plan::Free, Plan::Free));
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.generations").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_from_the_future_does_not_stay_the_newest() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let created_at = kit.now().plus_seconds(DAY);
    kit.receive_generation(at, record(id, "early", 1, GenerationKind::Scheduled, created_at)).await;
    assert_eq!(kit.generations(at).await.remove(0).created_at, kit.now());
    let next = kit.scheduled(at).await;
    assert_eq!(kit.pairs(at).await, [(1, 2), (1, 1)]);
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, next.offsite_key);
}

#[tokio::test(flavor = "multi_thread")]
async fn number_and_not_the_clock_of_the_node_decides_which_generation_is_newer() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    // The clock of the first node is ahead, so its second generation gets the time at which the report arrives. The
    // clock of the next node is an hour behind.
    for (key, seconds) in [("a", -60), ("b", DAY), ("c", -3600)] {
        kit.receive_generation(at, record(id, key, 1, GenerationKind::Scheduled, kit.now().plus_seconds(seconds)))
            .await;
    }
    assert_eq!(kit.pairs(at).await, [(1, 3), (1, 2), (1, 1)]);
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, "c");
    assert_eq!(kit.databases.last_generation(at.project).await.unwrap().unwrap().offsite_key, "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_generation_that_is_reported_again_does_not_become_the_newest() {
    let mut limits = Limits::default();
    limits.free.backup_days = 2;
    let kit = Kit::with(limits).await;
    let (at, id) = kit.database("shop").await;
    let purged = record(id, "purged", 1, GenerationKind::Scheduled, kit.now());
    kit.receive_generation(at, purged.clone()).await;
    kit.advance(3 * DAY);
    let newest = kit.scheduled(at).await;
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
    // With the second plan, the retention of the purged generation is not over.
    for plan in ["free", "pro"] {
        kit.db_execute(&format!("UPDATE orgs.orgs SET plan = '{plan}'")).await;
        kit.receive_generation(at, purged.clone()).await;
        assert_eq!(kit.generations(at).await, std::slice::from_ref(&newest));
        assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, newest.offsite_key);
        assert_eq!(kit.databases.last_generation(at.project).await.unwrap().as_ref(), Some(&newest));
    }
    // A control plane that was restored from a backup lacks generations. It accepts all of them, in any order.
    let missing = record(id, "missing", 1, GenerationKind::Scheduled, newest.created_at.plus_seconds(-2 * DAY));
    kit.receive_generation(at, missing.clone()).await;
    let keys: Vec<String> = kit.generations(at).await.into_iter().map(|generation| generation.offsite_key).collect();
    assert_eq!(keys, [missing.key, newest.offsite_key]);
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_skips_projects_whose_counters_are_locked() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let (other, _) = kit.database("blog").await;
    for target in [at, other] {
        kit.scheduled(target).await;
    }
    kit.advance(31 * DAY);
    for target in [at, other] {
        kit.scheduled(target).await;
    }
    kit.receive(at, async |tx| {
        use diesel_async::RunQueryDsl as _;
        let lock = format!("SELECT FROM databases.sequences WHERE project_id = '{}' FOR UPDATE", at.project.as_uuid());
        diesel::sql_query(lock).execute(tx).await?;
        assert_eq!(kit.databases.purge().await.unwrap(), 1);
        Ok(())
    })
    .await;
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_without_a_database_has_no_generations() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let listed = kit.databases.generations(at.project).await.unwrap();
    assert!(listed.items.is_empty() && listed.last_checked_at.is_none());
    assert_eq!(kit.databases.last_generation(at.project).await.unwrap(), None);
    // A report about a project that never had a database is ignored.
    let id = kit.store.clock_rng().id();
    kit.receive_generation(at, record(id, "a", 1, GenerationKind::Scheduled, kit.now())).await;
    assert!(kit.generations(at).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_of_the_database_of_another_project_is_ignored() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let own = kit.scheduled(at).await;
    let (other, _) = kit.database("blog").await;
    kit.receive_generation(other, record(id, "foreign", 1, GenerationKind::Scheduled, kit.now())).await;
    assert!(kit.generations(other).await.is_empty());
    // A stored generation of another project is never a source, even if its number is higher.
    kit.db_execute(&format!(
        "INSERT INTO databases.generations \
             (project_id, seq, database_id, epoch, kind, size_bytes, sha256, key, created_at) \
         VALUES ('{}', 2, '{}', 1, 'scheduled', 1000, 'x', 'foreign', now())",
        other.project.as_uuid(),
        id.as_uuid()
    ))
    .await;
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, own.offsite_key);
    assert_eq!(kit.databases.last_generation(at.project).await.unwrap(), Some(own));
}

#[tokio::test(flavor = "multi_thread")]
async fn late_generation_of_a_deleted_database_is_no_source_of_its_successor() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let operation = kit.delete(at).await.unwrap();
    for phase in [databases::Phase::Draining, databases::Phase::Sealing, databases::Phase::Committing] {
        kit.complete(at, operation, phase).await;
    }
    assert_eq!(kit.databases.last_generation(at.project).await.unwrap(), None);
    kit.enable(at).await;
    kit.advance(1);
    kit.receive_generation(at, record(id, "late", 1, GenerationKind::Scheduled, kit.now())).await;
    assert_eq!(kit.pairs(at).await, [(1, 2), (1, 1)]);
    assert_eq!(kit.part(at).await.unwrap().source, None);
    assert_eq!(kit.databases.last_generation(at.project).await.unwrap(), None);
    let own = kit.scheduled(at).await;
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, own.offsite_key);
    assert_eq!(kit.databases.last_generation(at.project).await.unwrap(), Some(own));
}
