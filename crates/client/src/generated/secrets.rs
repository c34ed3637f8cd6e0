//! Secrets of a project, which worker code reads as `env.<NAME>`. No response contains a value.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Time, UserId};
use crate::{Call, Client, Page, Paging, Secret};

/// A new value of a secret.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSecretValue {
    pub value: SecretValue,
}

/// Changes of several secrets, which are applied together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretChanges {
    /// The new value of each secret, or null to delete it. Other secrets keep their values.
    pub secrets: std::collections::BTreeMap<String, Option<Secret>>,
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretMeta {
    pub name: SecretName,
    pub updated_at: Time,
    /// The user who set the value.
    pub updated_by: UserId,
    /// Increases with each new value. A secret that is set again after its deletion has version 1.
    pub version: i32,
}

pub type SecretMetaPage = Page<SecretMeta>;

/// 1 to 128 characters of A-Z, 0-9 and _, beginning with a letter
pub type SecretName = String;

/// the value of a secret: 1 byte to 64 KiB in UTF-8
pub type SecretValue = Secret;

impl Client {
    /// Set and delete several secrets in one step
    ///
    /// `PUT /v1/orgs/{orgSlug}/projects/{projectName}/secrets`
    pub fn secrets_change(&self, org_slug: &str, project_name: &str, body: &SecretChanges) -> Call<SecretMetaPage> {
        self.operation("secrets.change", Method::PUT, &["v1", "orgs", org_slug, "projects", project_name, "secrets"])
            .json(body)
    }

    /// Delete a secret
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/secrets/{secretName}`
    pub fn secrets_delete(&self, org_slug: &str, project_name: &str, secret_name: &str) -> Call<()> {
        self.operation(
            "secrets.delete",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "secrets", secret_name],
        )
    }

    /// List the secrets of a project, sorted by name, without their values
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/secrets`
    pub fn secrets_list(&self, org_slug: &str, project_name: &str, query: &Paging) -> Call<SecretMetaPage> {
        self.operation("secrets.list", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "secrets"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Set the value of a secret, which creates a version
    ///
    /// `PUT /v1/orgs/{orgSlug}/projects/{projectName}/secrets/{secretName}`
    pub fn secrets_set(
        &self,
        org_slug: &str,
        project_name: &str,
        secret_name: &str,
        body: &NewSecretValue,
    ) -> Call<SecretMeta> {
        self.operation(
            "secrets.set",
            Method::PUT,
            &["v1", "orgs", org_slug, "projects", project_name, "secrets", secret_name],
        )
        .json(body)
    }
}
