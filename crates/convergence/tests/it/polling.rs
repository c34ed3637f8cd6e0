//! The long poll: woken by a commit and by nothing before it, and not lost when the wake-up is.

use std::pin::pin;
use std::time::{Duration, Instant};

use convergence::ConvergenceError;
use futures_util::future::join_all;
use store::Outcome;

use crate::kit::{Kit, deployed, operator, site, sites};

/// As long as a poll may be kept waiting.
const WAIT: Duration = Duration::from_secs(30);
/// A poll that nobody wakes looks again every five seconds; one that is answered in less than this was woken.
const WOKEN: Duration = Duration::from_secs(4);

/// Connections of this test that listen.
const LISTENING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";

/// The same service with a listener that is there already: what was announced before is no wake-up.
async fn listening(kit: &Kit) -> convergence::Convergence {
    let convergence = kit.listening();
    while kit.db_number(LISTENING).await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    convergence
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_woken_by_the_commit_and_not_before() {
    let kit = Kit::start().await;
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    kit.converge(project, Some(site(1))).await;
    let convergence = listening(&kit).await;
    let mut poll = pin!(convergence.desired(node, 2, WAIT));
    let actor = operator();
    let decided = kit.store.transaction(&actor, async |tx| {
        kit.decide(tx, project, Some(site(2))).await?;
        let early = tokio::time::timeout(Duration::from_millis(300), &mut poll).await;
        assert!(early.is_err(), "answered before the commit: {early:?}");
        Ok::<_, ConvergenceError>(Outcome::Changed((), deployed(project)))
    });
    decided.await.unwrap();
    let committed = Instant::now();
    let news = poll.await.unwrap();
    assert!(committed.elapsed() < WOKEN, "not woken");
    assert_eq!((news.revision, news.full, news.parts.len()), (3, false, 1));
    assert_eq!(sites(&news)[0].part, Some(site(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_hold_no_connection_and_are_all_woken() {
    let kit = Kit::with(2).await;
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    kit.converge(project, Some(site(1))).await;
    let convergence = listening(&kit).await;
    let polls = join_all((0..12).map(|_| convergence.desired(node, 2, WAIT)));
    let deciding = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        kit.converge(project, Some(site(2))).await;
        Instant::now()
    };
    let (answers, committed) = tokio::join!(polls, deciding);
    assert!(committed.elapsed() < WOKEN, "not woken");
    assert!(answers.into_iter().all(|answer| answer.unwrap().revision == 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_nobody_announced_is_found_all_the_same() {
    let kit = Kit::start().await;
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    kit.converge(project, Some(site(1))).await;
    let listening = listening(&kit).await;
    // One whose wake-up is lost, and one that has no listener at all.
    let deaf = kit.convergence.desired(node, 2, WAIT);
    let lost = listening.desired(node, 2, WAIT);
    let deciding = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        kit.db_execute(
            "BEGIN; UPDATE convergence.nodes SET revision = 3; UPDATE convergence.parts SET revision = 3; COMMIT",
        )
        .await;
        Instant::now()
    };
    let (deaf, lost, committed) = tokio::join!(deaf, lost, deciding);
    assert!(committed.elapsed() < Duration::from_secs(20), "only when the time was up");
    for answer in [deaf, lost] {
        let answer = answer.unwrap();
        assert_eq!((answer.revision, answer.parts.len()), (3, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_outlives_the_connection_that_would_wake_it() {
    let kit = Kit::start().await;
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    kit.converge(project, Some(site(1))).await;
    let convergence = listening(&kit).await;
    let poll = convergence.desired(node, 2, WAIT);
    let deciding = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let ended = LISTENING.replace("count(*)", "count(pg_terminate_backend(pid))");
        assert_eq!(kit.db_number(&ended).await, 1);
        // Announced to nobody, if the new listener is not there yet: then it is what finds it.
        kit.converge(project, Some(site(2))).await;
        Instant::now()
    };
    let (news, committed) = tokio::join!(poll, deciding);
    assert!(committed.elapsed() < WOKEN, "not woken");
    assert_eq!(news.unwrap().revision, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_in_vain_ends_with_the_revision_it_began_with() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    kit.converge(kit.project(), Some(site(1))).await;
    let convergence = listening(&kit).await;
    for wait in [Duration::ZERO, Duration::from_millis(200)] {
        let answer = convergence.desired(node, 2, wait).await.unwrap();
        assert_eq!((answer.revision, answer.full, answer.parts), (2, false, vec![]));
    }
}
