//! Revisions rise without gaps and become visible in their order, however many decide at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use kernel::ProjectId;

use crate::kit::{Kit, site, sites};

const PROJECTS: usize = 20;
const ROUNDS: i32 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_follows_twenty_at_once_misses_nothing() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    let projects: Vec<ProjectId> = (0..PROJECTS).map(|_| kit.project()).collect();
    kit.converge(projects[0], Some(site(0))).await;

    let decided = AtomicBool::new(false);
    let deciding = async {
        let each = projects.iter().map(async |project| {
            for version in 1..=ROUNDS {
                kit.converge(*project, Some(site(version))).await;
            }
        });
        join_all(each).await;
        decided.store(true, Ordering::SeqCst);
    };
    let following = async {
        let (mut since, mut known, mut looks) = (2, BTreeMap::new(), 0);
        loop {
            let last = decided.load(Ordering::SeqCst);
            let news = kit.desired(node, since).await;
            // A decision that became visible after a later one would lie below what the node has seen already.
            assert!(news.parts.iter().map(|part| part.revision).is_sorted_by(|a, b| a < b));
            assert!(news.parts.iter().all(|part| part.revision > since && part.revision <= news.revision));
            assert_eq!(news.parts.last().map_or(since, |part| part.revision), news.revision);
            known.extend(sites(&news).into_iter().map(|placed| (placed.project, placed.part.unwrap().version)));
            (since, looks) = (news.revision, looks + 1);
            if last {
                return (since, known, looks);
            }
        }
    };
    let ((), (revision, known, looks)) = tokio::join!(deciding, following);
    assert_eq!(revision, 2 + 20 * i64::from(ROUNDS));
    assert_eq!(known, projects.into_iter().map(|project| (project, ROUNDS)).collect());
    assert!(looks > 2, "nothing was seen in the middle of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_first_decisions_at_once_have_twenty_revisions() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    let projects: Vec<ProjectId> = (0..PROJECTS).map(|_| kit.project()).collect();
    join_all(projects.iter().map(|project| kit.converge(*project, Some(site(1))))).await;
    let desired = kit.desired(node, 0).await;
    assert_eq!(desired.revision, 21);
    assert!(desired.parts.iter().map(|part| part.revision).eq(2..=21));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_fails_leaves_no_gap_for_the_next() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    let projects: Vec<ProjectId> = (0..PROJECTS).map(|_| kit.project()).collect();
    // One of them does not get past its row: the constraint refuses it after the revision was taken.
    let refused = projects[7].as_uuid();
    kit.db_execute(&format!(
        "ALTER TABLE convergence.parts ADD CONSTRAINT test_refused CHECK (project_id <> '{refused}')"
    ))
    .await;
    let outcomes = join_all(projects.iter().map(|project| kit.try_converge(*project, Some(site(1))))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
    let desired = kit.desired(node, 0).await;
    assert_eq!(desired.revision, 20);
    assert!(desired.parts.iter().map(|part| part.revision).eq(2..=20));
}
