//! The current state of each project's database, for the tasks that do not change it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Database;
use tokio::sync::watch;

use super::logins::{DesiredRoles, Logins};
use super::server::Credentials;

/// The databases of the node. Clones share it.
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

struct Shared {
    projects: Mutex<BTreeMap<String, Listed>>,
    /// The number of changes.
    changes: watch::Sender<u64>,
}

struct Listed {
    /// The database, if it exists and its part is desired.
    entry: Option<Entry>,
    /// The desired roles, which the sweep compares with the observed ones.
    roles: Option<DesiredRoles>,
    connection: watch::Sender<Connection>,
    /// The login of app user auth, while the connection is open.
    auth: Option<Arc<Credentials>>,
}

/// A database that exists and is desired.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The project's id.
    pub project: String,
    pub desired: Arc<Database>,
    /// The login of backups.
    pub credentials: Arc<Credentials>,
    pub logins: Logins,
}

/// How worker code of a project reaches its database through `env.db`.
#[derive(Debug, Clone)]
pub enum Connection {
    /// Worker code does not reach the database. All connections must be closed.
    Closed,
    /// Worker code reaches the database with these credentials. If `generation` changed, the earlier connections must
    /// be closed.
    Open { generation: u64, credentials: Arc<Credentials> },
}

/// How app user auth reaches the database of a project.
#[derive(Debug, Clone)]
pub struct AuthAccess {
    /// If this changed, the earlier connections have ended.
    pub generation: u64,
    /// Increases when the database is restored.
    pub epoch: i64,
    /// The login that owns the schema `svc_auth`.
    pub credentials: Arc<Credentials>,
    /// The login of backups, which has the privileges of the owner of the database.
    pub backups: Arc<Credentials>,
}

impl Default for Registry {
    fn default() -> Self {
        Self(Arc::new(Shared { projects: Mutex::default(), changes: watch::Sender::new(0) }))
    }
}

impl Registry {
    /// Returns all databases that exist and are desired.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().values().filter_map(|listed| listed.entry.clone()).collect()
    }

    /// Returns a channel that is notified when [`Self::entries`] changes.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Returns a channel that shows the connection of a project. The project need not have a database yet.
    pub fn watch(&self, project: &str) -> watch::Receiver<Connection> {
        self.lock().entry(project.to_owned()).or_default().connection.subscribe()
    }

    /// Returns how app user auth reaches the database of a project; `None` while worker code does not reach it either.
    pub fn auth(&self, project: &str) -> Option<AuthAccess> {
        let projects = self.lock();
        let Listed { entry: Some(entry), auth: Some(credentials), connection, .. } = projects.get(project)? else {
            return None;
        };
        let Connection::Open { generation, .. } = *connection.borrow() else { return None };
        let (credentials, backups) = (Arc::clone(credentials), Arc::clone(&entry.credentials));
        Some(AuthAccess { generation, epoch: entry.desired.epoch, credentials, backups })
    }

    /// Returns the desired roles of all databases, by project.
    pub(super) fn roles(&self) -> Vec<(String, DesiredRoles)> {
        let projects = self.lock();
        projects.iter().filter_map(|(project, listed)| Some((project.clone(), listed.roles.clone()?))).collect()
    }

    /// Records the desired roles.
    pub(super) fn set_roles(&self, project: &str, roles: DesiredRoles) {
        self.lock().entry(project.to_owned()).or_default().roles = Some(roles);
    }

    /// Closes the connection of `env.db`. Must be called before Postgres refuses the logins.
    pub(super) fn close(&self, project: &str) {
        if let Some(listed) = self.lock().get_mut(project) {
            listed.connection.send_replace(Connection::Closed);
        }
    }

    /// Records a database.
    pub fn set(&self, entry: Entry) {
        let mut projects = self.lock();
        let listed = projects.entry(entry.project.clone()).or_default();
        let is_same = listed.entry.as_ref().is_some_and(|it| it.logins == entry.logins && it.desired == entry.desired);
        listed.entry = Some(entry);
        drop(projects);
        if !is_same {
            self.count_change();
        }
    }

    /// Opens the connections of `env.db` and of app user auth, with these credentials. If they are already open, the
    /// earlier connections end.
    pub fn open(&self, project: &str, credentials: Arc<Credentials>, auth: Arc<Credentials>) {
        let mut projects = self.lock();
        let listed = projects.entry(project.to_owned()).or_default();
        let generation = self.count_change();
        listed.auth = Some(auth);
        listed.connection.send_replace(Connection::Open { generation, credentials });
    }

    /// Returns whether the connection is open.
    pub(super) fn is_open(&self, project: &str) -> bool {
        let projects = self.lock();
        projects.get(project).is_some_and(|listed| matches!(*listed.connection.borrow(), Connection::Open { .. }))
    }

    /// Removes a database that does not exist or is not desired. Keeps its desired roles.
    pub(super) fn remove(&self, project: &str) {
        if let Some(listed) = self.lock().get_mut(project) {
            listed.connection.send_replace(Connection::Closed);
            listed.entry = None;
        }
        self.count_change();
    }

    /// Removes a database with its desired roles.
    pub(super) fn forget(&self, project: &str) {
        self.remove(project);
        if let Some(listed) = self.lock().get_mut(project) {
            listed.roles = None;
        }
    }

    fn count_change(&self) -> u64 {
        let mut count = 0;
        self.0.changes.send_modify(|changes| {
            *changes += 1;
            count = *changes;
        });
        count
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Listed>> {
        self.0.projects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Listed {
    fn default() -> Self {
        Self { entry: None, roles: None, connection: watch::Sender::new(Connection::Closed), auth: None }
    }
}
