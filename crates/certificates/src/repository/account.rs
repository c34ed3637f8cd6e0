//! Accounts at authorities, and pauses.

use diesel::prelude::*;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::Time;
use kernel::seal::Sealed;
use store::{Connection, Prepared, Result};

use crate::schema::{accounts, pauses};

/// Accounts on a [`store::Connection`].
pub trait AccountRepository {
    /// Returns the credentials of the account at an authority.
    async fn account_find(&mut self, directory: &str) -> Result<Option<Sealed>>;

    /// Stores the credentials of an account. Returns false if there is one already.
    async fn account_insert(&mut self, directory: &str, credentials: Sealed, at: Time) -> Result<bool>;

    /// Deletes an account, unless its credentials were replaced. Returns false if there is no such account.
    async fn account_delete(&mut self, directory: &str, credentials: &Sealed) -> Result<bool>;

    /// Stores that no request may be sent to the authority until this time. Does not replace a later time.
    async fn pause_put(&mut self, directory: &str, until: Time) -> Result<()>;

    /// Returns the time until which no request may be sent to the authority, if it is later than `now`.
    async fn pause_find(&mut self, directory: &str, now: Time) -> Result<Option<Time>>;
}

impl AccountRepository for Connection {
    async fn account_find(&mut self, directory: &str) -> Result<Option<Sealed>> {
        let query = accounts::table.find(directory).select((accounts::key_id, accounts::sealed));
        let found: Option<(String, Vec<u8>)> = query.first(self).await.optional()?;
        Ok(found.map(|(key_id, bytes)| Sealed { key_id, bytes }))
    }

    async fn account_insert(&mut self, directory: &str, credentials: Sealed, at: Time) -> Result<bool> {
        let Sealed { key_id, bytes } = credentials;
        let row = (
            accounts::directory.eq(directory),
            accounts::key_id.eq(key_id),
            accounts::sealed.eq(bytes),
            accounts::created_at.eq(at),
        );
        let insert = diesel::insert_into(accounts::table).values(row).on_conflict_do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn account_delete(&mut self, directory: &str, credentials: &Sealed) -> Result<bool> {
        let same = accounts::table.find(directory).filter(accounts::sealed.eq(&credentials.bytes));
        Ok(diesel::delete(same).execute(self).await? == 1)
    }

    async fn pause_put(&mut self, directory: &str, until: Time) -> Result<()> {
        let insert =
            diesel::insert_into(pauses::table).values((pauses::directory.eq(directory), pauses::until.eq(until)));
        let upsert = insert.on_conflict(pauses::directory).do_update().set(pauses::until.eq(excluded(pauses::until)));
        let is_later = pauses::until.lt(excluded(pauses::until));
        Prepared(diesel::query_dsl::methods::FilterDsl::filter(upsert, is_later)).execute(self).await?;
        Ok(())
    }

    async fn pause_find(&mut self, directory: &str, now: Time) -> Result<Option<Time>> {
        let query = pauses::table.find(directory).filter(pauses::until.gt(now)).select(pauses::until);
        Ok(query.first(self).await.optional()?)
    }
}
