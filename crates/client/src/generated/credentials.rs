//! The caller's personal access tokens and SSH keys.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Time, Token};
use crate::{Call, Client, Page, Paging, words};

/// A personal access token, without what it opens with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessToken {
    pub created_at: Time,
    /// Null for one that does not expire.
    pub expires_at: Option<Time>,
    pub id: TokenId,
    /// To within ten minutes.
    pub last_used_at: Option<Time>,
    pub name: String,
    /// Its first 12 characters.
    pub prefix: String,
    /// Null for one that reaches whatever its user does.
    pub restrict: Option<Restriction>,
    pub revoked_at: Option<Time>,
    pub scopes: Vec<Scope>,
}

/// A fresh token: the one answer that holds it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessTokenCreated {
    pub created_at: Time,
    /// Null for one that does not expire.
    pub expires_at: Option<Time>,
    pub id: TokenId,
    /// To within ten minutes.
    pub last_used_at: Option<Time>,
    pub name: String,
    /// Its first 12 characters.
    pub prefix: String,
    /// Null for one that reaches whatever its user does.
    pub restrict: Option<Restriction>,
    pub revoked_at: Option<Time>,
    pub scopes: Vec<Scope>,
    /// What to send as `Authorization: Bearer …`, or as the password of `Basic`.
    pub token: Token,
}

pub type AccessTokenPage = Page<AccessToken>;

/// an id that starts with key_
pub type KeyId = String;

words! {
    pub enum KeyType {
        Ed25519 = "ed25519",
        EcdsaSha2Nistp256 = "ecdsa-sha2-nistp256",
        EcdsaSha2Nistp384 = "ecdsa-sha2-nistp384",
        EcdsaSha2Nistp521 = "ecdsa-sha2-nistp521",
        Rsa = "rsa",
    }
}

/// The token to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewAccessToken {
    /// In the future; left out, the token lives until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    pub name: Title,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restrict: Option<Restrict>,
    pub scopes: Vec<Scope>,
}

/// The key to add.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSSHKey {
    /// One line of a `.pub` file.
    pub key: String,
    pub title: Title,
}

/// What a token is to be limited to. Outside of it the token is answered as if its user were not there.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restrict {
    /// The slug of an organization that the user belongs to.
    pub org: String,
    /// Names of projects in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
    /// Names of zones in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zones: Option<Vec<String>>,
}

/// What a token is limited to, by the names that the places have now.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restriction {
    /// The slug of the organization.
    pub org: String,
    /// Of its projects these alone; with neither projects nor zones named, the whole organization.
    pub projects: Option<Vec<String>>,
    pub zones: Option<Vec<String>>,
}

/// A key that opens the user's repositories over SSH.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SSHKey {
    pub created_at: Time,
    /// As `ssh-keygen -l` prints it: `SHA256:…`.
    pub fingerprint: String,
    pub id: KeyId,
    pub last_used_at: Option<Time>,
    pub title: String,
    pub r#type: KeyType,
}

pub type SSHKeyPage = Page<SSHKey>;

words! {
    pub enum Scope {
        AccountRead = "account:read",
        OrgRead = "org:read",
        OrgWrite = "org:write",
        ProjectRead = "project:read",
        ProjectWrite = "project:write",
        Deploy = "deploy",
        DnsRead = "dns:read",
        DnsWrite = "dns:write",
        BillingRead = "billing:read",
        BillingWrite = "billing:write",
        GitRead = "git:read",
        GitWrite = "git:write",
        AiUse = "ai:use",
    }
}

/// 1 to 100 characters, none of them a control character
pub type Title = String;

/// an id that starts with pat_
pub type TokenId = String;

impl Client {
    /// Register an SSH public key
    ///
    /// `POST /v1/me/ssh-keys`
    pub fn credentials_key_add(&self, body: &NewSSHKey) -> Call<SSHKey> {
        self.operation("credentials.key_add", Method::POST, &["v1", "me", "ssh-keys"]).once().json(body)
    }

    /// Remove an SSH key
    ///
    /// `DELETE /v1/me/ssh-keys/{keyId}`
    pub fn credentials_key_delete(&self, key_id: &str) -> Call<()> {
        self.operation("credentials.key_delete", Method::DELETE, &["v1", "me", "ssh-keys", key_id])
    }

    /// The caller's SSH keys, newest first
    ///
    /// `GET /v1/me/ssh-keys`
    pub fn credentials_keys(&self, query: &Paging) -> Call<SSHKeyPage> {
        self.operation("credentials.keys", Method::GET, &["v1", "me", "ssh-keys"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Create a personal access token; it is shown this once
    ///
    /// `POST /v1/me/tokens`
    pub fn credentials_token_create(&self, body: &NewAccessToken) -> Call<AccessTokenCreated> {
        self.operation("credentials.token_create", Method::POST, &["v1", "me", "tokens"]).once().json(body)
    }

    /// The token that the request is made with
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

    /// The caller's personal access tokens, newest first
    ///
    /// `GET /v1/me/tokens`
    pub fn credentials_tokens(&self, query: &Paging) -> Call<AccessTokenPage> {
        self.operation("credentials.tokens", Method::GET, &["v1", "me", "tokens"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }
}
