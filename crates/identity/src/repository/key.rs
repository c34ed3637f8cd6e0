//! SSH keys.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{KeyId, Paging, Time, UserId};
use store::{Connection, Prepared, Result, newest_first};

use crate::model::{KeyType, SshKey};
use crate::schema::ssh_keys;

/// An SSH key to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: KeyId,
    pub user_id: UserId,
    pub title: String,
    pub kind: KeyType,
    pub fingerprint: String,
    pub public_key: String,
    pub created_at: Time,
}

/// SSH keys on a [`store::Connection`].
pub trait KeyRepository {
    /// Inserts a key. Returns false if the key is already registered with any account.
    async fn key_insert(&mut self, key: &KeyRecord) -> Result<bool>;

    /// Counts the user's keys. The result is reliable only under [`crate::IdentityRepository::user_lock`].
    async fn key_count(&mut self, user: UserId) -> Result<i64>;

    /// Returns the user's keys, newest first.
    async fn key_list(&mut self, user: UserId, paging: &Paging<KeyId>) -> Result<Vec<SshKey>>;

    /// Deletes a key of the user and returns its fingerprint. Returns `None` if the user has no such key.
    async fn key_delete(&mut self, user: UserId, key: KeyId) -> Result<Option<String>>;

    /// Sets the last use of a key to `at`, unless the stored one is `stale` or later.
    async fn key_touch(&mut self, key: KeyId, at: Time, stale: Time) -> Result<()>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = ssh_keys)]
struct KeyRow {
    id: KeyId,
    title: String,
    kind: KeyType,
    fingerprint: String,
    created_at: Time,
    last_used_at: Option<Time>,
}

impl KeyRepository for Connection {
    async fn key_insert(&mut self, key: &KeyRecord) -> Result<bool> {
        let row = (
            ssh_keys::id.eq(key.id),
            ssh_keys::user_id.eq(key.user_id),
            ssh_keys::title.eq(&key.title),
            ssh_keys::kind.eq(key.kind),
            ssh_keys::fingerprint.eq(&key.fingerprint),
            ssh_keys::public_key.eq(&key.public_key),
            ssh_keys::created_at.eq(key.created_at),
        );
        let insert = diesel::insert_into(ssh_keys::table).values(row).on_conflict(ssh_keys::fingerprint).do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn key_count(&mut self, user: UserId) -> Result<i64> {
        Ok(ssh_keys::table.filter(ssh_keys::user_id.eq(user)).count().get_result(self).await?)
    }

    async fn key_list(&mut self, user: UserId, paging: &Paging<KeyId>) -> Result<Vec<SshKey>> {
        let all = ssh_keys::table.select(KeyRow::as_select());
        let page = newest_first!(all, ssh_keys::user_id = user, ssh_keys::id, paging);
        Ok(page.load::<KeyRow>(self).await?.into_iter().map(SshKey::from).collect())
    }

    async fn key_delete(&mut self, user: UserId, key: KeyId) -> Result<Option<String>> {
        let own = ssh_keys::table.find(key).filter(ssh_keys::user_id.eq(user));
        Ok(diesel::delete(own).returning(ssh_keys::fingerprint).get_result(self).await.optional()?)
    }

    async fn key_touch(&mut self, key: KeyId, at: Time, stale: Time) -> Result<()> {
        let old = ssh_keys::last_used_at.is_null().or(ssh_keys::last_used_at.lt(stale));
        let touch = diesel::update(ssh_keys::table.find(key).filter(old)).set(ssh_keys::last_used_at.eq(at));
        Prepared(touch).execute(self).await?;
        Ok(())
    }
}

impl From<KeyRow> for SshKey {
    fn from(row: KeyRow) -> Self {
        let KeyRow { id, title, kind, fingerprint, created_at, last_used_at } = row;
        Self { id, title, kind, fingerprint, created_at, last_used_at }
    }
}
