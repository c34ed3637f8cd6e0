//! App user auth: the grant, the settings and the providers. The home node serves the sign-in, and keeps users and
//! sessions in the project's database.
//!
//! Each change locks the settings of the project before its placement, so that changes do not deadlock.

use kernel::audit::{Actor, Event};
use kernel::{ProjectId, Resource};
use serde_json::{Value, json};
use store::{Connection, Error, Outcome};

use super::grant::GrantKind;
use super::{Resources, Result, Target};
use crate::error::ResourceError;
use crate::model::{
    AuthClientSecret, AuthProvider, AuthProviderPut, AuthSettings, AuthSettingsPatch, AuthStatus, RegisteredProvider,
};
use crate::parts::{CLIENT_SECRET, client_secret_row, open_client_secret};
use crate::ports::ResourcePart;
use crate::repository::{AuthRepository as _, FoundAuth, GrantRepository as _, ProviderRecord, StorageRepository as _};

const AUTH: GrantKind =
    GrantKind { resource: Resource::Auth, part: ResourcePart::Auth, granted: "auth.grant", revoked: "auth.revoke" };

impl Resources {
    /// Returns the state of a project's app sign-in.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`].
    pub async fn auth(&self, project: ProjectId) -> Result<AuthStatus> {
        let mut connection = self.store.connection().await?;
        let found = connection.auth_find(project).await?;
        let (settings, granted) =
            found.map_or_else(Default::default, |FoundAuth { settings, is_granted }| (settings, is_granted));
        self.auth_status(&mut connection, project, granted, settings).await
    }

    /// Grants app sign-in to a project. The first grant creates the settings, with their defaults.
    ///
    /// # Errors
    /// Returns [`ResourceError::DatabaseRequired`] or [`ResourceError::ProjectNotFound`].
    pub async fn auth_grant(&self, actor: &Actor, target: Target) -> Result<AuthStatus> {
        let project = target.project;
        let create = async |tx: &mut Connection| {
            tx.auth_create(project).await?;
            // The deletion of the project, which can commit between the two statements, deletes its settings.
            let settings = tx.auth_lock(project).await?.ok_or(ResourceError::ProjectNotFound)?;
            self.require_database(tx, project).await?;
            self.auth_status(tx, project, true, settings).await
        };
        self.grant(actor, target, &AUTH, create).await
    }

    /// Revokes the app sign-in of a project, which ends all sessions. Settings, providers and users stay.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`].
    pub async fn auth_revoke(&self, actor: &Actor, target: Target) -> Result<()> {
        let end = async |tx: &mut Connection| Ok(tx.auth_end_grant(target.project).await?);
        self.revoke(actor, target, &AUTH, end).await
    }

