//! Signing in: finds or creates the user of an account at a provider, and creates a session.

use std::sync::Arc;

use protocol::{Auth, AuthProviderKind};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::sessions::registrations;
use super::sql_uuid::SqlUuid;
use super::{Pool, Result, StoreError, TokenDigest};
use crate::auth::provider::Profile;
use crate::auth::user_id::new_user_id;

/// The key of the advisory lock of sign-ins with a new identity: "sign-ups" in ASCII. Without it, two concurrent
/// sign-ins of one person could create two users.
const LOCK: i64 = 0x7369_676e_2d75_7073;
/// The largest number of sessions of a user. Without it, one person could fill the table and so end those of others.
const MAX_SESSIONS: i64 = 50;
/// The largest number of sessions above that limit that a sign-in ends, so that it does not take long. An earlier release
/// had no limit.
const MAX_ENDED: i64 = 500;
/// The number of attempts if the user is deleted at the same time.
const MAX_ATTEMPTS: usize = 3;

/// A sign-in that a provider confirmed.
pub struct NewSession<'a> {
    pub auth: &'a Auth,
    pub provider: AuthProviderKind,
    pub registration: i64,
    /// The client of the project at the provider.
    pub client_id: &'a str,
    pub profile: &'a Profile,
    /// The token of the new session.
    pub token: TokenDigest,
    /// A digest of the state of the flow.
    pub state: Uuid,
    /// The earlier session of the browser, which ends.
    pub previous: Option<TokenDigest>,
}

impl Pool {
    /// Creates a session. Also creates the user at the first sign-in, unless the identity is linked to an existing user
    /// (docs/auth.md, "Linked identities").
    ///
    /// # Errors
    /// Returns [`StoreError::UsedState`] if the flow has already created a session, [`StoreError::EndedRegistration`] if
    /// the account has already signed in with a later registration of the provider, and another error if the database
    /// fails.
    pub async fn sign_in(self: &Arc<Self>, new: &NewSession<'_>) -> Result<()> {
        let mut attempts = 1;
        loop {
            match self.try_sign_in(new).await {
                Err(StoreError::Postgres(error))
                    if error.code() == Some(&SqlState::FOREIGN_KEY_VIOLATION) && attempts < MAX_ATTEMPTS =>
                {
                    attempts += 1;
                }
                Err(StoreError::Postgres(error)) if is_used_state(&error) => return Err(StoreError::UsedState),
                result => return result,
            }
        }
    }

    async fn try_sign_in(self: &Arc<Self>, new: &NewSession<'_>) -> Result<()> {
        let epoch = self.access()?.epoch;
        let mut session = self.session().await?;
        let transaction = session.transaction().await?;
        let user = match new.find_user(&transaction).await? {
            Some(user) => user,
            None => {
                transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
                match new.find_user(&transaction).await? {
                    Some(user) => user,
                    None => new.add_identity(&transaction).await?,
                }
            }
        };
        new.update_user(&transaction, user).await?;
        new.replace_session(&transaction, user, epoch).await?;
        transaction.commit().await?;
        self.count_sign_in();
        Ok(())
    }
}

