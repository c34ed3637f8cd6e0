//! Costs of statements, according to Postgres' statistics.

use kernel::{Paging, Plan, ProjectId};
use projects::{DeploymentRepository as _, Org, ProjectRepository as _};

use crate::kit::Kit;

/// Inserts many projects with default hostnames, and many deployments of the first project.
const FILL: &[&str] = &[
    "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
     SELECT ('01a0000000007000800000000' || lpad(to_hex(n), 7, '0'))::uuid, o.id, 'p' || n, 'public', 0, now() \
     FROM orgs.orgs o, generate_series(1, 20000) n",
    "INSERT INTO projects.hostnames (name, project_id, kind, state, created_at) \
     SELECT name || '.svc.example', id, 'default', 'active', now() FROM projects.projects",
    "INSERT INTO projects.deployments (id, project_id, version, digest, size_bytes, declares, has_worker, asset_count, \
        created_by, created_by_subject, created_at) \
     SELECT gen_random_uuid(), p.id, n, decode(repeat('00', 32), 'hex'), 1, '{}', false, 1, gen_random_uuid(), 'ada', now() \
     FROM projects.projects p, generate_series(1, 20000) n WHERE p.name = 'p1'",
    "ANALYZE projects.projects",
    "ANALYZE projects.hostnames",
    "ANALYZE projects.deployments",
];

/// Returns the number of sequential scans and of rows fetched by index scans so far.
async fn cost(kit: &Kit) -> (i64, i64) {
    let rows = kit
        .database
        .rows(
            "SELECT coalesce(sum(seq_scan), 0) AS seq_scans, coalesce(sum(idx_tup_fetch), 0) AS fetched \
             FROM pg_stat_user_tables WHERE schemaname = 'projects'",
        )
        .await;
    let number = |name: &str| rows.iter().find_map(|row| row[name].as_i64()).unwrap();
    (number("seq_scans"), number("fetched"))
}

/// Returns the cost of `work`. Uses a separate connection, because Postgres updates the statistics when the connection
/// closes.
async fn measured(kit: &Kit, work: impl AsyncFnOnce(&mut store::Connection)) -> (i64, i64) {
    use diesel_async::AsyncConnection as _;
    let before = cost(kit).await;
    let mut connection = store::Connection::establish(&kit.database.url()).await.unwrap();
    work(&mut connection).await;
    drop(connection);
    kit.database.wait_for_end_of_sessions("").await;
    let after = cost(kit).await;
    (after.0 - before.0, after.1 - before.1)
}

/// Asserts equal costs, with a tolerance for late statistics of other connections.
fn assert_alike(deep: (i64, i64), first: (i64, i64)) {
    assert!(deep.0 == first.0 && (deep.1 - first.1).abs() < 20, "deep page {deep:?}, first page {first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_pages_cost_as_much_as_the_first() {
    let kit = Kit::start().await;
    let org: Org = kit.db_org("acme", Plan::Pro).await;
    for statement in FILL {
        kit.database.run(statement).await;
    }
    kit.database.close_sessions().await;
    let project = async |n: i32| -> ProjectId {
        kit.connection().await.project_find(org.id, &format!("p{n}")).await.unwrap().unwrap()
    };
    let projects = async |after: Option<ProjectId>| {
        let paging = Paging { limit: 50, after };
        let page = async |connection: &mut store::Connection| {
            assert_eq!(connection.project_list(org.id, "acme", None, &paging).await.unwrap().len(), 51);
        };
        measured(&kit, page).await
    };
    let first = projects(None).await;
    assert_eq!(first.0, 0, "expected no sequential scan");
    assert!((1..300).contains(&first.1), "{first:?}");
    for n in [10_000, 19_900] {
        assert_alike(projects(Some(project(n).await)).await, first);
    }

    let busy = project(1).await;
    let deployments = async |after: Option<i32>| {
        let paging = Paging { limit: 50, after };
        let page = async |connection: &mut store::Connection| {
            assert_eq!(connection.deployment_list(busy, &paging).await.unwrap().len(), 51);
        };
        measured(&kit, page).await
    };
    let first = deployments(None).await;
    assert_eq!(first.0, 0, "expected no sequential scan");
    assert!((1..300).contains(&first.1), "{first:?}");
    for n in [10_000, 100] {
        assert_alike(deployments(Some(n)).await, first);
    }
}

/// An index on the live version would cause writes to all other indexes of the table, too.
#[tokio::test(flavor = "multi_thread")]
async fn change_of_the_live_version_writes_to_no_index() {
    let kit = Kit::start().await;
    let org: Org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    for page in ["one", "two"] {
        kit.deploy(&org, project, page).await.unwrap();
    }
    let change = async |connection: &mut store::Connection| connection.project_set_live(project, 1).await.unwrap();
    measured(&kit, change).await;
    let statistics = "SELECT n_tup_upd AS updates, n_tup_hot_upd AS hot FROM pg_stat_user_tables \
         WHERE relid = 'projects.projects'::regclass";
    let rows = kit.database.rows(statistics).await;
    let [updates, hot] = ["updates", "hot"].map(|name| rows[0][name].as_i64().unwrap());
    assert!(hot > 0 && hot == updates, "{hot} of {updates} updates were HOT");
}
