//! The Postgres database of a project, which worker code uses as `env.db`.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Generation, ProjectId, Time};
use crate::{Call, Client, Page, Paging, Secret, open_enum};

/// The address and the login of a database.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseConnect {
    /// The name of the database. It never changes.
    pub database: String,
    pub host: String,
    pub password: Password,
    pub port: i32,
    /// The `sslmode` for the connection: `disable`, `require` or `verify-full`.
    pub sslmode: String,
    /// The address for a Postgres client, with user and password.
    pub url: Password,
    /// The login role of the project.
    pub user: String,
}

/// The address of a database.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseEndpoint {
    /// The name of the database. It never changes.
    pub database: String,
    pub host: String,
    pub port: i32,
    /// The `sslmode` for the connection: `disable`, `require` or `verify-full`.
    pub sslmode: String,
}

/// A diagnostic image of a database, which cannot be restored over the API.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseExport {
    /// The time of the image. It contains the state of the database at this time.
    pub created_at: Time,
    /// The name of the stored object.
    pub key: String,
    /// The size of the stored object, in bytes.
    pub size_bytes: i64,
}

/// The generations of a project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseGenerations {
    /// The generations of the project's current and earlier databases, newest first.
    pub items: Vec<Generation>,
    /// The time at which the node last compared stored generations with their digests. Null if it never did.
    pub last_checked_at: Option<Time>,
}

/// Whether a project has a database.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseStatus {
    pub db: bool,
}

/// A login of a database. Its sessions have the role of the project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseToken {
    pub created_at: Time,
    /// The time at which the token expires. Null if it is valid until it is revoked.
    pub expires_at: Option<Time>,
    pub name: Option<String>,
    /// The password. Present only in the response that creates the token.
    pub password: Option<Password>,
    /// The id of the token, which is also the user name of its logins.
    pub user: DatabaseTokenId,
}

/// an id that starts with tok_
pub type DatabaseTokenId = String;

pub type DatabaseTokenPage = Page<DatabaseToken>;

/// The confirmation of a deletion.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteRequest {
    /// The name of the project.
    pub confirm: String,
}

/// A token to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewDatabaseToken {
    /// The lifetime in seconds. Without it, the token is valid until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<TokenName>,
}

/// An operation on a project's database.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    pub created_at: Time,
    pub id: OperationId,
    pub kind: OperationKind,
    pub phase: Phase,
    pub project_id: ProjectId,
    /// The reason why the operation ended without success: `aborted`, `restore_failed` or `delete_failed`. Null while
    /// it runs and after a success.
    pub terminal_code: Option<String>,
    pub updated_at: Time,
}

/// an id that starts with opn_
pub type OperationId = String;

open_enum! {
    pub enum OperationKind {
        RestoreGeneration = "restore_generation",
        Delete = "delete",
        Evict = "evict",
        Restore = "restore",
    }
}

/// An operation that was started.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationStarted {
    pub operation_id: OperationId,
}

/// a secret text; do not log it
pub type Password = Secret;

open_enum! {
    pub enum Phase {
        Draining = "draining",
        Sealing = "sealing",
        Committing = "committing",
        Reactivating = "reactivating",
        Done = "done",
    }
}

/// The generation to restore, as in the listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreRequest {
    pub epoch: i64,
    pub seq: i64,
}

/// 1 to 64 characters, one of them visible, without control or text direction characters
pub type TokenName = String;

impl Client {
    /// Abort an operation before its commit
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/database/operations/{opId}/abort`
    pub fn database_abort(&self, org_slug: &str, project_name: &str, op_id: &str) -> Call<Operation> {
        self.operation(
            "database.abort",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "operations", op_id, "abort"],
        )
        .idempotent()
    }

    /// Get the connection info of a database, with its password
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/database/connect`
    pub fn database_connect(&self, org_slug: &str, project_name: &str) -> Call<DatabaseConnect> {
        self.operation(
            "database.connect",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "connect"],
        )
    }

    /// Start to delete a database, after a final backup
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/database/delete`
    pub fn database_delete(&self, org_slug: &str, project_name: &str, body: &DeleteRequest) -> Call<OperationStarted> {
        self.operation(
            "database.delete",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "delete"],
        )
        .idempotent()
        .json(body)
    }

    /// Enable the database of a project, or return the connection info of the existing one
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/database`
    pub fn database_enable(&self, org_slug: &str, project_name: &str) -> Call<DatabaseConnect> {
        self.operation("database.enable", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "database"])
            .idempotent()
    }

    /// Get the address of a database, without credentials
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/database/endpoint`
    pub fn database_endpoint(&self, org_slug: &str, project_name: &str) -> Call<DatabaseEndpoint> {
        self.operation(
            "database.endpoint",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "endpoint"],
        )
    }

    /// Export a database to a diagnostic object, and wait until it is complete
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/database/export`
    pub fn database_export(&self, org_slug: &str, project_name: &str) -> Call<DatabaseExport> {
        self.operation(
            "database.export",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "export"],
        )
        .idempotent()
        .timeout(std::time::Duration::from_secs(900))
    }

    /// List the backups of a database, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/database/generations`
    pub fn database_generations(&self, org_slug: &str, project_name: &str) -> Call<DatabaseGenerations> {
        self.operation(
            "database.generations",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "generations"],
        )
    }

    /// Get whether a project has a database
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/database`
    pub fn database_get(&self, org_slug: &str, project_name: &str) -> Call<DatabaseStatus> {
        self.operation("database.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "database"])
    }

    /// Get an operation, with its phase
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/database/operations/{opId}`
    pub fn database_operation(&self, org_slug: &str, project_name: &str, op_id: &str) -> Call<Operation> {
        self.operation(
            "database.operation",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "operations", op_id],
        )
    }

    /// Start to replace the content of a database with a backup
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/database/restore`
    pub fn database_restore(
        &self,
        org_slug: &str,
        project_name: &str,
        body: &RestoreRequest,
    ) -> Call<OperationStarted> {
        self.operation(
            "database.restore",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "restore"],
        )
        .idempotent()
        .json(body)
    }

    /// Create a token, whose password is shown only once
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/database/tokens`
    pub fn database_token_create(
        &self,
        org_slug: &str,
        project_name: &str,
        body: &NewDatabaseToken,
    ) -> Call<DatabaseToken> {
        self.operation(
            "database.token_create",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "tokens"],
        )
        .idempotent()
        .json(body)
    }

    /// Revoke a token, and wait until its node refuses new logins
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/database/tokens/{tokenUser}`
    pub fn database_token_revoke(&self, org_slug: &str, project_name: &str, token_user: &str) -> Call<()> {
        self.operation(
            "database.token_revoke",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "tokens", token_user],
        )
        .timeout(std::time::Duration::from_secs(900))
    }

    /// List the tokens of a database, newest first, without their passwords
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/database/tokens`
    pub fn database_tokens(&self, org_slug: &str, project_name: &str, query: &Paging) -> Call<DatabaseTokenPage> {
        self.operation(
            "database.tokens",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "database", "tokens"],
        )
        .query("limit", query.limit.as_ref())
        .query("cursor", query.cursor.as_ref())
    }
}
