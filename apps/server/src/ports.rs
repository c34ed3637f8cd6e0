//! What one context asks of another: the ports that the asking side owns, answered by the other's service.

use async_trait::async_trait;
use convergence::{Convergence, ConvergenceError, Site};
use kernel::{OrgId, Plan, ProjectId, UserId};
use orgs::{OrgError, OrgRepository as _, Orgs};
use projects::Live;
use store::Connection;

/// Organizations, as identity and projects ask for them.
pub(crate) struct OrgsPort(pub(crate) Orgs);

/// Convergence, as projects ask for it.
pub(crate) struct ConvergencePort(pub(crate) Convergence);

#[async_trait]
impl identity::PersonalOrgs for OrgsPort {
    async fn create(&self, tx: &mut Connection, user: UserId, wish: &str) -> store::Result<()> {
        match self.0.create_personal(tx, user, wish).await {
            Ok(_) => Ok(()),
            Err(OrgError::Store(error)) => Err(error),
            Err(refused) => Err(store::Error::inconsistent(refused)),
        }
    }
}

#[async_trait]
impl projects::Organizations for OrgsPort {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        tx.org_lock(org).await
    }
}

#[async_trait]
impl projects::Placements for ConvergencePort {
    async fn converge(&self, tx: &mut Connection, project: ProjectId, live: Live) -> store::Result<()> {
        let Live { hostnames, bundle, size_bytes, version } = live;
        match self.0.converge(tx, project, Some(Site { hostnames, bundle, size_bytes, version })).await {
            Ok(()) => Ok(()),
            Err(ConvergenceError::Store(error)) => Err(error),
            Err(refused) => Err(store::Error::inconsistent(refused)),
        }
    }
}
