//! Users, their sessions, and pending sign-ins.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{Paging, Provider, SessionId, Time, TokenHash, UserId};
use store::{Connection, Prepared, Result, newest_first, purge_batch};

use crate::model::{LoginSession, Profile};
use crate::schema::{pending_logins, sessions, users};

/// A user as authenticated by a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    pub provider: Provider,
    pub subject: String,
    pub name: Option<String>,
    pub email: Option<String>,
    pub avatar_url: Option<String>,
}

/// A session to insert, with the hash of its token only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    pub id: SessionId,
    pub user_id: UserId,
    pub token_hash: TokenHash,
    pub user_agent: Option<String>,
    pub created_at: Time,
    pub expires_at: Time,
}

/// A pending sign-in at the code host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRecord {
    /// The hash of the state that the code host sends back.
    pub state: TokenHash,
    /// The hash of the cookie in the browser that started the sign-in.
    pub browser: TokenHash,
    pub redirect: String,
    pub expires_at: Time,
}

/// Users, their sessions, and pending sign-ins on a [`store::Connection`].
pub trait IdentityRepository {
    /// Upserts the user with this provider and subject: inserts it under `id`, or updates its name, address and
    /// picture. If two calls run concurrently, the second one waits and updates the user that the first one inserted.
    async fn user_upsert(&mut self, id: UserId, sign_in: &SignIn, at: Time) -> Result<Profile>;

    /// Locks the user's row until the transaction ends, so that changes of one user's credentials run one after the
    /// other.
    async fn user_lock(&mut self, user: UserId) -> Result<()>;

    /// Inserts a session.
    async fn session_insert(&mut self, session: &NewSession) -> Result<()>;

    /// Keeps this new session and the `others` most recently used ones of its user. Deletes the user's other unexpired
    /// sessions, and returns them.
    async fn session_delete_unused(&mut self, new: &NewSession, others: i64) -> Result<Vec<SessionId>>;

    /// Deletes a batch of the expired sessions, and returns their number.
    async fn session_purge(&mut self, now: Time) -> Result<usize>;

    /// Deletes a session of the user. Returns false if the user has no such session.
    async fn session_delete(&mut self, user: UserId, session: SessionId) -> Result<bool>;

    /// Returns the user's unexpired sessions, newest first. `current` is the session of the request.
    async fn session_list(
        &mut self,
        user: UserId,
        current: SessionId,
        at: Time,
        paging: &Paging<SessionId>,
    ) -> Result<Vec<LoginSession>>;

    /// Sets the last use of a session to `at`, unless the stored one is `stale` or later.
    async fn session_touch(&mut self, session: SessionId, at: Time, stale: Time) -> Result<()>;

    /// Inserts a pending sign-in.
    async fn login_insert(&mut self, login: &LoginRecord) -> Result<()>;

    /// Deletes a batch of the expired sign-ins, and returns their number.
    async fn login_purge(&mut self, now: Time) -> Result<usize>;

    /// Deletes the unexpired sign-in with this state and browser and returns its redirect. Only one caller gets it.
    async fn login_consume(&mut self, state: TokenHash, browser: TokenHash, at: Time) -> Result<Option<String>>;
}

/// The new session is not always the most recent one, because clocks can be set back.
const DELETE_UNUSED: &str = "\
    DELETE FROM identity.sessions WHERE id IN ( \
        SELECT id FROM identity.sessions WHERE user_id = $1 AND id <> $2 AND expires_at > $3 \
        ORDER BY coalesce(last_used_at, created_at) DESC, id DESC OFFSET $4) \
    RETURNING id";
const PURGE_SESSIONS: &str = "\
    DELETE FROM identity.sessions WHERE id = ANY (ARRAY( \
        SELECT id FROM identity.sessions WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))";
const PURGE_LOGINS: &str = "\
    DELETE FROM identity.pending_logins WHERE state_hash = ANY (ARRAY( \
        SELECT state_hash FROM identity.pending_logins WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))";

