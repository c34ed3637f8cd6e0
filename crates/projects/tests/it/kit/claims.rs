//! Custom hostnames in the hands of a test.

use std::time::Duration;

use kernel::ProjectId;
use projects::{Hostname, HostnameState, NewHostname, Org, ProjectError};
use tokio::sync::OwnedRwLockWriteGuard;
use tokio::task::JoinHandle;

use super::Kit;

/// The name that tests claim.
pub const NAME: &str = "www.example.org";
/// What its CNAME has to point at.
pub const ORIGIN: &str = "fallback.svc.example";
pub const ACTIVE: HostnameState = HostnameState::Active;
pub const PENDING: HostnameState = HostnameState::PendingDns;
/// In seconds.
pub const DAY: i64 = 24 * 3600;

type Pass = JoinHandle<Result<usize, ProjectError>>;

impl Kit {
    pub async fn claim(&self, org: &Org, project: ProjectId, name: &str) -> Result<Hostname, ProjectError> {
        self.projects.hostname_add(&self.actor, org, project, NewHostname { name: name.to_owned() }).await
    }

    pub async fn verify(&self, project: ProjectId, name: &str) -> Result<Hostname, ProjectError> {
        self.projects.hostname_verify(&self.actor, project, name).await
    }

    /// Publishes the TXT record of a claim.
    pub fn publish(&self, claim: &Hostname) {
        let record = claim.verify.first().unwrap();
        self.records.txt(&record.name, std::slice::from_ref(&record.value));
    }

    /// The hostname as its project's list shows it; none when it is not there.
    pub async fn shown(&self, project: ProjectId, name: &str) -> Option<Hostname> {
        self.projects.hostnames(project).await.unwrap().into_iter().find(|hostname| hostname.name == name)
    }

    /// A project with something to serve under a custom name that a CNAME proved.
    pub async fn served(&self, org: &Org) -> ProjectId {
        let project = self.project(org, "shop").await.id;
        self.deploy(org, project, "page").await.unwrap();
        self.claim(org, project, NAME).await.unwrap();
        self.records.cname(NAME, ORIGIN);
        assert_eq!(self.verify(project, NAME).await.unwrap().state, ACTIVE);
        self.audited().await;
        self.node.told();
        project
    }

    /// The names that the node was told to serve, each time since the last look.
    pub fn told_names(&self) -> Vec<Vec<String>> {
        self.node.told().into_iter().map(|(_, live)| live.hostnames).collect()
    }

    /// A pass that has asked for everything that is due and waits for the answers, until the guard is dropped.
    pub async fn held_pass(&self) -> (OwnedRwLockWriteGuard<()>, Pass) {
        let due = format!("kind = 'custom' AND check_at <= '{}'", self.now());
        let due = self.db_number(&format!("SELECT count(*) FROM projects.hostnames WHERE {due}")).await;
        let guard = self.records.hold().await;
        self.records.asked();
        let projects = self.projects.clone();
        let pass = tokio::spawn(async move { projects.hostnames_check().await });
        let mut asked = 0;
        while asked < due as usize {
            tokio::time::sleep(Duration::from_millis(5)).await;
            asked += self.records.asked();
        }
        (guard, pass)
    }
}
