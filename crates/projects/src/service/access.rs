//! The use cases of access: who may see a project, and the round trip that lets a member in (specification, "Access
//! control").

use kernel::audit::{Actor, Event};
use kernel::seal::{Place, Sealed};
use kernel::{AccessMode, Malformed, ProjectId, Time, Token, TokenKind, UserId, hex};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Connection, Outcome};

use super::password::hash;
use super::{Org, Projects, Result};
use crate::error::ProjectError;
use crate::hostname::normalised;
use crate::model::{AccessAuthorize, AccessBypass, AccessChange, AccessPolicy, Authorize};
use crate::repository::{AccessRecord, AccessRepository as _, ProjectRepository as _};

/// How long a code of the round trip can be used (contract section 5).
const CODE_SECONDS: i64 = 60;

/// What a code says. It is sealed, and opens for its own host alone.
#[derive(Serialize, Deserialize)]
struct Code {
    id: uuid::Uuid,
    user: UserId,
    project: ProjectId,
    expires_at: Time,
}

impl Projects {
    /// Who may see the project.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`].
    pub async fn access(&self, project: ProjectId) -> Result<AccessPolicy> {
        let found = self.store.connection().await?.access_find(project).await?;
        found.map(AccessPolicy::from).ok_or(ProjectError::NotFound)
    }

    /// Sets who may see the project. Without a password the one there is stays; the same policy again changes nothing.
    ///
    /// # Errors
    /// [`ProjectError::Field`] for the mode `password` when none was ever set, [`ProjectError::NotFound`].
    pub async fn access_set(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        change: AccessChange,
    ) -> Result<AccessPolicy> {
        let AccessChange { mode, password } = change;
        let fresh = match password {
            Some(password) => Some(hash(self.store.world(), password).await?),
            None => None,
        };
        let now = self.store.world().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let before = tx.access_find(project).await?.ok_or(ProjectError::NotFound)?;
                if fresh.is_none() && before.mode == mode {
                    return Ok(Outcome::Unchanged(before.into()));
                }
                let replaced = fresh.is_some();
                let password = fresh.or_else(|| before.password.clone());
                if mode == AccessMode::Password && password.is_none() {
                    let message = "is needed: no password was ever set for this project";
                    return Err(Malformed::new("password", message).into());
                }
                tx.access_set(project, mode, password.as_deref(), now).await?;
                self.serve(tx, project).await?;
                let data = json!({ "from": before.mode, "to": mode, "password": replaced });
                let policy = AccessRecord { mode, password, changed_at: now, ..before }.into();
                Ok(Outcome::Changed(policy, Event::in_org("access.set", org.id, project, data)))
            })
            .await
    }

    /// Makes a key that passes by the policy: the one time that it is shown. The one before opens nothing any more.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`].
    pub async fn access_bypass_new(&self, actor: &Actor, org: &Org, project: ProjectId) -> Result<AccessBypass> {
        let (secret, now) = (Token::mint(TokenKind::Bypass, self.store.world()), self.store.world().now());
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                tx.access_set_bypass(project, Some(secret.hash()), now).await?;
                self.serve(tx, project).await?;
                let event = Event::in_org("access.bypass.new", org.id, project, json!({}));
                Ok(Outcome::Changed(AccessBypass { secret, created_at: now }, event))
            })
            .await
    }

    /// Removes the key that passes by the policy, if there is one.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`].
    pub async fn access_bypass_revoke(&self, actor: &Actor, org: &Org, project: ProjectId) -> Result<()> {
        let now = self.store.world().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let before = tx.access_find(project).await?.ok_or(ProjectError::NotFound)?;
                if before.bypass.is_none() {
                    return Ok(Outcome::Unchanged(()));
                }
                tx.access_set_bypass(project, None, now).await?;
                self.serve(tx, project).await?;
                Ok(Outcome::Changed((), Event::in_org("access.bypass.revoke", org.id, project, json!({}))))
            })
            .await
    }

    /// Lets `user` in at a hostname: where to move the browser, with a code that the front there redeems.
    ///
    /// # Errors
    /// [`ProjectError::UnknownHostname`], [`ProjectError::Outsider`], [`ProjectError::MembersOnly`],
    /// [`ProjectError::Field`] for a `next` that is no path of that host.
    pub async fn access_authorize(&self, user: UserId, asked: Authorize) -> Result<AccessAuthorize> {
        let Authorize { to, next } = asked;
        if !is_path(&next) {
            let message = "must be a path: one leading slash, no backslash and no control characters";
            return Err(Malformed::new("next", message).into());
        }
        let host = normalised(&to).ok_or(ProjectError::UnknownHostname)?;
        let mut connection = self.store.connection().await?;
        let door = connection.access_door(&host).await?.ok_or(ProjectError::UnknownHostname)?;
        let role = self.organizations.role(&mut connection, door.org, user).await?.ok_or(ProjectError::Outsider)?;
        drop(connection);
        if role < door.least() {
            return Err(ProjectError::MembersOnly(role));
        }
        let (world, now) = (self.store.world(), self.store.world().now());
        let expires_at = now.plus_seconds(CODE_SECONDS);
        let code = Code { id: world.id_at(now), user, project: door.project, expires_at };
        let code = serde_json::to_vec(&code).map_err(store::Error::inconsistent)?;
        let Sealed { key_id, bytes } = self.store.seal(place(&host), &code)?;
        let code = format!("{}.{}", hex(key_id.as_bytes()), hex(&bytes));
        let next = percent_encoding::utf8_percent_encode(&next, percent_encoding::NON_ALPHANUMERIC);
        let site = self.site.url.of(&host);
        Ok(AccessAuthorize { redirect: format!("{site}/__svc/access/callback?code={code}&next={next}") })
    }

    /// Redeems a code at the host that it was made for, once: who comes in, and to which project.
    ///
    /// # Errors
    /// [`ProjectError::InvalidCode`].
    pub async fn access_redeem(&self, host: &str, code: &str) -> Result<(ProjectId, UserId)> {
        let invalid = || ProjectError::InvalidCode;
        let (key_id, bytes) = code.split_once('.').ok_or_else(invalid)?;
        let key_id = unhex(key_id).and_then(|id| String::from_utf8(id).ok()).ok_or_else(invalid)?;
        let sealed = Sealed { key_id, bytes: unhex(bytes).ok_or_else(invalid)? };
        let host = normalised(host).ok_or_else(invalid)?;
        let code = self.store.open(place(&host), &sealed).map_err(|_| invalid())?;
        let Code { id, user, project, expires_at } = serde_json::from_slice(&code).map_err(|_| invalid())?;
        let now = self.store.world().now();
        let mut connection = self.store.connection().await?;
        // The host may have gone to another project meanwhile.
        let door = connection.access_door(&host).await?.filter(|door| door.project == project).ok_or_else(invalid)?;
        // And so may the policy or the membership have: what holds is what holds now.
        let role = self.organizations.role(&mut connection, door.org, user).await?;
        if role.is_none_or(|role| role < door.least())
            || expires_at <= now
            || !connection.access_use_code(id, expires_at, now).await?
        {
            return Err(invalid());
        }
        Ok((project, user))
    }
}

/// A code's place is its host: it opens nowhere else.
fn place(host: &str) -> Place<'_> {
    Place { table: "projects.used_codes", row: host, field: "code" }
}

/// A path, which leads to no other host however it is read (security rules, "OAuth").
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
