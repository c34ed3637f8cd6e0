//! Clients.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ClientId, Scope, ScopeSet, Time, TokenHash};
use store::{Connection, Result};

use crate::schema::clients;

/// A client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRecord {
    pub id: ClientId,
    pub name: String,
    pub redirect_uris: Vec<String>,
    /// The scopes that a grant to the client may have.
    pub scopes: ScopeSet,
    /// The hash of the secret. `None` for a public client.
    pub secret_hash: Option<TokenHash>,
    /// Whether the client may use the device flow.
    pub device: bool,
    pub created_at: Time,
}

/// Clients on a [`store::Connection`].
pub trait ClientRepository {
    /// Inserts a client.
    async fn client_insert(&mut self, client: &ClientRecord) -> Result<()>;

    /// Returns a client.
    async fn client_find(&mut self, client: ClientId) -> Result<Option<ClientRecord>>;

    /// Lists all clients, oldest first.
    async fn client_list(&mut self) -> Result<Vec<ClientRecord>>;

    /// Returns a client, and prevents its removal until the transaction ends.
    async fn client_share(&mut self, client: ClientId) -> Result<Option<ClientRecord>>;

    /// Locks a client until the transaction ends, so that it gets no new codes and grants. Returns false if it does not
    /// exist.
    async fn client_lock(&mut self, client: ClientId) -> Result<bool>;

    /// Deletes a client with its codes and grants.
    async fn client_delete(&mut self, client: ClientId) -> Result<()>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = clients)]
struct ClientRow {
    id: ClientId,
    name: String,
    redirect_uris: Vec<String>,
    scopes: Vec<Scope>,
    secret_hash: Option<TokenHash>,
    device: bool,
    created_at: Time,
}

impl ClientRepository for Connection {
    async fn client_insert(&mut self, client: &ClientRecord) -> Result<()> {
        let row = (
            clients::id.eq(client.id),
            clients::name.eq(&client.name),
            clients::redirect_uris.eq(&client.redirect_uris),
            clients::scopes.eq(client.scopes.iter().collect::<Vec<_>>()),
            clients::secret_hash.eq(client.secret_hash),
            clients::device.eq(client.device),
            clients::created_at.eq(client.created_at),
        );
        diesel::insert_into(clients::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn client_find(&mut self, client: ClientId) -> Result<Option<ClientRecord>> {
        let found = clients::table.find(client).select(ClientRow::as_select()).first(self).await.optional()?;
        Ok(found.map(ClientRecord::from))
    }

    async fn client_list(&mut self) -> Result<Vec<ClientRecord>> {
        let rows = clients::table.select(ClientRow::as_select()).order(clients::id).load(self).await?;
        Ok(rows.into_iter().map(ClientRecord::from).collect())
    }

    async fn client_share(&mut self, client: ClientId) -> Result<Option<ClientRecord>> {
        let query = clients::table.find(client).select(ClientRow::as_select()).for_key_share();
        Ok(query.first(self).await.optional()?.map(ClientRecord::from))
    }

    async fn client_lock(&mut self, client: ClientId) -> Result<bool> {
        let locked: Option<ClientId> =
            clients::table.find(client).select(clients::id).for_update().first(self).await.optional()?;
        Ok(locked.is_some())
    }

    async fn client_delete(&mut self, client: ClientId) -> Result<()> {
        diesel::delete(clients::table.find(client)).execute(self).await?;
        Ok(())
    }
}

impl From<ClientRow> for ClientRecord {
    fn from(row: ClientRow) -> Self {
        let ClientRow { id, name, redirect_uris, scopes, secret_hash, device, created_at } = row;
        Self { id, name, redirect_uris, scopes: scopes.into_iter().collect(), secret_hash, device, created_at }
    }
}
