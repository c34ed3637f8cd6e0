//! Use cases of SSH keys.

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, KeyId, Page, Paging, UserId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Identity, Result};
use crate::error::IdentityError;
use crate::model::{NewSshKey, ParsedKey, SshKey};
use crate::repository::{IdentityRepository as _, KeyRecord, KeyRepository as _};

impl Identity {
    /// Registers a public key. A key identifies one user, so it can be registered only once.
    ///
    /// # Errors
    /// Returns [`IdentityError::Fields`] for an invalid or unsupported key, [`IdentityError::KeyLimit`] and
    /// [`IdentityError::KeyExists`].
    pub async fn key_add(&self, actor: &Actor, user: UserId, new: NewSshKey) -> Result<SshKey> {
        let ParsedKey { kind, fingerprint, public_key: line } =
            ParsedKey::parse(&new.key).map_err(|error| InvalidField::new("key", error))?;
        let (title, now) = (new.title.to_string(), self.store.clock_rng().now());
        let id = self.store.clock_rng().id_at(now);
        let record = KeyRecord { id, user_id: user, title, kind, fingerprint, public_key: line, created_at: now };
        self.store
            .transaction(actor, async |tx| {
                self.ensure_below_key_limit(tx, user).await?;
                if !tx.key_insert(&record).await? {
                    return Err(IdentityError::KeyExists(record.fingerprint));
                }
                let KeyRecord { id, title, kind, fingerprint, created_at, .. } = record;
                // The event omits the title, which often is a mail address.
                let data = json!({ "type": kind, "fingerprint": fingerprint });
                let event = Event::of_account("ssh_key.add", user, id, data);
                Ok(Outcome::Changed(SshKey { id, title, kind, fingerprint, created_at, last_used_at: None }, event))
            })
            .await
    }

    /// Returns the user's keys, newest first.
    pub async fn keys(&self, user: UserId, paging: &Paging<KeyId>) -> Result<Page<SshKey>> {
        let keys = self.store.connection().await?.key_list(user, paging).await?;
        Ok(Page::cut(keys, paging, |key| key.id))
    }

    /// Removes a key. The next SSH connection with it is rejected.
    ///
    /// # Errors
    /// Returns [`IdentityError::KeyNotFound`].
    pub async fn key_delete(&self, actor: &Actor, user: UserId, key: KeyId) -> Result<()> {
        self.store
            .transaction(actor, async |tx| {
                let fingerprint = tx.key_delete(user, key).await?.ok_or(IdentityError::KeyNotFound)?;
                let data = json!({ "fingerprint": fingerprint });
                let event = Event::of_account("ssh_key.delete", user, key, data);
                Ok(Outcome::Changed((), event))
            })
            .await
    }

    /// Locks the user, so that concurrent requests cannot exceed the limit, and counts the keys.
    async fn ensure_below_key_limit(&self, tx: &mut Connection, user: UserId) -> Result<()> {
        tx.user_lock(user).await?;
        let (limit, count) = (self.limits.ssh_keys_per_user, tx.key_count(user).await?);
        if count >= i64::from(limit) { Err(IdentityError::KeyLimit { limit, count }) } else { Ok(()) }
    }
}
