//! Auto-renewal, the transfer lock and the transfer code.

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Domains, Result, registrar_failed};
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

    /// Sets the transfer lock at the registrar. Makes no call if the lock already has this state.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::NotManaged`], [`DomainError::RegistrarFailed`],
    /// [`DomainError::RegistrarNotConfigured`], [`DomainError::TooManyRequests`].
    pub async fn set_lock(&self, actor: &Actor, org: OrgId, name: &str, change: DomainLock) -> Result<Domain> {
        let domain = self.find_managed(org, name).await?;
        if domain.locked == Some(change.locked) {
            return Ok(self.view(domain));
        }
        let registrar = self.registrar()?;
        self.take_requests(org, 1).await?;
        set_registrar_lock(registrar, &domain.name, change.locked).await?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let locked = self.lock_domain(tx, &domain).await?;
                if locked.locked == Some(change.locked) {
                    return Ok(Outcome::Unchanged(self.view(locked)));
                }
                let changed = DomainRecord { locked: Some(change.locked), ..locked };
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
        let domain = self.find_managed(org, name).await?;
        let registrar = self.registrar()?;
        self.take_requests(org, 1).await?;
        let code = registrar.auth_code(&domain.name).await.map_err(|error| registrar_failed(&error))?;
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
async fn set_registrar_lock(registrar: &dyn Registrar, name: &str, locked: bool) -> Result<()> {
    let error = match registrar.set_lock(name, locked).await {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    if matches!(error, RegistrarError::Rejected(_) | RegistrarError::Deferred(_)) {
        let found = registrar.read(name).await.map_err(|error| registrar_failed(&error))?;
        if found.is_some_and(|found| found.locked == locked) {
            return Ok(());
        }
    }
    Err(registrar_failed(&error))
}
