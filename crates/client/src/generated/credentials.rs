//! The caller's personal access tokens and SSH keys.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Scope, Time, Token};
use crate::{Call, Client, Page, Paging, open_enum};

/// A personal access token, without its secret.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessToken {
    pub created_at: Time,
    /// The time at which the token expires. Null if it does not expire.
    pub expires_at: Option<Time>,
    pub id: TokenId,
    /// The last use, accurate to ten minutes.
    pub last_used_at: Option<Time>,
    pub name: String,
    /// The first 12 characters of the token.
    pub prefix: String,
    /// The token's restriction. Null if the token can access everything that its user can.
    pub restrict: Option<Restriction>,
    pub revoked_at: Option<Time>,
    pub scopes: Vec<Scope>,
}

/// A new access token. Only this response contains its secret.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessTokenCreated {
    pub created_at: Time,
    /// The time at which the token expires. Null if it does not expire.
    pub expires_at: Option<Time>,
    pub id: TokenId,
    /// The last use, accurate to ten minutes.
    pub last_used_at: Option<Time>,
    pub name: String,
    /// The first 12 characters of the token.
    pub prefix: String,
    /// The token's restriction. Null if the token can access everything that its user can.
    pub restrict: Option<Restriction>,
    pub revoked_at: Option<Time>,
    pub scopes: Vec<Scope>,
    /// The credential to send as `Authorization: Bearer …`, or as the password of `Basic`.
    pub token: Token,
}

pub type AccessTokenPage = Page<AccessToken>;

/// an id that starts with key_
pub type KeyId = String;

open_enum! {
    pub enum KeyType {
        Ed25519 = "ed25519",
        EcdsaSha2Nistp256 = "ecdsa-sha2-nistp256",
        EcdsaSha2Nistp384 = "ecdsa-sha2-nistp384",
        EcdsaSha2Nistp521 = "ecdsa-sha2-nistp521",
        Rsa = "rsa",
    }
}

/// An access token to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewAccessToken {
    /// The expiry, in the future. Without it, the token is valid until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    pub name: Title,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restrict: Option<Restrict>,
    pub scopes: Vec<Scope>,
}

/// An SSH key to add.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSSHKey {
    /// One line of a `.pub` file.
    pub key: String,
    pub title: Title,
}

/// The restriction of a new token. Outside the restriction, the API treats the token as if its user had no access.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restrict {
    /// The slug of an organization that the user belongs to.
    pub org: String,
    /// The names of projects in the organization.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
    /// The names of zones in the organization.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zones: Option<Vec<String>>,
}

/// The targets that a token is restricted to, by their current names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restriction {
    /// The slug of the organization.
    pub org: String,
    /// The projects that the token can access. Without projects and zones, it can access the whole organization.
    pub projects: Option<Vec<String>>,
    pub zones: Option<Vec<String>>,
}

/// An SSH key that gives access to the user's repositories.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SSHKey {
    pub created_at: Time,
    /// The fingerprint as `ssh-keygen -l` prints it: `SHA256:…`.
    pub fingerprint: String,
    pub id: KeyId,
    pub last_used_at: Option<Time>,
    pub title: String,
    pub r#type: KeyType,
}

pub type SSHKeyPage = Page<SSHKey>;

/// 1 to 100 characters, one of them visible, without control or text direction characters
pub type Title = String;

/// an id that starts with pat_
pub type TokenId = String;

impl Client {
    /// Register an SSH public key
    ///
    /// `POST /v1/me/ssh-keys`
    pub fn credentials_key_add(&self, body: &NewSSHKey) -> Call<SSHKey> {
        self.operation("credentials.key_add", Method::POST, &["v1", "me", "ssh-keys"]).idempotent().json(body)
    }

    /// Remove an SSH key
    ///
    /// `DELETE /v1/me/ssh-keys/{keyId}`
    pub fn credentials_key_delete(&self, key_id: &str) -> Call<()> {
        self.operation("credentials.key_delete", Method::DELETE, &["v1", "me", "ssh-keys", key_id])
    }

    /// List the caller's SSH keys, newest first
    ///
    /// `GET /v1/me/ssh-keys`
    pub fn credentials_keys(&self, query: &Paging) -> Call<SSHKeyPage> {
        self.operation("credentials.keys", Method::GET, &["v1", "me", "ssh-keys"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Create a personal access token, shown only once
    ///
    /// `POST /v1/me/tokens`
    pub fn credentials_token_create(&self, body: &NewAccessToken) -> Call<AccessTokenCreated> {
        self.operation("credentials.token_create", Method::POST, &["v1", "me", "tokens"]).idempotent().json(body)
    }

    /// Get the personal access token that authenticates the request
    ///
    /// `GET /v1/me/tokens/current`
    pub fn credentials_token_current(&self) -> Call<AccessToken> {
        self.operation("credentials.token_current", Method::GET, &["v1", "me", "tokens", "current"])
    }

    /// Revoke a personal access token
    ///
    /// `DELETE /v1/me/tokens/{tokenId}`
    pub fn credentials_token_revoke(&self, token_id: &str) -> Call<()> {
        self.operation("credentials.token_revoke", Method::DELETE, &["v1", "me", "tokens", token_id])
    }

    /// List the caller's personal access tokens, newest first
    ///
    /// `GET /v1/me/tokens`
    pub fn credentials_tokens(&self, query: &Paging) -> Call<AccessTokenPage> {
        self.operation("credentials.tokens", Method::GET, &["v1", "me", "tokens"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }
}
