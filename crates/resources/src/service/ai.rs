//! Access to AI models. The context `billing` has the credit and the ledger, which stay when the grant is revoked.

use kernel::Resource;
use kernel::audit::Actor;

use super::grant::GrantKind;
use super::{Resources, Result, Target};
use crate::ports::ResourcePart;

const AI: GrantKind =
    GrantKind { resource: Resource::Ai, part: ResourcePart::Ai, granted: "ai.grant", revoked: "ai.revoke" };

impl Resources {
    /// Grants access to AI models to a project.
    ///
    /// # Errors
    /// Returns [`ResourceError::ProjectNotFound`](crate::ResourceError::ProjectNotFound).
    pub async fn ai_grant(&self, actor: &Actor, target: Target) -> Result<()> {
        self.grant(actor, target, &AI, async |_| Ok(())).await
    }

    /// Revokes the access of a project to AI models. Calls in progress continue.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`](crate::ResourceError::Store).
    pub async fn ai_revoke(&self, actor: &Actor, target: Target) -> Result<()> {
        self.revoke(actor, target, &AI, async |_| Ok(())).await
    }
}
