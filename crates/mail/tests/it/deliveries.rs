//! Delivery of received mail to workers.

use std::time::Duration;

use diesel_async::AsyncConnection as _;
use kernel::{MailId, NodeId};
use mail::{ClaimLimits, ClaimedMail, DeliveryRepository as _, DeliveryResult, MailError};
use tokio::sync::broadcast::error::TryRecvError;

use crate::kit::Kit;

const DAY: i64 = 24 * 3600;

/// The detail of a mail whose delivery has expired.
const EXPIRED: &str = "not delivered to a worker in time";

fn failed() -> DeliveryResult {
    DeliveryResult::Failed("threw an Error".to_owned())
}

impl Kit {
    /// Claims mail as a node that still has all mails that it has claimed.
    async fn claim(&self) -> Vec<ClaimedMail> {
        let in_progress = self.claimed.lock().unwrap().clone();
        self.claim_with(&in_progress).await
    }

    /// Claims mail as a node that has these mails in progress.
    async fn claim_with(&self, in_progress: &[MailId]) -> Vec<ClaimedMail> {
        let claimed = self.mail.claim(self.node, in_progress, Duration::ZERO).await.unwrap();
        self.claimed.lock().unwrap().extend(claimed.iter().map(|mail| mail.id));
        claimed
    }

    async fn complete(&self, claimed: &ClaimedMail, result: DeliveryResult) {
        self.mail.complete(self.node, claimed.id, claimed.attempt, result).await.unwrap();
    }

    async fn pending(&self) -> i64 {
        self.db_number("SELECT count(*) FROM mail.deliveries").await
    }

