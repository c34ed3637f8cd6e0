//! Rotation of the sealing keys.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests panic on unexpected results")]

use std::sync::atomic::{AtomicBool, Ordering};

use kernel::audit::{Actor, Event, IdempotencyClaim};
use kernel::seal::{Keys, OpenError};
use kernel::{Digest, Secret};
use serde_json::{Value, json};
use store::{ClaimOutcome, ClaimRequest, Config, Connection, Error, Outcome, SEALED_COLUMNS, SealedColumn, Store};
use testkit::{TestClock, TestDatabase};
use tokio::sync::oneshot;

const OLD: &str = "old:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const NEW: &str = "new:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

struct Kit {
    clock: TestClock,
    database: TestDatabase,
    /// The store of a process that has only the old key.
    old: Store,
    /// The store of an operator whose first key is the new one.
    operator: Store,
}

impl Kit {
    async fn start() -> Self {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        let (old, operator) = (open(&database, &clock, OLD), open(&database, &clock, &format!("{NEW},{OLD}")));
        Self { clock, database, old, operator }
    }

    fn other(&self, keys: &str) -> Store {
        open(&self.database, &self.clock, keys)
    }

    /// Returns the number of values by key.
    async fn counts(&self, column: SealedColumn) -> Vec<(String, i64)> {
        let counts = self.operator.count_sealed(column).await.unwrap();
        counts.into_iter().map(|count| (count.key_id, count.values)).collect()
    }

    /// Returns the number of audited values.
    async fn audited(&self) -> i64 {
        let sum = "SELECT coalesce(sum((data->>'values')::int), 0) FROM store.audit WHERE event = 'seal.rotate'";
        self.database.number(sum).await
    }
}

fn open(database: &TestDatabase, clock: &TestClock, keys: &str) -> Store {
    let keys = Keys::parse(keys).unwrap();
    Store::new(&Config { keys, ..Config::new(Secret::new(database.url()), "test") }, clock.clock_rng()).unwrap()
}

fn actor() -> Actor {
    Actor::operator("test")
}

fn column(table: &str) -> SealedColumn {
    *SEALED_COLUMNS.iter().find(|column| column.table == table).unwrap()
}

async fn enqueue(store: &Store, messages: usize) {
    let work = async |tx: &mut Connection| {
        for number in 0..messages {
            store.enqueue(tx, "mail", &number.to_string(), &json!({ "number": number })).await?;
        }
        let event = Event::of_platform("test.change", "test", json!({}));
        Ok::<_, Error>(Outcome::Changed((), event))
    };
    store.transaction(&actor(), work).await.unwrap();
}

fn request(key: &str) -> ClaimRequest<'_> {
    ClaimRequest { caller: "ada", route: "POST /", key, body: None }
}

async fn claim(store: &Store, key: &str) -> IdempotencyClaim {
    match store.idempotency_claim(request(key)).await.unwrap() {
        ClaimOutcome::Claimed(claim) => claim,
        outcome => panic!("{outcome:?}"),
    }
}

async fn respond(store: &Store, claim: IdempotencyClaim, response: &str) {
    store.idempotency_store_response(claim, Digest::of(b""), response.as_bytes()).await.unwrap();
}

/// Returns the stored response for a key.
async fn response(store: &Store, key: &str) -> String {
    match store.idempotency_claim(request(key)).await.unwrap() {
        ClaimOutcome::Completed { response, .. } => String::from_utf8(response).unwrap(),
        outcome => panic!("{outcome:?}"),
    }
}

