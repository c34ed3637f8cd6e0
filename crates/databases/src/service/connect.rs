//! Activation of the database, and the information to connect to it.

use kernel::audit::{Actor, Event};
use kernel::{DatabaseId, ProjectId};
use serde_json::json;
use store::{Connection, Error, Outcome};

use super::{Databases, Result, Target};
use crate::error::DatabaseError;
use crate::model::{DatabaseConnect, DatabaseEndpoint, Password};
use crate::part::{PASSWORD, password_row};
use crate::ports::Home;
use crate::repository::{
    DatabaseAddress, DatabaseRecord, DatabaseRepository as _, LimitedOperation, OperationRepository as _,
    ProjectRepository as _, Server,
};
use crate::scram;

impl Databases {
    /// Returns whether the project has a database.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Store`].
    pub async fn exists(&self, project: ProjectId) -> Result<bool> {
        Ok(self.store.connection().await?.database_find(project).await?.is_some())
    }

    /// Gives the project a database, and returns how to connect to it. The home node creates the database later. This
    /// is a no-op if the project already has one.
    ///
    /// # Errors
    /// Returns [`DatabaseError::NoCore`], [`DatabaseError::NoHomeNode`] or [`DatabaseError::NoNodeAdmin`];
    /// [`DatabaseError::OperationInProgress`] while the node deletes the previous database;
    /// [`DatabaseError::DailyLimit`]; or [`DatabaseError::ProjectNotFound`].
    pub async fn enable(&self, actor: &Actor, target: Target) -> Result<DatabaseConnect> {
        self.require_link()?;
        let Target { org, project, .. } = target;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                // The new row references the project's row and locks it. So insert it before the placement is locked,
                // in the same order as the deletion of a project.
                tx.sequence_create(project).await?;
                // Read the address of an existing database before the assignment, which is rolled back if nothing else
                // changes.
                self.ports.placements.lock(tx, project).await?;
                if let Some(address) = tx.database_address(project).await? {
                    return Ok(Outcome::Unchanged(self.open(address)?));
                }
                match self.ports.placements.assign(tx, project).await? {
                    Home::Assigned => {}
                    Home::NoDatabase => return Err(DatabaseError::NoNodeAdmin),
                    Home::NoNode => return Err(DatabaseError::NoHomeNode),
                    Home::Deleted => return Err(DatabaseError::ProjectNotFound),
                }
                if tx.operation_running(project).await?.is_some() {
                    return Err(DatabaseError::OperationInProgress);
                }
                let database = self.new_database()?;
                self.ensure_below_daily_limit(tx, project, LimitedOperation::Change, database.created_at).await?;
                self.publish(tx, project).await?;
                tx.database_insert(project, database).await?;
                let created = tx.database_address(project).await?;
                let created = created.ok_or_else(|| Error::inconsistent("the created database is missing"))?;
                let connect = self.open(created)?;
                Ok(Outcome::Changed(connect, Event::in_org("database.grant", org, project, json!({}))))
            })
            .await
    }

    /// Returns how to connect to the database, with the password.
    ///
    /// # Errors
    /// Returns [`DatabaseError::NoDatabase`]. Returns [`DatabaseError::NoHomeNode`] or [`DatabaseError::NoNodeAdmin`]
    /// if the address is currently unknown.
    pub async fn connect(&self, project: ProjectId) -> Result<DatabaseConnect> {
        self.open(self.address(project).await?)
    }

    /// Returns the address of the database.
    ///
    /// # Errors
    /// Returns the errors of [`Self::connect`].
    pub async fn endpoint(&self, project: ProjectId) -> Result<DatabaseEndpoint> {
        let address = self.address(project).await?;
        endpoint(address.id, require_server(&address)?)
    }

    /// Returns an error if the link to the nodes is off.
    pub(super) fn require_link(&self) -> Result<()> {
        if self.ports.placements.is_linked() { Ok(()) } else { Err(DatabaseError::NoCore) }
    }

    async fn address(&self, project: ProjectId) -> Result<DatabaseAddress> {
        let found = self.store.connection().await?.database_address(project).await?;
        found.ok_or(DatabaseError::NoDatabase)
    }

    fn new_database(&self) -> Result<DatabaseRecord> {
        let clock_rng = self.store.clock_rng();
        let created_at = clock_rng.now();
        let id: DatabaseId = clock_rng.id_at(created_at);
        let plaintext = scram::new_password(clock_rng);
        let verifier = scram::verifier(clock_rng, &plaintext);
        let row = password_row(id);
        let password = self.store.seal(PASSWORD.associated_data(&row), plaintext.reveal().as_bytes())?;
        Ok(DatabaseRecord { id, password, verifier, created_at })
    }

    fn open(&self, address: DatabaseAddress) -> Result<DatabaseConnect> {
        let endpoint = endpoint(address.id, require_server(&address)?)?;
        let row = password_row(address.id);
        let password = self.store.open_text(PASSWORD.associated_data(&row), &address.password)?;
        let user = object_name("app", address.id)?;
        Ok(DatabaseConnect::new(endpoint, user, Password::new(password.reveal().to_owned())))
    }
}

/// Returns the Postgres of the home node.
pub(super) fn require_server(address: &DatabaseAddress) -> Result<&Server> {
    match (&address.server, address.home) {
        (Some(server), _) => Ok(server),
        (None, Some(_)) => Err(DatabaseError::NoNodeAdmin),
        (None, None) => Err(DatabaseError::NoHomeNode),
    }
}

fn endpoint(database: DatabaseId, server: &Server) -> Result<DatabaseEndpoint> {
    let Server { host, port, sslmode } = server.clone();
    Ok(DatabaseEndpoint { host, port, database: object_name("db", database)?, sslmode })
}

/// Returns the name of an object in the node's Postgres: a prefix, and the characters of the database's id.
fn object_name(prefix: &str, database: DatabaseId) -> Result<String> {
    let id = database.to_string();
    let (_, digits) = id.split_once('_').ok_or_else(|| Error::inconsistent("an id has no prefix"))?;
    Ok(format!("{prefix}_{digits}"))
}
