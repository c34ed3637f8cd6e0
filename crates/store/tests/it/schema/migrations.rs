use std::path::Path;
use std::time::Duration;

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use store::migrations::{ALL, Error, Migration, Migrator, pending};
use testkit::TestDatabase;

use super::description::describe;

#[test]
fn all_migrations_are_listed_in_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut folders: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    assert_eq!(ALL.iter().map(|migration| migration.name).collect::<Vec<_>>(), folders);
}

#[tokio::test]
async fn every_down_migration_restores_the_previous_schema() {
    let (database, mut conn) = empty().await;
    let mut dumps = vec![describe(&database).await];
    for (count, migration) in (1..).zip(ALL) {
        let migrator = Migrator { migrations: &ALL[..count], ..Migrator::default() };
        assert_eq!(names(&migrator.up(&mut conn).await.unwrap()), [migration.name]);
        dumps.push(describe(&database).await);
    }
    let newest = dumps.pop().unwrap();
    for (migration, before) in ALL.iter().rev().zip(dumps.iter().rev()) {
        assert_eq!(names(&Migrator::default().down(&mut conn, 1).await.unwrap()), [migration.name]);
        assert_eq!(describe(&database).await, *before, "after {}/down.sql", migration.name);
    }
    assert_eq!(Migrator::default().up(&mut conn).await.unwrap().len(), ALL.len());
    assert_eq!(describe(&database).await, newest);
}

#[tokio::test]
async fn concurrent_migrators_apply_each_migration_once() {
    let (database, mut one) = empty().await;
    let mut other = connect(&database).await;
    let migrator = Migrator::default();
    let (one, other) = tokio::join!(migrator.up(&mut one), migrator.up(&mut other));
    let mut applied = [one.unwrap().len(), other.unwrap().len()];
    applied.sort();
    assert_eq!(applied, [0, ALL.len()]);
}

#[tokio::test]
async fn failed_migration_is_named_and_rolled_back() {
    const BROKEN: &[Migration] = &[
        Migration { name: "1_good", up: "CREATE TABLE good ()", down: "DROP TABLE good" },
        Migration { name: "2_bad", up: "CREATE TABLE bad (); SELECT 1/0;", down: "" },
        Migration { name: "3_never", up: "CREATE TABLE never ()", down: "" },
    ];
    let (database, mut conn) = empty().await;
    let migrator = Migrator { migrations: BROKEN, ..Migrator::default() };
    let error = migrator.up(&mut conn).await.unwrap_err().to_string();
    assert_eq!(error, "migrations/2_bad/up.sql failed and was rolled back: division by zero");
    let status = migrator.status(&mut conn).await.unwrap();
    assert_eq!((names(&status.applied), names(&status.pending)), (vec!["1_good"], vec!["2_bad", "3_never"]));
    assert!(!describe(&database).await.contains("bad"));
    // The failed migration released the lock.
    assert_eq!(names(&migrator.down(&mut connect(&database).await, 9).await.unwrap()), ["1_good"]);
}

#[tokio::test]
async fn index_can_be_built_concurrently() {
    const INDEX: &[Migration] = &[
        Migration { name: "1_table", up: "CREATE TABLE big (x int)", down: "DROP TABLE big" },
        Migration {
            name: "2_index",
            up: "-- Outside a transaction.\nCREATE INDEX CONCURRENTLY big_x_idx ON big (x);\n",
            down: "DROP INDEX CONCURRENTLY big_x_idx;\n",
        },
    ];
    let (database, mut conn) = empty().await;
    let migrator = Migrator { migrations: INDEX, ..Migrator::default() };
    let mut other = connect(&database).await;
    let (one, two) = tokio::join!(migrator.up(&mut conn), migrator.up(&mut other));
    assert_eq!(one.unwrap().len() + two.unwrap().len(), 2);
    assert!(describe(&database).await.contains("big_x_idx"));
    assert_eq!(names(&migrator.down(&mut conn, 2).await.unwrap()), ["2_index", "1_table"]);
}

#[tokio::test]
async fn migration_fails_after_the_lock_timeout() {
    const CHANGE: &[Migration] = &[Migration { name: "1_change", up: "ALTER TABLE busy ADD x int", down: "" }];
    let (database, mut conn) = empty().await;
    let mut other = connect(&database).await;
    other.batch_execute("CREATE TABLE busy ()").await.unwrap();
    other.batch_execute("BEGIN; LOCK TABLE busy").await.unwrap();
    let migrator = Migrator { migrations: CHANGE, lock_timeout: Duration::from_millis(20), ..Migrator::default() };
    let error = migrator.up(&mut conn).await.unwrap_err().to_string();
    assert!(error.ends_with("canceling statement due to lock timeout"), "{error}");
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(names(&migrator.up(&mut conn).await.unwrap()), ["1_change"]);
}

#[tokio::test]
async fn dry_run_returns_the_plan_and_changes_nothing() {
    let (database, mut conn) = empty().await;
    let before = describe(&database).await;
    let dry = Migrator { dry_run: true, ..Migrator::default() };
    assert_eq!(dry.up(&mut conn).await.unwrap().len(), ALL.len());
    assert_eq!(describe(&database).await, before);
    Migrator::default().up(&mut conn).await.unwrap();
    assert_eq!(names(&dry.down(&mut conn, 1).await.unwrap()), [ALL[ALL.len() - 1].name]);
    assert!(pending(&mut conn).await.unwrap().is_empty());
}

#[tokio::test]
async fn check_rejects_pending_and_unknown_migrations() {
    let database = TestDatabase::create().await;
    let mut conn = connect(&database).await;
    let behind = Migrator { migrations: &ALL[1..], ..Migrator::default() };
    Migrator::default().check(&mut conn).await.unwrap();
    let Err(Error::Unknown(versions)) = behind.check(&mut conn).await else {
        panic!("unknown migrations are accepted")
    };
    assert_eq!(versions, [ALL[0].version()]);
    assert!(matches!(behind.down(&mut conn, 1).await, Err(Error::Unknown(_))));
    Migrator::default().down(&mut conn, 1).await.unwrap();
    let Err(Error::Pending(names)) = Migrator::default().check(&mut conn).await else {
        panic!("pending migrations are accepted")
    };
    assert_eq!(names, [ALL[ALL.len() - 1].name]);
    assert_eq!(pending(&mut conn).await.unwrap(), names);
}

async fn connect(database: &TestDatabase) -> AsyncPgConnection {
    AsyncPgConnection::establish(&database.url()).await.unwrap()
}

/// Returns a database without the schema.
pub async fn empty() -> (TestDatabase, AsyncPgConnection) {
    let database = TestDatabase::create().await;
    let mut conn = connect(&database).await;
    Migrator::default().down(&mut conn, usize::MAX).await.unwrap();
    (database, conn)
}

fn names(migrations: &[&Migration]) -> Vec<&'static str> {
    migrations.iter().map(|migration| migration.name).collect()
}
