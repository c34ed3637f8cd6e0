//! Tests of creation, deletion and erasure.

use std::time::Duration;

use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};
use git::{GitError, RepoChange, Target};
use kernel::{AbuseLimits, ApiError as _, Plan, Secret, Time};
use serde_json::json;
use store::Connection;

use crate::kit::{AT, Kit, actor, db_org, db_project, new_repo};

#[tokio::test]
async fn deleted_repository_is_erased_after_thirty_days() {
    let kit = Kit::start().await;
    let first = kit.create("app").await;
    kit.delete("app").await;
    // The name is free immediately.
    let second = kit.create("app").await;
    assert_eq!(kit.repositories.find_by_path(AT, "app").await.unwrap().unwrap().id, second.id);
    assert_eq!(kit.repositories.owner(first.id).await.unwrap(), None);
    assert_eq!(kit.repositories.owner(second.id).await.unwrap(), Some(kit.target.org.to_string()));
    kit.clock.advance_days(29);
    assert_eq!(kit.repositories.erasable().await.unwrap(), []);
    // A node that reports the erasure too early changes nothing.
    kit.repositories.erased(first.id).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM git.repositories").await, 2);
    kit.clock.advance_days(1);
    assert_eq!(kit.repositories.erasable().await.unwrap(), [first.id]);
    for _ in 0..2 {
        kit.repositories.erased(first.id).await.unwrap();
        kit.repositories.erased(second.id).await.unwrap();
    }
    assert_eq!(kit.repositories.erasable().await.unwrap(), []);
    assert_eq!(kit.db_number("SELECT count(*) FROM git.repositories").await, 1);
    assert_eq!(kit.db_number("SELECT sum(repositories)::bigint FROM git.counts").await, 1);
}

#[tokio::test]
async fn repositories_of_a_purged_project_are_erased_at_once() {
    let kit = Kit::start().await;
    let deleted = kit.create("deleted").await;
    kit.delete("deleted").await;
    let repo = kit.create("app").await;
    let purge = async || {
        let purge = async |tx: &mut Connection| kit.repositories.purge_batch(tx, kit.target.project).await;
        kit.store.transaction_unaudited(purge).await.unwrap()
    };
    assert_eq!(purge().await, 2);
    let (mut due, mut expected) = (kit.repositories.erasable().await.unwrap(), [deleted.id, repo.id]);
    due.sort_unstable();
    expected.sort_unstable();
    assert_eq!(due, expected);
    // The next batch skips the repositories that are already due.
    assert_eq!(purge().await, 0);
}

#[tokio::test]
async fn repositories_use_storage_until_they_are_erased() {
    let kit = Kit::start().await;
    let (first, second) = (kit.create("first").await, kit.create("second").await);
    let used = async || kit.repositories.storage(kit.target.org, Plan::Free).await.unwrap().used;
    assert_eq!(used().await, 0);
    for (repo, bytes) in [(&first, 900), (&second, 30), (&first, 100)] {
        kit.repositories.set_size(repo.id, bytes).await.unwrap();
    }
    assert_eq!(used().await, 130);
    assert_eq!(kit.repositories.storage(kit.store.clock_rng().id(), Plan::Free).await.unwrap().used, 0);
    kit.delete("first").await;
    kit.db_execute("UPDATE projects.projects SET deleted_at = now()").await;
    assert_eq!(used().await, 130);
    kit.clock.advance_days(30);
    kit.repositories.erased(first.id).await.unwrap();
    let late = kit.repositories.set_size(first.id, 100).await;
    assert!(matches!(late, Err(GitError::RepoNotFound)), "{late:?}");
    assert_eq!(used().await, 30);
}

#[tokio::test]
async fn project_has_a_limited_number_of_repositories() {
    let kit = Kit::start().await;
    kit.create("first").await;
    kit.db_execute("UPDATE git.counts SET repositories = 999").await;
    kit.create("last").await;
    let refused = kit.repositories.create(&actor(), kit.target, AT, new_repo("more")).await;
    assert!(matches!(refused, Err(GitError::RepoLimit { limit: 1000 })), "{refused:?}");
    kit.delete("last").await;
    kit.create("more").await;
}

