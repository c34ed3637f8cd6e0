//! The users of a project.

use std::sync::Arc;

use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

use super::sql_uuid::SqlUuid;
use super::{Pool, Result};
use crate::auth::user_id::{parse_user_id, user_id};

/// The largest page of a listing.
pub const MAX_PAGE: i64 = 100;

/// A user, as worker code and `/__svc/auth/session` show it (runtime.md, "App user auth").
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// `sub_…`. It never changes.
    pub id: String,
    /// The name at the last sign-in; null if the provider states none.
    pub name: Option<String>,
    /// The address at the last sign-in; null if the provider states none, or if an OpenID provider does not call it
    /// verified. That of a code host may be unverified.
    pub email: Option<String>,
    /// An http or https URL; null if the provider states none.
    pub avatar_url: Option<String>,
    /// The provider of the session, or that of the last sign-in.
    pub provider: String,
}

/// A page of users, in the order of their creation.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct UserPage {
    pub users: Vec<User>,
    /// The cursor of the next page; null on the last page.
    pub cursor: Option<String>,
}

impl User {
    /// Reads a row with the columns `id`, `name`, `email`, `avatar_url` and `provider`.
    pub(super) fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            id: user_id(row.try_get::<_, SqlUuid>("id")?.0),
            name: row.try_get("name")?,
            email: row.try_get("email")?,
            avatar_url: row.try_get("avatar_url")?,
            provider: row.try_get("provider")?,
        })
    }
}

impl Pool {
    /// Returns a user; `None` if there is no such user or the id is malformed.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn user(self: &Arc<Self>, id: &str) -> Result<Option<User>> {
        const FIND: &str = "SELECT id, name, email, avatar_url, provider FROM svc_auth.users WHERE id = $1";
        let Some(id) = parse_user_id(id) else { return Ok(None) };
        self.query(FIND, &[&SqlUuid(id)]).await?.first().map(User::read).transpose()
    }

    /// Returns at most `limit` users after the one with the id `after`.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn users(self: &Arc<Self>, limit: i64, after: Option<Uuid>) -> Result<UserPage> {
        const LIST: &str = "SELECT id, name, email, avatar_url, provider FROM svc_auth.users \
                            WHERE id > $1 ORDER BY id LIMIT $2";
        let limit = limit.clamp(1, MAX_PAGE);
        let after = SqlUuid(after.unwrap_or_default());
        let rows = self.query(LIST, &[&after, &(limit + 1)]).await?;
        let page = usize::try_from(limit).unwrap_or_default();
        let users = rows.iter().take(page).map(User::read).collect::<Result<Vec<_>>>()?;
        let cursor = users.last().filter(|_| rows.len() > page).map(|user| user.id.clone());
        Ok(UserPage { users, cursor })
    }

    /// Deletes a user with all identities and sessions. An unknown id is not an error.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn delete_user(self: &Arc<Self>, id: &str) -> Result<()> {
        const DELETE: &str = "DELETE FROM svc_auth.users WHERE id = $1";
        let Some(id) = parse_user_id(id) else { return Ok(()) };
        self.query(DELETE, &[&SqlUuid(id)]).await.map(drop)
    }
}
