//! Checks, when a change commits, that its caller may still make it.
//!
//! A policy authorizes a request before its body is read and before it waits for locks. Until its transaction commits,
//! the session or token may end, and the user may lose the role. So each transaction of a user checks the caller again
//! (`docs/decisions.md`, "Identity"): the statement that appends the audit row locks the caller's rows, and
//! appends nothing if the caller lost the permission.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::sql_types::{Array, Bool, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Credential, RequiredRole};
use kernel::{CallerError, OrgId, Role, Time};

use crate::{Connection, Prepared, Result, Store, audit};

/// Finds the statements for a credential, with or without a required role. Returns `None` for an actor who is not a
/// user. The program that composes the contexts provides the function, because the statements read the tables of
/// several contexts.
pub type FindCallerCheck = fn(Credential, Option<RequiredRole>) -> Option<&'static CallerCheck>;

/// The statements that check one kind of caller. Their parameters: `$1` the id of the credential (`uuid`), `$2` the
/// time, `$3` the organization of the required role (`uuid`, nullable), `$4` the roles that suffice (`text[]`).
#[derive(Debug)]
pub struct CallerCheck {
    /// Appends the audit row if the caller is authorized.
    append_audit: String,
    /// Appends the audit row if the caller is authorized and no other transaction has locked the caller's rows.
    append_audit_unless_locked: String,
    /// Locks the caller's rows.
    lock: &'static str,
    /// Selects `is_valid` (`bool`: whether the credential is valid) and `role` (`text`: the user's role, or null).
    explain: &'static str,
}

/// How a check handles the caller's rows while another transaction has locked them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockedCaller {
    /// Waits for the other transaction.
    Wait,
    /// Does not authorize the caller.
    Skip,
}

/// Proof that [`Store::authorize`] checked the caller in this transaction.
#[derive(Debug)]
pub struct Authorized(());

/// The parameters of the statements.
pub(crate) struct Parameters {
    pub(crate) credential: uuid::Uuid,
    pub(crate) now: Time,
    pub(crate) org: Option<OrgId>,
    pub(crate) roles: Vec<Role>,
}

#[derive(QueryableByName)]
struct Explanation {
    #[diesel(sql_type = Bool)]
    is_valid: bool,
    #[diesel(sql_type = Nullable<Text>)]
    role: Option<Role>,
}

impl CallerCheck {
    /// Composes the statements. `lock` selects one row only if the caller is authorized, and ends with `FOR SHARE`. `explain`
    /// always selects one row: `is_valid` (`bool`), and `role` (`text`), which is null for a user who is not a member.
    #[must_use]
    pub fn new(lock: &'static str, explain: &'static str) -> Self {
        let append_audit_unless_locked = audit::append_if(&format!("{lock} SKIP LOCKED"));
        Self { append_audit: audit::append_if(lock), append_audit_unless_locked, lock, explain }
    }

    /// Returns the statement that appends the audit row if the caller is authorized.
    pub(crate) fn append_audit(&self, locked_caller: LockedCaller) -> &str {
        match locked_caller {
            LockedCaller::Wait => &self.append_audit,
            LockedCaller::Skip => &self.append_audit_unless_locked,
        }
    }
}

impl Store {
    /// Checks the caller, and locks the caller's session or token and membership until the transaction ends.
    ///
    /// [`Store::transaction`] and [`Store::transaction_unaudited_as`] do this before the commit. So call this method
    /// only before a change that may end the caller's own permission, for which a transaction returns
    /// [`crate::Outcome::ChangedAuthority`], or in a transaction that may have no caller.
    ///
    /// # Errors
    /// Returns [`Error::Caller`](crate::Error::Caller) if the caller lost the permission.
    pub async fn authorize(&self, connection: &mut Connection, actor: &Actor) -> Result<Authorized> {
        if let Some((check, parameters)) = self.caller_check(actor) {
            let locked = Prepared(bind(check.lock, parameters)).execute(connection).await?;
            if locked == 0 {
                self.require_caller(connection, actor).await?;
                return Err(revoked_caller_error());
            }
        }
        Ok(Authorized(()))
    }

    /// Returns the statements that check the actor, and their parameters.
    pub(crate) fn caller_check(&self, actor: &Actor) -> Option<(&'static CallerCheck, Parameters)> {
        let check = self.find_caller_check()(actor.credential, actor.required_role)?;
        let credential = match actor.credential {
            Credential::Session(session) => session.as_uuid(),
            Credential::Token(token) => token.as_uuid(),
            Credential::Grant(grant) => grant.as_uuid(),
            Credential::SshKey(key) => key.as_uuid(),
            Credential::Client(_) | Credential::None | Credential::Operator | Credential::Service => return None,
        };
        let (org, roles) = match actor.required_role {
            Some(RequiredRole { org, minimum }) => {
                (Some(org), Role::ALL.iter().copied().filter(|role| *role >= minimum).collect())
            }
            None => (None, Vec::new()),
        };
        Some((check, Parameters { credential, now: self.clock_rng().now(), org, roles }))
    }

    /// Returns the reason if the actor lost the permission. Takes no locks.
    pub(crate) async fn require_caller(&self, connection: &mut Connection, actor: &Actor) -> Result<()> {
        let Some((check, parameters)) = self.caller_check(actor) else { return Ok(()) };
        let Explanation { is_valid, role } = Prepared(bind(check.explain, parameters)).get_result(connection).await?;
        if !is_valid {
            return Err(CallerError::InvalidCredential.into());
        }
        let Some(RequiredRole { minimum, .. }) = actor.required_role else { return Ok(()) };
        match role {
            Some(role) if role >= minimum => Ok(()),
            Some(role) => Err(CallerError::RoleTooLow { role, minimum }.into()),
            None => Err(CallerError::NotAMember.into()),
        }
    }
}

/// Returns the error of a caller who lost the permission for a moment and has it again. The client can repeat the
/// request.
pub(crate) fn revoked_caller_error() -> crate::Error {
    crate::Error::Unavailable("the caller's permission changed while the request was in progress".into())
}

/// Binds the parameters to a statement.
pub(crate) fn bind(statement: &str, parameters: Parameters) -> BoxedSqlQuery<'_, Pg, SqlQuery> {
    let Parameters { credential, now, org, roles } = parameters;
    let query = diesel::sql_query(statement).into_boxed::<Pg>();
    let query = query.bind::<Uuid, _>(credential).bind::<Timestamptz, _>(now);
    query.bind::<Nullable<Uuid>, _>(org).bind::<Array<Text>, _>(roles)
}