#[tokio::test]
async fn deleted_repositories_of_an_organization_are_limited_until_their_erasure() {
    let mut kit = Kit::start().await;
    let limits = AbuseLimits { deleted_repositories_per_org: 3, ..AbuseLimits::default() };
    kit.repositories = kit.repositories.clone().with_abuse_limits(limits);
    let old = db_project(&kit, kit.target.org, "old").await;
    let other = db_project(&kit, db_org(&kit, "other").await, "site").await;
    let create = async |target: Target, name: &str| kit.repositories.create(&actor(), target, AT, new_repo(name)).await;
    // The erasure of a repository that is deleted now.
    let erase_at = || kit.now().plus_seconds(30 * 24 * 3600);
    create(old, "deleted").await.unwrap();
    kit.repositories.delete(&actor(), old, "deleted").await.unwrap();
    let first = erase_at();
    create(old, "app").await.unwrap();
    kit.advance(60);
    // The repositories of a deleted project count.
    kit.db_execute(&format!("UPDATE projects.projects SET deleted_at = '{}' WHERE name = 'old'", kit.now())).await;
    let second = erase_at();
    kit.advance(60);
    kit.create("app").await;
    kit.delete("app").await;
    let third = erase_at();
    let assert_refused = async |erase_at: Time| {
        let refused = create(kit.target, "app").await.unwrap_err();
        assert_eq!(refused.code(), &GitError::DELETED_LIMIT);
        assert_eq!(refused.details(), Some(json!({ "limit": 3, "eraseAt": erase_at })));
        assert!(refused.to_string().contains(&erase_at.to_string()), "{refused}");
    };
    assert_refused(first).await;
    assert_eq!(kit.db_number("SELECT sum(repositories)::bigint FROM git.counts").await, 1);
    // Each organization has its own limit.
    create(other, "app").await.unwrap();
    kit.advance(first.unix_seconds() - kit.now().unix_seconds() - 1);
    assert_refused(first).await;
    kit.create("app").await;
    kit.delete("app").await;
    assert_refused(second).await;
    kit.advance(third.unix_seconds() - kit.now().unix_seconds());
    create(kit.target, "app").await.unwrap();
}

/// Runs a change whose policy found the project before its deletion commits. Then restores the project.
async fn during_deletion<T>(kit: &Kit, change: impl Future<Output = T>) -> T {
    let mut deletion = Connection::establish(&kit.database.url()).await.unwrap();
    deletion.batch_execute("BEGIN; UPDATE projects.projects SET deleted_at = now()").await.unwrap();
    let commit = async {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while kit.db_number(waiting).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        deletion.batch_execute("COMMIT").await.unwrap();
    };
    let both = async { tokio::join!(change, commit) };
    let (changed, ()) = tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
    kit.db_execute("UPDATE projects.projects SET deleted_at = NULL").await;
    changed
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_of_a_project_that_is_being_deleted_do_not_change() {
    let (kit, actor) = (Kit::start().await, actor());
    kit.create("app").await;
    let created = during_deletion(&kit, kit.repositories.create(&actor, kit.target, AT, new_repo("late"))).await;
    assert!(matches!(created, Err(GitError::ProjectNotFound)), "{created:?}");
    let change = RepoChange { name: Some("renamed".parse().unwrap()), ..RepoChange::default() };
    let updated = during_deletion(&kit, kit.repositories.update(&actor, kit.target, "app", change)).await;
    assert!(matches!(updated, Err(GitError::ProjectNotFound)), "{updated:?}");
    let deleted = during_deletion(&kit, kit.repositories.delete(&actor, kit.target, "app")).await;
    assert!(matches!(deleted, Err(GitError::ProjectNotFound)), "{deleted:?}");
    assert_eq!(kit.db_number("SELECT count(*) FROM git.repositories").await, 1);
    assert_eq!(kit.db_number("SELECT count(*) FROM git.repositories WHERE name = 'app' AND erase_at IS NULL").await, 1);
}

#[tokio::test]
async fn node_is_announced_with_a_sealed_secret() {
    let kit = Kit::start().await;
    let node = kit.store.clock_rng().id();
    let add = "INSERT INTO convergence.nodes (id, name, kind, token_hash, created_at)";
    let values = format!("VALUES ('{}', 'git', 'git', '\\x01', now())", kernel::NodeId::as_uuid(&node));
    kit.db_execute(&format!("{add} {values}")).await;
    for secret in ["hush-1", "hush-2"] {
        let secret = Secret::new(secret.to_owned());
        kit.repositories.announce(node, "http://127.0.0.1:8094".to_owned(), &secret).await.unwrap();
    }
    let stored = "SELECT count(*) FROM git.nodes WHERE position('hush'::bytea IN sealed) = 0";
    assert_eq!(kit.db_number(stored).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_example_prints_the_repositories() {
    let kit = Kit::start().await;
    kit.create("app").await;
    kit.create("docs").await;
    let printed = kit.database.example("repositories", &[&kit.target.project.to_string()]);
    assert_eq!(printed, "docs  private  main\napp  private  main\n");
}
