//! Signing in and out.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Email, Time, Token, UserId};
use crate::{Call, Client};

/// Who wants to sign in, on a deployment with the development login.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DevLogin {
    /// Replaces the user's address when given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<Email>,
    /// Replaces the user's name when given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub subject: Subject,
}

/// A fresh login session: the one answer that holds its token.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub expires_at: Time,
    pub subject: String,
    /// What to send as `Authorization: Bearer …`.
    pub token: Token,
    pub user_id: UserId,
}

/// 1 to 64 characters of a-z, 0-9 and -
pub type Subject = String;

impl Client {
    /// Sign in on a development deployment
    ///
    /// `POST /v1/auth/dev/login`
    pub fn auth_dev_login(&self, body: &DevLogin) -> Call<Session> {
        self.operation("auth.dev_login", Method::POST, &["v1", "auth", "dev", "login"]).json(body)
    }

    /// End the session that the request is made with
    ///
    /// `POST /v1/auth/logout`
    pub fn auth_logout(&self) -> Call<()> {
        self.operation("auth.logout", Method::POST, &["v1", "auth", "logout"]).once()
    }
}
