//! The test fixture: the service on a separate database per test.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use git::{
    BranchName, CommitPosition, CommitRange, Contents, ContentsError, NewRepo, PathQuery, Ports, ProjectPath, Repo,
    RepoBlob, RepoRefs, RepoTree, Repositories, RepositoryLocation, Site, Target,
};
use kernel::audit::Actor;
use kernel::{Limits, OrgId, Paging, ProjectId};
use testkit::TestStore;

pub const AT: ProjectPath<'static> = ProjectPath { org: "acme", project: "site" };

pub struct Kit {
    pub repositories: Repositories,
    pub target: Target,
    base: TestStore,
}

/// A port without a git node, because these tests read no contents.
struct NoContents;

fn unreachable<T>() -> Result<T, ContentsError> {
    Err(ContentsError::Unreachable("there is no git node".to_owned()))
}

#[async_trait]
impl Contents for NoContents {
    async fn refs(&self, _: &RepositoryLocation<'_>, _: &BranchName) -> Result<RepoRefs, ContentsError> {
        unreachable()
    }

    async fn tree(&self, _: &RepositoryLocation<'_>, _: &PathQuery) -> Result<RepoTree, ContentsError> {
        unreachable()
    }

    async fn blob(&self, _: &RepositoryLocation<'_>, _: &PathQuery) -> Result<RepoBlob, ContentsError> {
        unreachable()
    }

    async fn commits(
        &self,
        _: &RepositoryLocation<'_>,
        _: &PathQuery,
        _: &Paging<CommitPosition>,
    ) -> Result<CommitRange, ContentsError> {
        unreachable()
    }
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    /// Creates a project `site` in the organization `acme`.
    pub async fn start() -> Self {
        let base = TestStore::start().await;
        let org = db_org(&base, "acme").await;
        let target = db_project(&base, org, "site").await;
        let ports = Ports { contents: Arc::new(NoContents) };
        let repositories = Repositories::new(base.store.clone(), Limits::default(), Site::default(), ports);
        Self { repositories, target, base }
    }

    pub async fn create(&self, name: &str) -> Repo {
        self.advance(1);
        self.repositories.create(&actor(), self.target, AT, new_repo(name)).await.unwrap()
    }

    pub async fn delete(&self, name: &str) {
        self.advance(1);
        self.repositories.delete(&actor(), self.target, name).await.unwrap();
    }
}

/// Creates an organization.
pub async fn db_org(base: &TestStore, slug: &str) -> OrgId {
    let org: OrgId = base.store.clock_rng().id();
    base.db_execute(&format!(
        "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
         VALUES ('{}', '{slug}', '{slug}', 'free', false, now())",
        org.as_uuid()
    ))
    .await;
    org
}

/// Creates a project of an organization.
pub async fn db_project(base: &TestStore, org: OrgId, name: &str) -> Target {
    let project: ProjectId = base.store.clock_rng().id();
    base.db_execute(&format!(
        "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
         VALUES ('{}', '{}', '{name}', 'public', 0, now())",
        project.as_uuid(),
        org.as_uuid()
    ))
    .await;
    Target { org, project }
}

pub fn new_repo(name: &str) -> NewRepo {
    NewRepo { name: name.parse().unwrap(), visibility: None, default_branch: None, deploy_branch: None }
}

pub fn actor() -> Actor {
    Actor::service("test")
}
