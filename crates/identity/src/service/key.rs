//! The use cases of SSH keys.

use kernel::audit::{Actor, Event};
use kernel::{KeyId, Malformed, Page, Paging, UserId};
use serde_json::json;
use store::Outcome;

use super::{Identity, Result};
use crate::error::IdentityError;
use crate::model::{NewSshKey, ParsedKey, SshKey};
use crate::repository::{KeyRecord, KeyRepository as _};

impl Identity {
    /// Registers a public key. A key identifies one user, so nobody else may have it.
    ///
    /// # Errors
    /// [`IdentityError::Field`] for what is no key that is taken, [`IdentityError::KeyExists`].
    pub async fn key_add(&self, actor: &Actor, user: UserId, new: NewSshKey) -> Result<SshKey> {
        let ParsedKey { kind, fingerprint, line } =
            ParsedKey::read(&new.key).map_err(|error| Malformed::new("key", error))?;
        let (title, now) = (new.title.to_string(), self.store.world().now());
        let id = self.store.world().id_at(now);
        let record = KeyRecord { id, user_id: user, title, kind, fingerprint, line, created_at: now };
        self.store
            .transaction(actor, async |tx| {
                if !tx.key_insert(&record).await? {
                    return Err(IdentityError::KeyExists(record.fingerprint));
                }
                let KeyRecord { id, title, kind, fingerprint, created_at, .. } = record;
                // Without the title, which is often an address.
                let data = json!({ "type": kind, "fingerprint": fingerprint });
                let event = Event { name: "ssh_key.add", org: None, target: id.to_string(), data };
                Ok(Outcome::Changed(SshKey { id, title, kind, fingerprint, created_at, last_used_at: None }, event))
            })
            .await
    }

    /// The user's keys, newest first.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn keys(&self, user: UserId, paging: &Paging<KeyId>) -> Result<Page<SshKey>> {
        let keys = self.store.connection().await?.key_list(user, paging).await?;
        Ok(Page::cut(keys, paging, |key| key.id))
    }

    /// Removes a key; it opens nothing from the next connection on.
    ///
    /// # Errors
    /// [`IdentityError::KeyNotFound`].
    pub async fn key_delete(&self, actor: &Actor, user: UserId, key: KeyId) -> Result<()> {
        self.store
            .transaction(actor, async |tx| {
                let fingerprint = tx.key_delete(user, key).await?.ok_or(IdentityError::KeyNotFound)?;
                let data = json!({ "fingerprint": fingerprint });
                let event = Event { name: "ssh_key.delete", org: None, target: key.to_string(), data };
                Ok(Outcome::Changed((), event))
            })
            .await
    }
}
