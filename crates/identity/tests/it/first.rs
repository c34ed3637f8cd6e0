//! The first sign-in: user, organization and session in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use identity::{Identity, IdentityError, PersonalOrgs};
use kernel::audit::Event;
use kernel::{ApiError as _, Kind, UserId};
use serde_json::json;
use store::{Connection, Store};
use testkit::{Audit, four_at_a_time};

use crate::kit::{Kit, anonymous_actor, dev_login};

#[tokio::test(flavor = "multi_thread")]
async fn second_sign_in_finds_the_user_of_the_first() {
    let kit = Kit::start().await;
    let mut sessions = Vec::new();
    for first in [true, false] {
        let session = kit.login("ada").await.unwrap();
        assert_eq!(session.subject, "ada");
        let events = kit.audited().await;
        let [row] = events.as_slice() else { panic!("one row is expected: {events:?}") };
        assert!(row.target.starts_with("ses_"), "{row:?}");
        let data = json!({ "user": session.user_id, "provider": "dev", "first": first, "ended": [] });
        let event = Event::of_platform("session.start", row.target.clone(), data);
        assert_eq!(*row, Audit::of(&anonymous_actor(), event));
        assert_eq!(kit.port.calls(), 1);
        sessions.push(session);
    }
    assert_eq!(sessions[0].user_id, sessions[1].user_id);
    assert_ne!(sessions[0].token, sessions[1].token);
    assert_eq!(kit.db_counts().await, [1, 2, 1, 1, 2]);
    assert_ne!(kit.login("bob").await.unwrap().user_id, sessions[0].user_id);
    assert_eq!(kit.port.calls(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_port_call_rolls_back_and_is_repeated() {
    let kit = Kit::start().await;
    kit.port.fail(2);
    for _ in 0..2 {
        let failed = kit.login("ada").await.unwrap_err();
        assert!(matches!(failed, IdentityError::Store(_)));
        assert_eq!(failed.code().kind, Kind::Internal);
        assert_eq!(kit.db_counts().await, [0; 5]);
    }
    kit.login("ada").await.unwrap();
    assert_eq!(kit.audited().await[0].data["first"], json!(true));
    assert_eq!((kit.port.calls(), kit.db_counts().await), (3, [1; 5]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_sign_ins_call_the_port_once() {
    let kit = Kit::start().await;
    let sessions = four_at_a_time((0..20).map(|_| kit.login("ada"))).await;
    let user = sessions[0].as_ref().unwrap().user_id;
    assert!(sessions.iter().all(|session| session.as_ref().is_ok_and(|session| session.user_id == user)));
    assert_eq!((kit.port.calls(), kit.db_counts().await), (1, [1, 20, 1, 1, 20]));
    let first = kit.audited().await.iter().filter(|row| row.data["first"] == json!(true)).count();
    assert_eq!(first, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_sign_in_after_a_failed_one_creates_the_user() {
    let kit = Kit::start().await;
    kit.port.fail(1);
    let sessions = four_at_a_time((0..20).map(|_| kit.login("ada"))).await;
    assert_eq!(sessions.iter().filter(|session| session.is_err()).count(), 1);
    assert_eq!((kit.port.calls(), kit.db_counts().await), (2, [1, 19, 1, 1, 19]));
}

/// A port that checks from another connection whether the transaction of its caller is still open.
struct TransactionProbe {
    store: Store,
    is_uncommitted: AtomicBool,
}

#[async_trait::async_trait]
impl PersonalOrgs for TransactionProbe {
    async fn create(&self, tx: &mut Connection, user: UserId, _: &str) -> store::Result<()> {
        let inside = users(tx, user).await?;
        let outside = users(&mut *self.store.connection().await?, user).await?;
        self.is_uncommitted.store((inside, outside) == (1, 0), Ordering::SeqCst);
        Ok(())
    }
}

async fn users(connection: &mut Connection, user: UserId) -> store::Result<usize> {
    use diesel_async::RunQueryDsl as _;
    let query = diesel::sql_query("SELECT 1 FROM identity.users WHERE id = $1");
    Ok(query.bind::<diesel::sql_types::Uuid, _>(user).execute(connection).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn port_is_called_in_the_transaction_that_creates_the_user() {
    let kit = Kit::start().await;
    let probe = Arc::new(TransactionProbe { store: kit.store.clone(), is_uncommitted: AtomicBool::default() });
    let identity = Identity::new(kit.store.clone(), probe.clone(), Arc::new(kit.port.clone()));
    identity.dev_login(&anonymous_actor(), dev_login("ada", None, None), None).await.unwrap();
    assert!(probe.is_uncommitted.load(Ordering::SeqCst));
}
