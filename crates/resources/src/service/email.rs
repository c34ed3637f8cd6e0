//! The mail domains of projects. The context `mail` has the mail, which stays when the grant is revoked.

use kernel::Resource;
use kernel::audit::Actor;
use store::Connection;

use super::grant::GrantKind;
use super::{Resources, Result, Target};
use crate::error::ResourceError;
use crate::ports::ResourcePart;
use crate::repository::{EmailRepository as _, StorageRepository as _};

const EMAIL: GrantKind =
    GrantKind { resource: Resource::Email, part: ResourcePart::Email, granted: "email.grant", revoked: "email.revoke" };

impl Resources {
    /// Grants a mail domain to a project: `<project>.<org>.<mail domain>` with the current names. A granted domain
    /// stays when a name changes.
    ///
    /// # Errors
    /// Returns [`ResourceError::EmailUnavailable`] if the installation has no mail domain,
    /// [`ResourceError::EmailAddressTaken`] if another project has the domain, or [`ResourceError::ProjectNotFound`].
    pub async fn email_grant(&self, actor: &Actor, target: Target) -> Result<()> {
        let parent = self.mail_domain.as_ref().ok_or(ResourceError::EmailUnavailable)?;
        let create = async |tx: &mut Connection| {
            let plan = tx.project_plan(target.project).await?.ok_or(ResourceError::ProjectNotFound)?;
            let domain = format!("{}.{}.{parent}", plan.name, plan.org_slug);
            match tx.email_domain_create(target.project, &domain).await {
                Err(error) if error.violates("email_domains_domain_key") => {
                    Err(ResourceError::EmailAddressTaken(domain))
                }
                created => Ok(created?),
            }
        };
        self.grant(actor, target, &EMAIL, create).await
    }

    /// Revokes the mail domain of a project, which another project can then get. The mail log stays.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`].
    pub async fn email_revoke(&self, actor: &Actor, target: Target) -> Result<()> {
        let delete = async |tx: &mut Connection| Ok(tx.email_domain_delete(target.project).await?);
        self.revoke(actor, target, &EMAIL, delete).await
    }
}
