//! Tokens.

use std::time::Duration;

use kernel::audit::{Actor, Event};
use kernel::{DatabaseTokenId, Page, Paging, ProjectId, UserId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Databases, Result, Target};
use crate::error::DatabaseError;
use crate::model::{DatabaseToken, NewDatabaseToken};
use crate::repository::{DatabaseRepository as _, TokenRecord, TokenRepository as _, TokenState};
use crate::scram;

/// The longest wait until a node refuses the login of a revoked token.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(10);

impl Databases {
    /// Lists the valid tokens of a database, newest first, without their passwords.
    ///
    /// # Errors
    /// Returns [`DatabaseError::NoDatabase`].
    pub async fn tokens(&self, project: ProjectId, paging: &Paging<DatabaseTokenId>) -> Result<Page<DatabaseToken>> {
        let mut connection = self.store.connection().await?;
        let database = connection.database_find(project).await?.ok_or(DatabaseError::NoDatabase)?;
        let tokens = connection.token_list(database, self.store.clock_rng().now(), paging).await?;
        Ok(Page::cut(tokens, paging, |token| token.user))
    }

    /// Creates a token. Only its verifier is stored.
    ///
    /// # Errors
    /// Returns [`DatabaseError::NoDatabase`], [`DatabaseError::TokenLimit`] or [`DatabaseError::ProjectNotFound`].
    pub async fn token_create(
        &self,
        actor: &Actor,
        target: Target,
        by: UserId,
        new: NewDatabaseToken,
    ) -> Result<DatabaseToken> {
        let Target { org, plan, project } = target;
        let NewDatabaseToken { name, expires_in_seconds } = new;
        let clock_rng = self.store.clock_rng();
        let created_at = clock_rng.now();
        let id: DatabaseTokenId = clock_rng.id_at(created_at);
        let expires_at = expires_in_seconds.map(|seconds| created_at.plus_seconds(seconds));
        let password = scram::new_password(clock_rng);
        let verifier = scram::verifier(clock_rng, &password);
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                self.lock(tx, project).await?;
                let database = tx.database_find(project).await?.ok_or(DatabaseError::NoDatabase)?;
                let (limit, count) =
                    (self.limits.for_plan(plan).database_tokens, tx.token_count(database, created_at).await?);
                if count >= i64::from(limit) {
                    return Err(DatabaseError::TokenLimit { limit, count, plan });
                }
                let shown = name.as_ref().map(ToString::to_string);
                let record = TokenRecord { id, database, name, verifier, created_at, created_by: by, expires_at };
                tx.token_insert(record).await?;
                self.publish(tx, project).await?;
                let data = json!({ "token": id, "name": shown, "expiresAt": expires_at });
                let token = DatabaseToken { user: id, password: Some(password), name: shown, created_at, expires_at };
                Ok(Outcome::Changed(token, Event::in_org("database.token.create", org, project, data)))
            })
            .await
    }

    /// Revokes a token, and waits until its node refuses the login. The token stays revoked even if the wait fails. A
    /// repeated call waits again.
    ///
    /// # Errors
    /// Returns [`DatabaseError::TokenNotFound`], also for a malformed user; [`DatabaseError::RevocationUnconfirmed`] if
    /// the node did not confirm the revocation within 10 seconds; or [`DatabaseError::ProjectNotFound`].
    pub async fn token_revoke(&self, actor: &Actor, target: Target, user: &str) -> Result<()> {
        let Target { org, project, .. } = target;
        let token: DatabaseTokenId = user.parse().map_err(|_| DatabaseError::TokenNotFound)?;
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                self.ports.placements.lock(tx, project).await?.ok_or(DatabaseError::TokenNotFound)?;
                match tx.token_state(project, token, now).await? {
                    None => Err(DatabaseError::TokenNotFound),
                    Some(TokenState::Revoked) => Ok(Outcome::Unchanged(())),
                    Some(TokenState::Valid) => {
                        let revision = self.publish(tx, project).await?;
                        tx.token_revoke(token, revision).await?;
                        let data = json!({ "token": token });
                        Ok(Outcome::Changed((), Event::in_org("database.token.revoke", org, project, data)))
                    }
                }
            })
            .await?;
        // The row is deleted when the node has applied the revocation.
        let poll = async |connection: &mut Connection| -> Result<Option<()>> {
            Ok((!connection.token_exists(token).await?).then_some(()))
        };
        self.wait(project, REVOCATION_TIMEOUT, poll).await?.ok_or(DatabaseError::RevocationUnconfirmed)
    }
}
