//! Access policies, and the redirect flow that gives a member access to a project (specification, "Access control").

use kernel::audit::{Actor, Event};
use kernel::seal::{AssociatedData, Sealed};
use kernel::{AccessMode, InvalidField, ProjectId, Time, Token, TokenKind, UserId, hex};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Connection, Outcome};

use super::password::hash;
use super::{Org, Projects, Result};
use crate::error::ProjectError;
use crate::hostname::normalize;
use crate::model::{AccessAuthorize, AccessBypass, AccessChange, AccessPolicy, Authorize};
use crate::repository::{AccessRecord, AccessRepository as _, ProjectRepository as _};

/// The lifetime of an access code (contract section 5).
const CODE_SECONDS: i64 = 60;

/// The content of an access code. It is sealed and bound to its host.
#[derive(Serialize, Deserialize)]
struct AccessCode {
    id: uuid::Uuid,
    user: UserId,
    project: ProjectId,
    expires_at: Time,
}

impl Projects {
    /// Returns the access policy of a project.
    ///
    /// # Errors
    /// Returns [`ProjectError::NotFound`].
    pub async fn access(&self, project: ProjectId) -> Result<AccessPolicy> {
        let found = self.store.connection().await?.access_find(project).await?;
        found.map(AccessPolicy::from).ok_or(ProjectError::NotFound)
    }

