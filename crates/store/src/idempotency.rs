//! Idempotency keys: a request with a key executes at most once, however often clients send it (contract section 5,
//! "Idempotency-Key").
//!
//! A request claims its key before it changes anything. Its transaction marks the key as committed, and the response is
//! stored after the commit. If the process dies in between, the row shows how far it got:
//!
//! - claimed, and the lease is over: nothing happened, and the next request may execute;
//! - committed without a response, and the lease is over: the request was executed, and its response is lost;
//! - with a response: the next request receives the same response.

use diesel::prelude::*;
use diesel::sql_types::{Binary, Bool, Integer, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::Digest;
use kernel::audit::IdempotencyClaim;
use kernel::seal::Sealed;

use crate::{Connection, Error, Prepared, Result, SealedColumn, Store, is_full_batch, purge_batch};

/// The column of the stored responses.
pub(crate) const ANSWER: SealedColumn =
    SealedColumn { table: "store.idempotency", column: "answer", row_key: &[("id", "uuid")] };

/// The retention of a key: 24 hours.
const RETENTION_SECONDS: i64 = 24 * 3600;

/// The lease of a claim. Only a request that takes longer has to renew it.
const LEASE_SECONDS: i64 = 15;

/// A request with an idempotency key.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    /// The caller that owns the key.
    pub caller: &'a str,
    /// A digest of the method and the address.
    pub route: &'a str,
    pub key: &'a str,
    /// The digest of the body, if it is known before the request executes.
    pub body: Option<Digest>,
}

/// The result of a claim.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// The key is new, expired or abandoned: the request may execute.
    Claimed(IdempotencyClaim),
    /// Another request with the key is in progress.
    InProgress { body: Option<Digest> },
    /// Another request with the key was executed, and its response is lost.
    Lost { body: Option<Digest> },
    /// Another request with the key received this response.
    Completed { body: Option<Digest>, response: Vec<u8> },
}

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Integer)]
    attempt: i32,
}

#[derive(QueryableByName)]
struct ResponseRow {
    #[diesel(sql_type = Bool)]
    has_response: bool,
}

#[derive(QueryableByName)]
struct ExistingRow {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Nullable<Binary>)]
    body: Option<Digest>,
    #[diesel(sql_type = Bool)]
    committed: bool,
    #[diesel(sql_type = Bool)]
    in_progress: bool,
    #[diesel(sql_type = Nullable<Binary>)]
    answer: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Text>)]
    key_id: Option<String>,
}

/// Claims a key that is new, expired or abandoned. A key is abandoned if its lease is over and its request did not
/// commit.
const CLAIM: &str = "\
    INSERT INTO store.idempotency AS i (id, caller, route, key, body, attempt, lease_expires_at, committed, expires_at) \
    VALUES ($1, $2, $3, $4, $5, 1, $7, false, $8) \
    ON CONFLICT (caller, route, key) DO UPDATE SET body = $5, attempt = i.attempt + 1, lease_expires_at = $7, \
        committed = false, answer = NULL, key_id = NULL, expires_at = $8 \
    WHERE i.expires_at <= $6 OR i.lease_expires_at <= $6 AND NOT i.committed AND i.answer IS NULL \
    RETURNING id, attempt";

const SELECT_EXISTING: &str = "\
    SELECT id, body, committed, lease_expires_at > $4 AS in_progress, answer, key_id \
    FROM store.idempotency WHERE caller = $1 AND route = $2 AND key = $3";

impl Store {
    /// Claims the key of a request.
    pub async fn idempotency_claim(&self, request: ClaimRequest<'_>) -> Result<ClaimOutcome> {
        let ClaimRequest { caller, route, key, body } = request;
        let mut connection = self.connection().await?;
        let now = self.corrected_now(&mut connection).await?;
        let claim = diesel::sql_query(CLAIM)
            .bind::<Uuid, _>(self.clock_rng().id_at::<uuid::Uuid>(now))
            .bind::<Text, _>(caller)
            .bind::<Text, _>(route)
            .bind::<Text, _>(key)
            .bind::<Nullable<Binary>, _>(body)
            .bind::<Timestamptz, _>(now)
            .bind::<Timestamptz, _>(now.plus_seconds(LEASE_SECONDS))
            .bind::<Timestamptz, _>(now.plus_seconds(RETENTION_SECONDS));
        let claimed: Option<ClaimedRow> = Prepared(claim).get_result(&mut *connection).await.optional()?;
        if let Some(ClaimedRow { id, attempt }) = claimed {
            return Ok(ClaimOutcome::Claimed(IdempotencyClaim { id, attempt }));
        }
        let existing = diesel::sql_query(SELECT_EXISTING)
            .bind::<Text, _>(caller)
            .bind::<Text, _>(route)
            .bind::<Text, _>(key)
            .bind::<Timestamptz, _>(now);
        let existing: Option<ExistingRow> = Prepared(existing).get_result(&mut *connection).await.optional()?;
        drop(connection);
        Ok(match existing {
            Some(ExistingRow { id, body, answer: Some(bytes), key_id: Some(key_id), .. }) => {
                let row = id.to_string();
                ClaimOutcome::Completed {
                    body,
                    response: self.open(ANSWER.associated_data(&row), &Sealed { key_id, bytes })?,
                }
            }
            // A response is stored shortly after the commit, within the lease. After the lease, it is lost.
            Some(ExistingRow { committed: true, in_progress: false, body, .. }) => ClaimOutcome::Lost { body },
            Some(ExistingRow { body, .. }) => ClaimOutcome::InProgress { body },
            // The other request released the key after this claim failed. A retry can claim it.
            None => ClaimOutcome::InProgress { body: None },
        })
    }

