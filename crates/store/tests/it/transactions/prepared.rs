//! Statements that are prepared once per connection.

use diesel::prelude::*;
use diesel::sql_types::Integer;
use diesel_async::RunQueryDsl;
use store::{Connection, Prepared};

use super::kit::{Kit, rows};

diesel::table! {
    note (id) {
        id -> Integer,
        text -> Text,
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = Integer)]
    number: i32,
}

/// Returns how often each prepared statement with this prefix was planned, which is once per execution.
async fn prepared(connection: &mut Connection, prefix: &str) -> Vec<i64> {
    let statement = format!(
        "SELECT generic_plans + custom_plans AS runs FROM pg_prepared_statements \
         WHERE statement LIKE '{prefix}%' ORDER BY prepare_time"
    );
    let rows = rows(connection, &statement).await.unwrap();
    rows.iter().map(|row| row["runs"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_and_upserts_are_prepared_once() {
    let kit = Kit::start().await;
    let mut connection = kit.store.connection().await.unwrap();
    for n in 1..=3 {
        let row = (note::id.eq(n), note::text.eq("new"));
        let upsert = diesel::insert_into(note::table).values(row).on_conflict(note::id).do_update();
        let changed = Prepared(upsert.set(note::text.eq("old"))).execute(&mut connection).await.unwrap();
        let update = diesel::update(note::table.filter(note::id.le(n))).set(note::text.eq(format!("round {n}")));
        let updated = Prepared(update).execute(&mut connection).await.unwrap();
        assert_eq!((changed, updated), (1, 1 + n as usize));
    }
    assert_eq!(prepared(&mut connection, "INSERT INTO \"note\"").await, [3]);
    assert_eq!(prepared(&mut connection, "UPDATE \"note\"").await, [3]);
    assert_eq!(kit.db_notes().await, ["round 3"; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn different_texts_are_prepared_separately() {
    let kit = Kit::start().await;
    let mut connection = kit.store.connection().await.unwrap();
    for n in 0..3 {
        for (text, expected) in [("SELECT $1 + 1 AS number", n + 1), ("SELECT $1 * 10 AS number", n * 10)] {
            let query = Prepared(diesel::sql_query(text).bind::<Integer, _>(n));
            let row: Number = query.get_result(&mut connection).await.unwrap();
            assert_eq!(row.number, expected);
        }
    }
    assert_eq!(prepared(&mut connection, "SELECT $1").await, [3, 3]);
}
