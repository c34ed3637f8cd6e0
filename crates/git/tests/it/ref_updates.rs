//! Tests of the ref updates that the git node reports.

use git::{DeployStatus, NewRepo, RefUpdate, RefUpdateRecord, Repo};
use kernel::UserId;

use crate::kit::{AT, Kit, actor, new_repo};

fn id(number: i64) -> Option<String> {
    (number > 0).then(|| format!("{number:040x}"))
}

/// Returns the update with this number. It changes `main` from the object of the previous update to a new one.
fn update(kit: &Kit, number: i64) -> RefUpdateRecord {
    let name = "refs/heads/main".to_owned();
    let (old, new) = (id(number - 1), id(number));
    let (pusher, created_at) = (Some(UserId::earliest_at(kit.now())), kit.now());
    let update = RefUpdate { name, old, new, forced: false, pusher, deploy: None, created_at };
    RefUpdateRecord { number, update, credential: Some("token".to_owned()) }
}

/// Creates a repository whose pushes to `main` are deployed.
async fn create_deploying(kit: &Kit, name: &str) -> Repo {
    let new = NewRepo { deploy_branch: Some("main".parse().unwrap()), ..new_repo(name) };
    kit.repositories.create(&actor(), kit.target, AT, new).await.unwrap()
}

/// A node repeats reports whose response was lost, sometimes together with new ones.
#[tokio::test]
async fn repeated_reports_are_recorded_once() {
    let kit = Kit::start().await;
    let repo = kit.create("app").await;
    for (first, last) in [(1, 3), (1, 3), (2, 5), (4, 4), (6, 6)] {
        let updates = (first..=last).map(|number| update(&kit, number)).collect();
        kit.repositories.record_updates(repo.id, updates).await.unwrap();
    }
    let listed = kit.repositories.ref_updates(kit.target.project, "app").await.unwrap();
    let new: Vec<_> = listed.items.iter().map(|update| update.new.clone()).collect();
    assert_eq!(new, (1..=6).rev().map(id).collect::<Vec<_>>());
    assert_eq!(kit.repositories.find(kit.target.project, "app").await.unwrap().unwrap().last_update, 6);
    assert_eq!(kit.repositories.listed_objects(repo.id).await.unwrap().len(), 5);
}

/// The node requests the repositories after those that it has seen, so that repositories whose deploys fail do not hide
/// others.
#[tokio::test]
async fn repositories_with_pending_deploys_are_listed_in_pages() {
    let kit = Kit::start().await;
    let mut waiting = Vec::new();
    for name in ["a", "b", "c"] {
        let repo = create_deploying(&kit, name).await;
        kit.repositories.record_updates(repo.id, vec![update(&kit, 1)]).await.unwrap();
        waiting.push(repo.id);
    }
    waiting.sort();
    assert_eq!(kit.repositories.repositories_to_deploy(None).await.unwrap(), waiting);
    assert_eq!(kit.repositories.repositories_to_deploy(Some(waiting[0])).await.unwrap(), waiting[1..]);
    assert_eq!(kit.repositories.repositories_to_deploy(Some(waiting[2])).await.unwrap(), []);
}

#[tokio::test]
async fn pushes_of_a_user_that_wait_for_their_deploys_are_limited() {
    let kit = Kit::start().await;
    let (many, other) = (create_deploying(&kit, "many").await.id, create_deploying(&kit, "other").await.id);
    let record = async |repository, updates: Vec<RefUpdateRecord>| {
        kit.repositories.record_updates(repository, updates).await.unwrap();
    };
    let state =
        async |repository, number| kit.repositories.find_deploy(repository, number).await.unwrap().unwrap().state;
    record(many, (1..=999).map(|number| update(&kit, number)).collect()).await;
    assert_eq!(state(many, 999).await.status, DeployStatus::Pending);
    // The limit is that of all repositories.
    let later = update(&kit, 4);
    record(other, vec![update(&kit, 1), update(&kit, 2)]).await;
    assert_eq!(state(other, 1).await.status, DeployStatus::Pending);
    let rejected = state(other, 2).await;
    assert_eq!(rejected.status, DeployStatus::Rejected);
    let message = rejected.message.unwrap();
    assert!(message.starts_with("1000 of your pushes already wait for their deploys"), "{message}");
    // The pushes of another user are deployed.
    kit.advance(1);
    record(other, vec![update(&kit, 3)]).await;
    assert_eq!(state(other, 3).await.status, DeployStatus::Pending);
    // A deploy that has ended does not count.
    kit.repositories.reject_deploy(many, 1, "no manifest").await.unwrap();
    record(other, vec![later]).await;
    assert_eq!(state(other, 4).await.status, DeployStatus::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reports_are_recorded_once() {
    let kit = Kit::start().await;
    let repo = kit.create("app").await;
    let report = || async {
        let updates = (1..=50).map(|number| update(&kit, number)).collect();
        kit.repositories.record_updates(repo.id, updates).await.unwrap();
    };
    tokio::join!(report(), report(), report(), report());
    assert_eq!(kit.db_number("SELECT count(*) FROM git.ref_updates").await, 50);
}

#[tokio::test]
async fn the_200_most_recent_updates_are_kept() {
    let kit = Kit::start().await;
    let repo = kit.create("app").await;
    for chunk in [1..=150, 151..=260, 261..=900] {
        let updates = chunk.map(|number| update(&kit, number)).collect();
        kit.repositories.record_updates(repo.id, updates).await.unwrap();
    }
    assert_eq!(kit.db_number("SELECT count(*) FROM git.ref_updates").await, 200);
    let listed = kit.repositories.ref_updates(kit.target.project, "app").await.unwrap();
    assert_eq!((listed.items.len(), listed.items[0].new.clone()), (200, id(900)));
}

/// A push can continue after the deletion of its repository. Reports about an erased repository are dropped.
#[tokio::test]
async fn reports_of_deleted_repositories_are_accepted() {
    let kit = Kit::start().await;
    let repo = kit.create("app").await;
    kit.delete("app").await;
    kit.repositories.record_updates(repo.id, vec![update(&kit, 1)]).await.unwrap();
    kit.clock.advance_days(31);
    kit.repositories.erased(repo.id).await.unwrap();
    kit.repositories.record_updates(repo.id, vec![update(&kit, 2)]).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM git.ref_updates").await, 0);
}
