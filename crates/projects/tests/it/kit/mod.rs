//! A database and a bundle store of its own for each test, a clock that stands, and looks behind the service.

mod bundle;
mod claims;
mod ports;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use diesel::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Credential};
use kernel::{Limits, OrgId, Plan, ProjectId, Role, Secret, SessionId, Time, UserId, World};
use object_store::local::LocalFileSystem;
use projects::{Author, Bundles, Deployment, Git, NewProject, Org, Ports, Project, ProjectError, Projects, Site};
use serde_json::Value;
use store::testing::{TestClock, TestDatabase};
use store::{Lease, Store};

pub use bundle::{body, bundle, noise, site};
pub use claims::{ACTIVE, DAY, NAME, ORIGIN, PENDING};
pub use ports::{Node, OrgRows, Records};

pub struct Kit {
    pub projects: Projects,
    pub node: Node,
    pub orgs: OrgRows,
    pub records: Records,
    pub files: Files,
    pub actor: Actor,
    pub store: Store,
    clock: TestClock,
    pub database: TestDatabase,
}

/// A folder of its own; deleted with this value.
pub struct Files(PathBuf);

impl Files {
    pub fn new() -> Self {
        let folder = format!("bundles-{}", World::system().id::<SessionId>());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The store of bundles in it.
    pub fn bundles(&self) -> Bundles {
        Bundles::new(Arc::new(LocalFileSystem::new_with_prefix(&self.0).unwrap()))
    }

    /// Every file, finished or not, by its path.
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

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A row of the audit log, without its id and time.
#[derive(Debug, PartialEq, QueryableByName)]
pub struct Audit {
    #[diesel(sql_type = Text)]
    pub event: String,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub actor_id: Option<UserId>,
    #[diesel(sql_type = Text)]
    pub target: String,
    #[diesel(sql_type = Jsonb)]
    pub data: Value,
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        let (database, clock, files) = (TestDatabase::create().await, TestClock::default(), Files::new());
        let mut config = store::Config::new(Secret::new(database.url()), "test");
        // Nobody of a race waits for a connection: what is raced for is a row.
        config.connections = 32;
        config.keys = store::testing::keys();
        let store = Store::new(&config, clock.world()).unwrap();
        let (node, orgs, records) = (Node::default(), OrgRows::default(), Records::default());
        let ports = Ports {
            organizations: Arc::new(orgs.clone()),
            placements: Arc::new(node.clone()),
            zones: Arc::new(records.clone()),
            resolver: Arc::new(records.clone()),
        };
        let site = Site {
            platform_domain: "svc.example".to_owned(),
            url: projects::SiteUrl::default(),
            fallback_origin: "fallback.svc.example".to_owned(),
            own_domains: vec!["svc.example".to_owned()],
        };
        let projects = Projects::new(store.clone(), files.bundles(), limits, site, ports);
        let user: UserId = store.world().id();
        let actor = Actor {
            user: Some(user),
            credential: Credential::Session(store.world().id()),
            request_id: "req-1".to_owned(),
            once: None,
        };
        Self { projects, node, orgs, records, files, actor, store, clock, database }
    }

    /// A project of an organization.
    pub async fn project(&self, org: &Org, name: &str) -> Project {
        let project = self.projects.create(&self.actor, org, new(name)).await.unwrap();
        assert_eq!(self.audited().await.len(), 1);
        project
    }

    /// A deployment of one page, of an unstated origin.
    pub async fn deploy(&self, org: &Org, project: ProjectId, page: &str) -> Result<Deployment, ProjectError> {
        let about = (self.author(), Git::default());
        self.projects.deploy(&self.actor, org, project, about, body(&site(page), 1000)).await
    }

    pub fn author(&self) -> Author {
        Author { user_id: self.actor.user.unwrap(), subject: "ada".to_owned() }
    }

    /// What the audit log tells of the present moment, which is over then: the next look tells of what came after.
    pub async fn audited(&self) -> Vec<Audit> {
        let query = diesel::sql_query("SELECT * FROM store.audit WHERE created_at = $1 ORDER BY event, id");
        let now = self.now();
        self.clock.pass(1);
        query.bind::<Timestamptz, _>(now).load(&mut self.connection().await).await.unwrap()
    }

    /// Lets this much time pass.
    pub fn pass(&self, seconds: i64) {
        self.clock.pass(seconds);
    }

    /// The row that an event of nobody's request leaves.
    pub fn tells_itself(&self, event: &str, org: &Org, project: ProjectId, data: Value) -> Audit {
        Audit { actor_id: None, ..self.tells(event, org, project, data) }
    }

    /// A user with this role in an organization; none for an outsider.
    pub async fn db_user(&self, org: &Org, role: Option<Role>) -> UserId {
        let user: UserId = self.store.world().id();
        let (id, org) = (user.as_uuid(), org.id.as_uuid());
        let insert = format!("INSERT INTO identity.users VALUES ('{id}', 'dev', '{id}', NULL, NULL, NULL, now())");
        self.db_execute(&insert).await;
        if let Some(role) = role {
            self.db_execute(&format!("INSERT INTO orgs.members VALUES ('{org}', '{id}', '{role}', now())")).await;
        }
        user
    }

    /// The row that an event leaves.
    pub fn tells(&self, event: &str, org: &Org, project: ProjectId, data: Value) -> Audit {
        let (event, target) = (event.to_owned(), project.to_string());
        Audit { event, org_id: Some(org.id), actor_id: self.actor.user, target, data }
    }

    pub async fn db_org(&self, slug: &str, plan: Plan) -> Org {
        let id: OrgId = self.store.world().id();
        let query = diesel::sql_query("INSERT INTO orgs.orgs VALUES ($1, $2, $2, $3, false, now())");
        let query = query.bind::<Uuid, _>(id).bind::<Text, _>(slug).bind::<Text, _>(plan);
        query.execute(&mut self.connection().await).await.unwrap();
        Org { id, slug: slug.to_owned(), plan }
    }

    /// The one number that a statement answers.
    pub async fn db_number(&self, statement: &str) -> i64 {
        self.database.number(statement).await
    }

    pub async fn db_execute(&self, statement: &str) {
        self.database.run(statement).await;
    }

    pub fn now(&self) -> Time {
        self.store.world().now()
    }

    pub async fn connection(&self) -> Lease {
        self.store.connection().await.unwrap()
    }
}

pub fn new(name: &str) -> NewProject {
    NewProject { name: name.parse().unwrap() }
}