    /// Extends the lease of a request in progress.
    pub async fn idempotency_renew(&self, claim: IdempotencyClaim) -> Result<()> {
        let mut connection = self.connection().await?;
        let until = self.corrected_now(&mut connection).await?.plus_seconds(LEASE_SECONDS);
        let renew =
            diesel::sql_query("UPDATE store.idempotency SET lease_expires_at = $3 WHERE id = $1 AND attempt = $2")
                .bind::<Uuid, _>(claim.id)
                .bind::<Integer, _>(claim.attempt)
                .bind::<Timestamptz, _>(until);
        Prepared(renew).execute(&mut *connection).await?;
        Ok(())
    }

    /// Stores the sealed response for later requests with the same key.
    pub async fn idempotency_store_response(&self, claim: IdempotencyClaim, body: Digest, answer: &[u8]) -> Result<()> {
        let row = claim.id.to_string();
        let Sealed { key_id, bytes } = self.seal(ANSWER.associated_data(&row), answer)?;
        let update = diesel::sql_query(
            "UPDATE store.idempotency SET body = $3, answer = $4, key_id = $5 WHERE id = $1 AND attempt = $2",
        );
        let update = update
            .bind::<Uuid, _>(claim.id)
            .bind::<Integer, _>(claim.attempt)
            .bind::<Binary, _>(body)
            .bind::<Binary, _>(bytes)
            .bind::<Text, _>(key_id);
        Prepared(update).execute(&mut *self.connection().await?).await?;
        Ok(())
    }

    /// Returns whether the request with this claim received a response that its retries receive again.
    pub async fn idempotency_has_response(&self, connection: &mut Connection, claim: uuid::Uuid) -> Result<bool> {
        let query = diesel::sql_query(
            "SELECT EXISTS (SELECT FROM store.idempotency WHERE id = $1 AND answer IS NOT NULL) AS has_response",
        );
        let row: ResponseRow = Prepared(query.bind::<Uuid, _>(claim)).get_result(connection).await?;
        Ok(row.has_response)
    }

    /// Releases the key unless the request committed, so that the next request may execute.
    pub async fn idempotency_release(&self, claim: IdempotencyClaim) -> Result<()> {
        let release = diesel::sql_query(
            "DELETE FROM store.idempotency WHERE id = $1 AND attempt = $2 AND NOT committed AND answer IS NULL",
        );
        let release = release.bind::<Uuid, _>(claim.id).bind::<Integer, _>(claim.attempt);
        Prepared(release).execute(&mut *self.connection().await?).await?;
        Ok(())
    }

    /// Purges the expired keys. A background job calls it.
    pub async fn idempotency_purge(&self) -> Result<()> {
        let purge = "DELETE FROM store.idempotency WHERE id = ANY (ARRAY( \
            SELECT id FROM store.idempotency WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))";
        let now = self.clock_rng().now();
        while is_full_batch(purge_batch(&mut *self.connection().await?, purge, now).await?) {}
        Ok(())
    }
}

/// Marks the key as committed, in the transaction of the request that claimed it.
pub(crate) async fn commit(connection: &mut Connection, claim: IdempotencyClaim) -> Result<()> {
    let update = diesel::sql_query("UPDATE store.idempotency SET committed = true WHERE id = $1 AND attempt = $2")
        .bind::<Uuid, _>(claim.id)
        .bind::<Integer, _>(claim.attempt);
    match Prepared(update).execute(connection).await? {
        1 => Ok(()),
        _ => Err(Error::Unavailable("another request with the same idempotency key took over".into())),
    }
}
