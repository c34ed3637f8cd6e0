//! Auto-renewal, the transfer lock and the transfer code.

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome};

use super::sync::RETRY_SECONDS;
use super::{Domains, Result, call_registrar, registrar_failed};
use crate::error::DomainError;
use crate::model::{Domain, DomainAuthCode, DomainAutoRenew, DomainLock};
use crate::ports::{Registrar, RegistrarError};
use crate::repository::DomainRecord;

/// The event of a change of the auto-renewal.
pub(super) const AUTO_RENEW: &str = "domain.auto_renew";

impl Domains {
    /// Sets whether the organization wants the domain to be renewed automatically. The registrar's own auto-renewal
    /// stays enabled. While this setting is off, the registrar's automatic renewals are not billed. Turning it on orders
    /// and charges them.
    ///
    /// # Errors
    /// [`DomainError::NotFound`].
    pub async fn set_auto_renew(
        &self,
        actor: &Actor,
        org: OrgId,
        name: &str,
        change: DomainAutoRenew,
    ) -> Result<Domain> {
        let domain = self.find(org, name).await?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let locked = self.lock_domain(tx, &domain).await?;
                if locked.auto_renew == change.enabled {
                    return Ok(Outcome::Unchanged(self.view(locked)));
                }
                let changed = DomainRecord { auto_renew: change.enabled, ..locked };
                self.update_locked(tx, &changed).await?;
                if change.enabled {
                    self.charge_unbilled_renewals(tx, changed.id).await?;
                }
                let data = json!({ "domain": changed.name, "enabled": change.enabled });
                let event = Event::in_org(AUTO_RENEW, org, changed.id, data);
                self.append_history(tx, changed.id, &event, actor.user).await?;
                Ok::<_, DomainError>(Outcome::Changed(self.view(changed), event))
            })
            .await
    }

    /// Sets the transfer lock at the registrar. Makes no call if the lock already has this state. The lock is unknown
    /// during the call, and afterwards if the call fails, because its response may be lost, or if another change or a
    /// read overlapped with it. A call that was not sent does not change a known lock.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::NotManaged`], [`DomainError::RegistrarFailed`],
    /// [`DomainError::RegistrarNotConfigured`], [`DomainError::TooManyRequests`].
    pub async fn set_lock(&self, actor: &Actor, org: OrgId, name: &str, change: DomainLock) -> Result<Domain> {
        let until = self.request_end();
        let domain = self.find_managed(org, name).await?;
        if domain.locked == Some(change.locked) {
            return Ok(self.view(domain));
        }
        let registrar = self.registrar()?;
        self.take_requests(org, 1).await?;
        let DomainRecord { revision: marked, .. } = self
            .store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| {
                self.store_lock(tx, &domain, domain.revision, None).await
            })
            .await?;
        // Another change can precede the call.
        let known = domain.locked.filter(|_| marked == domain.revision + 1);
        let result = call_registrar(until, set_registrar_lock(registrar, &domain.name, known, change.locked)).await;
        let found = result.as_ref().ok().copied();
        if found != Some(change.locked) {
            self.store
                .transaction_unaudited(async |tx: &mut Connection| self.store_lock(tx, &domain, marked, found).await)
                .await?;
            return Err(result.err().unwrap_or(DomainError::RegistrarFailed));
        }
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let changed = self.store_lock(tx, &domain, marked, found).await?;
                let data = json!({ "domain": changed.name, "locked": change.locked });
                let event = Event::in_org("domain.lock", org, changed.id, data);
                self.append_history(tx, changed.id, &event, actor.user).await?;
                Ok::<_, DomainError>(Outcome::Changed(self.view(changed), event))
            })
            .await
    }

    /// Stores the lock that the registrar has, `None` if it is unknown, and returns the stored domain. `domain` is the
    /// domain before the change, and `revision` that before the call.
    async fn store_lock(
        &self,
        tx: &mut Connection,
        domain: &DomainRecord,
        revision: i64,
        found: Option<bool>,
    ) -> Result<DomainRecord> {
        let (now, stored) = (self.now(), self.lock_domain(tx, domain).await?);
        let (locked, next_sync_at) = match found {
            Some(_) if stored.revision == revision => (found, self.next_sync_at(now)),
            // Another change of the lock, or a read, may have overlapped with the call. Read the lock when the calls in
            // progress have ended.
            Some(_) => (None, now.plus_seconds(self.config.request_timeout.as_secs().cast_signed())),
            None => (None, now.plus_seconds(RETRY_SECONDS)),
        };
        // Otherwise an organization could prevent the daily read, and the charge of automatic renewals.
        let next_sync_at = domain.next_sync_at.map_or(next_sync_at, |planned| planned.min(next_sync_at));
        let changed = DomainRecord { locked, next_sync_at: Some(next_sync_at), ..stored };
        self.update_locked(tx, &changed).await?;
        Ok(DomainRecord { revision: changed.revision + 1, ..changed })
    }

    /// Returns the code for a transfer to another registrar. The code is neither stored nor logged.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::NotManaged`], [`DomainError::RegistrarFailed`],
    /// [`DomainError::RegistrarNotConfigured`], [`DomainError::TooManyRequests`].
    pub async fn auth_code(&self, actor: &Actor, org: OrgId, name: &str) -> Result<DomainAuthCode> {
        let until = self.request_end();
        let domain = self.find_managed(org, name).await?;
        let registrar = self.registrar()?;
        self.take_requests(org, 1).await?;
        let code = call_registrar(until, registrar.auth_code(&domain.name)).await?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let locked = self.lock_domain(tx, &domain).await?;
                let event = Event::in_org("domain.auth_code", org, locked.id, json!({ "domain": locked.name }));
                self.append_history(tx, locked.id, &event, actor.user).await?;
                let transferable_at = self.view(locked).transferable_at;
                let answer = DomainAuthCode { auth_code: code.reveal().to_owned(), transferable_at };
                Ok::<_, DomainError>(Outcome::Changed(answer, event))
            })
            .await
    }
}

/// Sets the lock, and returns the lock that the domain has afterwards. If the request is refused or not sent, it is the
/// lock before, which can be the requested one: an earlier change can have succeeded with a lost response. `known` is
/// the lock before, `None` if the service does not know it.
async fn set_registrar_lock(
    registrar: &dyn Registrar,
    name: &str,
    known: Option<bool>,
    locked: bool,
) -> std::result::Result<bool, RegistrarError> {
    let refusal = match registrar.set_lock(name, locked).await {
        Ok(_) => return Ok(locked),
        Err(error @ RegistrarError::Unavailable(_)) => return Err(error),
        // The rate limit would usually also refuse a read.
        Err(error @ RegistrarError::NotSent(_)) => {
            let Some(known) = known else { return Err(error) };
            registrar_failed(&error);
            return Ok(known);
        }
        Err(refusal) => refusal,
    };
    let found = registrar.read(name).await?.ok_or_else(|| refusal.clone())?;
    if found.locked != locked {
        registrar_failed(&refusal);
    }
    Ok(found.locked)
}
