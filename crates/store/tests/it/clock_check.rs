//! The comparison of the system's clock with the clock of Postgres.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use kernel::{Digest, Secret};
use store::{ClaimOutcome, ClaimRequest, Config, Store};
use testkit::{TestClock, TestDatabase, TestStore};

fn open(url: String, clock: &TestClock) -> Store {
    let config = Config { system_clock: clock.clock_rng(), ..Config::new(Secret::new(url), "test") };
    Store::new(&config, clock.clock_rng()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lead_of_more_than_five_minutes_is_excessive() {
    let (database, clock) = (TestDatabase::create().await, TestClock::running());
    let store = open(database.url(), &clock);
    for (advanced, sign) in [(0, 0), (600, 1), (-600, 0), (-600, -1), (600, 0)] {
        clock.advance(advanced);
        assert_eq!(store.excessive_clock_lead().await.unwrap().map_or(0, i64::signum), sign, "{advanced}");
    }
    let unreachable = open("postgres://svc@127.0.0.1:1/svc".to_owned(), &clock);
    assert!(unreachable.excessive_clock_lead().await.is_err());
}

/// Also in a process that has not read the clock of Postgres before.
#[tokio::test(flavor = "multi_thread")]
async fn lead_of_more_than_a_minute_is_corrected() {
    let database = TestDatabase::create().await;
    for ahead in [90, -90, 24 * 3600] {
        let store = open(database.url(), &TestClock::running().ahead(ahead));
        let corrected = store.corrected_now(&mut store.connection().await.unwrap()).await.unwrap();
        let lead = corrected.unix_seconds() - store.postgres_time().await.unwrap().unix_seconds();
        assert!(lead.abs() < 60, "{ahead}: {lead}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_is_valid_for_a_process_with_another_clock() {
    let base = TestStore::start().await;
    let request = ClaimRequest { caller: "ada", route: "POST /", key: "one", body: None };
    let ClaimOutcome::Claimed(claim) = base.store.idempotency_claim(request).await.unwrap() else {
        panic!("the key is new");
    };
    let other = base.with_clock_ahead(2 * 24 * 3600);
    let outcome = other.idempotency_claim(request).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::InProgress { .. }), "{outcome:?}");
    base.store.idempotency_store_response(claim, Digest::of(b""), b"done").await.unwrap();
    let outcome = other.idempotency_claim(request).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::Completed { .. }), "{outcome:?}");
}

/// A clock of Postgres that can be moved. Statements without a schema find it before the built-in function.
const MOVABLE_CLOCK: &str = "
    CREATE TABLE public.moved AS SELECT interval '0' AS by;
    CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS 'SELECT pg_catalog.clock_timestamp() + (SELECT by FROM public.moved)';
    DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database());
    END $$";

/// While a machine is suspended, its monotonic clock stops, and the other clocks continue.
#[tokio::test(flavor = "multi_thread")]
async fn lead_by_an_earlier_reading_is_checked_with_a_new_one() {
    let (database, clock) = (TestDatabase::create().await, TestClock::running());
    database.run(MOVABLE_CLOCK).await;
    let store = open(database.url(), &clock);
    assert_eq!(store.excessive_clock_lead().await.unwrap(), None);
    let suspend = async || {
        clock.advance(3600);
        database.run("UPDATE public.moved SET by = by + interval '1 hour'").await;
    };
    suspend().await;
    let earlier = clock.clock_rng().now();
    assert!(store.corrected_now(&mut store.connection().await.unwrap()).await.unwrap() >= earlier);
    suspend().await;
    assert_eq!(store.excessive_clock_lead().await.unwrap(), None);
    // A lead that the new reading confirms.
    clock.advance(3600);
    let uncorrected = clock.clock_rng().now();
    let corrected = store.corrected_now(&mut store.connection().await.unwrap()).await.unwrap();
    assert!(corrected < uncorrected.plus_seconds(-1800), "{corrected} {uncorrected}");
    assert!(store.has_elapsed(Some(corrected.plus_seconds(-60)), 30));
    assert!(!store.has_elapsed(Some(uncorrected), 0));
    assert!(!store.has_elapsed(None, 0));
}