/// Re-seals a column, and returns the number of re-sealed values and the failures.
async fn rotate(store: &Store, column: SealedColumn) -> (usize, Vec<(String, OpenError)>) {
    let (mut rotation, mut resealed, mut failed) = (store.rotate_sealed(column).unwrap(), 0, Vec::new());
    while let Some(batch) = rotation.next_batch(&actor()).await.unwrap() {
        resealed += batch.resealed;
        failed.extend(batch.failed.into_iter().map(|value| (value.row, value.error)));
    }
    (resealed, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_values_are_resealed_and_open_without_the_old_key() {
    let kit = Kit::start().await;
    let (outbox, idempotency) = (column("store.outbox"), column("store.idempotency"));
    enqueue(&kit.old, 450).await;
    let first = claim(&kit.old, "one").await;
    respond(&kit.old, first, "first response").await;
    // A request without a response has no sealed value.
    claim(&kit.old, "two").await;
    assert_eq!(kit.counts(idempotency).await, [("old".to_owned(), 1)]);

    assert_eq!(rotate(&kit.operator, outbox).await, (450, Vec::new()));
    assert_eq!(rotate(&kit.operator, idempotency).await, (1, Vec::new()));
    assert_eq!(kit.counts(outbox).await, [("new".to_owned(), 450)]);
    assert_eq!(kit.counts(idempotency).await, [("new".to_owned(), 1)]);
    assert_eq!(kit.audited().await, 451);
    // A second rotation changes nothing.
    assert_eq!(rotate(&kit.operator, outbox).await, (0, Vec::new()));
    assert_eq!(kit.audited().await, 451);

    assert_eq!(response(&kit.other(NEW), "one").await, "first response");
    let third = kit.other(&format!("third:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=,{NEW}"));
    assert_eq!(rotate(&third, outbox).await, (450, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn error_of_a_value_that_is_not_text_does_not_contain_the_value() {
    let kit = Kit::start().await;
    let data = column("store.outbox").associated_data("1");
    let opened = |value: &[u8]| kit.old.open_text(data, &kit.old.seal(data, value).unwrap());
    assert_eq!(opened("pässword".as_bytes()).unwrap().reveal(), "pässword");
    let error = opened(b"password\xff").unwrap_err();
    assert!(matches!(error, Error::Inconsistent(_)), "{error:?}");
    // `Debug` of bytes shows numbers.
    assert!(!format!("{error:?}").contains("password") && !format!("{error:?}").contains("112, 97"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_rotation_continues_with_the_rest() {
    let kit = Kit::start().await;
    let outbox = column("store.outbox");
    enqueue(&kit.old, 450).await;
    let mut interrupted = kit.operator.rotate_sealed(outbox).unwrap();
    let batch = interrupted.next_batch(&actor()).await.unwrap().unwrap();
    drop(interrupted);
    let rest = 450 - batch.resealed;
    assert_eq!(kit.counts(outbox).await, [("new".to_owned(), batch.resealed as i64), ("old".to_owned(), rest as i64)]);
    assert_eq!(rotate(&kit.operator, outbox).await, (rest, Vec::new()));
    assert_eq!(kit.counts(outbox).await, [("new".to_owned(), 450)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_cannot_be_opened_are_listed_once_and_the_others_are_resealed() {
    let kit = Kit::start().await;
    let outbox = column("store.outbox");
    enqueue(&kit.old, 3).await;
    enqueue(&kit.other("lost:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="), 1).await;
    // Replace the value of one row with that of another, so that it cannot be opened.
    let swap = "UPDATE store.outbox o SET payload = p.payload FROM store.outbox p \
        WHERE o.key_id = 'old' AND p.key_id = 'old' AND o.key = '0' AND p.key = '1'";
    kit.database.run(swap).await;
    let id = async |condition: &str| {
        let rows = kit.database.rows(&format!("SELECT id FROM store.outbox WHERE {condition}")).await;
        rows[0]["id"].as_str().unwrap().to_owned()
    };
    let (lost, swapped) = (id("key_id = 'lost'").await, id("key_id = 'old' AND key = '0'").await);
    let (resealed, mut failed) = rotate(&kit.operator, outbox).await;
    let mut expected = vec![(lost, OpenError::UnknownKey("lost".to_owned())), (swapped, OpenError::Corrupt)];
    failed.sort_by(|a, b| a.0.cmp(&b.0));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!((resealed, failed), (2, expected));
    let counts = [("lost".to_owned(), 1), ("new".to_owned(), 2), ("old".to_owned(), 1)];
    assert_eq!(kit.counts(outbox).await, counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn value_of_a_concurrent_writer_is_never_overwritten() {
    const WRITERS: usize = 8;
    let kit = Kit::start().await;
    let idempotency = column("store.idempotency");
    let stop = AtomicBool::new(false);
    // The writers have not been restarted yet: they seal with the old key.
    let writer = async |number: usize| {
        let claim = claim(&kit.old, &number.to_string()).await;
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            written += 1;
            respond(&kit.old, claim, &written.to_string()).await;
        }
        written.to_string()
    };
    let rotations = async {
        let mut resealed = 0;
        while resealed < 100 {
            let mut rotation = kit.operator.rotate_sealed(idempotency).unwrap();
            resealed += rotation.next_batch(&actor()).await.unwrap().map_or(0, |batch| batch.resealed);
        }
        stop.store(true, Ordering::Relaxed);
    };
    let writers = futures_util::future::join_all((0..WRITERS).map(&writer));
    let (written, ()) = tokio::join!(writers, rotations);
    rotate(&kit.operator, idempotency).await;
    assert_eq!(kit.counts(idempotency).await, [("new".to_owned(), WRITERS as i64)]);
    for (number, last) in written.into_iter().enumerate() {
        assert_eq!(response(&kit.other(NEW), &number.to_string()).await, last);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_row_is_skipped_and_resealed_after_its_transaction() {
    let kit = Kit::start().await;
    let outbox = column("store.outbox");
    enqueue(&kit.old, 3).await;
    let ((locked, is_locked), (release, released)) = (oneshot::channel(), oneshot::channel::<()>());
    let holder = async {
        let work = async move |tx: &mut Connection| {
            let lock = diesel::sql_query("SELECT id FROM store.outbox WHERE key = '1' FOR UPDATE");
            diesel_async::RunQueryDsl::execute(lock, tx).await?;
            locked.send(()).unwrap();
            released.await.unwrap();
            Ok::<_, Error>(())
        };
        kit.old.transaction_unaudited(work).await.unwrap();
    };
    let rotation = async {
        is_locked.await.unwrap();
        let mut rotation = kit.operator.rotate_sealed(outbox).unwrap();
        assert_eq!(rotation.next_batch(&actor()).await.unwrap().unwrap().resealed, 2);
        release.send(()).unwrap();
        let mut resealed = 0;
        while let Some(batch) = rotation.next_batch(&actor()).await.unwrap() {
            resealed += batch.resealed;
        }
        assert_eq!(resealed, 1);
    };
    tokio::join!(holder, rotation);
    assert_eq!(kit.counts(outbox).await, [("new".to_owned(), 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_without_keys_fails() {
    let kit = Kit::start().await;
    let config = Config::new(Secret::new(kit.database.url()), "test");
    let keyless = Store::new(&config, kit.clock.clock_rng()).unwrap();
    assert!(matches!(keyless.rotate_sealed(column("store.outbox")), Err(Error::Inconsistent(_))));
    assert_eq!(kit.database.rows("SELECT * FROM store.audit").await, Vec::<Value>::new());
}
