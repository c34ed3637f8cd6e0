//! The test fixture: the service on a separate database per test, and functions that write to the database directly.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use kernel::audit::Actor;
use kernel::{Limits, OrgId, Plan, ProjectId, StorageId, UserId};
use resources::{
    AuthGrant, AuthStatus, Databases, DesiredParts, Hostnames, NewSecretValue, Notice, Organizations, PartValues,
    Ports, ResourceError, ResourcePart, Resources, SecretChanges, SecretMeta, SecretSet, Target,
};
use serde_json::{Value, json};
use store::Connection;
use testkit::{TestStore, session_actor};

pub struct Kit {
    pub resources: Resources,
    pub values: PartValues,
    pub node: Node,
    pub notices: Notices,
    pub actor: Actor,
    org: OrgId,
    base: TestStore,
}

/// Records the updates of the desired state. Reads from the database whether a project was deleted.
#[derive(Clone, Default)]
pub struct Node(Arc<Mutex<Vec<Update>>>);

/// A change of the desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    Published(ProjectId, ResourcePart),
    Withdrawn(ProjectId, ResourcePart),
    /// The deletion of the objects with this prefix.
    Deletion(ProjectId, StorageId),
    Ended(ProjectId),
}

/// Records the raised notifications.
#[derive(Clone, Default)]
pub struct Notices(Arc<Mutex<Vec<(OrgId, Notice)>>>);

#[async_trait]
impl DesiredParts for Node {
    async fn publish(&self, tx: &mut Connection, project: ProjectId, part: ResourcePart) -> store::Result<bool> {
        use diesel_async::RunQueryDsl as _;
        let live = format!("SELECT FROM projects.projects WHERE id = '{}' AND deleted_at IS NULL", project.as_uuid());
        let is_live = diesel::sql_query(live).execute(tx).await? == 1;
        if is_live {
            self.0.lock().unwrap().push(Update::Published(project, part));
        }
        Ok(is_live)
    }

    async fn withdraw(&self, _: &mut Connection, project: ProjectId, part: ResourcePart) -> store::Result<()> {
        self.0.lock().unwrap().push(Update::Withdrawn(project, part));
        Ok(())
    }

    async fn publish_deletion(&self, _: &mut Connection, project: ProjectId, prefix: StorageId) -> store::Result<()> {
        self.0.lock().unwrap().push(Update::Deletion(project, prefix));
        Ok(())
    }

    async fn end(&self, _: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.0.lock().unwrap().push(Update::Ended(project));
        Ok(())
    }
}

#[async_trait]
impl Organizations for Notices {
    async fn raise(&self, _: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        self.0.lock().unwrap().push((org, notice));
        Ok(())
    }
}

/// Reads databases and hostnames from their tables.
struct Tables;

#[derive(diesel::QueryableByName)]
struct Name {
    #[diesel(sql_type = diesel::sql_types::Text)]
    name: String,
}

#[async_trait]
impl Databases for Tables {
    async fn lock(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        use diesel_async::RunQueryDsl as _;
        let row = format!("SELECT FROM databases.databases WHERE project_id = '{}' FOR UPDATE", project.as_uuid());
        Ok(diesel::sql_query(row).execute(tx).await? == 1)
    }
}

#[async_trait]
impl Hostnames for Tables {
    async fn active(&self, connection: &mut Connection, project: ProjectId) -> store::Result<Vec<String>> {
        use diesel_async::RunQueryDsl as _;
        let names = format!(
            "SELECT name FROM projects.hostnames WHERE project_id = '{}' AND state = 'active' ORDER BY kind DESC, name",
            project.as_uuid()
        );
        let names: Vec<Name> = diesel::sql_query(names).load(connection).await?;
        Ok(names.into_iter().map(|row| row.name).collect())
    }
}

