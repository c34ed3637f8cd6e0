//! Secrets. All changes of a project's secrets are made under one row lock, so that versions have no gaps.

use std::collections::BTreeMap;

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, Page, ProjectId, UserId};
use serde_json::json;
use store::{Connection, Error, Outcome};

use super::{Resources, Result, Target};
use crate::error::ResourceError;
use crate::model::{NewSecretValue, SecretChange, SecretChanges, SecretMeta, SecretName, SecretValue};
use crate::parts::{SECRET, secret_row};
use crate::ports::Part;
use crate::repository::{SecretRecord, SecretRepository as _};

/// The limit of secrets per project (contract section 9), the same for every plan.
const MAX_SECRETS: u32 = 200;

/// The limit of names in one request: enough to replace all secrets by others.
const MAX_CHANGES: usize = 2 * MAX_SECRETS as usize;

type Changes = BTreeMap<SecretName, SecretChange>;

/// The secrets that a transaction changed.
struct Applied {
    set: Vec<SecretMeta>,
    deleted: Vec<SecretName>,
}

impl Applied {
    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.deleted.is_empty()
    }
}

impl Resources {
    /// Lists the secrets of a project by name, without their values.
    ///
    /// # Errors
    /// [`ResourceError::Store`].
    pub async fn secrets(&self, project: ProjectId) -> Result<Page<SecretMeta>> {
        let items = self.store.connection().await?.secret_list(project).await?;
        Ok(Page { items, next_cursor: None })
    }

    /// Sets the value of a secret. Each call creates a version, also with the same value.
    ///
    /// # Errors
    /// [`ResourceError::Field`] for a malformed name, [`ResourceError::ReservedName`], [`ResourceError::SecretLimit`],
    /// [`ResourceError::ProjectNotFound`].
    pub async fn secret_set(
        &self,
        actor: &Actor,
        target: Target,
        by: UserId,
        name: &str,
        new: NewSecretValue,
    ) -> Result<SecretMeta> {
        let name: SecretName = name.parse().map_err(|error| InvalidField::new("secretName", error))?;
        require_unreserved(&name)?;
        let changes = Changes::from([(name.clone(), SecretChange::Set(new.value))]);
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let Applied { set, .. } = self.change_secrets(tx, target, by, &changes).await?;
                let meta = set.into_iter().next().ok_or_else(|| Error::inconsistent("the secret was not set"))?;
                let event = Event::in_org("secret.set", target.org, target.project, json!({ "name": name }));
                Ok(Outcome::Changed(meta, event))
            })
            .await
    }

    /// Deletes a secret.
    ///
    /// # Errors
    /// [`ResourceError::SecretNotFound`], also for a malformed or reserved name; [`ResourceError::ProjectNotFound`].
    pub async fn secret_delete(&self, actor: &Actor, target: Target, name: &str) -> Result<()> {
        let Target { org, project, .. } = target;
        let name: SecretName = name.parse().map_err(|_| ResourceError::SecretNotFound)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.secret_lock(project).await?;
                if tx.secret_delete(project, std::slice::from_ref(&name)).await? == 0 {
                    return Err(ResourceError::SecretNotFound);
                }
                self.publish(tx, project, Part::Secrets).await?;
                Ok(Outcome::Changed((), Event::in_org("secret.delete", org, project, json!({ "name": name }))))
            })
            .await
    }

    /// Sets and deletes secrets in one step, and returns all secrets of the project. The deletion of a secret that does
    /// not exist is a no-op.
    ///
    /// # Errors
    /// [`ResourceError::Field`] for more than 400 names, [`ResourceError::ReservedName`],
    /// [`ResourceError::SecretLimit`], [`ResourceError::ProjectNotFound`].
    pub async fn secrets_change(
        &self,
        actor: &Actor,
        target: Target,
        by: UserId,
        changes: SecretChanges,
    ) -> Result<Page<SecretMeta>> {
        let SecretChanges { secrets: changes } = changes;
        if changes.len() > MAX_CHANGES {
            return Err(InvalidField::new("secrets", format!("must have at most {MAX_CHANGES} names")).into());
        }
        changes.keys().try_for_each(require_unreserved)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let applied = self.change_secrets(tx, target, by, &changes).await?;
                let all = Page { items: tx.secret_list(target.project).await?, next_cursor: None };
                if applied.is_empty() {
                    return Ok(Outcome::Unchanged(all));
                }
                let Applied { set, deleted } = applied;
                let set: Vec<SecretName> = set.into_iter().map(|meta| meta.name).collect();
                let data = json!({ "set": set, "deleted": deleted });
                Ok(Outcome::Changed(all, Event::in_org("secret.set", target.org, target.project, data)))
            })
            .await
    }

    /// Locks the secrets of the project, and applies the changes.
    async fn change_secrets(
        &self,
        tx: &mut Connection,
        target: Target,
        by: UserId,
        changes: &Changes,
    ) -> Result<Applied> {
        let project = target.project;
        tx.secret_lock(project).await?;
        let before = tx.secret_list(project).await?;
        let versions: BTreeMap<&SecretName, i32> = before.iter().map(|meta| (&meta.name, meta.version)).collect();
        let (mut set, mut deleted) = (Vec::new(), Vec::new());
        for (name, change) in changes {
            match (change, versions.get(name)) {
                (SecretChange::Set(value), version) => {
                    set.push(self.seal(project, by, name, value, version.copied())?);
                }
                (SecretChange::Delete, Some(_)) => deleted.push(name.clone()),
                (SecretChange::Delete, None) => {}
            }
        }
        let added = set.iter().filter(|record| record.meta.version == 1).count();
        let (limit, count) = (MAX_SECRETS, before.len());
        if added > 0 && count + added - deleted.len() > limit as usize {
            return Err(ResourceError::SecretLimit { limit, count, plan: target.plan });
        }
        let applied = Applied { set: set.iter().map(|record| record.meta.clone()).collect(), deleted };
        if !set.is_empty() {
            tx.secret_upsert(project, set).await?;
        }
        if !applied.deleted.is_empty() {
            tx.secret_delete(project, &applied.deleted).await?;
        }
        if !applied.is_empty() {
            self.publish(tx, project, Part::Secrets).await?;
        }
        Ok(applied)
    }

    /// Seals the version of a secret after `version`, or its first one.
    fn seal(
        &self,
        project: ProjectId,
        by: UserId,
        name: &SecretName,
        value: &SecretValue,
        version: Option<i32>,
    ) -> Result<SecretRecord> {
        let version = version.unwrap_or(0).checked_add(1).ok_or_else(|| Error::inconsistent("too many versions"))?;
        let row = secret_row(project, name, version);
        let value = self.store.seal(SECRET.associated_data(&row), value.reveal().as_bytes())?;
        let updated_at = self.store.clock_rng().now();
        Ok(SecretRecord { meta: SecretMeta { name: name.clone(), version, updated_at, updated_by: by }, value })
    }
}

fn require_unreserved(name: &SecretName) -> Result<()> {
    if name.is_reserved() { Err(ResourceError::ReservedName(name.clone())) } else { Ok(()) }
}
