//! The lifecycle that all grants share (specification, "States and transitions", "Resource grant").

use kernel::Resource;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Resources, Result, Target};
use crate::ports::Part;
use crate::repository::GrantRepository as _;

/// A resource that can be granted.
pub(super) struct Grant {
    pub(super) resource: Resource,
    /// The part of the desired state that exists while the resource is granted.
    pub(super) part: Part,
    /// The audit event of a grant.
    pub(super) granted: &'static str,
    /// The audit event of a revocation.
    pub(super) revoked: &'static str,
}

impl Resources {
    /// Grants a resource, and returns its values, which `create` creates at the first grant and reads later. Granting a
    /// granted resource is a no-op.
    pub(super) async fn grant<T>(
        &self,
        actor: &Actor,
        target: Target,
        grant: &Grant,
        create: impl AsyncFnOnce(&mut Connection) -> store::Result<T>,
    ) -> Result<T> {
        let Target { org, project, .. } = target;
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let is_new = tx.grant_insert(project, grant.resource, now).await?;
                let values = create(tx).await?;
                if !is_new {
                    return Ok(Outcome::Unchanged(values));
                }
                self.publish(tx, project, grant.part).await?;
                Ok(Outcome::Changed(values, Event::in_org(grant.granted, org, project, json!({}))))
            })
            .await
    }

    /// Revokes a resource. Its data stays. Revoking a resource that is not granted is a no-op.
    pub(super) async fn revoke(&self, actor: &Actor, target: Target, grant: &Grant) -> Result<()> {
        let Target { org, project, .. } = target;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if !tx.grant_delete(project, grant.resource).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                self.ports.parts.withdraw(tx, project, grant.part).await?;
                Ok(Outcome::Changed((), Event::in_org(grant.revoked, org, project, json!({}))))
            })
            .await
    }
}
