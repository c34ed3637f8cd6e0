//! The repository on Postgres.

use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{Provider, SessionId, Time, TokenHash, UserId};
use store::{Cached, Connection, Result};

use crate::model::Profile;
use crate::repository::{IdentityRepository, NewSession, SignIn};
use crate::schema::{sessions, users};

#[diesel::declare_sql_function]
extern "SQL" {
    /// The first of the two that is not null.
    fn coalesce(new: Nullable<Text>, old: Nullable<Text>) -> Nullable<Text>;
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = users)]
struct UserRow {
    id: UserId,
    provider: Provider,
    subject: String,
    name: Option<String>,
    email: Option<String>,
    avatar_url: Option<String>,
    created_at: Time,
}

#[derive(Insertable)]
#[diesel(table_name = sessions)]
struct SessionRow<'a> {
    id: SessionId,
    user_id: UserId,
    token_hash: &'a TokenHash,
    user_agent: Option<&'a str>,
    created_at: Time,
    expires_at: Time,
}

impl IdentityRepository for Connection {
    async fn user_upsert(&mut self, id: UserId, sign_in: &SignIn, at: Time) -> Result<Profile> {
        let SignIn { provider, subject, name, email, avatar_url } = sign_in.clone();
        let row = UserRow { id, provider, subject, name, email, avatar_url, created_at: at };
        let upsert = diesel::insert_into(users::table)
            .values(row)
            .on_conflict((users::provider, users::subject))
            .do_update()
            .set((
                users::name.eq(coalesce(excluded(users::name), users::name)),
                users::email.eq(coalesce(excluded(users::email), users::email)),
                users::avatar_url.eq(coalesce(excluded(users::avatar_url), users::avatar_url)),
            ))
            .returning(UserRow::as_returning());
        Ok(upsert.get_result::<UserRow>(self).await?.into())
    }

    async fn session_insert(&mut self, session: &NewSession) -> Result<()> {
        let NewSession { id, user_id, token_hash, user_agent, created_at, expires_at } = session;
        let (user_agent, created_at, expires_at) = (user_agent.as_deref(), *created_at, *expires_at);
        let row = SessionRow { id: *id, user_id: *user_id, token_hash, user_agent, created_at, expires_at };
        diesel::insert_into(sessions::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn session_delete(&mut self, session: SessionId) -> Result<bool> {
        Ok(Cached(diesel::delete(sessions::table.find(session))).execute(self).await? == 1)
    }
}

impl From<UserRow> for Profile {
    fn from(row: UserRow) -> Self {
        let UserRow { id, provider, subject, name, email, avatar_url, created_at } = row;
        Self { id, provider, subject, name, email, avatar_url, created_at }
    }
}
