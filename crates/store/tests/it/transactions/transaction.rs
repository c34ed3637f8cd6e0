//! One commit holds the change and its audit row, or there is neither.

use kernel::audit::Event;
use kernel::{Failure as _, Kind};
use serde_json::json;
use store::{Connection, Error, Outcome};
use uuid::Uuid;

use super::kit::{Kit, actor, event, write};

/// A context's error.
#[derive(Debug)]
enum Refused {
    TheRuleSaysNo,
    Store(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_committed_with_its_audit_row() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
        Ok::<_, Error>(Outcome::Changed("the answer", event()))
    };
    let before = kit.store.world().now();
    assert_eq!(kit.store.transaction(&actor(), work).await.unwrap(), "the answer");
    let after = kit.store.world().now();
    assert_eq!(kit.db_notes().await, ["zero", "note 1"]);
    let told = kit.db_rows("SELECT * FROM store.audit").await;
    let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
    let expected = json!({
        "id": row["id"],
        "event": "note.write",
        "org_id": Uuid::from_u128(3),
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
async fn an_error_leaves_neither() {
    let kit = Kit::start().await;
    for id in 1..=3 {
        let work = async |tx: &mut Connection| -> Result<Outcome<()>, Refused> {
            write(tx, id).await?;
            Err(Refused::TheRuleSaysNo)
        };
        let refused = kit.store.transaction(&actor(), work).await;
        assert!(matches!(refused, Err(Refused::TheRuleSaysNo)), "{refused:?}");
    }
    assert_eq!((kit.db_notes().await, kit.db_audits().await), (vec!["zero".to_owned()], 0));
    // The connection was rolled back and is as good as new: the next transaction begins on it.
    assert_eq!((kit.store.status().open, kit.store.status().idle), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_takes_the_ones_before_along() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        write(tx, 0).await?;
        Ok::<_, Refused>(Outcome::Changed((), event()))
    };
    let Err(Refused::Store(error)) = kit.store.transaction(&actor(), work).await else { panic!("0 is taken") };
    assert!(error.violates("note_pkey") && !error.violates("note_answers_fkey"), "{error:?}");
    assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_audit_row_there_is_no_change() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        // No jsonb holds a NUL.
        Ok::<_, Error>(Outcome::Changed((), Event { data: json!("\0"), ..event() }))
    };
    let failed = kit.store.transaction(&actor(), work).await.unwrap_err();
    assert_eq!(failed.code().kind, Kind::Internal);
    assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_commit_finds_is_an_error_as_well() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        let dangling = diesel::sql_query("UPDATE note SET answers = 9 WHERE id = 1");
        diesel_async::RunQueryDsl::execute(dangling, tx).await.map_err(Error::from)?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    };
    let failed = kit.store.transaction(&actor(), work).await.unwrap_err();
    assert!(failed.violates("note_answers_fkey"), "{failed:?}");
    assert_eq!((kit.db_notes().await.len(), kit.db_audits().await), (1, 0));
    let work = async |tx: &mut Connection| {
        write(tx, 2).await?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    };
    kit.store.transaction(&actor(), work).await.unwrap();
    assert_eq!((kit.db_notes().await, kit.db_audits().await), (vec!["zero".to_owned(), "note 2".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_change_has_no_audit_row_and_is_none() {
    let kit = Kit::start().await;
    let work = async |tx: &mut Connection| {
        write(tx, 1).await?;
        Ok::<_, Error>(Outcome::Unchanged(7))
    };
    assert_eq!(kit.store.transaction(&actor(), work).await.unwrap(), 7);
    // What was written and not told of was not written.
    assert_eq!((kit.db_notes().await, kit.db_audits().await), (vec!["zero".to_owned()], 0));
    assert_eq!((kit.store.status().open, kit.store.status().idle), (1, 1));
}
