//! The lifecycle that all grants share (specification, "States and transitions", "Resource grant").

use kernel::Resource;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Resources, Result, Target};
use crate::ports::ResourcePart;
use crate::repository::GrantRepository as _;

/// A kind of grant: a resource that can be granted, with its names.
pub(super) struct GrantKind {
    pub(super) resource: Resource,
    /// The part of the desired state that exists while the resource is granted.
    pub(super) part: ResourcePart,
    /// The audit event of a grant.
    pub(super) granted: &'static str,
    /// The audit event of a revocation.
    pub(super) revoked: &'static str,
}

impl Resources {
    /// Grants a resource, and returns its values. `create` creates them at the first grant and reads them later.
    /// Granting a granted resource is a no-op.
    pub(super) async fn grant<T>(
        &self,
        actor: &Actor,
        target: Target,
        kind: &GrantKind,
        create: impl AsyncFnOnce(&mut Connection) -> Result<T>,
    ) -> Result<T> {
        let Target { org, project, .. } = target;
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let is_new = tx.grant_insert(project, kind.resource, now).await?;
                let values = create(tx).await?;
                if !is_new {
                    return Ok(Outcome::Unchanged(values));
                }
                self.publish(tx, project, kind.part).await?;
                Ok(Outcome::Changed(values, Event::in_org(kind.granted, org, project, json!({}))))
            })
            .await
    }

    /// Revokes a resource. Its data stays, except for values that `delete` deletes. Revoking a resource that is not
    /// granted is a no-op.
    pub(super) async fn revoke(
        &self,
        actor: &Actor,
        target: Target,
        kind: &GrantKind,
        delete: impl AsyncFnOnce(&mut Connection) -> Result<()>,
    ) -> Result<()> {
        let Target { org, project, .. } = target;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if !tx.grant_delete(project, kind.resource).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                delete(tx).await?;
                self.ports.parts.withdraw(tx, project, kind.part).await?;
                Ok(Outcome::Changed((), Event::in_org(kind.revoked, org, project, json!({}))))
            })
            .await
    }
}
