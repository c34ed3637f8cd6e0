//! Secrets. All changes of a project's secrets are made under one row lock, so that versions have no gaps.

use std::collections::BTreeMap;

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, Page, Paging, Plan, ProjectId, UserId};
use serde_json::json;
use store::{Connection, Error, Outcome};

use super::{Resources, Result, Target};
use crate::error::ResourceError;
use crate::model::{MAX_CHANGES, NewSecretValue, SecretChange, SecretChanges, SecretMeta, SecretName, SecretValue};
use crate::parts::{SECRET, secret_row};
use crate::ports::ResourcePart;
use crate::repository::{SecretRecord, SecretRepository as _, SecretVersion};

/// The maximum number of secrets per project (contract section 9), which is the same for every plan.
const MAX_SECRETS: u32 = 200;

/// The page that contains all secrets of a project.
const ALL: Paging<String> = Paging { limit: Paging::<String>::MAX_LIMIT, after: None };
const _: () = assert!(MAX_SECRETS <= ALL.limit as u32);

/// The maximum total size of a project's values, which is the same for every plan. A node receives all values together.
const MAX_TOTAL_BYTES: i64 = 2 * 1024 * 1024;

/// The maximum total size of all values in the free organizations of one creator, or in one pro organization. Home nodes
/// keep the values in memory, so that the limits of organizations and projects would not bound the memory that a user can
/// occupy. The limit is enough for 32 projects with the maximum size, or for 4,000 with 16 KiB each.
const MAX_TOTAL_BYTES_OF_OWNER: i64 = 64 * 1024 * 1024;

type Changes = BTreeMap<SecretName, SecretChange>;
type Versions = BTreeMap<SecretName, SecretVersion>;

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
    /// Returns [`ResourceError::Store`].
    pub async fn secrets(&self, project: ProjectId, paging: &Paging<String>) -> Result<Page<SecretMeta>> {
        let secrets = self.store.connection().await?.secret_list(project, paging).await?;
        Ok(Page::cut(secrets, paging, |secret| secret.name.to_string()))
    }

    /// Sets the value of a secret. Each call creates a version, even with the same value.
    ///
    /// # Errors
    /// Returns [`ResourceError::Field`] for a malformed name. Also returns [`ResourceError::ReservedName`],
    /// [`ResourceError::SecretLimit`], [`ResourceError::SecretSizeLimit`], [`ResourceError::SecretTotalLimit`] and
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
    /// Returns [`ResourceError::SecretNotFound`], also for a malformed or reserved name, or
    /// [`ResourceError::ProjectNotFound`].
    pub async fn secret_delete(&self, actor: &Actor, target: Target, name: &str) -> Result<()> {
        let Target { org, project, .. } = target;
        let name: SecretName = name.parse().map_err(|_| ResourceError::SecretNotFound)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.secret_lock(project).await?;
                if tx.secret_delete(project, std::slice::from_ref(&name)).await? == 0 {
                    return Err(ResourceError::SecretNotFound);
                }
                self.publish(tx, project, ResourcePart::Secrets).await?;
                Ok(Outcome::Changed((), Event::in_org("secret.delete", org, project, json!({ "name": name }))))
            })
            .await
    }

    /// Sets and deletes secrets in one step, and returns all secrets of the project. The deletion of a secret that does
    /// not exist is a no-op.
    ///
    /// # Errors
    /// Returns [`ResourceError::Field`] for more than 400 names. Also returns [`ResourceError::ReservedName`],
    /// [`ResourceError::SecretLimit`], [`ResourceError::SecretSizeLimit`], [`ResourceError::SecretTotalLimit`] and
    /// [`ResourceError::ProjectNotFound`].
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
                let all = Page { items: tx.secret_list(target.project, &ALL).await?, next_cursor: None };
                if applied.is_empty() {
                    return Ok(Outcome::Unchanged(all));
                }
                let Applied { set, deleted } = applied;
                let set: Vec<SecretName> = set.into_iter().map(|meta| meta.name).collect();
                let (name, data) = if set.is_empty() {
                    ("secret.delete", json!({ "deleted": deleted }))
                } else {
                    ("secret.set", json!({ "set": set, "deleted": deleted }))
                };
                Ok(Outcome::Changed(all, Event::in_org(name, target.org, target.project, data)))
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
        let revision = tx.secret_lock(project).await?;
        let before = tx.secret_versions(project).await?;
        let (mut set, mut deleted) = (Vec::new(), Vec::new());
        for (name, change) in changes {
            match (change, before.get(name)) {
                (SecretChange::Set(value), last) => {
                    let version = last.map_or(0, |last| last.version).checked_add(1);
                    let version = version.ok_or_else(|| Error::inconsistent("too many versions"))?;
                    let updated_at = self.store.clock_rng().now();
                    let meta = SecretMeta { name: name.clone(), version, updated_at, updated_by: by };
                    set.push(self.seal(project, revision, meta, value)?);
                }
                (SecretChange::Delete, Some(_)) => deleted.push(name.clone()),
                (SecretChange::Delete, None) => {}
            }
        }
        let growth = require_room(target.plan, &before, &set, &deleted)?;
        let limit = MAX_TOTAL_BYTES_OF_OWNER;
        if growth > 0 && tx.secret_lock_total(project).await? + growth > limit {
            return Err(ResourceError::SecretTotalLimit { limit, plan: target.plan });
        }
        let applied = Applied { set: set.iter().map(|record| record.meta.clone()).collect(), deleted };
        if !set.is_empty() {
            tx.secret_upsert(project, set).await?;
        }
        if !applied.deleted.is_empty() {
            tx.secret_delete(project, &applied.deleted).await?;
        }
        if !applied.is_empty() {
            self.publish(tx, project, ResourcePart::Secrets).await?;
        }
        Ok(applied)
    }

    /// Seals a value that is set at `revision`.
    fn seal(&self, project: ProjectId, revision: i64, meta: SecretMeta, value: &SecretValue) -> Result<SecretRecord> {
        let row = secret_row(project, &meta.name, revision);
        let size_bytes = i32::try_from(value.reveal().len()).map_err(Error::inconsistent)?;
        let value = self.store.seal(SECRET.associated_data(&row), value.reveal().as_bytes())?;
        Ok(SecretRecord { meta, revision, value, size_bytes })
    }
}

/// Checks the limits of a project, and returns by how many bytes its secrets grow. Changes that need no additional space
/// succeed even above a limit.
fn require_room(plan: Plan, before: &Versions, set: &[SecretRecord], deleted: &[SecretName]) -> Result<i64> {
    let added = set.iter().filter(|record| record.meta.version == 1).count();
    let (limit, count) = (MAX_SECRETS, before.len());
    if added > 0 && count + added - deleted.len() > limit as usize {
        return Err(ResourceError::SecretLimit { limit, count, plan });
    }
    let size = |version: &SecretVersion| i64::from(version.size_bytes);
    let replaced = set.iter().map(|record| &record.meta.name).chain(deleted);
    let removed: i64 = replaced.filter_map(|name| before.get(name)).map(size).sum();
    let added: i64 = set.iter().map(|record| i64::from(record.size_bytes)).sum();
    let (limit, count) = (MAX_TOTAL_BYTES, before.values().map(size).sum::<i64>());
    if added > removed && count + added - removed > limit {
        return Err(ResourceError::SecretSizeLimit { limit, count, plan });
    }
    Ok(added - removed)
}

fn require_unreserved(name: &SecretName) -> Result<()> {
    if name.is_reserved() { Err(ResourceError::ReservedName(name.clone())) } else { Ok(()) }
}
