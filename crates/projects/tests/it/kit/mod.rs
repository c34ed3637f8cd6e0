//! The test fixture: a separate database and bundle store per test, a manual clock, and direct database access.

mod claims;
mod ports;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diesel::sql_types::{Text, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{ClockRng, Limits, OrgId, Plan, ProjectId, Role, SessionId, UserId};
use objects::StoreConfig;
use projects::{
    Author, Bundles, Deployment, Git, NewProject, Org, Ports, Project, ProjectDeletion, ProjectError, Projects, Site,
    Source, StoredBundle,
};
use serde_json::Value;
use testkit::{Audit, TestStore, session_actor};

pub use claims::{ACTIVE, DAY, NAME, ORIGIN, PENDING};
use ports::NoPushes;
pub use ports::{Node, OrgRows, Records, ZONE_ID};
pub use testkit::bundle::{body, incompressible, pack as bundle, site};

pub struct Kit {
    pub projects: Projects,
    pub node: Node,
    pub orgs: OrgRows,
    pub records: Records,
    pub files: Files,
    pub actor: Actor,
    base: TestStore,
}

/// A temporary folder, deleted on drop.
pub struct Files(PathBuf);

impl Files {
    pub fn new() -> Self {
        let folder = format!("bundles-{}", ClockRng::system().id::<SessionId>());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens a bundle store in the folder.
    pub fn bundles(&self) -> Bundles {
        Bundles::new(StoreConfig::Folder(self.0.clone()).open().unwrap())
    }

    /// Lists the paths of all files, including unfinished ones.
    pub fn list(&self) -> Vec<String> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.strip_prefix(&self.0).unwrap().display().to_string());
                }
            }
        }
        files.sort();
        files
    }
}

/// Admits every bundle to a bundle store.
pub async fn admit(_: &StoredBundle) -> Result<(), ProjectError> {
    Ok(())
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        let (base, files) = (TestStore::start().await, Files::new());
        let (node, orgs, records) = (Node::default(), OrgRows::default(), Records::default());
        let ports = Ports {
            organizations: Arc::new(orgs.clone()),
            placements: Arc::new(node.clone()),
            pushes: Arc::new(NoPushes),
            zones: Arc::new(records.clone()),
            resolver: Arc::new(records.clone()),
        };
        let site = Site {
            platform_domain: "svc.example".to_owned(),
            url: projects::SiteUrl::default(),
            fallback_origin: "fallback.svc.example".to_owned(),
            own_domains: vec!["svc.example".to_owned(), "api-eu.svc.example".to_owned()],
        };
        let projects = Projects::new(base.store.clone(), files.bundles(), limits, site, ports);
        let actor = session_actor(base.store.clock_rng().id());
        Self { projects, node, orgs, records, files, actor, base }
    }

    /// Creates a project.
    pub async fn project(&self, org: &Org, name: &str) -> Project {
        let project = self.projects.create(&self.actor, org, new_project(name)).await.unwrap();
        assert_eq!(self.audited().await.len(), 1);
        project
    }

    /// Creates a project with a deployment, and discards the resulting updates.
    pub async fn live_project(&self, org: &Org) -> ProjectId {
        let project = self.project(org, "shop").await.id;
        self.deploy(org, project, "page").await.unwrap();
        self.audited().await;
        self.node.take_updates();
        project
    }

    /// Deploys a site of one page, without Git information.
    pub async fn deploy(&self, org: &Org, project: ProjectId, page: &str) -> Result<Deployment, ProjectError> {
        let source = self.source(Git::default());
        self.projects.deploy(&self.actor, org, project, source, body(&site(page), 1000)).await
    }

    /// Deletes a project.
    pub async fn delete(&self, org: &Org, project: ProjectId, confirm: &str) -> Result<(), ProjectError> {
        self.projects.delete(&self.actor, org, project, ProjectDeletion { confirm: confirm.to_owned() }).await
    }

    /// Returns the source of an upload with this Git information.
    pub fn source(&self, git: Git) -> Source {
        Source { created_by: self.author(), git, push: None }
    }

    pub fn author(&self) -> Author {
        Author { user_id: self.actor.user.unwrap(), subject: "ada".to_owned() }
    }

    /// Returns the audit row of an event that the background job causes.
    pub fn system_audit_row(&self, event: &'static str, org: &Org, project: ProjectId, data: Value) -> Audit {
        let (org, target) = (Some(org.id), project.to_string());
        Audit::of(&Actor::service("hostnames"), Event { name: event, org, account: None, target, data })
    }

    /// Inserts a user, with this role in the organization if given.
    pub async fn db_user(&self, org: &Org, role: Option<Role>) -> UserId {
        let user: UserId = self.store.clock_rng().id();
        let (id, org) = (user.as_uuid(), org.id.as_uuid());
        let insert = format!("INSERT INTO identity.users VALUES ('{id}', 'dev', '{id}', NULL, NULL, NULL, now())");
        self.db_execute(&insert).await;
        if let Some(role) = role {
            self.db_execute(&format!("INSERT INTO orgs.members VALUES ('{org}', '{id}', '{role}', now())")).await;
        }
        user
    }

    /// Returns the audit row of an event.
    pub fn audit_row(&self, event: &'static str, org: &Org, project: ProjectId, data: Value) -> Audit {
        let (org, target) = (Some(org.id), project.to_string());
        Audit::of(&self.actor, Event { name: event, org, account: None, target, data })
    }

    pub async fn db_org(&self, slug: &str, plan: Plan) -> Org {
        let id: OrgId = self.store.clock_rng().id();
        let query = diesel::sql_query("INSERT INTO orgs.orgs VALUES ($1, $2, $2, $3, false, now())");
        let query = query.bind::<Uuid, _>(id).bind::<Text, _>(slug).bind::<Text, _>(plan);
        query.execute(&mut self.connection().await).await.unwrap();
        Org { id, slug: slug.to_owned(), plan }
    }
}

pub fn new_project(name: &str) -> NewProject {
    NewProject { name: name.parse().unwrap() }
}
