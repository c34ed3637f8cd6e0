//! A change and its audit row are committed together, or neither is.

use kernel::audit::Event;
use kernel::{ApiError as _, Kind};
use serde_json::json;
use store::{Connection, Error, Outcome};
use uuid::Uuid;

use super::kit::{Kit, actor, event, write};

/// A context's error.
#[derive(Debug)]
enum TestError {
    Rejected,
    Store(Error),
}

impl From<Error> for TestError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_is_committed_with_its_audit_row() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
        Ok::<_, Error>(Outcome::Changed("the answer", event()))
    };
    let before = kit.store.clock_rng().now();
    assert_eq!(kit.store.transaction(&actor(), work).await.unwrap(), "the answer");
    let after = kit.store.clock_rng().now();
    assert_eq!(kit.db_notes().await, ["zero", "note 1"]);
    let audits = kit.db_rows("SELECT * FROM store.audit").await;
    let [row] = audits.as_slice() else { panic!("one row is expected: {audits:?}") };
    let expected = json!({
        "id": row["id"],
        "event": "note.write",
        "account_id": null, "org_id": Uuid::from_u128(3),
        "actor_id": Uuid::from_u128(1),
        "credential": actor().credential.to_string(),
        "target": "note",
        "data": { "a": [1, null] },
        "request_id": "req-1",
        "created_at": row["created_at"],
    });
    assert_eq!(*row, expected);
    let within = format!("SELECT 1 FROM store.audit WHERE created_at BETWEEN '{before}' AND '{after}'");
    assert_eq!(kit.db_rows(&within).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn error_rolls_back_change_and_audit_row() {
    let kit = Kit::start().await;
    for id in 1..=3 {
        let work = async |tx: &mut Connection| -> Result<Outcome<()>, TestError> {
            write(tx, id).await?;
            Err(TestError::Rejected)
        };
        let result = kit.store.transaction(&actor(), work).await;
        assert!(matches!(result, Err(TestError::Rejected)), "{result:?}");
    }
    assert_eq!((kit.db_notes().await, kit.db_audits().await), (vec!["zero".to_owned()], 0));
    // The connection is rolled back, and the next transaction reuses it.
    assert_eq!((kit.store.status().open, kit.store.status().idle), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_statement_rolls_back_earlier_statements() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        write(tx, 0).await?;
        Ok::<_, TestError>(Outcome::Changed((), event()))
    };
    let Err(TestError::Store(error)) = kit.store.transaction(&actor(), work).await else { panic!("0 is taken") };
    assert!(error.violates("note_pkey") && !error.violates("note_answers_fkey"), "{error:?}");
    assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_audit_row_rolls_back_the_change() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        // jsonb cannot contain NUL.
        Ok::<_, Error>(Outcome::Changed((), Event { data: json!("\0"), ..event() }))
    };
    let error = kit.store.transaction(&actor(), work).await.unwrap_err();
    assert_eq!(error.code().kind, Kind::Internal);
    assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn deferred_constraint_fails_the_transaction() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        let dangling = diesel::sql_query("UPDATE note SET answers = 9 WHERE id = 1");
        diesel_async::RunQueryDsl::execute(dangling, tx).await.map_err(Error::from)?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    };
    let error = kit.store.transaction(&actor(), work).await.unwrap_err();
    assert!(error.violates("note_answers_fkey"), "{error:?}");
    assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
    let work = async |tx: &mut Connection| {
        write(tx, 2).await?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    };
    kit.store.transaction(&actor(), work).await.unwrap();
    assert_eq!((kit.db_notes().await, kit.db_audits().await), (vec!["zero".to_owned(), "note 2".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_op_rolls_back_and_has_no_audit_row() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        Ok::<_, Error>(Outcome::Unchanged(7))
    };
    assert_eq!(kit.store.transaction(&actor(), work).await.unwrap(), 7);
    // The writes of a no-op are rolled back.
    assert_eq!((kit.db_notes().await, kit.db_audits().await), (vec!["zero".to_owned()], 0));
    assert_eq!((kit.store.status().open, kit.store.status().idle), (1, 1));
}
