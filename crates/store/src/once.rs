//! Requests that are to be carried out at most once, however often they are sent (contract section 5,
//! "Idempotency-Key").
//!
//! A request claims its key before it does anything. The transaction that it is about notes, in the same commit, that
//! it was carried out; the answer is kept after that. Whatever is cut off between, the key tells where it stands:
//!
//! - claimed, and nobody works on it any more (its lease has run out): nothing happened, the next one may try;
//! - committed without an answer, and its lease has run out: it happened, and what it answered is lost;
//! - answered: the next one gets the same answer.

use diesel::prelude::*;
use diesel::sql_types::{Binary, Bool, Integer, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::Digest;
use kernel::audit::Once;
use kernel::seal::{Place, Sealed};

use crate::{Cached, Connection, Error, Result, Store};

/// How long a key is remembered: 24 hours.
const MEMORY_SECONDS: i64 = 24 * 3600;

/// How long a request that does not say that it is still at work keeps its claim: longer than any short one may take.
const LEASE_SECONDS: i64 = 15;

/// Which request is claimed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Whose key it is.
    pub caller: &'a str,
    /// A digest of method and address.
    pub route: &'a str,
    pub key: &'a str,
    /// Of the body, when it is known before the work begins.
    pub body: Option<Digest>,
}

/// What became of a claim.
#[derive(Debug)]
pub enum Claim {
    /// The request is the first of its key: it may work.
    First(Once),
    /// Another one is at work.
    InProgress { body: Option<Digest> },
    /// Another one was carried out, and its answer is lost.
    Lost { body: Option<Digest> },
    /// Another one was answered so.
    Answered { body: Option<Digest>, answer: Vec<u8> },
}

#[derive(QueryableByName)]
struct Won {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Integer)]
    attempt: i32,
}

#[derive(QueryableByName)]
struct Standing {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Nullable<Binary>)]
    body: Option<Digest>,
    #[diesel(sql_type = Bool)]
    committed: bool,
    #[diesel(sql_type = Bool)]
    at_work: bool,
    #[diesel(sql_type = Nullable<Binary>)]
    answer: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Text>)]
    key_id: Option<String>,
}

/// Whoever finds the key free, forgotten or given up takes it.
const CLAIM: &str = "\
    INSERT INTO store.idempotency AS i (id, caller, route, key, body, attempt, lease_until, committed, expires_at) \
    VALUES ($1, $2, $3, $4, $5, 1, $7, false, $8) \
    ON CONFLICT (caller, route, key) DO UPDATE SET body = $5, attempt = i.attempt + 1, lease_until = $7, \
        committed = false, answer = NULL, key_id = NULL, expires_at = $8 \
    WHERE i.expires_at <= $6 OR i.lease_until <= $6 AND NOT i.committed AND i.answer IS NULL \
    RETURNING id, attempt";

const STANDING: &str = "\
    SELECT id, body, committed, lease_until > $4 AS at_work, answer, key_id \
    FROM store.idempotency WHERE caller = $1 AND route = $2 AND key = $3";

impl Store {
    /// Claims the key of a request.
    ///
    /// # Errors
    /// When the database is away, or an answer does not open.
    pub async fn once_claim(&self, request: Request<'_>) -> Result<Claim> {
        let Request { caller, route, key, body } = request;
        let now = self.world().now();
        let mut connection = self.connection().await?;
        let claim = diesel::sql_query(CLAIM)
            .bind::<Uuid, _>(self.world().id_at::<uuid::Uuid>(now))
            .bind::<Text, _>(caller)
            .bind::<Text, _>(route)
            .bind::<Text, _>(key)
            .bind::<Nullable<Binary>, _>(body)
            .bind::<Timestamptz, _>(now)
            .bind::<Timestamptz, _>(now.plus_seconds(LEASE_SECONDS))
            .bind::<Timestamptz, _>(now.plus_seconds(MEMORY_SECONDS));
        let won: Option<Won> = Cached(claim).get_result(&mut *connection).await.optional()?;
        if let Some(Won { id, attempt }) = won {
            return Ok(Claim::First(Once { id, attempt }));
        }
        let standing = diesel::sql_query(STANDING)
            .bind::<Text, _>(caller)
            .bind::<Text, _>(route)
            .bind::<Text, _>(key)
            .bind::<Timestamptz, _>(now);
        let standing: Option<Standing> = Cached(standing).get_result(&mut *connection).await.optional()?;
        drop(connection);
        Ok(match standing {
            Some(Standing { id, body, answer: Some(bytes), key_id: Some(key_id), .. }) => {
                let row = id.to_string();
                Claim::Answered { body, answer: self.open(place(&row), &Sealed { key_id, bytes })? }
            }
            // Its answer comes a moment after its commit.
            Some(Standing { committed: true, at_work: false, .. }) => Claim::Lost { body },
            Some(Standing { body, .. }) => Claim::InProgress { body },
            // Released a moment ago: whoever asks again gets it.
            None => Claim::InProgress { body: None },
        })
    }

