//! Concurrent changes of secrets.

use std::collections::BTreeMap;

use kernel::Paging;
use resources::ResourceError;
use serde_json::json;
use testkit::four_at_a_time;

use crate::kit::{Kit, values};

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_values_have_versions_without_gaps_and_the_last_one_wins() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let set = async |number: i32| (kit.set(at, "API_KEY", &number.to_string()).await.unwrap().version, number);
    let by_version: BTreeMap<i32, i32> = four_at_a_time((1..=20).map(set)).await.into_iter().collect();
    assert!(by_version.keys().copied().eq(1..=20), "{by_version:?}");
    let last = by_version[&20].to_string();
    assert_eq!(kit.environment(at).await, (20, values(&[("API_KEY", &last)])));
    assert_eq!(kit.audited().await.len(), 20);
    assert_eq!(kit.node.take_updates().len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_of_several_secrets_do_not_mix() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let change = async |number: i32| kit.change(at, json!({ "A": number.to_string(), "B": number.to_string() })).await;
    assert!(four_at_a_time((0..10).map(change)).await.iter().all(Result::is_ok));
    let (revision, values) = kit.environment(at).await;
    assert_eq!((revision, &values[0].1), (10, &values[1].1));
    let versions = kit.resources.secrets(at.project, &Paging::default()).await.unwrap().items;
    assert_eq!(versions.iter().map(|meta| meta.version).collect::<Vec<_>>(), [10, 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_new_secrets_respect_the_limit() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let most: serde_json::Map<_, _> = (0..195).map(|number| (format!("KEY_{number}"), json!("value"))).collect();
    kit.change(at, most.into()).await.unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("NEW_{number}")).collect();
    let set = four_at_a_time(names.iter().map(|name| kit.set(at, name, "value"))).await;
    let (set, refused): (Vec<_>, Vec<_>) = set.into_iter().partition(Result::is_ok);
    assert_eq!((set.len(), refused.len()), (5, 15));
    assert!(refused.iter().all(|refused| matches!(refused, Err(ResourceError::SecretLimit { count: 200, .. }))));
    assert_eq!(kit.environment(at).await.1.len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_new_secrets_respect_the_limit_of_bytes() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let largest = "x".repeat(65_536);
    let most: serde_json::Map<_, _> = (0..29).map(|number| (format!("KEY_{number}"), json!(largest))).collect();
    kit.change(at, most.into()).await.unwrap();
    let names: Vec<String> = (0..10).map(|number| format!("NEW_{number}")).collect();
    let set = four_at_a_time(names.iter().map(|name| kit.set(at, name, &largest))).await;
    let (set, refused): (Vec<_>, Vec<_>) = set.into_iter().partition(Result::is_ok);
    assert_eq!((set.len(), refused.len()), (3, 7));
    assert!(refused.iter().all(|refused| matches!(refused, Err(ResourceError::SecretSizeLimit { .. }))));
    assert_eq!(kit.environment(at).await.1.len(), 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_new_secrets_of_several_projects_respect_the_limit_of_the_creator() {
    let kit = Kit::start().await;
    let full = kit.db_project("full").await;
    kit.db_secret(full, "LARGE", 64 * 1024 * 1024 - 30).await;
    kit.db_move_to_other_org(full).await;
    let mut projects = Vec::new();
    for number in 0..10 {
        projects.push(kit.db_project(&format!("project-{number}")).await);
    }
    let set = four_at_a_time(projects.iter().map(|at| kit.set(*at, "KEY", "0123456789"))).await;
    let (set, refused): (Vec<_>, Vec<_>) = set.into_iter().partition(Result::is_ok);
    assert_eq!((set.len(), refused.len()), (3, 7));
    assert!(refused.iter().all(|refused| matches!(refused, Err(ResourceError::SecretTotalLimit { .. }))));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_deletions_delete_once() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.set(at, "API_KEY", "value").await.unwrap();
    kit.audited().await;
    let deleted = four_at_a_time((0..10).map(|_| kit.delete(at, "API_KEY"))).await;
    assert_eq!(deleted.iter().filter(|deleted| deleted.is_ok()).count(), 1);
    assert_eq!(kit.audited().await.len(), 1);
    assert_eq!(kit.environment(at).await, (2, vec![]));
}
