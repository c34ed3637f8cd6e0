//! The resources service. Grants, secrets and storage are in the submodules.

mod ai;
mod auth;
mod email;
mod grant;
mod secret;
mod storage;

use kernel::{Limits, OrgId, Plan, ProjectId, ResourceSet};
use store::{Connection, Store};

use crate::error::ResourceError;
use crate::ports::{Ports, ResourcePart};
use crate::repository::{AuthRepository as _, EmailRepository as _, GrantRepository as _, SecretRepository as _};

type Result<T> = std::result::Result<T, ResourceError>;

/// The project of a request, with its organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub org: OrgId,
    pub plan: Plan,
    pub project: ProjectId,
}

/// The resources service. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    store: Store,
    limits: Limits,
    /// The parent domain of the projects' mail domains. `None` if the installation has no mail.
    mail_domain: Option<String>,
    ports: Ports,
}

impl Resources {
    /// Creates the service.
    #[must_use]
    pub const fn new(store: Store, limits: Limits, ports: Ports) -> Self {
        Self { store, limits, mail_domain: None, ports }
    }

    /// Sets the parent domain of the projects' mail domains.
    #[must_use]
    pub fn with_mail_domain(self, mail_domain: Option<String>) -> Self {
        Self { mail_domain, ..self }
    }

    /// Returns the resources granted to a project, whether or not its live deployment declares them.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`].
    pub async fn grants(&self, project: ProjectId) -> Result<ResourceSet> {
        Ok(self.store.connection().await?.grant_list(project).await?)
    }

    /// Deletes the secrets and the app sign-in of a project, with its identity providers, and frees its mail domain, in
    /// the transaction that deletes the project. Call it before the project is removed from the desired state: changes
    /// of these values lock them before the placement.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn release(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        tx.secret_delete_all(project).await?;
        tx.auth_delete(project).await?;
        tx.email_domain_delete(project).await
    }

    /// Publishes a change of a part in the transaction that makes the change.
    async fn publish(&self, tx: &mut Connection, project: ProjectId, part: ResourcePart) -> Result<()> {
        if self.ports.parts.publish(tx, project, part).await? { Ok(()) } else { Err(ResourceError::ProjectNotFound) }
    }
}
