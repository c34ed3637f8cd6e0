//! Checks of the caller in the transaction that commits the change.

use std::sync::LazyLock;

use kernel::audit::{Actor, Credential, RequiredRole};
use kernel::{CallerError, OrgId, Role, SessionId, UserId};
use store::{CallerCheck, Error, Outcome, Result, Store};
use uuid::Uuid;

use super::kit::{Kit, event, write};

/// The waiting transactions of this database. Other tests use other databases of the cluster.
const WAITING: &str = "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) \
    WHERE NOT granted AND datname = current_database()";

static CHECK: LazyLock<CallerCheck> = LazyLock::new(|| {
    CallerCheck::new(
        "SELECT FROM caller WHERE id = $1 AND expires_at > $2 AND org = $3 AND role = ANY ($4) FOR SHARE",
        "SELECT EXISTS (SELECT FROM caller WHERE id = $1 AND expires_at > $2) AS is_valid, \
         (SELECT role FROM caller WHERE id = $1 AND org = $3) AS role",
    )
});

fn find(credential: Credential, _: Option<RequiredRole>) -> Option<&'static CallerCheck> {
    matches!(credential, Credential::Session(_)).then(|| &*CHECK)
}

/// Selects a row when a transaction has written to the table.
fn writer_of(table: &str) -> String {
    format!("SELECT 1 FROM pg_locks WHERE relation = '{table}'::regclass AND mode = 'RowExclusiveLock'")
}

/// Returns a store that checks callers, and a caller who is an admin.
async fn start() -> (Kit, Store, Actor) {
    let (kit, store, [actor, _]) = start_with_two_sessions().await;
    kit.db_execute("DELETE FROM caller WHERE number = 1").await;
    (kit, store, actor)
}

/// Returns a store that checks callers, and an admin with two sessions, which are the rows 0 and 1 of the table `caller`.
pub async fn start_with_two_sessions() -> (Kit, Store, [Actor; 2]) {
    let kit = Kit::start().await;
    kit.db_execute("CREATE TABLE caller (number int, id uuid, expires_at timestamptz, org uuid, role text)").await;
    let org = Uuid::from_u128(3);
    let required = RequiredRole { org: OrgId::from_uuid(org), minimum: Role::Member };
    let sessions = [Uuid::from_u128(2), Uuid::from_u128(4)];
    for (number, session) in sessions.iter().enumerate() {
        let row = format!("INSERT INTO caller VALUES ({number}, '{session}', 'infinity', '{org}', 'admin')");
        kit.db_execute(&row).await;
    }
    let actors = sessions.map(|session| {
        let session = Credential::Session(SessionId::from_uuid(session));
        Actor::user(UserId::from_uuid(Uuid::from_u128(1)), session, Some(required), "req-1")
    });
    let store = kit.store.clone().with_caller_checks(find);
    (kit, store, actors)
}

fn rejection(result: Result<()>) -> CallerError {
    match result.unwrap_err() {
        Error::Caller(error) => error,
        error => unreachable!("{error:?}"),
    }
}

/// Ways in which the caller loses the permission, with the error.
const LOSSES: [(&str, CallerError); 3] = [
    ("UPDATE caller SET expires_at = now() - interval '1 second'", CallerError::InvalidCredential),
    ("UPDATE caller SET role = 'viewer'", CallerError::RoleTooLow { role: Role::Viewer, minimum: Role::Member }),
    ("UPDATE caller SET org = NULL", CallerError::NotAMember),
];

