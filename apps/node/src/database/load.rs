//! The login of a restore: it loads an archive into a new database.
//!
//! A restore executes functions of the tenant as this login. They can set its password, but the tenant still cannot log
//! in with it: the login admits one session with a new password, refuses further sessions as soon as this one exists,
//! and can connect only to the new database. The new database belongs to the superuser while the functions run, so they
//! cannot drop it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::admin::{Admin, quote_ident, quote_literal};
use super::credential::password;
use super::logins::settings;
use super::names::Names;
use super::server::{Address, Credentials};
use super::usage;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The number of attempts to close the login.
const MAX_ATTEMPTS: usize = 200;

/// A new database, and the login that loads it.
#[derive(Clone)]
pub struct LoadTarget {
    admin: Admin,
    address: Arc<Address>,
    names: Names,
    /// The new database.
    pub database: String,
    /// The limit of the plan, in bytes.
    size_limit: u64,
}

/// How the new database was opened for a load.
pub struct Opened {
    /// The owner of the new database before the load.
    owner: String,
    /// Whether the schema `public` belongs to the owner of the project's database.
    owns_public: bool,
}

impl LoadTarget {
    /// Creates a target. The database must not contain objects of the tenant yet.
    #[must_use]
    pub fn new(admin: Admin, address: Arc<Address>, names: Names, database: String, size_limit: u64) -> Self {
        Self { admin, address, names, database, size_limit }
    }

    /// Returns the role that owns the loaded objects.
    #[must_use]
    pub fn owner(&self) -> String {
        self.names.database()
    }

    /// Returns the role that owns the loaded schema of app user auth.
    #[must_use]
    pub fn auth(&self) -> String {
        self.names.auth()
    }

