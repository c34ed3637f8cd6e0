//! Invariants of an organization under concurrent changes.

use futures_util::future::join_all;
use kernel::audit::Actor;
use kernel::{OrgId, Role, UserId};
use orgs::{OrgError, OrgRepository as _, RoleChange};
use store::Outcome;
use testkit::four_at_a_time;

use crate::kit::{Kit, new_member, session_actor};

/// Counts the transactions of this test that wait for a lock.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// The way in which an admin loses the role.
#[derive(Debug, Clone, Copy)]
enum AdminExit {
    Demoted,
    Left,
    RemovedByTheNext,
}

/// Creates an organization with twenty admins and no other members.
async fn twenty_admins(kit: &Kit, slug: &str) -> (OrgId, Vec<UserId>) {
    let mut admins = kit.db_users(slug, 20).await;
    let org = kit.org(admins[0], slug).await.id;
    kit.db_join(org, &admins[1..], Role::Admin).await;
    admins.sort();
    (org, admins)
}

async fn exit_admin(kit: &Kit, org: OrgId, admins: &[UserId], at: usize, exit: AdminExit) -> Result<(), OrgError> {
    let (user, next) = (admins[at], admins[(at + 1) % admins.len()]);
    match exit {
        AdminExit::Demoted => {
            let role = Role::Viewer;
            kit.orgs.member_set_role(&session_actor(user), org, user, RoleChange { role }).await.map(drop)
        }
        AdminExit::Left => kit.orgs.member_remove(&session_actor(user), Role::Admin, org, user).await,
        AdminExit::RemovedByTheNext => kit.orgs.member_remove(&session_actor(next), Role::Admin, org, user).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_admin_remains_when_all_exit_concurrently() {
    let kit = Kit::start().await;
    for (slug, ways) in [
        ("demoted", &[AdminExit::Demoted][..]),
        ("left", &[AdminExit::Left]),
        ("removed", &[AdminExit::RemovedByTheNext]),
        ("mixed", &[AdminExit::Demoted, AdminExit::Left, AdminExit::RemovedByTheNext]),
    ] {
        let (org, admins) = twenty_admins(&kit, slug).await;
        let exits = (0..20).map(|at| exit_admin(&kit, org, &admins, at, ways[at % ways.len()]));
        let outcomes = join_all(exits).await;
        let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(matches!(refused.as_slice(), [OrgError::LastAdmin]), "{slug}: {refused:?}");
        let left = format!("SELECT count(*) FROM orgs.members WHERE org_id = '{}' AND role = 'admin'", org.as_uuid());
        assert_eq!(kit.db_number(&left).await, 1, "{slug}");
        assert_eq!(kit.audited().await.len(), 19, "{slug}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_additions_of_a_user_add_one_member() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    kit.db_user("bob").await;
    let org = kit.org(ada, "acme").await.id;
    let actor = session_actor(ada);
    let added = four_at_a_time((0..20).map(|n| {
        let role = Role::ALL[n % Role::ALL.len()];
        kit.orgs.member_add(&actor, org, new_member("bob", role))
    }))
    .await;
    let (added, refused): (Vec<_>, Vec<_>) = added.into_iter().partition(Result::is_ok);
    assert_eq!(added.len(), 1);
    assert!(refused.iter().all(|outcome| matches!(outcome, Err(OrgError::AlreadyMember))));
    let [event] = kit.audited().await.try_into().unwrap();
    let role = added[0].as_ref().unwrap().role;
    assert_eq!(event.data, serde_json::json!({ "role": role }));
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_lock_is_held_until_the_transaction_ends() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let (acme, other) = (kit.org(ada, "acme").await.id, kit.org(ada, "other").await.id);
    kit.db_user("bob").await;
    let actor = Actor::operator("test");
    let held = kit.store.transaction(&actor, async |tx| {
        assert!(tx.org_lock(acme).await?.is_some());
        // Other organizations are not locked.
        kit.orgs.member_add(&actor, other, new_member("bob", Role::Viewer)).await?;
        let add = kit.orgs.member_add(&actor, acme, new_member("bob", Role::Viewer));
        let waiting = async {
            while kit.db_number(WAITING).await == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            added = add => panic!("not locked: {added:?}"),
            () = waiting => {}
        }
        Ok::<_, OrgError>(Outcome::Unchanged(()))
    });
    held.await.unwrap();
    let nowhere = kit.store.clock_rng().id();
    assert_eq!(kit.connection().await.org_lock(nowhere).await.unwrap(), None);
    kit.orgs.member_add(&actor, acme, new_member("bob", Role::Viewer)).await.unwrap();
}