    /// Changes the settings of a project. A patch that changes nothing is a no-op.
    ///
    /// # Errors
    /// Returns [`ResourceError::AuthNotGranted`] or [`ResourceError::ProjectNotFound`].
    pub async fn auth_change(&self, actor: &Actor, target: Target, patch: AuthSettingsPatch) -> Result<AuthStatus> {
        let Target { org, project, .. } = target;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let before = self.lock_granted_auth(tx, project).await?;
                let after = patch.apply(before.clone());
                let status = self.auth_status(tx, project, true, after.clone()).await?;
                if after == before {
                    return Ok(Outcome::Unchanged(status));
                }
                let data = changed_fields(&before, &after)?;
                tx.auth_update(project, after).await?;
                self.publish(tx, project, ResourcePart::Auth).await?;
                Ok(Outcome::Changed(status, Event::in_org("auth.settings", org, project, data)))
            })
            .await
    }

    /// Registers a provider, or replaces its client. Setting the same client again is a no-op.
    ///
    /// # Errors
    /// Returns [`ResourceError::EmptyClient`], [`ResourceError::AuthNotGranted`] or [`ResourceError::ProjectNotFound`].
    pub async fn auth_provider_set(
        &self,
        actor: &Actor,
        target: Target,
        provider: AuthProvider,
        put: AuthProviderPut,
    ) -> Result<AuthStatus> {
        let Target { org, project, .. } = target;
        let AuthProviderPut { client_id, client_secret } = put;
        for (field, text) in [("clientId", client_id.as_str()), ("clientSecret", client_secret.secret().reveal())] {
            if text.is_empty() {
                return Err(ResourceError::EmptyClient(field));
            }
        }
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let settings = self.lock_granted_auth(tx, project).await?;
                let registered = tx.auth_provider_list(project).await?;
                let before = registered.iter().find(|record| record.provider == provider);
                // A stored secret that cannot be opened counts as another one, so that the request replaces it.
                let is_same = |record: &ProviderRecord| {
                    let secret = open_client_secret(&self.store, project, record);
                    record.client_id == client_id && secret.is_ok_and(|secret| secret == *client_secret.secret())
                };
                if before.is_some_and(is_same) {
                    return Ok(Outcome::Unchanged(self.auth_status(tx, project, true, settings).await?));
                }
                let data = json!({ "provider": provider, "clientId": client_id });
                let revision = tx.auth_provider_raise_revision(project).await?;
                let registration = before.map_or(revision, |record| record.registration);
                let client_secret = self.seal_client_secret(project, provider, revision, &client_secret)?;
                let record = ProviderRecord { provider, registration, revision, client_id, client_secret };
                tx.auth_provider_upsert(project, record).await?;
                self.publish(tx, project, ResourcePart::Auth).await?;
                let status = self.auth_status(tx, project, true, settings).await?;
                Ok(Outcome::Changed(status, Event::in_org("auth.provider.set", org, project, data)))
            })
            .await
    }

    /// Deletes a provider, which ends its sessions and identities. This is a no-op if the provider is not registered.
    /// It also works while app sign-in is not granted.
    ///
    /// # Errors
    /// Returns [`ResourceError::ProjectNotFound`].
    pub async fn auth_provider_delete(&self, actor: &Actor, target: Target, provider: AuthProvider) -> Result<()> {
        let Target { org, project, .. } = target;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.auth_lock(project).await?;
                if !tx.auth_provider_delete(project, provider).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                if tx.grant_list(project).await?.auth {
                    self.publish(tx, project, ResourcePart::Auth).await?;
                }
                let data = json!({ "provider": provider });
                Ok(Outcome::Changed((), Event::in_org("auth.provider.delete", org, project, data)))
            })
            .await
    }

    /// Locks the settings of a project, and requires the grant. The grant is read after the lock, for which a
    /// revocation also waits.
    async fn lock_granted_auth(&self, tx: &mut Connection, project: ProjectId) -> Result<AuthSettings> {
        let settings = tx.auth_lock(project).await?.ok_or(ResourceError::AuthNotGranted)?;
        if tx.grant_list(project).await?.auth { Ok(settings) } else { Err(ResourceError::AuthNotGranted) }
    }

    /// Requires a database, and keeps it until the transaction ends. A later deletion of the database sees the grant.
    async fn require_database(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        if self.ports.databases.lock(tx, project).await? {
            return Ok(());
        }
        tx.project_plan(project).await?.ok_or(ResourceError::ProjectNotFound)?;
        Err(ResourceError::DatabaseRequired)
    }

    async fn auth_status(
        &self,
        connection: &mut Connection,
        project: ProjectId,
        granted: bool,
        settings: AuthSettings,
    ) -> Result<AuthStatus> {
        let registered = connection.auth_provider_list(project).await?;
        let providers = registered
            .into_iter()
            .map(|ProviderRecord { provider, client_id, .. }| RegisteredProvider { provider, client_id });
        let hosts = self.ports.hostnames.active(connection, project).await?;
        Ok(AuthStatus { granted, settings, providers: providers.collect(), hosts })
    }

    fn seal_client_secret(
        &self,
        project: ProjectId,
        provider: AuthProvider,
        revision: i64,
        secret: &AuthClientSecret,
    ) -> Result<kernel::seal::Sealed> {
        let row = client_secret_row(project, provider, revision);
        Ok(self.store.seal(CLIENT_SECRET.associated_data(&row), secret.secret().reveal().as_bytes())?)
    }
}

/// Returns the new values of the fields that differ, for the audit log.
fn changed_fields(before: &AuthSettings, after: &AuthSettings) -> Result<Value> {
    let before = serde_json::to_value(before).map_err(Error::inconsistent)?;
    let mut after = serde_json::to_value(after).map_err(Error::inconsistent)?;
    if let Some(fields) = after.as_object_mut() {
        fields.retain(|name, value| before.get(name) != Some(value));
    }
    Ok(after)
}
