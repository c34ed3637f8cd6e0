//! Grants of a user.

use std::sync::LazyLock;

use kernel::audit::{Actor, Event};
use kernel::{GrantId, Page, Paging, Time, UserId};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use serde_json::json;
use store::{Connection, Outcome};

use super::{OAuth, Result};
use crate::error::OAuthError;
use crate::model::Grant;
use crate::repository::{GrantFilter, GrantRepository as _};
use crate::service::client::enqueue_revocations;

/// The resolution of `lastUsedAt`.
const LAST_USED_RESOLUTION_SECONDS: i64 = 60;

impl OAuth {
    /// Returns the live grants of a user, newest first.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`].
    pub async fn grants(&self, user: UserId, paging: &Paging<GrantId>) -> Result<Page<Grant>> {
        let grants = self.store.connection().await?.grant_list(user, self.now(), paging).await?;
        Ok(Page::cut(grants, paging, |grant| grant.sid))
    }

    /// Ends a grant of a user. Its tokens are rejected from the next request on.
    ///
    /// # Errors
    /// Returns [`OAuthError::GrantNotFound`].
    pub async fn grant_revoke(&self, actor: &Actor, user: UserId, grant: GrantId) -> Result<()> {
        if self.end_grant(actor, user, grant, "user").await? { Ok(()) } else { Err(OAuthError::GrantNotFound) }
    }

    /// Returns whether a use of a grant must be stored now, because the stored last use is too old.
    #[must_use]
    pub fn is_use_due(&self, last_used_at: Option<Time>) -> bool {
        last_used_at.is_none_or(|at| self.now() > at.plus_seconds(LAST_USED_RESOLUTION_SECONDS))
    }

    /// Records a use of an access token, accurate to a minute.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`].
    pub async fn touch(&self, grant: GrantId) -> Result<()> {
        let now = self.now();
        let stale = now.plus_seconds(-LAST_USED_RESOLUTION_SECONDS);
        Ok(self.store.connection().await?.grant_touch(grant, now, stale).await?)
    }

    /// Ends the grant of a code or token that was used a second time, because another party may have a copy.
    pub(super) async fn end_reused(
        &self,
        actor: &Actor,
        user: UserId,
        grant: GrantId,
        reason: &'static str,
    ) -> Result<()> {
        static REUSES: LazyLock<Counter<u64>> = LazyLock::new(|| {
            opentelemetry::global::meter("svc")
                .u64_counter("svc.oauth.reuses")
                .with_description("Grants that ended because a code or token was used twice, by kind")
                .build()
        });
        if self.end_grant(actor, user, grant, reason).await? {
            REUSES.add(1, &[KeyValue::new("reason", reason)]);
        }
        Ok(())
    }

    /// Ends a grant and enqueues the message to the model-lending service in one transaction. Returns false if the
    /// grant does not exist.
    pub(super) async fn end_grant(
        &self,
        actor: &Actor,
        user: UserId,
        grant: GrantId,
        reason: &'static str,
    ) -> Result<bool> {
        let now = self.now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let filter = GrantFilter { grant: Some(grant), user: Some(user), client: None };
                let ended = tx.grant_end(filter, now).await?;
                enqueue_revocations(&self.store, tx, &ended).await?;
                Ok(match ended.first() {
                    None => Outcome::Unchanged(false),
                    Some(ended) => {
                        let data = json!({ "client": ended.client_id, "reason": reason });
                        Outcome::Changed(true, Event::of_account("oauth.grant.revoke", user, grant, data))
                    }
                })
            })
            .await
    }
}