impl NewSession<'_> {
    /// Returns the user of the identity.
    async fn find_user(&self, transaction: &Transaction<'_>) -> Result<Option<SqlUuid>> {
        const FIND: &str = "SELECT user_id FROM svc_auth.identities \
                            WHERE provider = $1 AND subject = $2 AND registration = $3";
        let key: [&(dyn ToSql + Sync); 3] = [&self.provider.as_str(), &self.profile.subject, &self.registration];
        Ok(transaction.query_opt(FIND, &key).await?.map(|row| row.try_get(0)).transpose()?)
    }

    /// Adds the identity, for the user with the same verified address or for a new user. Returns the user.
    async fn add_identity(&self, transaction: &Transaction<'_>) -> Result<SqlUuid> {
        // The users with the address, and whether each already has an account at this provider. Two are enough to see
        // that the address does not identify one user. An account of an earlier client counts only if an account kept
        // its subject when the client changed: otherwise the provider can state another subject for the same person
        // (OpenID Connect Core, section 8.1).
        const FIND_LINKED: &str = "SELECT DISTINCT user_id, EXISTS (SELECT FROM svc_auth.identities own \
                WHERE own.user_id = found.user_id AND own.provider = $4 AND own.registration = $5 \
                AND (own.client_id = $6 OR EXISTS (SELECT FROM svc_auth.identities kept \
                    WHERE kept.provider = $4 AND kept.registration = $5 AND kept.client_id = $6 \
                    AND kept.first_client_id <> kept.client_id))) AS has_account \
            FROM svc_auth.identities found WHERE verified_email = $1 \
            AND (provider, registration) IN (SELECT * FROM unnest($2::text[], $3::bigint[])) LIMIT 2";
        const ADD_USER: &str = "INSERT INTO svc_auth.users (id, provider) VALUES ($1, $2)";
        // An identity of an earlier registration of the provider has ended, so it is replaced.
        const ADD: &str = "INSERT INTO svc_auth.identities \
                (provider, subject, registration, user_id, client_id, first_client_id) \
            VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (provider, subject) \
            DO UPDATE SET registration = excluded.registration, user_id = excluded.user_id, \
                client_id = excluded.client_id, first_client_id = excluded.first_client_id, created_at = now() \
            WHERE identities.registration < excluded.registration";
        let (provider, verified_email) = (self.provider.as_str(), &self.profile.verified_email);
        let found = match verified_email {
            Some(address) => {
                let (providers, registrations) = registrations(self.auth);
                let parameters: [&(dyn ToSql + Sync); 6] =
                    [address, &providers, &registrations, &provider, &self.registration, &self.client_id];
                transaction.query(FIND_LINKED, &parameters).await?
            }
            None => Vec::new(),
        };
        // A second account that counts has the address only if the provider gave it to another person.
        let linked = match found.as_slice() {
            [row] if !row.try_get::<_, bool>("has_account")? => Some(row.try_get("user_id")?),
            _ => None,
        };
        let user = match linked {
            Some(user) => user,
            None => {
                let user = SqlUuid(new_user_id());
                transaction.execute(ADD_USER, &[&user, &provider]).await?;
                user
            }
        };
        let identity: [&(dyn ToSql + Sync); 5] =
            [&provider, &self.profile.subject, &self.registration, &user, &self.client_id];
        match transaction.execute(ADD, &identity).await? {
            0 => Err(StoreError::EndedRegistration),
            _ => Ok(user),
        }
    }

    async fn update_user(&self, transaction: &Transaction<'_>, user: SqlUuid) -> Result<()> {
        const UPDATE_USER: &str =
            "UPDATE svc_auth.users SET provider = $2, name = $3, email = $4, avatar_url = $5 WHERE id = $1";
        const UPDATE_IDENTITY: &str = "UPDATE svc_auth.identities SET verified_email = $3, client_id = $4 \
            WHERE provider = $1 AND subject = $2 AND (verified_email IS DISTINCT FROM $3 OR client_id <> $4)";
        let Profile { subject, name, email, verified_email, avatar_url } = self.profile;
        let provider = self.provider.as_str();
        transaction.execute(UPDATE_USER, &[&user, &provider, name, email, avatar_url]).await?;
        transaction.execute(UPDATE_IDENTITY, &[&provider, subject, verified_email, &self.client_id]).await?;
        Ok(())
    }

    /// Ends the earlier session of the browser, adds the new one, and ends the oldest ones above the limit of the user.
    /// The time of the last use can be a day old, so among sessions of one day, one that is in use can end. Sign-ins of
    /// one user wait for each other, because each has updated the user.
    async fn replace_session(&self, transaction: &Transaction<'_>, user: SqlUuid, epoch: i64) -> Result<()> {
        const END: &str = "DELETE FROM svc_auth.sessions WHERE token = $1";
        const ADD: &str = r#"
            INSERT INTO svc_auth.sessions (token, state, user_id, provider, registration, "grant", epoch)
            VALUES ($1, $2, $3, $4, $5, $6, $7)"#;
        const END_OLDEST: &str = "DELETE FROM svc_auth.sessions WHERE token IN (SELECT token FROM svc_auth.sessions \
            WHERE user_id = $1 ORDER BY used_at DESC, created_at DESC OFFSET $2 LIMIT $3)";
        if let Some(previous) = &self.previous {
            transaction.execute(END, &[&previous.as_bytes()]).await?;
        }
        let (token, provider) = (self.token.as_bytes(), self.provider.as_str());
        transaction
            .execute(
                ADD,
                &[&token, &SqlUuid(self.state), &user, &provider, &self.registration, &self.auth.grant, &epoch],
            )
            .await?;
        transaction.execute(END_OLDEST, &[&user, &MAX_SESSIONS, &MAX_ENDED]).await?;
        Ok(())
    }
}

fn is_used_state(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::UNIQUE_VIOLATION && error.constraint() == Some("sessions_state")
    })
}
