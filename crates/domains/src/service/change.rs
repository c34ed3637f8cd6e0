//! Auto-renewal, the transfer lock and the transfer code.

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome};

use super::sync::RETRY_SECONDS;
use super::{Domains, Result, call_registrar};
use crate::error::DomainError;
use crate::model::{Domain, DomainAuthCode, DomainAutoRenew, DomainLock};
use crate::ports::{Registrar, RegistrarError};
use crate::repository::DomainRecord;

impl Domains {
    /// Sets whether the organization wants the domain to be renewed automatically. The registrar's own auto-renewal
    /// stays enabled. While this setting is off, the organization does not pay for the registrar's automatic renewals.
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
                let data = json!({ "domain": changed.name, "enabled": change.enabled });
                let event = Event::in_org("domain.auto_renew", org, changed.id, data);
                self.append_history(tx, changed.id, &event, actor.user).await?;
                Ok::<_, DomainError>(Outcome::Changed(self.view(changed), event))
            })
            .await
    }

    /// Sets the transfer lock at the registrar. Makes no call if the lock already has this state. The lock is unknown
    /// during the call, and afterwards if the call fails: its response may be lost.
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
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let locked = self.lock_domain(tx, &domain).await?;
                let next_sync_at = Some(self.now().plus_seconds(RETRY_SECONDS));
                self.update_locked(tx, &DomainRecord { locked: None, next_sync_at, ..locked }).await?;
                Ok::<_, DomainError>(self.store.authorize(tx, actor).await?)
            })
            .await?;
        call_registrar(until, set_registrar_lock(registrar, &domain.name, change.locked)).await?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let locked = self.lock_domain(tx, &domain).await?;
                if locked.locked == Some(change.locked) {
                    return Ok(Outcome::Unchanged(self.view(locked)));
                }
                let next_sync_at = domain.next_sync_at;
                let changed = DomainRecord { locked: Some(change.locked), next_sync_at, ..locked };
                self.update_locked(tx, &changed).await?;
                let data = json!({ "domain": changed.name, "locked": change.locked });
                let event = Event::in_org("domain.lock", org, changed.id, data);
                self.append_history(tx, changed.id, &event, actor.user).await?;
                Ok::<_, DomainError>(Outcome::Changed(self.view(changed), event))
            })
            .await
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

/// Sets the lock. The registrar refuses a change to the current state. Such a refusal counts as a success, because an
/// earlier change can have succeeded with a lost response.
async fn set_registrar_lock(
    registrar: &dyn Registrar,
    name: &str,
    locked: bool,
) -> std::result::Result<(), RegistrarError> {
    let refusal = match registrar.set_lock(name, locked).await {
        Err(refusal @ (RegistrarError::Rejected(_) | RegistrarError::Deferred(_))) => refusal,
        result => return result.map(drop),
    };
    let found = registrar.read(name).await?;
    if found.is_some_and(|found| found.locked == locked) { Ok(()) } else { Err(refusal) }
}