    /// Sets the access policy. Without a password, the current password is kept. Setting the same policy is a no-op.
    ///
    /// # Errors
    /// Returns [`ProjectError::Field`] for the mode `password` if no password is set, or [`ProjectError::NotFound`].
    pub async fn access_set(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        change: AccessChange,
    ) -> Result<AccessPolicy> {
        let AccessChange { mode, password } = change;
        let new_hash = match password {
            Some(password) => Some(hash(self.store.clock_rng(), password).await?),
            None => None,
        };
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let before = tx.access_find(project).await?.ok_or(ProjectError::NotFound)?;
                if new_hash.is_none() && before.mode == mode {
                    return Ok(Outcome::Unchanged(before.into()));
                }
                let replaced = new_hash.is_some();
                let password = new_hash.or_else(|| before.password.clone());
                if mode == AccessMode::Password && password.is_none() {
                    let message = "is required: no password is set for this project";
                    return Err(InvalidField::new("password", message).into());
                }
                tx.access_set(project, mode, password.as_deref(), now).await?;
                self.update_desired(tx, project).await?;
                let data = json!({ "from": before.mode, "to": mode, "password": replaced });
                let policy = AccessRecord { mode, password, changed_at: now, ..before }.into();
                Ok(Outcome::Changed(policy, Event::in_org("access.set", org.id, project, data)))
            })
            .await
    }

    /// Creates a bypass key and replaces the previous one. Only this call returns the secret.
    ///
    /// # Errors
    /// Returns [`ProjectError::NotFound`].
    pub async fn access_bypass_new(&self, actor: &Actor, org: &Org, project: ProjectId) -> Result<AccessBypass> {
        let (secret, now) = (Token::mint(TokenKind::Bypass, self.store.clock_rng()), self.store.clock_rng().now());
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                tx.access_set_bypass(project, Some(secret.hash()), now).await?;
                self.update_desired(tx, project).await?;
                let event = Event::in_org("access.bypass.new", org.id, project, json!({}));
                Ok(Outcome::Changed(AccessBypass { secret, created_at: now }, event))
            })
            .await
    }

    /// Revokes the bypass key. Without a key this is a no-op.
    ///
    /// # Errors
    /// Returns [`ProjectError::NotFound`].
    pub async fn access_bypass_revoke(&self, actor: &Actor, org: &Org, project: ProjectId) -> Result<()> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let before = tx.access_find(project).await?.ok_or(ProjectError::NotFound)?;
                if before.bypass.is_none() {
                    return Ok(Outcome::Unchanged(()));
                }
                tx.access_set_bypass(project, None, now).await?;
                self.update_desired(tx, project).await?;
                Ok(Outcome::Changed((), Event::in_org("access.bypass.revoke", org.id, project, json!({}))))
            })
            .await
    }

    /// Checks that `user` may access a hostname. Returns the redirect URL with an access code, which the front redeems.
    ///
    /// # Errors
    /// Returns [`ProjectError::UnknownHostname`], [`ProjectError::Outsider`] or [`ProjectError::MembersOnly`]. Returns
    /// [`ProjectError::Field`] if `next` is not a path on that host.
    pub async fn access_authorize(&self, user: UserId, request: Authorize) -> Result<AccessAuthorize> {
        let Authorize { to, next } = request;
        if !is_path(&next) {
            let message = "must be a path: one leading slash, no backslash and no control characters";
            return Err(InvalidField::new("next", message).into());
        }
        let host = normalize(&to).ok_or(ProjectError::UnknownHostname)?;
        let mut connection = self.store.connection().await?;
        let protected = connection.access_hostname(&host).await?.ok_or(ProjectError::UnknownHostname)?;
        let role =
            self.organizations.role(&mut connection, protected.org, user).await?.ok_or(ProjectError::Outsider)?;
        drop(connection);
        if role < protected.min_role() {
            return Err(ProjectError::MembersOnly(role));
        }
        let (clock_rng, now) = (self.store.clock_rng(), self.store.clock_rng().now());
        let expires_at = now.plus_seconds(CODE_SECONDS);
        let code = AccessCode { id: clock_rng.id_at(now), user, project: protected.project, expires_at };
        let code = serde_json::to_vec(&code).map_err(store::Error::inconsistent)?;
        let Sealed { key_id, bytes } = self.store.seal(associated_data(&host), &code)?;
        let code = format!("{}.{}", hex(key_id.as_bytes()), hex(&bytes));
        let next = percent_encoding::utf8_percent_encode(&next, percent_encoding::NON_ALPHANUMERIC);
        let site = self.site.url.of(&host);
        Ok(AccessAuthorize { redirect: format!("{site}/__svc/access/callback?code={code}&next={next}") })
    }

    /// Redeems an access code at the host for which it was issued. A code can be redeemed only once. Returns the
    /// project and the user.
    ///
    /// # Errors
    /// Returns [`ProjectError::InvalidCode`].
    pub async fn access_redeem(&self, host: &str, code: &str) -> Result<(ProjectId, UserId)> {
        let invalid = || ProjectError::InvalidCode;
        let (key_id, bytes) = code.split_once('.').ok_or_else(invalid)?;
        let key_id = unhex(key_id).and_then(|id| String::from_utf8(id).ok()).ok_or_else(invalid)?;
        let sealed = Sealed { key_id, bytes: unhex(bytes).ok_or_else(invalid)? };
        let host = normalize(host).ok_or_else(invalid)?;
        let code = self.store.open(associated_data(&host), &sealed).map_err(|_| invalid())?;
        let AccessCode { id, user, project, expires_at } = serde_json::from_slice(&code).map_err(|_| invalid())?;
        let now = self.store.clock_rng().now();
        let mut connection = self.store.connection().await?;
        // The hostname may have moved to another project since the code was issued.
        let protected = connection
            .access_hostname(&host)
            .await?
            .filter(|protected| protected.project == project)
            .ok_or_else(invalid)?;
        // The policy or the membership may have changed too. The current state decides.
        let role = self.organizations.role(&mut connection, protected.org, user).await?;
        if role.is_none_or(|role| role < protected.min_role())
            || expires_at <= now
            || !connection.access_use_code(id, expires_at, now).await?
        {
            return Err(invalid());
        }
        Ok((project, user))
    }
}

/// Returns the associated data that binds a code to its host.
fn associated_data(host: &str) -> AssociatedData<'_> {
    AssociatedData { table: "projects.used_access_codes", row: host, field: "code" }
}

/// Returns whether `next` is a path that no browser interprets as another host (security rules, "OAuth").
fn is_path(next: &str) -> bool {
    let mut characters = next.chars();
    characters.next() == Some('/')
        && !matches!(characters.next(), Some('/' | '\\'))
        && !next.chars().any(|c| c == '\\' || c.is_control())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    if text.len() % 2 == 1 || !text.is_ascii() { None } else { (0..text.len()).step_by(2).map(digit).collect() }
}

impl From<AccessRecord> for AccessPolicy {
    fn from(record: AccessRecord) -> Self {
        let AccessRecord { mode, password, bypass, changed_at } = record;
        Self { mode, has_password: password.is_some(), has_bypass: bypass.is_some(), updated_at: changed_at }
    }
}
