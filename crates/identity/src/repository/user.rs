//! Users, their sessions, and sign-ins that are under way.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{Paging, Provider, SessionId, Time, TokenHash, UserId};
use store::{Cached, Connection, Result, newest_first};

use crate::model::{LoginSession, Profile};
use crate::schema::{logins, sessions, users};

/// Somebody whom a provider vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    pub provider: Provider,
    pub subject: String,
    pub name: Option<String>,
    pub email: Option<String>,
    pub avatar_url: Option<String>,
}

/// A session to write; of the token only its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    pub id: SessionId,
    pub user_id: UserId,
    pub token_hash: TokenHash,
    pub user_agent: Option<String>,
    pub created_at: Time,
    pub expires_at: Time,
}

/// A sign-in at the code host that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRecord {
    /// Of the state that the code host hands back.
    pub state: TokenHash,
    /// Of the cookie in the one browser that may come back with it.
    pub browser: TokenHash,
    pub redirect: String,
    pub expires_at: Time,
}

/// Users, their sessions, and sign-ins that are under way, on a [`store::Connection`].
pub trait IdentityRepository {
    /// The user of this provider and subject: a new one under `id`, or the one there is, with whatever the provider
    /// now says of name, address and picture. Of two at once the second waits and finds the first's.
    async fn user_upsert(&mut self, id: UserId, sign_in: &SignIn, at: Time) -> Result<Profile>;

    /// Writes a session.
    async fn session_insert(&mut self, session: &NewSession) -> Result<()>;

    /// Removes the user's sessions that have expired.
    async fn session_delete_expired(&mut self, user: UserId, at: Time) -> Result<()>;

    /// Ends a session of the user's; false when there is none.
    async fn session_delete(&mut self, user: UserId, session: SessionId) -> Result<bool>;

    /// The user's sessions that have not expired, newest first; `current` is the one that asks.
    async fn session_list(
        &mut self,
        user: UserId,
        current: SessionId,
        at: Time,
        paging: &Paging<SessionId>,
    ) -> Result<Vec<LoginSession>>;

    /// Notes that a session is in use, unless that was noted after `stale`.
    async fn session_touch(&mut self, session: SessionId, at: Time, stale: Time) -> Result<()>;

    /// Writes a sign-in that is under way.
    async fn login_insert(&mut self, login: &LoginRecord) -> Result<()>;

    /// Forgets sign-ins that have expired, so many at once: how many.
    async fn login_forget(&mut self, at: Time, most: i64) -> Result<usize>;

    /// Takes the sign-in of this state and browser out: where its browser goes. Nobody else gets it after that.
    async fn login_take(&mut self, state: TokenHash, browser: TokenHash, at: Time) -> Result<Option<String>>;
}

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
        let upsert =
            diesel::insert_into(users::table).values(row).on_conflict((users::provider, users::subject)).do_update();
        let user: UserRow = match provider {
            // It says all that it knows: what it says no longer, a user has taken back.
            Provider::Codehost => {
                let said = (
                    users::name.eq(excluded(users::name)),
                    users::email.eq(excluded(users::email)),
                    users::avatar_url.eq(excluded(users::avatar_url)),
                );
                upsert.set(said).returning(UserRow::as_returning()).get_result(self).await?
            }
            // It says what somebody typed, which may be nothing.
            Provider::Dev => {
                let said = (
                    users::name.eq(coalesce(excluded(users::name), users::name)),
                    users::email.eq(coalesce(excluded(users::email), users::email)),
                    users::avatar_url.eq(coalesce(excluded(users::avatar_url), users::avatar_url)),
                );
                upsert.set(said).returning(UserRow::as_returning()).get_result(self).await?
            }
        };
        Ok(user.into())
    }

    async fn session_insert(&mut self, session: &NewSession) -> Result<()> {
        let NewSession { id, user_id, token_hash, user_agent, created_at, expires_at } = session;
        let (user_agent, created_at, expires_at) = (user_agent.as_deref(), *created_at, *expires_at);
        let row = SessionRow { id: *id, user_id: *user_id, token_hash, user_agent, created_at, expires_at };
        diesel::insert_into(sessions::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn session_delete_expired(&mut self, user: UserId, at: Time) -> Result<()> {
        let expired = sessions::table.filter(sessions::user_id.eq(user).and(sessions::expires_at.le(at)));
        diesel::delete(expired).execute(self).await?;
        Ok(())
    }

    async fn session_delete(&mut self, user: UserId, session: SessionId) -> Result<bool> {
        let own = sessions::table.find(session).filter(sessions::user_id.eq(user));
        Ok(diesel::delete(own).execute(self).await? == 1)
    }

    async fn session_list(
        &mut self,
        user: UserId,
        current: SessionId,
        at: Time,
        paging: &Paging<SessionId>,
    ) -> Result<Vec<LoginSession>> {
        let live = sessions::table.filter(sessions::expires_at.gt(at)).select((
            sessions::id,
            sessions::created_at,
            sessions::last_used_at,
            sessions::user_agent,
        ));
        let page = newest_first!(live, sessions::user_id = user, sessions::id, paging);
        let rows = page.load::<(SessionId, Time, Option<Time>, Option<String>)>(self).await?;
        let show = |(id, created_at, last_used_at, user_agent)| LoginSession {
            id,
            created_at,
            last_used_at,
            user_agent,
            current: id == current,
        };
        Ok(rows.into_iter().map(show).collect())
    }

    async fn session_touch(&mut self, session: SessionId, at: Time, stale: Time) -> Result<()> {
        let old = sessions::last_used_at.is_null().or(sessions::last_used_at.lt(stale));
        let touch = diesel::update(sessions::table.find(session).filter(old)).set(sessions::last_used_at.eq(at));
        Cached(touch).execute(self).await?;
        Ok(())
    }

    async fn login_forget(&mut self, at: Time, most: i64) -> Result<usize> {
        let old = diesel::sql_query(
            "DELETE FROM identity.logins WHERE state_hash = ANY (ARRAY( \
                SELECT state_hash FROM identity.logins WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))",
        );
        Ok(Cached(old.bind::<Timestamptz, _>(at).bind::<BigInt, _>(most)).execute(self).await?)
    }

    async fn login_insert(&mut self, login: &LoginRecord) -> Result<()> {
        let row = (
            logins::state_hash.eq(login.state),
            logins::browser_hash.eq(login.browser),
            logins::redirect.eq(&login.redirect),
            logins::expires_at.eq(login.expires_at),
        );
        diesel::insert_into(logins::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn login_take(&mut self, state: TokenHash, browser: TokenHash, at: Time) -> Result<Option<String>> {
        let own = logins::table.find(state).filter(logins::browser_hash.eq(browser).and(logins::expires_at.gt(at)));
        Ok(diesel::delete(own).returning(logins::redirect).get_result(self).await.optional()?)
    }
}

impl From<UserRow> for Profile {
    fn from(row: UserRow) -> Self {
        let UserRow { id, provider, subject, name, email, avatar_url, created_at } = row;
        Self { id, provider, subject, name, email, avatar_url, created_at }
    }
}
