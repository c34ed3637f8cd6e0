//! Authorization codes.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ClientId, GrantId, Scope, ScopeSet, Time, TokenHash, UserId};
use store::{Connection, Prepared, Result, purge_batch};

use crate::schema::codes;

/// An authorization code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRecord {
    pub code_hash: TokenHash,
    pub client: ClientId,
    pub user: UserId,
    pub redirect_uri: String,
    /// The S256 challenge (RFC 7636).
    pub code_challenge: String,
    pub scopes: ScopeSet,
    pub created_at: Time,
    pub expires_at: Time,
    /// The grant that the exchange created. `None` before the exchange.
    pub grant: Option<GrantId>,
}

/// Authorization codes on a [`store::Connection`].
pub trait CodeRepository {
    /// Inserts a code.
    async fn code_insert(&mut self, code: &CodeRecord) -> Result<()>;

    /// Returns a code, even if it is used or expired.
    async fn code_find(&mut self, code: TokenHash) -> Result<Option<CodeRecord>>;

    /// Marks a code as used. Returns false if it was used before or is expired.
    async fn code_use(&mut self, code: TokenHash, grant: GrantId, now: Time) -> Result<bool>;

    /// Deletes a batch of codes that expired without an exchange, and returns their number.
    async fn code_purge(&mut self, now: Time) -> Result<usize>;
}

const PURGE: &str = "DELETE FROM oauth.codes WHERE code_hash IN ( \
    SELECT code_hash FROM oauth.codes WHERE grant_id IS NULL AND expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";

type CodeRow = (TokenHash, ClientId, UserId, String, String, Vec<Scope>, Time, Time, Option<GrantId>);

impl CodeRepository for Connection {
    async fn code_insert(&mut self, code: &CodeRecord) -> Result<()> {
        let row = (
            codes::code_hash.eq(code.code_hash),
            codes::client_id.eq(code.client),
            codes::user_id.eq(code.user),
            codes::redirect_uri.eq(&code.redirect_uri),
            codes::code_challenge.eq(&code.code_challenge),
            codes::scopes.eq(code.scopes.iter().collect::<Vec<_>>()),
            codes::created_at.eq(code.created_at),
            codes::expires_at.eq(code.expires_at),
        );
        diesel::insert_into(codes::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn code_find(&mut self, code: TokenHash) -> Result<Option<CodeRecord>> {
        let row: Option<CodeRow> = codes::table.find(code).first(self).await.optional()?;
        let record =
            |(code_hash, client, user, redirect_uri, code_challenge, scopes, created_at, expires_at, grant)| {
                let scopes = Vec::into_iter(scopes).collect();
                CodeRecord {
                    code_hash,
                    client,
                    user,
                    redirect_uri,
                    code_challenge,
                    scopes,
                    created_at,
                    expires_at,
                    grant,
                }
            };
        Ok(row.map(record))
    }

    async fn code_use(&mut self, code: TokenHash, grant: GrantId, now: Time) -> Result<bool> {
        let usable = codes::grant_id.is_null().and(codes::expires_at.gt(now));
        let update = diesel::update(codes::table.find(code).filter(usable)).set(codes::grant_id.eq(grant));
        Ok(Prepared(update).execute(self).await? == 1)
    }

    async fn code_purge(&mut self, now: Time) -> Result<usize> {
        purge_batch(self, PURGE, now).await
    }
}
