//! Concurrent writes get revisions without gaps, which become visible in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use kernel::ProjectId;

use crate::kit::{Kit, site, sites};

const PROJECTS: usize = 20;
const ROUNDS: i32 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn polling_during_concurrent_writes_misses_nothing() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let projects: Vec<ProjectId> = (0..PROJECTS).map(|_| kit.new_project()).collect();
    kit.set_site(projects[0], Some(site(0))).await;

    let finished = AtomicBool::new(false);
    let write_all = async {
        let writes = projects.iter().map(async |project| {
            for version in 1..=ROUNDS {
                kit.set_site(*project, Some(site(version))).await;
            }
        });
        join_all(writes).await;
        finished.store(true, Ordering::SeqCst);
    };
    let poll_repeatedly = async {
        let (mut since, mut known, mut polls) = (2, BTreeMap::new(), 0);
        loop {
            let last = finished.load(Ordering::SeqCst);
            let changes = kit.desired(node, since).await;
            // A revision that became visible after a later one would be below `since`, so the node would miss it.
            assert!(changes.parts.iter().map(|part| part.revision).is_sorted_by(|a, b| a < b));
            assert!(changes.parts.iter().all(|part| part.revision > since && part.revision <= changes.revision));
            assert_eq!(changes.parts.last().map_or(since, |part| part.revision), changes.revision);
            known.extend(sites(&changes).into_iter().map(|site| (site.project, site.part.unwrap().version)));
            (since, polls) = (changes.revision, polls + 1);
            if last {
                return (since, known, polls);
            }
        }
    };
    let ((), (revision, known, polls)) = tokio::join!(write_all, poll_repeatedly);
    assert_eq!(revision, 2 + 20 * i64::from(ROUNDS));
    assert_eq!(known, projects.into_iter().map(|project| (project, ROUNDS)).collect());
    assert!(polls > 2, "no poll ran during the writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_writes_get_consecutive_revisions() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let projects: Vec<ProjectId> = (0..PROJECTS).map(|_| kit.new_project()).collect();
    join_all(projects.iter().map(|project| kit.set_site(*project, Some(site(1))))).await;
    let desired = kit.desired(node, 0).await;
    assert_eq!(desired.revision, 21);
    assert!(desired.parts.iter().map(|part| part.revision).eq(2..=21));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_write_leaves_no_gap() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let projects: Vec<ProjectId> = (0..PROJECTS).map(|_| kit.new_project()).collect();
    // The constraint rejects the row of one project, after its transaction increased the revision.
    let rejected = projects[7].as_uuid();
    kit.db_execute(&format!(
        "ALTER TABLE convergence.parts ADD CONSTRAINT test_rejected CHECK (project_id <> '{rejected}')"
    ))
    .await;
    let outcomes = join_all(projects.iter().map(|project| kit.try_set_site(*project, Some(site(1))))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
    let desired = kit.desired(node, 0).await;
    assert_eq!(desired.revision, 20);
    assert!(desired.parts.iter().map(|part| part.revision).eq(2..=20));
}