#[tokio::test(flavor = "multi_thread")]
async fn change_commits_only_while_the_caller_is_authorized() {
    for (loss, expected) in LOSSES {
        let (kit, store, actor) = start().await;
        let change = async |id: i32| {
            store
                .transaction(&actor, async |tx| {
                    write(tx, id).await?;
                    Ok::<_, Error>(Outcome::Changed((), event()))
                })
                .await
        };
        change(1).await.unwrap();
        kit.db_execute(loss).await;
        assert_eq!(rejection(change(2).await), expected);
        assert_eq!(kit.db_notes().await, ["zero", "note 1"]);
        assert_eq!(kit.db_audits().await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn result_without_a_change_is_withheld_from_a_caller_without_permission() {
    for (loss, expected) in LOSSES {
        let (kit, store, actor) = start().await;
        let unchanged = async || store.transaction(&actor, async |_| Ok::<_, Error>(Outcome::Unchanged(()))).await;
        let failing =
            async || store.transaction(&actor, async |_| Err::<Outcome<()>, _>(Error::inconsistent("x"))).await;
        unchanged().await.unwrap();
        assert!(matches!(failing().await.unwrap_err(), Error::Inconsistent(_)));
        kit.db_execute(loss).await;
        assert_eq!(rejection(unchanged().await), expected);
        assert_eq!(rejection(failing().await), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unaudited_writes_commit_only_while_the_caller_is_authorized() {
    for (loss, expected) in LOSSES {
        let (kit, store, actor) = start().await;
        let change = async |id: i32| store.transaction_unaudited_as(&actor, async |tx| write(tx, id).await).await;
        let failing =
            async || store.transaction_unaudited_as(&actor, async |_| Err::<(), _>(Error::inconsistent("x"))).await;
        change(1).await.unwrap();
        assert!(matches!(failing().await.unwrap_err(), Error::Inconsistent(_)));
        kit.db_execute(loss).await;
        assert_eq!(rejection(change(2).await), expected);
        assert_eq!(rejection(failing().await), expected);
        assert_eq!(kit.db_notes().await, ["zero", "note 1"]);
        assert_eq!(kit.db_audits().await, 0);
    }
}

/// The permission ends while the change waits for a lock.
#[tokio::test(flavor = "multi_thread")]
async fn change_that_waited_for_a_lock_is_rejected() {
    let (kit, store, actor) = start().await;
    let change = async {
        kit.db_until(1, &writer_of("note")).await;
        store
            .transaction(&actor, async |tx| {
                write(tx, 1).await?;
                Ok::<_, Error>(Outcome::Changed((), event()))
            })
            .await
    };
    let holder = async {
        kit.store
            .transaction_unaudited(async |tx| {
                write(tx, 1).await?;
                kit.db_until(1, WAITING).await;
                kit.db_execute("UPDATE caller SET role = 'viewer'").await;
                Err::<(), _>(Error::inconsistent("roll back"))
            })
            .await
    };
    let (changed, _) = tokio::join!(change, holder);
    assert!(matches!(rejection(changed), CallerError::RoleTooLow { .. }));
    assert_eq!(kit.db_notes().await, ["zero"]);
}

/// A revocation in progress decides: the change waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn change_waits_for_a_concurrent_revocation() {
    let (kit, store, actor) = start().await;
    let revocation = async {
        kit.store
            .transaction_unaudited(async |tx| {
                let revoke = diesel::sql_query("UPDATE caller SET role = 'viewer'");
                diesel_async::RunQueryDsl::execute(revoke, tx).await?;
                kit.db_until(1, WAITING).await;
                Ok::<_, Error>(())
            })
            .await
            .unwrap();
    };
    let change = async {
        kit.db_until(1, &writer_of("caller")).await;
        store
            .transaction(&actor, async |tx| {
                write(tx, 1).await?;
                Ok::<_, Error>(Outcome::Changed((), event()))
            })
            .await
    };
    let ((), changed) = tokio::join!(revocation, change);
    assert!(matches!(rejection(changed), CallerError::RoleTooLow { .. }));
    assert_eq!(kit.db_notes().await, ["zero"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_may_end_the_permission_of_its_own_caller_once() {
    let (kit, store, actor) = start().await;
    let leave = async || {
        store
            .transaction(&actor, async |tx| {
                let authorized = store.authorize(tx, &actor).await?;
                diesel_async::RunQueryDsl::execute(diesel::sql_query("UPDATE caller SET org = NULL"), tx).await?;
                Ok::<_, Error>(Outcome::ChangedAuthority((), event(), authorized))
            })
            .await
    };
    leave().await.unwrap();
    assert_eq!(rejection(leave().await), CallerError::NotAMember);
    assert_eq!(kit.db_audits().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn actors_who_are_no_users_are_not_checked() {
    let (kit, store, _) = start().await;
    kit.db_execute("DELETE FROM caller").await;
    for actor in [Actor::operator("test"), Actor::service("test"), Actor::anonymous("req-1")] {
        store.transaction(&actor, async |_| Ok::<_, Error>(Outcome::Changed((), event()))).await.unwrap();
    }
    assert_eq!(kit.db_audits().await, 3);
}
