//! Enabling databases.

use databases::DatabaseError;
use kernel::audit::Event;
use serde_json::json;
use testkit::{Audit, four_at_a_time};

use crate::kit::{Kit, code};
use crate::ports::Update;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_create_one_database() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let enabled = four_at_a_time((0..20).map(|_| kit.enable(at))).await;
    assert!(enabled.iter().all(|connect| *connect == enabled[0]));
    let event = Event::in_org("database.grant", at.org, at.project, json!({}));
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    assert_eq!(kit.node.take_updates(), [Update::Published(at.project)]);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.databases").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn enabling_needs_a_node_with_a_postgres() {
    let kit = Kit::start().await;
    let (homeless, deleted) = (kit.db_project("a").await, kit.db_project("b").await);
    kit.db_place(homeless, "node_id = NULL, state = 'pending'").await;
    assert_eq!(code(kit.databases.enable(&kit.actor, homeless).await), "no_home_node");
    kit.db_delete(deleted).await;
    let refused = kit.databases.enable(&kit.actor, deleted).await;
    assert!(matches!(refused, Err(DatabaseError::ProjectNotFound)), "{refused:?}");
    let bare = kit.db_project("c").await;
    let forget = "UPDATE convergence.nodes SET database_host = NULL, database_port = NULL, database_sslmode = NULL, \
                  backup_interval_seconds = NULL";
    kit.db_execute(forget).await;
    assert_eq!(code(kit.databases.enable(&kit.actor, bare).await), "no_node_admin");
    // A rejected activation leaves no rows.
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.sequences").await, 0);
    assert!(kit.audited().await.is_empty());
    assert!(kit.node.take_updates().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn new_project_of_an_old_name_inherits_nothing() {
    let kit = Kit::start().await;
    let (old, id) = kit.database("shop").await;
    let connect = kit.enable(old).await;
    kit.scheduled(old).await;
    kit.token(old, None).await.unwrap();
    kit.db_delete(old).await;
    assert_eq!(kit.part(old).await, None);
    let new = kit.db_project("shop").await;
    assert!(kit.generations(new).await.is_empty());
    assert_ne!(kit.enable(new).await, connect);
    let part = kit.part(new).await.unwrap();
    assert_ne!(part.id, id);
    assert!(part.tokens.is_empty() && part.source.is_none());
    // The generations of the deleted project stay until its purge.
    assert_eq!(kit.generations(old).await.len(), 1);
    let purge = format!("DELETE FROM projects.projects WHERE id = '{}'", old.project.as_uuid());
    kit.db_execute(&purge).await;
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.sequences").await, 1);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.generations").await, 0);
}