impl Node {
    pub fn take_updates(&self) -> Vec<Update> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Notices {
    pub fn take(&self) -> Vec<(OrgId, Notice)> {
        std::mem::take(&mut self.0.lock().unwrap())
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
        let base = TestStore::start().await;
        let org: OrgId = base.store.clock_rng().id();
        base.db_execute(&format!(
            "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) VALUES ('{}', 'acme', 'Acme', 'free', false, now())",
            org.as_uuid()
        ))
        .await;
        let (node, notices) = (Node::default(), Notices::default());
        let ports = Ports {
            parts: Arc::new(node.clone()),
            organizations: Arc::new(notices.clone()),
            databases: Arc::new(Tables),
            hostnames: Arc::new(Tables),
        };
        let resources = Resources::new(base.store.clone(), limits, ports);
        let values = PartValues::new(base.store.clone(), limits);
        let actor = session_actor(base.store.clock_rng().id());
        Self { resources, values, node, notices, actor, org, base }
    }

    /// Inserts a project with this name.
    pub async fn db_project(&self, name: &str) -> Target {
        let project: ProjectId = self.store.clock_rng().id();
        self.db_execute(&format!(
            "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
             VALUES ('{}', '{}', '{name}', 'public', 0, now())",
            project.as_uuid(),
            self.org.as_uuid()
        ))
        .await;
        Target { org: self.org, plan: Plan::Free, project }
    }

    /// Inserts a secret of this size, without a value, into a project without secrets.
    pub async fn db_secret(&self, at: Target, name: &str, size_bytes: i64) {
        let (project, user) = (at.project.as_uuid(), self.user().as_uuid());
        self.db_execute(&format!(
            "INSERT INTO resources.secret_sets (project_id, revision) VALUES ('{project}', 1); \
             INSERT INTO resources.secrets (project_id, name, version, revision, key_id, sealed, size_bytes, updated_at, \
                 updated_by) VALUES ('{project}', '{name}', 1, 1, 'test', '', {size_bytes}, now(), '{user}')"
        ))
        .await;
    }

    /// Makes the user the creator of the organization and of another one, and moves a project to the other one.
    pub async fn db_move_to_other_org(&self, at: Target) {
        let (org, project, user) = (at.org.as_uuid(), at.project.as_uuid(), self.user().as_uuid());
        self.db_execute(&format!(
            "INSERT INTO identity.users (id, provider, subject, created_at) VALUES ('{user}', 'dev', 'ada', now()); \
             UPDATE orgs.orgs SET created_by = '{user}' WHERE id = '{org}'; \
             INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at, created_by) \
                 VALUES ('{project}', 'other', 'Other', 'free', false, now(), '{user}'); \
             UPDATE projects.projects SET org_id = '{project}' WHERE id = '{project}'"
        ))
        .await;
    }

    /// Inserts the database of a project.
    pub async fn db_database(&self, at: Target) {
        let project = at.project.as_uuid();
        self.db_execute(&format!("INSERT INTO databases.sequences (project_id, revision) VALUES ('{project}', 1)"))
            .await;
        self.db_execute(&format!(
            "INSERT INTO databases.databases (id, project_id, created_at, key_id, sealed, verifier) \
             VALUES ('{project}', '{project}', now(), 'test', '', '')"
        ))
        .await;
    }

    /// Inserts a project with a database, to which app sign-in is granted.
    pub async fn signing_in(&self, name: &str) -> Target {
        let at = self.db_project(name).await;
        self.db_database(at).await;
        self.resources.auth_grant(&self.actor, at).await.unwrap();
        self.audited().await;
        self.node.take_updates();
        at
    }

    pub async fn set_provider(
        &self,
        at: Target,
        provider: &str,
        id: &str,
        secret: &str,
    ) -> Result<AuthStatus, ResourceError> {
        let put = serde_json::from_value(json!({ "clientId": id, "clientSecret": secret })).unwrap();
        self.resources.auth_provider_set(&self.actor, at, provider.parse().unwrap(), put).await
    }

    pub async fn change_auth(&self, at: Target, patch: Value) -> Result<AuthStatus, ResourceError> {
        self.resources.auth_change(&self.actor, at, serde_json::from_value(patch).unwrap()).await
    }

    /// Returns app sign-in of these projects, as the node receives it.
    pub async fn load_auth(&self, projects: &[ProjectId]) -> BTreeMap<ProjectId, store::Result<AuthGrant>> {
        self.values.auth(&mut *self.connection().await, projects).await.unwrap()
    }

    /// Returns app sign-in of a project, as the node receives it.
    pub async fn auth_part(&self, at: Target) -> Option<AuthGrant> {
        self.load_auth(&[at.project]).await.remove(&at.project).map(Result::unwrap)
    }

    /// Soft-deletes a project.
    pub async fn db_delete(&self, target: Target) {
        let project = target.project.as_uuid();
        self.db_execute(&format!("UPDATE projects.projects SET deleted_at = now() WHERE id = '{project}'")).await;
    }

    pub fn user(&self) -> UserId {
        self.actor.user.unwrap()
    }

    pub async fn set(&self, at: Target, name: &str, value: &str) -> Result<SecretMeta, ResourceError> {
        let new: NewSecretValue = serde_json::from_value(json!({ "value": value })).unwrap();
        self.resources.secret_set(&self.actor, at, self.user(), name, new).await
    }

    pub async fn delete(&self, at: Target, name: &str) -> Result<(), ResourceError> {
        self.resources.secret_delete(&self.actor, at, name).await
    }

    /// Applies changes, and returns the names and versions of all secrets.
    pub async fn change(&self, at: Target, changes: Value) -> Result<Vec<(String, i32)>, ResourceError> {
        let changes: SecretChanges = serde_json::from_value(json!({ "secrets": changes })).unwrap();
        let all = self.resources.secrets_change(&self.actor, at, self.user(), changes).await?;
        Ok(all.items.into_iter().map(|meta| (meta.name.to_string(), meta.version)).collect())
    }

    /// Returns the secrets of these projects, as the node receives them.
    pub async fn load(&self, projects: &[ProjectId]) -> BTreeMap<ProjectId, store::Result<SecretSet>> {
        self.values.secrets(&mut *self.connection().await, projects).await.unwrap()
    }

    /// Returns the revision of a project's secrets, and their names and values, as the node receives them.
    pub async fn environment(&self, at: Target) -> (i64, Vec<(String, String)>) {
        let SecretSet { revision, values } = self.load(&[at.project]).await.remove(&at.project).unwrap().unwrap();
        let values = values.into_iter().map(|(name, value)| (name.to_string(), value.reveal().to_owned()));
        (revision, values.collect())
    }
}

/// Names and values as owned texts.
pub fn values(values: &[(&str, &str)]) -> Vec<(String, String)> {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