    /// Says that the request is still at work.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn once_renew(&self, once: Once) -> Result<()> {
        let until = self.world().now().plus_seconds(LEASE_SECONDS);
        let renew = diesel::sql_query("UPDATE store.idempotency SET lease_until = $3 WHERE id = $1 AND attempt = $2")
            .bind::<Uuid, _>(once.id)
            .bind::<Integer, _>(once.attempt)
            .bind::<Timestamptz, _>(until);
        Cached(renew).execute(&mut *self.connection().await?).await?;
        Ok(())
    }

    /// Keeps the answer, sealed, for whoever sends the same again.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn once_answer(&self, once: Once, body: Digest, answer: &[u8]) -> Result<()> {
        let row = once.id.to_string();
        let Sealed { key_id, bytes } = self.seal(place(&row), answer)?;
        let keep = diesel::sql_query(
            "UPDATE store.idempotency SET body = $3, answer = $4, key_id = $5 WHERE id = $1 AND attempt = $2",
        );
        let keep = keep
            .bind::<Uuid, _>(once.id)
            .bind::<Integer, _>(once.attempt)
            .bind::<Binary, _>(body)
            .bind::<Binary, _>(bytes)
            .bind::<Text, _>(key_id);
        Cached(keep).execute(&mut *self.connection().await?).await?;
        Ok(())
    }

    /// Gives the key back, unless the request was carried out: the next one may try.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn once_release(&self, once: Once) -> Result<()> {
        let release = diesel::sql_query(
            "DELETE FROM store.idempotency WHERE id = $1 AND attempt = $2 AND NOT committed AND answer IS NULL",
        );
        let release = release.bind::<Uuid, _>(once.id).bind::<Integer, _>(once.attempt);
        Cached(release).execute(&mut *self.connection().await?).await?;
        Ok(())
    }

    /// Forgets the keys whose time is over. To be called now and then.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn once_forget(&self) -> Result<()> {
        let old = "DELETE FROM store.idempotency WHERE id = ANY (ARRAY( \
            SELECT id FROM store.idempotency WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))";
        let now = self.world().now();
        loop {
            let old =
                diesel::sql_query(old).bind::<Timestamptz, _>(now).bind::<diesel::sql_types::BigInt, _>(crate::BATCH);
            if !crate::is_full(Cached(old).execute(&mut *self.connection().await?).await?) {
                return Ok(());
            }
        }
    }
}

/// Notes in a request's own transaction that it was carried out.
pub(crate) async fn commit(connection: &mut Connection, once: Once) -> Result<()> {
    let note = diesel::sql_query("UPDATE store.idempotency SET committed = true WHERE id = $1 AND attempt = $2")
        .bind::<Uuid, _>(once.id)
        .bind::<Integer, _>(once.attempt);
    match Cached(note).execute(connection).await? {
        1 => Ok(()),
        _ => Err(Error::Unavailable("another request with the same idempotency key took over".into())),
    }
}

fn place(row: &str) -> Place<'_> {
    Place { table: "store.idempotency", row, field: "answer" }
}
