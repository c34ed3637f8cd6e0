//! Fixture functions for custom hostnames.

use std::time::Duration;

use kernel::{ProjectId, ZoneId};
use projects::{Hostname, HostnameState, NewHostname, Org, ProjectError};
use tokio::sync::OwnedRwLockWriteGuard;
use tokio::task::JoinHandle;

use super::Kit;

/// The hostname that tests claim.
pub const NAME: &str = "www.example.org";
/// The required target of its CNAME.
pub const ORIGIN: &str = "fallback.svc.example";
pub const ACTIVE: HostnameState = HostnameState::Active;
pub const PENDING: HostnameState = HostnameState::PendingDns;
/// One day, in seconds.
pub const DAY: i64 = 24 * 3600;

type CheckTask = JoinHandle<Result<usize, ProjectError>>;

impl Kit {
    pub async fn claim(&self, org: &Org, project: ProjectId, name: &str) -> Result<Hostname, ProjectError> {
        self.projects.hostname_add(&self.actor, org, project, None, NewHostname { name: name.to_owned() }).await
    }

    /// Claims a name as a caller who is restricted to these zones.
    pub async fn claim_with_zones(
        &self,
        org: &Org,
        project: ProjectId,
        name: &str,
        zones: &[ZoneId],
    ) -> Result<Hostname, ProjectError> {
        let new = NewHostname { name: name.to_owned() };
        self.projects.hostname_add(&self.actor, org, project, Some(zones), new).await
    }

    pub async fn verify(&self, project: ProjectId, name: &str) -> Result<Hostname, ProjectError> {
        self.projects.hostname_verify(&self.actor, project, name).await
    }

    /// Publishes the TXT record of a claim.
    pub fn publish(&self, claim: &Hostname) {
        let record = claim.verify.first().unwrap();
        self.records.txt(&record.name, std::slice::from_ref(&record.value));
    }

    /// Finds a hostname in the project's list.
    pub async fn find_hostname(&self, project: ProjectId, name: &str) -> Option<Hostname> {
        self.projects.hostnames(project).await.unwrap().into_iter().find(|hostname| hostname.name == name)
    }

    /// Creates a deployed project with an active custom hostname, verified by CNAME.
    pub async fn project_with_hostname(&self, org: &Org) -> ProjectId {
        let project = self.project(org, "shop").await.id;
        self.deploy(org, project, "page").await.unwrap();
        self.claim(org, project, NAME).await.unwrap();
        self.records.cname(NAME, ORIGIN);
        assert_eq!(self.verify(project, NAME).await.unwrap().state, ACTIVE);
        self.audited().await;
        self.node.take_updates();
        project
    }

    /// Returns the hostnames of each node update since the last call.
    pub fn take_served_names(&self) -> Vec<Vec<String>> {
        self.node.take_updates().into_iter().map(|(_, live)| live.hostnames).collect()
    }

    /// Starts a run of the background job, and returns when the run has sent all its lookups. The responses arrive
    /// after the guard is dropped.
    pub async fn blocked_check(&self) -> (OwnedRwLockWriteGuard<()>, CheckTask) {
        let due = format!("kind = 'custom' AND next_check_at <= '{}'", self.now());
        let due = self.db_number(&format!("SELECT count(*) FROM projects.hostnames WHERE {due}")).await;
        let guard = self.records.block_txt().await;
        self.records.take_txt_lookups();
        let projects = self.projects.clone();
        let check = tokio::spawn(async move { projects.hostnames_check().await });
        let mut lookups = 0;
        while lookups < due as usize {
            tokio::time::sleep(Duration::from_millis(5)).await;
            lookups += self.records.take_txt_lookups();
        }
        (guard, check)
    }
}
