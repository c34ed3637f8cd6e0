//! Sign-in and sign-out.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Email, Time, Token, UserId};
use crate::{Call, Client};

/// The user to sign in with the development login.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DevLogin {
    /// Replaces the user's address if it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<Email>,
    /// Replaces the user's name if it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub subject: Subject,
}

/// A new login session. Only this response contains the token.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub expires_at: Time,
    pub subject: String,
    /// The credential to send as `Authorization: Bearer …`.
    pub token: Token,
    pub user_id: UserId,
}

/// 1 to 64 characters of a-z, 0-9 and -
pub type Subject = String;

impl Client {
    /// Sign in on a development installation
    ///
    /// `POST /v1/auth/dev/login`
    pub fn auth_dev_login(&self, body: &DevLogin) -> Call<Session> {
        self.operation("auth.dev_login", Method::POST, &["v1", "auth", "dev", "login"]).json(body)
    }

    /// End the caller's login session
    ///
    /// `POST /v1/auth/logout`
    pub fn auth_logout(&self) -> Call<()> {
        self.operation("auth.logout", Method::POST, &["v1", "auth", "logout"]).idempotent()
    }
}
