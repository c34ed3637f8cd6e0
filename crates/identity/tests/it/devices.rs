//! The listing of a user's sessions.

use identity::{IdentityRepository as _, LoginSession};
use kernel::audit::Credential;
use kernel::{Page, Paging, SessionId, UserId};

use crate::kit::{Kit, anonymous_actor, dev_login};

const DAY: i64 = 24 * 3600;

/// Signs in with this browser. Returns the session id from the audit log.
async fn sign_in(kit: &Kit, subject: &str, browser: &str) -> (UserId, SessionId) {
    let login = dev_login(subject, None, None);
    let session = kit.identity.dev_login(&anonymous_actor(), login, Some(browser)).await.unwrap();
    (session.user_id, kit.audited().await[0].target.parse().unwrap())
}

async fn sessions(kit: &Kit, user: UserId, current: SessionId) -> Vec<LoginSession> {
    kit.identity.sessions(user, current, &Paging::default()).await.unwrap().items
}

#[tokio::test(flavor = "multi_thread")]
async fn unexpired_sessions_are_listed_newest_first() {
    let kit = Kit::start().await;
    let first = kit.now();
    let (ada, old) = sign_in(&kit, "ada", "Firefox").await;
    kit.advance(DAY);
    let second = kit.now();
    let (_, new) = sign_in(&kit, "ada", "Safari").await;
    let (eve, theirs) = sign_in(&kit, "eve", "Lynx").await;
    let show = |id, created_at, browser: &str| LoginSession {
        id,
        created_at,
        last_used_at: None,
        user_agent: Some(browser.to_owned()),
        current: id == old,
    };
    let (old_one, new_one) = (show(old, first, "Firefox"), show(new, second, "Safari"));
    assert_eq!(sessions(&kit, ada, old).await, [new_one.clone(), old_one]);
    assert_eq!(sessions(&kit, eve, theirs).await.len(), 1);
    // The thirtieth day after the first sign-in.
    kit.advance(29 * DAY);
    assert_eq!(sessions(&kit, ada, old).await, [new_one]);
    kit.advance(DAY);
    assert_eq!(sessions(&kit, ada, old).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_once_each_and_in_order() {
    let kit = Kit::start().await;
    let mut mine = Vec::new();
    let (ada, current) = sign_in(&kit, "ada", "0").await;
    mine.push(current);
    for n in 1..25 {
        sign_in(&kit, "eve", "x").await;
        mine.push(sign_in(&kit, "ada", &n.to_string()).await.1);
    }
    mine.reverse();
    for limit in [1, 6, 24, 25, 26] {
        let (mut paging, mut seen) = (Paging { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.identity.sessions(ada, current, &paging).await.unwrap();
            seen.extend(items.into_iter().map(|session| session.id));
            assert!(seen.is_sorted_by(|a, b| a > b), "duplicate session, or out of order");
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert_eq!(seen, mine, "with {limit} on a page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn last_use_is_stored_at_most_every_ten_minutes() {
    let kit = Kit::start().await;
    let start = kit.now();
    let (ada, session) = sign_in(&kit, "ada", "Firefox").await;
    let (_, other) = sign_in(&kit, "ada", "Safari").await;
    let last_used_at = async || sessions(&kit, ada, session).await[1].last_used_at;
    assert!(!kit.identity.is_use_due(Some(start)));

    kit.advance(3600);
    let first = kit.now();
    assert!(kit.identity.is_use_due(Some(start)) && !kit.identity.is_use_due(Some(first)));
    kit.identity.touch(Credential::Session(session)).await.unwrap();
    assert_eq!(last_used_at().await, Some(first));
    // A second use within ten minutes writes nothing.
    kit.advance(590);
    kit.identity.touch(Credential::Session(session)).await.unwrap();
    assert_eq!(last_used_at().await, Some(first));
    assert!(!kit.identity.is_use_due(Some(first)));
    kit.advance(20);
    assert!(kit.identity.is_use_due(Some(first)));
    kit.identity.touch(Credential::Session(session)).await.unwrap();
    assert_eq!(last_used_at().await, Some(kit.now()));

    assert_eq!(sessions(&kit, ada, other).await[0].last_used_at, None);
    let written = kit.db_counts().await;
    // A use writes no audit event, and the use of a deleted session writes nothing.
    kit.connection().await.session_touch(kit.store.clock_rng().id(), kit.now(), kit.now()).await.unwrap();
    assert_eq!((kit.audited().await, kit.db_counts().await), (vec![], written));
}