#[diesel::declare_sql_function]
extern "SQL" {
    /// Returns the first argument that is not null.
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

#[derive(QueryableByName)]
struct DeletedSession {
    #[diesel(sql_type = Uuid)]
    id: SessionId,
}

impl IdentityRepository for Connection {
    async fn user_upsert(&mut self, id: UserId, sign_in: &SignIn, at: Time) -> Result<Profile> {
        let SignIn { provider, subject, name, email, avatar_url } = sign_in.clone();
        let row = UserRow { id, provider, subject, name, email, avatar_url, created_at: at };
        let upsert =
            diesel::insert_into(users::table).values(row).on_conflict((users::provider, users::subject)).do_update();
        let user: UserRow = match provider {
            // The code host always sends the whole profile: if a field is missing, the user has removed it.
            Provider::Codehost => {
                let profile = (
                    users::name.eq(excluded(users::name)),
                    users::email.eq(excluded(users::email)),
                    users::avatar_url.eq(excluded(users::avatar_url)),
                );
                upsert.set(profile).returning(UserRow::as_returning()).get_result(self).await?
            }
            // The development login sends only the fields that the user typed.
            Provider::Dev => {
                let profile = (
                    users::name.eq(coalesce(excluded(users::name), users::name)),
                    users::email.eq(coalesce(excluded(users::email), users::email)),
                    users::avatar_url.eq(coalesce(excluded(users::avatar_url), users::avatar_url)),
                );
                upsert.set(profile).returning(UserRow::as_returning()).get_result(self).await?
            }
        };
        Ok(user.into())
    }

    async fn user_lock(&mut self, user: UserId) -> Result<()> {
        // The row's key does not change, so use the weaker lock, which lets other transactions insert rows that
        // reference the user.
        users::table.find(user).select(users::id).for_no_key_update().execute(self).await?;
        Ok(())
    }

    async fn session_insert(&mut self, session: &NewSession) -> Result<()> {
        let NewSession { id, user_id, token_hash, user_agent, created_at, expires_at } = session;
        let (user_agent, created_at, expires_at) = (user_agent.as_deref(), *created_at, *expires_at);
        let row = SessionRow { id: *id, user_id: *user_id, token_hash, user_agent, created_at, expires_at };
        diesel::insert_into(sessions::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn session_delete_unused(&mut self, new: &NewSession, others: i64) -> Result<Vec<SessionId>> {
        let delete = diesel::sql_query(DELETE_UNUSED)
            .bind::<Uuid, _>(new.user_id)
            .bind::<Uuid, _>(new.id)
            .bind::<Timestamptz, _>(new.created_at)
            .bind::<BigInt, _>(others);
        let deleted: Vec<DeletedSession> = Prepared(delete).load(self).await?;
        Ok(deleted.into_iter().map(|session| session.id).collect())
    }

    async fn session_purge(&mut self, now: Time) -> Result<usize> {
        purge_batch(self, PURGE_SESSIONS, now).await
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
        let to_session = |(id, created_at, last_used_at, user_agent)| LoginSession {
            id,
            created_at,
            last_used_at,
            user_agent,
            current: id == current,
        };
        Ok(rows.into_iter().map(to_session).collect())
    }

    async fn session_touch(&mut self, session: SessionId, at: Time, stale: Time) -> Result<()> {
        let old = sessions::last_used_at.is_null().or(sessions::last_used_at.lt(stale));
        let touch = diesel::update(sessions::table.find(session).filter(old)).set(sessions::last_used_at.eq(at));
        Prepared(touch).execute(self).await?;
        Ok(())
    }

    async fn login_purge(&mut self, now: Time) -> Result<usize> {
        purge_batch(self, PURGE_LOGINS, now).await
    }

    async fn login_insert(&mut self, login: &LoginRecord) -> Result<()> {
        let row = (
            pending_logins::state_hash.eq(login.state),
            pending_logins::cookie_hash.eq(login.browser),
            pending_logins::redirect.eq(&login.redirect),
            pending_logins::expires_at.eq(login.expires_at),
        );
        diesel::insert_into(pending_logins::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn login_consume(&mut self, state: TokenHash, browser: TokenHash, at: Time) -> Result<Option<String>> {
        let own = pending_logins::table
            .find(state)
            .filter(pending_logins::cookie_hash.eq(browser).and(pending_logins::expires_at.gt(at)));
        Ok(diesel::delete(own).returning(pending_logins::redirect).get_result(self).await.optional()?)
    }
}

impl From<UserRow> for Profile {
    fn from(row: UserRow) -> Self {
        let UserRow { id, provider, subject, name, email, avatar_url, created_at } = row;
        Self { id, provider, subject, name, email, avatar_url, created_at }
    }
}
