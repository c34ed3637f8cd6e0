use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use testkit::TestDatabase;

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Without an index, each delete of a referenced row scans the whole referencing table. A unique index on some of the
/// columns suffices, because it finds at most one row.
#[tokio::test]
async fn every_foreign_key_has_an_index() {
    let query = diesel::sql_query(
        "SELECT format('%s of %s', f.conname, f.conrelid::regclass) AS name FROM pg_constraint f
         WHERE f.contype = 'f' AND NOT EXISTS (
             SELECT FROM pg_index i
             WHERE i.indrelid = f.conrelid AND i.indpred IS NULL AND i.indisvalid
               AND (i.indnkeyatts >= cardinality(f.conkey) AND (i.indkey::int2[])[0:cardinality(f.conkey) - 1] @> f.conkey
                   OR i.indisunique AND (i.indkey::int2[])[0:i.indnkeyatts - 1] <@ f.conkey))",
    );
    let database = TestDatabase::create().await;
    let mut conn = AsyncPgConnection::establish(&database.url()).await.unwrap();
    let without: Vec<Name> = query.load(&mut conn).await.unwrap();
    assert!(without.is_empty(), "{:?}", without.iter().map(|it| &it.name).collect::<Vec<_>>());
}
