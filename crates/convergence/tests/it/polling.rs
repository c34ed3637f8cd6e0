//! Long polls: a commit wakes them, and they find a change even if its wake-up is lost.

use std::pin::pin;
use std::time::{Duration, Instant};

use convergence::ConvergenceError;
use futures_util::future::join_all;
use store::Outcome;

use crate::kit::{Kit, deploy_event, operator, site, sites};

/// The longest wait that a poll may request.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Less than the poll interval of five seconds. So a poll that returns within this time was woken up.
const WAKE_UP_TIMEOUT: Duration = Duration::from_secs(4);

/// Counts the connections of this test that listen.
const COUNT_LISTENERS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";

/// Returns the service with a connected listener, which receives only later wake-ups.
async fn start_listening(kit: &Kit) -> convergence::Convergence {
    let convergence = kit.with_listener();
    while kit.db_number(COUNT_LISTENERS).await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    convergence
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_returns_after_commit_and_not_before() {
    let kit = Kit::start().await;
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    kit.set_site(project, Some(site(1))).await;
    let convergence = start_listening(&kit).await;
    let mut poll = pin!(convergence.desired(node, 2, MAX_WAIT));
    let actor = operator();
    let write = kit.store.transaction(&actor, async |tx| {
        kit.write_site(tx, project, Some(site(2))).await?;
        let early = tokio::time::timeout(Duration::from_millis(300), &mut poll).await;
        assert!(early.is_err(), "the poll returned before the commit: {early:?}");
        Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(project)))
    });
    write.await.unwrap();
    let committed = Instant::now();
    let changes = poll.await.unwrap();
    assert!(committed.elapsed() < WAKE_UP_TIMEOUT, "no wake-up");
    assert_eq!((changes.revision, changes.full, changes.parts.len()), (3, false, 1));
    assert_eq!(sites(&changes)[0].part, Some(site(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_polls_hold_no_connection() {
    let kit = Kit::start_with_connections(2).await;
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    kit.set_site(project, Some(site(1))).await;
    let convergence = start_listening(&kit).await;
    let polls = join_all((0..12).map(|_| convergence.desired(node, 2, MAX_WAIT)));
    let write = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        kit.set_site(project, Some(site(2))).await;
        Instant::now()
    };
    let (responses, committed) = tokio::join!(polls, write);
    assert!(committed.elapsed() < WAKE_UP_TIMEOUT, "no wake-up");
    assert!(responses.into_iter().all(|response| response.unwrap().revision == 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_finds_change_without_wake_up() {
    let kit = Kit::start().await;
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    kit.set_site(project, Some(site(1))).await;
    let listening = start_listening(&kit).await;
    // The first poll has no listener. The second has one, but its wake-up is lost.
    let without_listener = kit.convergence.desired(node, 2, MAX_WAIT);
    let without_wake_up = listening.desired(node, 2, MAX_WAIT);
    let write = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        kit.db_execute(
            "BEGIN; UPDATE convergence.nodes SET revision = 3; UPDATE convergence.parts SET revision = 3; COMMIT",
        )
        .await;
        Instant::now()
    };
    let (without_listener, without_wake_up, committed) = tokio::join!(without_listener, without_wake_up, write);
    assert!(committed.elapsed() < Duration::from_secs(20), "the poll waited for its timeout");
    for response in [without_listener, without_wake_up] {
        let response = response.unwrap();
        assert_eq!((response.revision, response.parts.len()), (3, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_survives_loss_of_listener_connection() {
    let kit = Kit::start().await;
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    kit.set_site(project, Some(site(1))).await;
    let convergence = start_listening(&kit).await;
    let poll = convergence.desired(node, 2, MAX_WAIT);
    let write = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let terminate = COUNT_LISTENERS.replace("count(*)", "count(pg_terminate_backend(pid))");
        assert_eq!(kit.db_number(&terminate).await, 1);
        // The wake-up is lost if the listener has not reconnected. A listener that reconnects wakes all polls.
        kit.set_site(project, Some(site(2))).await;
        Instant::now()
    };
    let (changes, committed) = tokio::join!(poll, write);
    assert!(committed.elapsed() < WAKE_UP_TIMEOUT, "no wake-up");
    assert_eq!(changes.unwrap().revision, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_timeout_returns_unchanged_revision() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    kit.set_site(kit.new_project(), Some(site(1))).await;
    let convergence = start_listening(&kit).await;
    for wait in [Duration::ZERO, Duration::from_millis(200)] {
        let response = convergence.desired(node, 2, wait).await.unwrap();
        assert_eq!((response.revision, response.full, response.parts), (2, false, vec![]));
    }
}
