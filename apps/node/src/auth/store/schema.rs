//! The schema `svc_auth` in the database of a project.
//!
//! The comment of the schema contains its version. A schema of this name that belongs to the project is renamed: its
//! content is not trusted, but belongs to the project.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel};

use super::{Result, StoreError};
use crate::database::admin::quote_ident;
use crate::database::registry::AuthAccess;
use crate::random;

/// The migrations. The first one leads to version 1.
const MIGRATIONS: [&str; 1] = [include_str!("schema.sql")];
/// The key of the advisory lock during a migration: "svc_auth" in ASCII.
const LOCK: i64 = 0x7376_635f_6175_7468;
/// The number of attempts while the project creates a schema of this name at the same time.
const MAX_ATTEMPTS: usize = 5;

/// The observed schema.
enum Schema {
    Missing,
    /// The schema of app user auth, with its version.
    Own(usize),
    /// A schema of the project.
    Foreign,
}

/// Creates or migrates the schema, unless its version is the current one or a later one. A later version comes from a
/// newer release, whose schema also serves this one.
///
/// # Errors
/// Returns an error if Postgres fails, or if the project creates a schema of this name again and again.
pub async fn prepare(client: &mut Client, access: &AuthAccess) -> Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        match observe(client, access).await? {
            Schema::Own(version) if version >= MIGRATIONS.len() => return Ok(()),
            Schema::Foreign => move_aside(access).await?,
            Schema::Own(_) | Schema::Missing => match migrate(client, access).await {
                Err(StoreError::Postgres(error)) if error.code() == Some(&SqlState::DUPLICATE_SCHEMA) => {}
                migrated => return migrated,
            },
        }
    }
    Err(StoreError::Unavailable("the project creates the schema svc_auth again and again"))
}

async fn observe(client: &tokio_postgres::Client, access: &AuthAccess) -> Result<Schema> {
    const OBSERVE: &str = "SELECT pg_get_userbyid(nspowner)::text, obj_description(oid, 'pg_namespace') \
                           FROM pg_namespace WHERE nspname = 'svc_auth'";
    let Some(row) = client.query_opt(OBSERVE, &[]).await? else { return Ok(Schema::Missing) };
    if row.try_get::<_, String>(0)? != access.credentials.role {
        return Ok(Schema::Foreign);
    }
    let comment: Option<String> = row.try_get(1)?;
    let version = comment.as_deref().and_then(|comment| comment.strip_prefix("version ")?.parse().ok());
    Ok(Schema::Own(version.unwrap_or_default()))
}

async fn migrate(client: &mut Client, access: &AuthAccess) -> Result<()> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let version = match observe(transaction.client(), access).await? {
        Schema::Own(version) => version,
        Schema::Missing | Schema::Foreign => 0,
    };
    for migration in MIGRATIONS.iter().skip(version) {
        transaction.batch_execute(migration).await?;
    }
    transaction.commit().await?;
    tracing::info!(database = access.credentials.database, from = version, "migrated the schema of app user auth");
    Ok(())
}

/// Renames the project's schema. The login of backups may do this, because it has the privileges of all owners. It could
/// also rename the schema of app user auth, which another session may have created in place of the project's. So the
/// owner is checked again, under the lock of [`migrate`]. This check must not use a snapshot from before the lock, so the
/// isolation level is that of each statement, whatever the defaults of the project are. The statement executes no code of
/// the project.
async fn move_aside(access: &AuthAccess) -> Result<()> {
    let suffix: String = random::id().simple().to_string().chars().take(8).collect();
    let name = format!("svc_auth_{suffix}");
    let options = "-c search_path=pg_catalog -c role=none -c default_transaction_read_only=off \
                   -c default_transaction_isolation=read\\ committed -c lock_timeout=2s";
    let mut client = access.backups.connect_with(options).await?;
    let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).read_only(false);
    let transaction = transaction.start().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    if !matches!(observe(transaction.client(), access).await?, Schema::Foreign) {
        return Ok(());
    }
    match transaction.batch_execute(&format!("ALTER SCHEMA svc_auth RENAME TO {}", quote_ident(&name))).await {
        Ok(()) => transaction.commit().await?,
        // The project dropped or renamed it at the same time.
        Err(error) if error.code() == Some(&SqlState::INVALID_SCHEMA_NAME) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    tracing::warn!(
        database = access.credentials.database,
        name,
        "renamed a schema of the project with a reserved name"
    );
    Ok(())
}
