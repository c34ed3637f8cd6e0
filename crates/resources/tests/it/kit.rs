//! The test fixture: the service on a separate database per test, and functions that write to the database directly.

use std::ops::Deref;

use kernel::{OrgId, ProjectId};
use resources::Resources;
use testkit::TestStore;

pub struct Kit {
    pub resources: Resources,
    org: OrgId,
    base: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        let base = TestStore::start().await;
        let org: OrgId = base.store.clock_rng().id();
        base.db_execute(&format!(
            "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) VALUES ('{}', 'acme', 'Acme', 'free', false, now())",
            org.as_uuid()
        ))
        .await;
        Self { resources: Resources::new(base.store.clone()), org, base }
    }

    /// Inserts a project with this name.
    pub async fn db_project(&self, name: &str) -> ProjectId {
        let id: ProjectId = self.store.clock_rng().id();
        self.db_execute(&format!(
            "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
             VALUES ('{}', '{}', '{name}', 'public', 0, now())",
            id.as_uuid(),
            self.org.as_uuid()
        ))
        .await;
        id
    }

    /// Inserts a grant. The service has no operation for it yet.
    pub async fn db_grant(&self, project: ProjectId, resource: &str) {
        let project = project.as_uuid();
        self.db_execute(&format!("INSERT INTO resources.grants VALUES ('{project}', '{resource}', now())")).await;
    }
}
