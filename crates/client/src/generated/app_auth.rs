//! The sign-in of a project's end users, whom worker code knows as `env.auth.users`.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::{Call, Client, Secret, open_enum};

/// 1 to 512 printable ASCII characters
pub type AuthClientId = String;

/// 1 to 4096 printable ASCII characters
pub type AuthClientSecret = Secret;

open_enum! {
    pub enum AuthProvider {
        Codehost = "codehost",
        Webaccount = "webaccount",
        Messenger = "messenger",
    }
}

/// The client of a project at an identity provider. It replaces a registered client.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthProviderPut {
    pub client_id: AuthClientId,
    pub client_secret: AuthClientSecret,
}

/// The settings of a project's app sign-in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthSettings {
    pub brand_color: Option<BrandColor>,
    pub brand_logo_url: Option<BrandLogoUrl>,
    /// The name on the sign-in page. Null for the hostname.
    pub brand_name: Option<BrandName>,
    /// A session ends after this many days without a request. 30 by default.
    pub session_days: i32,
}

/// A change of the settings. Absent fields keep their values, and null resets a brand field.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthSettingsPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand_color: Option<BrandColor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand_logo_url: Option<BrandLogoUrl>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand_name: Option<BrandName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_days: Option<i32>,
}

/// The state of a project's app sign-in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthStatus {
    /// Whether app sign-in is enabled.
    pub granted: bool,
    /// The active hostnames, the default one first. At each provider, register the callback address
    /// `https://<host>/__svc/auth/callback/<provider>` for each host.
    pub hosts: Vec<String>,
    /// The registered providers, which stay while app sign-in is disabled.
    pub providers: Vec<RegisteredProvider>,
    /// The settings, which stay while app sign-in is disabled.
    pub settings: AuthSettings,
}

/// a colour as # and six hexadecimal digits
pub type BrandColor = String;

/// an https address without user and fragment, with at most 1000 characters of path and query
pub type BrandLogoUrl = String;

/// 1 to 100 characters without control characters, and without a space at the beginning or end
pub type BrandName = String;

/// A registered client, without its secret.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredProvider {
    pub client_id: AuthClientId,
    pub provider: AuthProvider,
}

impl Client {
    /// Delete an identity provider of app sign-in
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/auth/providers/{provider}`
    pub fn app_auth_delete_provider(&self, org_slug: &str, project_name: &str, provider: &str) -> Call<()> {
        self.operation(
            "app_auth.delete_provider",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "auth", "providers", provider],
        )
    }

    /// Get whether app sign-in is enabled, with its settings, providers and hosts
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/auth`
    pub fn app_auth_get(&self, org_slug: &str, project_name: &str) -> Call<AuthStatus> {
        self.operation("app_auth.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "auth"])
    }

    /// Enable app sign-in for a project, or return the existing settings
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/auth`
    pub fn app_auth_grant(&self, org_slug: &str, project_name: &str) -> Call<AuthStatus> {
        self.operation("app_auth.grant", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "auth"])
            .idempotent()
    }

    /// Disable app sign-in for a project, and end all sessions of its users
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/auth`
    pub fn app_auth_revoke(&self, org_slug: &str, project_name: &str) -> Call<()> {
        self.operation("app_auth.revoke", Method::DELETE, &["v1", "orgs", org_slug, "projects", project_name, "auth"])
    }

    /// Register an identity provider of app sign-in, or replace its client
    ///
    /// `PUT /v1/orgs/{orgSlug}/projects/{projectName}/auth/providers/{provider}`
    pub fn app_auth_set_provider(
        &self,
        org_slug: &str,
        project_name: &str,
        provider: &str,
        body: &AuthProviderPut,
    ) -> Call<AuthStatus> {
        self.operation(
            "app_auth.set_provider",
            Method::PUT,
            &["v1", "orgs", org_slug, "projects", project_name, "auth", "providers", provider],
        )
        .json(body)
    }

    /// Change the settings of app sign-in
    ///
    /// `PATCH /v1/orgs/{orgSlug}/projects/{projectName}/auth`
    pub fn app_auth_update(&self, org_slug: &str, project_name: &str, body: &AuthSettingsPatch) -> Call<AuthStatus> {
        self.operation("app_auth.update", Method::PATCH, &["v1", "orgs", org_slug, "projects", project_name, "auth"])
            .json(body)
    }
}
