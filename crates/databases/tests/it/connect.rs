//! How to connect to a database.

use databases::{DatabaseError, Password};

use crate::kit::{Kit, code};

#[tokio::test(flavor = "multi_thread")]
async fn connection_info_never_changes_and_names_the_home_node() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let enabled = kit.enable(at).await;
    let id = kit.part(at).await.unwrap().id.to_string();
    let x = id.strip_prefix("dbs_").unwrap();
    let endpoint = kit.databases.endpoint(at.project).await.unwrap();
    assert_eq!((endpoint.host.as_str(), endpoint.port, endpoint.sslmode.as_str()), ("db1.example", 5432, "require"));
    assert_eq!((endpoint.database.clone(), enabled.user.clone()), (format!("db_{x}"), format!("app_{x}")));
    assert_eq!(enabled.endpoint, endpoint);
    let password = enabled.password.reveal();
    let url = format!("postgres://app_{x}:{password}@db1.example:5432/db_{x}?sslmode=require");
    assert_eq!(enabled.url, Password::new(url));
    assert_eq!(kit.databases.connect(at.project).await.unwrap(), enabled);
    assert_eq!(kit.enable(at).await, enabled);
    // The address changes with the node's next announcement.
    kit.db_execute("UPDATE convergence.nodes SET database_host = 'db2.example', database_port = 6432").await;
    let moved = kit.databases.connect(at.project).await.unwrap();
    assert_eq!((moved.endpoint.host.as_str(), moved.endpoint.port), ("db2.example", 6432));
    assert_eq!(moved.password, enabled.password);
}

#[tokio::test(flavor = "multi_thread")]
async fn address_needs_a_home_node_with_a_postgres() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    assert!(!kit.databases.exists(at.project).await.unwrap());
    assert_eq!(code(kit.databases.connect(at.project).await), "not_found");
    assert_eq!(code(kit.databases.endpoint(at.project).await), "not_found");
    kit.enable(at).await;
    assert!(kit.databases.exists(at.project).await.unwrap());
    kit.db_place(at, "node_id = NULL, state = 'pending'").await;
    assert_eq!(code(kit.databases.connect(at.project).await), "no_home_node");
    assert_eq!(code(kit.databases.endpoint(at.project).await), "no_home_node");
    kit.db_place(at, &format!("node_id = '{}', state = 'active'", kit.home.as_uuid())).await;
    let forget = "UPDATE convergence.nodes SET database_host = NULL, database_port = NULL, database_sslmode = NULL, \
                  backup_interval_seconds = NULL";
    kit.db_execute(forget).await;
    assert_eq!(code(kit.databases.connect(at.project).await), "no_node_admin");
    assert!(matches!(kit.databases.endpoint(at.project).await, Err(DatabaseError::NoNodeAdmin)));
}
