//! Databases and their addresses.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{DatabaseId, NodeId, ProjectId, Time};
use store::{Connection, Result};

use crate::schema::{databases, homes};

/// A database to insert. Its `Debug` implementation does not show the password.
#[derive(Debug)]
pub struct DatabaseRecord {
    pub id: DatabaseId,
    pub password: Sealed,
    pub verifier: String,
    pub created_at: Time,
}

/// A database with its sealed password and the address of its home node.
#[derive(Debug)]
pub struct DatabaseAddress {
    pub id: DatabaseId,
    pub password: Sealed,
    /// The home node. `None` while the project has none.
    pub home: Option<NodeId>,
    /// The Postgres of the home node. `None` if it has none.
    pub server: Option<Server>,
}

/// The Postgres of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub host: String,
    pub port: i32,
    pub sslmode: String,
}

/// Databases on a [`store::Connection`].
pub trait DatabaseRepository {
    /// Returns the id of a project's database.
    async fn database_find(&mut self, project: ProjectId) -> Result<Option<DatabaseId>>;

    /// Returns the project of a database, or `None` if the database was deleted.
    async fn database_project(&mut self, database: DatabaseId) -> Result<Option<ProjectId>>;

    /// Returns a project's database with its address.
    async fn database_address(&mut self, project: ProjectId) -> Result<Option<DatabaseAddress>>;

    /// Inserts the database of a project that has none.
    async fn database_insert(&mut self, project: ProjectId, database: DatabaseRecord) -> Result<()>;

    /// Deletes the database of a project, with its tokens.
    async fn database_delete(&mut self, project: ProjectId) -> Result<()>;

    /// Records the generation to which a project's database was restored.
    async fn database_set_restored(&mut self, project: ProjectId, key: &str) -> Result<()>;
}

type AddressRow = (DatabaseId, (String, Vec<u8>), Option<NodeId>, (Option<String>, Option<i32>, Option<String>));

impl DatabaseRepository for Connection {
    async fn database_find(&mut self, project: ProjectId) -> Result<Option<DatabaseId>> {
        let query = databases::table.filter(databases::project_id.eq(project)).select(databases::id);
        Ok(query.first(self).await.optional()?)
    }

    async fn database_project(&mut self, database: DatabaseId) -> Result<Option<ProjectId>> {
        let query = databases::table.find(database).select(databases::project_id);
        Ok(query.first(self).await.optional()?)
    }

    async fn database_address(&mut self, project: ProjectId) -> Result<Option<DatabaseAddress>> {
        let query = databases::table
            .inner_join(homes::table.on(homes::project_id.eq(databases::project_id)))
            .filter(databases::project_id.eq(project))
            .select((
                databases::id,
                (databases::key_id, databases::sealed),
                homes::node_id,
                (homes::host, homes::port, homes::sslmode),
            ));
        let row: Option<AddressRow> = query.first(self).await.optional()?;
        Ok(row.map(|(id, (key_id, bytes), home, (host, port, sslmode))| {
            let server = host.zip(port).zip(sslmode).map(|((host, port), sslmode)| Server { host, port, sslmode });
            DatabaseAddress { id, password: Sealed { key_id, bytes }, home, server }
        }))
    }

    async fn database_insert(&mut self, project: ProjectId, database: DatabaseRecord) -> Result<()> {
        let DatabaseRecord { id, password, verifier, created_at } = database;
        let row = (
            databases::id.eq(id),
            databases::project_id.eq(project),
            databases::key_id.eq(password.key_id),
            databases::sealed.eq(password.bytes),
            databases::verifier.eq(verifier),
            databases::created_at.eq(created_at),
        );
        diesel::insert_into(databases::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn database_delete(&mut self, project: ProjectId) -> Result<()> {
        diesel::delete(databases::table.filter(databases::project_id.eq(project))).execute(self).await?;
        Ok(())
    }

    async fn database_set_restored(&mut self, project: ProjectId, key: &str) -> Result<()> {
        let database = databases::table.filter(databases::project_id.eq(project));
        diesel::update(database).set(databases::restored_key.eq(key)).execute(self).await?;
        Ok(())
    }
}