    /// Checks that the only pending delivery expires after this time, in seconds.
    async fn expires_after(&self, seconds: i64) {
        for (wait, pending) in [(seconds - 1, 1), (1, 0)] {
            self.advance(wait);
            self.mail.expire_deliveries().await.unwrap();
            assert_eq!(self.pending().await, pending);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_mails_that_are_not_in_progress_end() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.receive(shop, "eve@example.org").await;
    let first = kit.claim().await;
    assert_eq!((first[0].id, first[0].attempt), (id, 1));
    // Another node that is idle does not end the claim.
    let other = kit.store.clock_rng().id();
    assert_eq!(kit.mail.claim(other, &[], Duration::ZERO).await.unwrap(), []);
    assert_eq!(kit.claim().await, []);
    // The node also has another mail in progress.
    let in_progress = kit.receive(shop, "eve@example.org").await;
    assert_eq!(kit.claim().await[0].id, in_progress);
    let second = kit.claim_with(&[in_progress]).await;
    assert_eq!(second.iter().map(|mail| (mail.id, mail.attempt)).collect::<Vec<_>>(), [(id, 2)]);
    kit.complete(&first[0], DeliveryResult::Rejected("late".to_owned())).await;
    assert_eq!(kit.outcome(shop, id).await.0, "received");
    kit.complete(&second[0], DeliveryResult::Handled).await;
    assert_eq!(kit.claim_with(&[in_progress]).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_claims_neither_occupy_their_project_nor_delay_a_retry() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for _ in 0..5 {
        kit.receive(shop, "a@example.org").await;
    }
    let in_progress = kit.claim().await[0].id;
    // The responses to all of these claims but the last one are lost.
    let mut claimed = Vec::new();
    for attempt in 2..=6 {
        claimed = kit.claim_with(&[in_progress]).await;
        assert_eq!(claimed.iter().map(|mail| mail.attempt).collect::<Vec<_>>(), [attempt; 4]);
    }
    kit.complete(&claimed[0], failed()).await;
    kit.advance(5);
    assert_eq!(kit.claim().await[0].id, claimed[0].id, "a short delay follows the first failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn result_wakes_the_claim_that_waits_for_the_limit_of_the_project() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for _ in 0..7 {
        kit.receive(shop, "a@example.org").await;
    }
    let claimed = kit.claim().await;
    assert_eq!((claimed.len(), kit.claim().await.len()), (5, 0));
    let mut wake_ups = kit.wake_ups.subscribe();
    for (mail, result) in claimed.iter().zip([DeliveryResult::Handled, failed()]) {
        kit.complete(mail, result).await;
        assert_eq!(wake_ups.try_recv(), Ok(kit.node));
        assert_eq!(kit.claim().await.len(), 1);
    }
    // No more mail is due.
    kit.complete(&claimed[2], DeliveryResult::Handled).await;
    assert_eq!(wake_ups.try_recv(), Err(TryRecvError::Empty));
}

#[tokio::test(flavor = "multi_thread")]
async fn home_node_claims_a_mail_once() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.receive(shop, "eve@example.org").await;
    let other: NodeId = kit.store.clock_rng().id();
    assert_eq!(kit.mail.claim(other, &[], Duration::ZERO).await.unwrap(), []);
    let claimed = kit.claim().await;
    let to = vec!["sales@shop.acme.mail.example".to_owned()];
    let expected =
        ClaimedMail { id, project: shop.project, attempt: 1, from: "eve@example.org".into(), to, size_bytes: 22 };
    assert_eq!(claimed, [expected]);
    assert_eq!(kit.claim().await, []);
    assert_eq!(kit.mail.claimed_raw(kit.node, id).await.unwrap().0, 22);
    assert!(matches!(kit.mail.claimed_raw(other, id).await, Err(MailError::MailNotFound)));
    // Another node's result has no effect.
    kit.mail.complete(other, id, 1, DeliveryResult::Handled).await.unwrap();
    assert_eq!(kit.pending().await, 1);
    for _ in 0..2 {
        kit.complete(&claimed[0], DeliveryResult::Handled).await;
    }
    assert_eq!(kit.pending().await, 0);
    assert_eq!(kit.outcome(shop, id).await, ("received".to_owned(), None));
    assert!(matches!(kit.mail.claimed_raw(kit.node, id).await, Err(MailError::MailNotFound)));
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_mail_has_the_reason() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let (rejected, ignored) = (kit.receive(shop, "a@example.org").await, kit.receive(shop, "b@example.org").await);
    for claimed in kit.claim().await {
        let reason = DeliveryResult::Rejected("no\nspam".to_owned());
        kit.complete(&claimed, if claimed.id == rejected { reason } else { DeliveryResult::NoHandler }).await;
    }
    assert_eq!(kit.outcome(shop, rejected).await, ("rejected".to_owned(), Some("no spam".to_owned())));
    assert_eq!(kit.outcome(shop, ignored).await, ("received".to_owned(), None));
    assert_eq!((kit.pending().await, kit.mail.status(shop).await.unwrap().received_last24h), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_attempt_is_repeated_with_backoff_for_a_day() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.receive(shop, "a@example.org").await;
    let mut delays = vec![5, 15, 60, 300, 900];
    delays.extend([3600; 23]);
    let mut elapsed = 0;
    for (at, delay) in delays.iter().enumerate() {
        let claimed = kit.claim().await;
        assert_eq!(claimed[0].attempt, i32::try_from(at + 1).unwrap());
        kit.complete(&claimed[0], failed()).await;
        let detail = format!("attempt {} failed: threw an Error", at + 1);
        assert_eq!(kit.outcome(shop, id).await, ("received".to_owned(), Some(detail)));
        kit.advance(delay - 1);
        assert_eq!(kit.claim().await, [], "attempt {at}");
        kit.advance(1);
        elapsed += delay;
    }
    assert_eq!(elapsed, 1280 + 23 * 3600);
    // The next attempt would be later than a day after the first one.
    let claimed = kit.claim().await;
    kit.complete(&claimed[0], failed()).await;
    assert_eq!(kit.pending().await, 0);
    let detail = kit.outcome(shop, id).await.1.unwrap();
    assert_eq!(detail, "attempt 29, the last one, failed: threw an Error");
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_ends_with_its_lease_and_its_late_result_is_ignored() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.receive(shop, "a@example.org").await;
    let first = kit.claim().await;
    kit.advance(300);
    assert!(matches!(kit.mail.claimed_raw(kit.node, id).await, Err(MailError::MailNotFound)));
    let second = kit.claim().await;
    assert_eq!((first[0].attempt, second[0].attempt, second[0].id), (1, 2, id));
    kit.complete(&first[0], DeliveryResult::Rejected("late".to_owned())).await;
    kit.complete(&first[0], failed()).await;
    assert_eq!((kit.pending().await, kit.outcome(shop, id).await.0), (1, "received".to_owned()));
    kit.complete(&second[0], DeliveryResult::Handled).await;
    assert_eq!((kit.pending().await, kit.outcome(shop, id).await), (0, ("received".to_owned(), None)));
}

/// The clocks of servers differ by the duration of a query, so the test advances the clock between two steps.
#[tokio::test(flavor = "multi_thread")]
async fn delivery_does_not_depend_on_the_clocks_of_servers() {
    for ahead in [-360, 2 * DAY] {
        let mut kit = Kit::start().await;
        let shop = kit.project("shop").await;
        let wrong = kit.server_ahead(ahead);
        let right = std::mem::replace(&mut kit.mail, wrong);
        let id = kit.receive(shop, "a@example.org").await;
        kit.advance(10);
        let claimed = kit.claim().await;
        assert_eq!((claimed[0].id, claimed[0].attempt), (id, 1), "{ahead}");
        for server in [&kit.mail, &right] {
            assert_eq!(server.claimed_raw(kit.node, id).await.unwrap().0, 22, "{ahead}");
            assert_eq!(server.claim(kit.node, &[id], Duration::ZERO).await.unwrap(), [], "{ahead}");
        }
        kit.complete(&claimed[0], failed()).await;
        kit.mail.expire_deliveries().await.unwrap();
        kit.advance(20);
        let claimed = right.claim(kit.node, &[], Duration::ZERO).await.unwrap();
        assert_eq!((claimed[0].id, claimed[0].attempt), (id, 2), "{ahead}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn project_with_many_mails_does_not_delay_the_others() {
    let kit = Kit::start().await;
    let (busy, quiet) = (kit.project("busy").await, kit.project("quiet").await);
    for _ in 0..30 {
        kit.receive(busy, "a@example.org").await;
    }
    kit.advance(1);
    kit.receive(quiet, "a@example.org").await;
    let claimed = kit.claim().await;
    let of = |claimed: &[ClaimedMail], project| claimed.iter().filter(|it| it.project == project).count();
    assert_eq!((of(&claimed, busy.project), of(&claimed, quiet.project)), (5, 1));
    // While this number of its mails is in progress, the project gets no more.
    assert_eq!(kit.claim().await, []);
    let done = claimed.iter().find(|it| it.project == busy.project).unwrap();
    kit.complete(done, DeliveryResult::Handled).await;
    assert_eq!(of(&kit.claim().await, busy.project), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_waits_for_a_home_node_with_a_grant_and_expires() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.receive(shop, "a@example.org").await;
    kit.revoke(shop).await;
    assert_eq!(kit.claim().await, []);
    kit.grant(shop, "shop").await;
    kit.db_execute("UPDATE convergence.placements SET state = 'suspended'").await;
    assert_eq!(kit.claim().await, []);
    kit.expires_after(30 * DAY).await;
    assert_eq!(kit.outcome(shop, id).await, ("received".to_owned(), Some(EXPIRED.to_owned())));
}

/// Without this, an outage of all servers for more than a day would end the delivery of mail that no node has claimed.
#[tokio::test(flavor = "multi_thread")]
async fn mail_expires_a_day_after_its_first_claim() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.receive(shop, "a@example.org").await;
    kit.advance(7 * DAY);
    kit.mail.expire_deliveries().await.unwrap();
    let claimed = kit.claim().await;
    assert_eq!((claimed[0].id, claimed[0].attempt), (id, 1));
    kit.complete(&claimed[0], failed()).await;
    kit.expires_after(DAY).await;
    let detail = format!("attempt 1 failed: threw an Error; {EXPIRED}");
    assert_eq!(kit.outcome(shop, id).await, ("received".to_owned(), Some(detail)));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claim_returns_as_soon_as_a_mail_arrives() {
    let kit = std::sync::Arc::new(Kit::start().await);
    let shop = kit.project("shop").await;
    let waiting = tokio::spawn({
        let kit = kit.clone();
        async move { kit.mail.claim(kit.node, &[], Duration::from_secs(20)).await.unwrap() }
    });
    let id = kit.receive(shop, "a@example.org").await;
    assert_eq!(waiting.await.unwrap()[0].id, id);
}

/// Inserts many projects that have a mail domain, another home node and no mail.
const OTHER_PROJECTS: &str = "
    INSERT INTO convergence.nodes (id, name, token_hash, created_at)
        VALUES (gen_random_uuid(), 'other', 'other', now());
    INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at)
        SELECT gen_random_uuid(), o.id, 'p' || n, 'public', 0, now() FROM orgs.orgs o, generate_series(1, 20000) n;
    INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at)
        SELECT p.id, n.id, 'active', 1, now() FROM projects.projects p JOIN convergence.nodes n ON n.name = 'other'
        WHERE p.name <> 'shop';
    INSERT INTO resources.email_domains SELECT id, name || '.other' FROM projects.projects WHERE name <> 'shop';
    ANALYZE projects.projects;
    ANALYZE convergence.placements;
    ANALYZE resources.email_domains";

#[tokio::test(flavor = "multi_thread")]
async fn claim_does_not_read_projects_without_mail() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.receive(shop, "a@example.org").await;
    kit.db_execute(OTHER_PROJECTS).await;
    kit.database.close_sessions().await;
    let (now, limits) = (kit.now(), ClaimLimits { total: 20, per_project: 5 });
    let read = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_user_tables";
    let before = kit.database.number(read).await;
    let mut connection = store::Connection::establish(&kit.database.url()).await.unwrap();
    let claimed = connection.delivery_claim(kit.node, now, now.plus_seconds(300), limits).await.unwrap();
    drop(connection);
    kit.database.wait_for_end_of_sessions("").await;
    let read = kit.database.number(read).await - before;
    assert_eq!(claimed.iter().map(|claim| claim.id).collect::<Vec<_>>(), [id]);
    assert!((1..1000).contains(&read), "{read} rows");
}
