//! Signing keys.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{SigningKeyId, Time};
use store::{Connection, Prepared, Result};

use crate::schema::signing_keys;

/// A signing key. Its `Debug` implementation does not show the private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: SigningKeyId,
    /// The public key, as an uncompressed point.
    pub public_key: Vec<u8>,
    pub private_key: Sealed,
    pub created_at: Time,
    pub signs_from: Time,
}

/// Signing keys on a [`store::Connection`].
pub trait KeyRepository {
    /// Locks the keys until the transaction ends, so that changes of them run one after the other.
    async fn key_lock(&mut self) -> Result<()>;

    /// Lists the keys. The key that starts to sign last is the first one.
    async fn key_list(&mut self) -> Result<Vec<KeyRecord>>;

    /// Inserts a key.
    async fn key_insert(&mut self, key: &KeyRecord) -> Result<()>;

    /// Deletes a key. Returns false if it does not exist.
    async fn key_delete(&mut self, key: SigningKeyId) -> Result<bool>;
}

type KeyRow = (SigningKeyId, Vec<u8>, Vec<u8>, String, Time, Time);

impl KeyRepository for Connection {
    async fn key_lock(&mut self) -> Result<()> {
        let lock = diesel::sql_query("SELECT pg_advisory_xact_lock(hashtext('oauth.signing_keys'))");
        Prepared(lock).execute(self).await?;
        Ok(())
    }

    async fn key_list(&mut self) -> Result<Vec<KeyRecord>> {
        let rows: Vec<KeyRow> =
            signing_keys::table.order((signing_keys::signs_from.desc(), signing_keys::id.desc())).load(self).await?;
        let record = |(id, public_key, bytes, key_id, created_at, signs_from)| KeyRecord {
            id,
            public_key,
            private_key: Sealed { key_id, bytes },
            created_at,
            signs_from,
        };
        Ok(rows.into_iter().map(record).collect())
    }

    async fn key_insert(&mut self, key: &KeyRecord) -> Result<()> {
        let row = (
            signing_keys::id.eq(key.id),
            signing_keys::public_key.eq(&key.public_key),
            signing_keys::private_key.eq(&key.private_key.bytes),
            signing_keys::key_id.eq(&key.private_key.key_id),
            signing_keys::created_at.eq(key.created_at),
            signing_keys::signs_from.eq(key.signs_from),
        );
        diesel::insert_into(signing_keys::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn key_delete(&mut self, key: SigningKeyId) -> Result<bool> {
        Ok(diesel::delete(signing_keys::table.find(key)).execute(self).await? == 1)
    }
}
