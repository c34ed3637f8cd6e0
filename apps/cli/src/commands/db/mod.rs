//! `svc db`: the Postgres database of a project.

mod backups;
mod connect;
mod operation;
mod tokens;

use std::ffi::OsString;

pub use backups::summary as backup_summary;
use client::types::{DatabaseConnect, DatabaseEndpoint, DatabaseExport};
use client::{Client, Error};
use serde_json::Value;

use crate::error::CliError;
use crate::output::{bytes, fields, or_dash, yes_or_no};
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Db {
    /// Enable the database, which worker code uses as env.db
    Enable,
    /// Show whether the project has a database, its address and its newest backup
    Status,
    /// Open psql on the database
    Connect {
        /// Arguments of psql, after --
        #[arg(last = true)]
        psql: Vec<OsString>,
    },
    /// Print the URL of the database, which contains its password
    Url,
    /// Manage tokens: users of the database that can expire and be revoked
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// List the backups, newest first
    Backups,
    /// Replace the content of the database by that of a backup
    Restore(operation::Restore),
    /// Dump the database into an object of the platform's backup store, for its operator
    Export,
    /// Delete the database, after a last backup
    Delete(operation::Delete),
    /// Abort a restore or a deletion that is not committing yet
    Abort {
        /// ID of the operation
        operation: String,
    },
}

impl Db {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        match self {
            Self::Enable => {
                svc.out.response(&client.database_enable(&org, &project).send().await?, show_connection)?;
                svc.out.success("enabled the database: worker code uses it as env.db, `svc db connect` opens psql");
                Ok(())
            }
            Self::Status => status(svc, (&client, &org, &project)).await,
            Self::Connect { psql } => connect::run((&client, &org, &project), &psql).await,
            Self::Url => {
                let connection = client.database_connect(&org, &project).send().await?;
                svc.out.response(&connection, |connection| connection.url.reveal().to_owned())
            }
            Self::Tokens(tokens) => tokens.run(svc, (&client, &org, &project)).await,
            Self::Backups => backups::list(svc, (&client, &org, &project)).await,
            Self::Restore(restore) => restore.run(svc, (&client, &org, &project)).await,
            Self::Export => {
                let export = client.database_export(&org, &project).send().await?;
                svc.out.response(&export, show_export)
            }
            Self::Delete(delete) => delete.run(svc, (&client, &org, &project)).await,
            Self::Abort { operation } => operation::abort(svc, (&client, &org, &project), &operation).await,
        }
    }
}

/// Prints the address and the newest backup. Viewers may not list the backups.
async fn status(svc: &Svc<'_>, (client, org, project): (&Client, &str, &str)) -> Result<(), CliError> {
    let mut status = client.database_get(org, project).send().await?;
    let mut rows = vec![["enabled", yes_or_no(status.db)].map(str::to_owned)];
    if status.db {
        let endpoint = client.database_endpoint(org, project).send().await?;
        rows.extend(endpoint_rows(&endpoint));
        add(&mut status.json, "endpoint", endpoint.json);
    }
    match client.database_generations(org, project).send().await {
        Ok(generations) => {
            let newest = generations.items.first().map(backups::summary);
            rows.push(["backup".to_owned(), or_dash(newest.as_deref())]);
            let newest = generations.json.pointer("/items/0").cloned().unwrap_or_default();
            add(&mut status.json, "lastBackup", newest);
        }
        Err(Error::Api { status: 403, .. }) => {}
        Err(error) => return Err(error.into()),
    }
    svc.out.response(&status, |_| fields(&rows))
}

/// Adds a member to a response, so that one document contains several responses.
fn add(response: &mut Value, name: &str, value: Value) {
    if let Some(members) = response.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// Returns the connection without its password, so that the output can be shared.
fn show_connection(connection: &DatabaseConnect) -> String {
    let DatabaseConnect { host, port, database, sslmode, user, .. } = connection;
    let (host, database, sslmode) = (host.clone(), database.clone(), sslmode.clone());
    let endpoint = DatabaseEndpoint { host, port: *port, database, sslmode };
    let mut rows = endpoint_rows(&endpoint).to_vec();
    rows.push(["user".to_owned(), user.clone()]);
    fields(&rows)
}

fn endpoint_rows(endpoint: &DatabaseEndpoint) -> [[String; 2]; 3] {
    let DatabaseEndpoint { host, port, database, sslmode } = endpoint;
    let rows = [("address", format!("{host}:{port}")), ("database", database.clone()), ("sslmode", sslmode.clone())];
    rows.map(|(name, value)| [name.to_owned(), value])
}

fn show_export(export: &DatabaseExport) -> String {
    let DatabaseExport { key, size_bytes, created_at } = export;
    fields(&[["key", key], ["size", &bytes(*size_bytes)], ["created", created_at]])
}
