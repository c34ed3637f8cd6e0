use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use testkit::TestDatabase;

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

#[tokio::test]
async fn test_databases_are_isolated() {
    let (one, other) = tokio::join!(TestDatabase::create(), TestDatabase::create());
    let mut conn = AsyncPgConnection::establish(&one.url()).await.unwrap();
    conn.batch_execute("INSERT INTO orgs.orgs VALUES (gen_random_uuid(), 'a', 'A', 'free', false, now())")
        .await
        .unwrap();
    assert_eq!(orgs(&one).await, 1);
    assert_eq!(orgs(&other).await, 0);
    assert_eq!(orgs(&TestDatabase::create().await).await, 0);
}

#[tokio::test]
async fn database_is_dropped_with_open_connections() {
    let database = TestDatabase::create().await;
    let url = database.url();
    let _conn = AsyncPgConnection::establish(&url).await.unwrap();
    drop(database);
    let dropped = async { while AsyncPgConnection::establish(&url).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), dropped).await.expect("the database still exists after 60 s");
}

async fn orgs(database: &TestDatabase) -> i64 {
    let mut conn = AsyncPgConnection::establish(&database.url()).await.unwrap();
    let count = diesel::sql_query("SELECT count(*) FROM orgs.orgs").get_result::<Count>(&mut conn).await.unwrap();
    count.count
}
