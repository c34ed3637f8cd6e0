//! The sessions of users.

use std::sync::Arc;
use std::time::Duration;

use protocol::Auth;
use ring::digest::{SHA256, digest};

use super::{Pool, Result, User};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The length of a SHA-256 digest.
pub const DIGEST_BYTES: usize = 32;

/// The SHA-256 of the token of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; DIGEST_BYTES]);

impl TokenDigest {
    /// Hashes a token.
    pub fn of(token: &[u8]) -> Self {
        let mut bytes = [0; DIGEST_BYTES];
        bytes.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(bytes)
    }

    /// Reads the bytes of a digest.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns how long a session lasts without a request.
pub fn lifetime(auth: &Auth) -> Duration {
    DAY * u32::from(auth.session_days)
}

/// Returns the time after which a request prolongs a session: a day, or half of the lifetime of shorter sessions.
pub fn slide_interval(auth: &Auth) -> Duration {
    DAY.min(lifetime(auth) / 2)
}

/// Returns the providers of the project and their registrations, as two columns.
pub fn registrations(auth: &Auth) -> (Vec<&'static str>, Vec<i64>) {
    auth.providers.iter().map(|it| (it.provider.as_str(), it.registration)).unzip()
}

impl Pool {
    /// Returns the user of a session, and prolongs the session if that is due, in one statement. Returns `None` if the
    /// session does not exist or has ended.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn resolve(self: &Arc<Self>, auth: &Auth, token: &TokenDigest) -> Result<Option<User>> {
        const RESOLVE: &str = r#"
            WITH found AS MATERIALIZED (
                SELECT s.token, s.used_at, s.provider, u.id, u.name, u.email, u.avatar_url
                FROM svc_auth.sessions s JOIN svc_auth.users u ON u.id = s.user_id
                WHERE s.token = $1 AND s."grant" = $2 AND s.epoch = $3 AND s.used_at > now() - $4 * interval '1 second'
                    AND (s.provider, s.registration) IN (SELECT * FROM unnest($6::text[], $7::bigint[]))
            ), prolonged AS (
                UPDATE svc_auth.sessions s SET used_at = now() FROM found
                WHERE s.token = found.token AND found.used_at < now() - $5 * interval '1 second'
            )
            SELECT id, name, email, avatar_url, provider FROM found"#;
        let epoch = self.access()?.epoch;
        let (lifetime, interval) = (lifetime(auth).as_secs_f64(), slide_interval(auth).as_secs_f64());
        let (providers, registrations) = registrations(auth);
        let token = token.as_bytes();
        let rows = self
            .query(RESOLVE, &[&token, &auth.grant, &epoch, &lifetime, &interval, &providers, &registrations])
            .await?;
        rows.first().map(User::read).transpose()
    }

    /// Ends a session. Returns whether it existed.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn end_session(self: &Arc<Self>, token: &TokenDigest) -> Result<bool> {
        const END: &str = "DELETE FROM svc_auth.sessions WHERE token = $1 RETURNING 1";
        Ok(!self.query(END, &[&token.as_bytes()]).await?.is_empty())
    }
}