    /// Permits the login to act as the owner of `svc_auth`, and this owner to create its schema.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub(super) async fn begin_auth(&self) -> anyhow::Result<()> {
        let (database, _, login) = self.quoted();
        let auth = quote_ident(&self.auth());
        if !self.has_auth().await? {
            self.execute(&format!("CREATE ROLE {auth}")).await?;
        }
        self.execute(&format!("GRANT CREATE ON DATABASE {database} TO {auth}; GRANT {auth} TO {login}")).await
    }

    /// Revokes the privileges of [`Self::begin_auth`]. Must be called before tenant code runs.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub(super) async fn end_auth(&self) -> anyhow::Result<()> {
        if !self.has_auth().await? {
            return Ok(());
        }
        let (database, _, login) = self.quoted();
        let auth = quote_ident(&self.auth());
        self.execute(&format!("REVOKE {auth} FROM {login}; REVOKE ALL ON DATABASE {database} FROM {auth}")).await
    }

    async fn has_auth(&self) -> anyhow::Result<bool> {
        let client = self.admin.connect().await?;
        Ok(client.query_opt("SELECT FROM pg_roles WHERE rolname = $1", &[&self.auth()]).await?.is_some())
    }

    /// Permits the load to create objects. With `owns_public`, the schema `public` belongs to the role of the project;
    /// otherwise to `pg_database_owner`, as in the template.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub(super) async fn begin(&self, owns_public: bool) -> anyhow::Result<Opened> {
        const OWNER: &str = "SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = $1";
        let (database, owner, login) = self.quoted();
        let client = self.admin.connect().await?;
        let row = client.query_opt(OWNER, &[&self.database]).await?.context("the new database does not exist")?;
        if client.query_opt("SELECT FROM pg_roles WHERE rolname = $1", &[&self.names.load()]).await?.is_none() {
            client.batch_execute(&format!("CREATE ROLE {login}")).await?;
        }
        let grants = format!(
            "GRANT CREATE, TEMPORARY ON DATABASE {database} TO {owner}; GRANT CONNECT ON DATABASE {database} TO {login}; \
             GRANT {owner} TO {login}"
        );
        client.batch_execute(&grants).await?;
        // This is the only session of a superuser in a database other than the node's own. It is safe, because the
        // database is still a copy of the template.
        let session = self.admin.session_in(&self.database).await?;
        let open = match owns_public {
            true => format!("ALTER SCHEMA public OWNER TO {owner}"),
            false => format!("GRANT CREATE ON SCHEMA public TO {owner}"),
        };
        session.batch_execute(&open).await?;
        Ok(Opened { owner: row.get(0), owns_public })
    }

    /// Ends the earlier sessions of the login. Then admits one session with a new password.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub(super) async fn open(&self) -> anyhow::Result<Credentials> {
        const ATTRIBUTES: &str =
            "LOGIN INHERIT NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS CONNECTION LIMIT 1";
        let (password, verifier) = password()?;
        let (_, _, login) = self.quoted();
        self.close().await?;
        let client = self.admin.connect().await?;
        let mut statements = vec![format!("ALTER ROLE {login} RESET ALL")];
        for (name, value) in settings(&self.owner(), self.size_limit) {
            statements.push(format!("ALTER ROLE {login} SET {name} = {}", quote_literal(&value)));
        }
        let verifier = quote_literal(verifier.reveal());
        statements.push(format!("ALTER ROLE {login} {ATTRIBUTES} PASSWORD {verifier} VALID UNTIL 'infinity'"));
        client.batch_execute(&statements.join(";\n")).await?;
        let (address, database, role) = (Arc::clone(&self.address), self.database.clone(), self.owner());
        Ok(Credentials { address, database, user: self.names.load(), password, role })
    }

    /// Waits for the session, and then refuses further ones.
    ///
    /// # Errors
    /// Returns an error if Postgres fails, or if tenant code prevents it.
    pub(super) async fn close_when_connected(&self) -> anyhow::Result<()> {
        const IS_CONNECTED: &str = "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = $1";
        loop {
            let client = self.admin.connect().await?;
            if client.query_one(IS_CONNECTED, &[&self.names.load()]).await?.get(0) {
                return self.refuse(&client).await;
            }
            drop(client);
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Refuses further sessions and ends the others.
    ///
    /// # Errors
    /// Returns an error if Postgres fails, or if tenant code prevents it.
    pub(super) async fn close(&self) -> anyhow::Result<()> {
        const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1";
        for _ in 0..MAX_ATTEMPTS {
            let client = self.admin.connect().await?;
            // End the sessions first, because a session may have locked the role.
            let ended: i64 = client.query_one(TERMINATE, &[&self.names.load()]).await?.get(0);
            self.refuse(&client).await?;
            if ended == 0 {
                return Ok(());
            }
            drop(client);
            sleep(POLL_INTERVAL).await;
        }
        anyhow::bail!("the sessions of a restore do not end")
    }

    async fn refuse(&self, client: &Client) -> anyhow::Result<()> {
        let (_, _, login) = self.quoted();
        let refuse = format!("SET lock_timeout = '2s'; ALTER ROLE {login} NOLOGIN");
        for _ in 0..MAX_ATTEMPTS {
            match client.batch_execute(&refuse).await {
                // Tenant code changed the role at the same time ("tuple concurrently updated").
                Err(error) if error.code() == Some(&SqlState::INTERNAL_ERROR) => continue,
                // The login's only session has changed the role in a transaction that is still open. The connection
                // limit admits no other session.
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
                // The role does not exist: the archive could not be read, so nothing was loaded.
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_OBJECT) => {}
                refused => refused?,
            }
            return Ok(client.batch_execute("RESET lock_timeout").await?);
        }
        anyhow::bail!("the login of a restore changes again and again")
    }

    /// Completes the load: ends the sessions of the login, so that no tenant code runs, and gives all loaded objects to
    /// the owner. The statements of `with_owner` require that the owner also owns the database. So the database belongs
    /// to the owner while `with_owner` runs, and to its previous owner before and afterwards.
    ///
    /// # Errors
    /// Returns an error if Postgres or `with_owner` fails.
    pub(super) async fn finish<E: From<anyhow::Error>>(
        &self,
        opened: Opened,
        with_owner: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let (database, owner, login) = self.quoted();
        self.close().await?;
        self.execute(&format!("ALTER DATABASE {database} OWNER TO {owner}")).await?;
        if !opened.owns_public {
            self.execute_as_login(&format!("REVOKE CREATE ON SCHEMA public FROM {owner}")).await?;
        }
        with_owner.await?;
        // A function that ran during the load may have reset the role. The objects that were created afterwards belong
        // to the login.
        let reassign = format!("SET ROLE NONE; REASSIGN OWNED BY {login} TO {owner}; DROP OWNED BY {login}");
        self.execute_as_login(&reassign).await?;
        let previous = quote_ident(&opened.owner);
        let end = format!(
            "REVOKE ALL ON DATABASE {database} FROM {login}; ALTER DATABASE {database} OWNER TO {previous}; \
             REVOKE {owner} FROM {login}"
        );
        Ok(self.execute(&end).await?)
    }

    /// Returns the size of the database in bytes; 0 if it does not exist.
    pub(super) async fn size(&self) -> anyhow::Result<u64> {
        let usage = usage::find(&self.admin.connect().await?, &self.database).await?;
        Ok(usage.unwrap_or_default().bytes)
    }

    async fn execute(&self, statements: &str) -> anyhow::Result<()> {
        Ok(self.admin.connect().await?.batch_execute(statements).await?)
    }

    async fn execute_as_login(&self, statements: &str) -> anyhow::Result<()> {
        let session = self.open().await?.connect().await?;
        session.batch_execute(statements).await?;
        drop(session);
        self.close().await
    }

    fn quoted(&self) -> (String, String, String) {
        (quote_ident(&self.database), quote_ident(&self.owner()), quote_ident(&self.names.load()))
    }
}
