//! The policies of routes about the caller's own account.

use std::marker::PhantomData;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use identity::Profile;
use kernel::audit::{Actor, Credential};
use kernel::{Code, OrgId, SessionId, TokenId};

use super::authenticate::authenticate;
use super::caller::impl_caller_policies;
use super::resolve::TokenRestriction;
use super::scope::RequiredScope;
use super::statement::Target;
use crate::http::{Describe, Extract, Operation, PolicyTarget};
use crate::problem::Problem;
use crate::protocol;

/// A caller with a valid, unrestricted credential that has the scope.
#[derive(Debug)]
pub struct SignedIn<S> {
    pub actor: Actor,
    pub user: Profile,
    scope: PhantomData<S>,
}

/// A caller with a valid credential that has the scope. A restricted token lists only the targets of its restriction.
#[derive(Debug)]
pub struct SignedInFiltered<S> {
    pub actor: Actor,
    pub user: Profile,
    /// The organizations that a listing may show; `None` for all organizations of the user.
    pub orgs: Option<Vec<OrgId>>,
    scope: PhantomData<S>,
}

/// A caller with a login session. Tokens are rejected.
#[derive(Debug)]
pub struct Session {
    pub actor: Actor,
    pub user: Profile,
    pub session: SessionId,
}

/// A caller with a valid personal access token of any scope and restriction, for requests about that token.
#[derive(Debug)]
pub struct CurrentToken {
    pub actor: Actor,
    pub user: Profile,
    pub token: TokenId,
}

impl<S: RequiredScope> Describe for SignedIn<S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Account, None, Some(S::SCOPE));
        // A restricted token receives this error.
        operation.code(&Code::FORBIDDEN);
    }
}

impl<S: RequiredScope> Extract for SignedIn<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate(request, payload, Target::Account).await?;
        let caller = caller.with_scope(request, S::SCOPE)?;
        if caller.restriction.is_some() {
            let message = "the token is restricted to an organization, but this operation concerns the whole account";
            return Err(Problem::new(&Code::FORBIDDEN, message));
        }
        Ok(Self { actor: caller.actor(request, None), user: caller.user, scope: PhantomData })
    }
}

impl<S: RequiredScope> Describe for SignedInFiltered<S> {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Account, None, Some(S::SCOPE));
        operation.accepts_restricted_tokens = true;
    }
}

impl<S: RequiredScope> Extract for SignedInFiltered<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate(request, payload, Target::Account).await?;
        let caller = caller.with_scope(request, S::SCOPE)?;
        let actor = caller.actor(request, None);
        let orgs = caller.restriction.map(|TokenRestriction { org, targets }| match targets {
            Some(_) => Vec::new(),
            None => vec![org],
        });
        Ok(Self { actor, user: caller.user, orgs, scope: PhantomData })
    }
}

impl Describe for Session {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Account, None, None);
        operation.session_only = true;
        operation.code(&protocol::SESSION_REQUIRED);
    }
}

impl Extract for Session {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate(request, payload, Target::Account).await?;
        match caller.credential {
            Credential::Session(session) => Ok(Self { actor: caller.actor(request, None), user: caller.user, session }),
            Credential::Token(_)
            | Credential::Grant(_)
            | Credential::SshKey(_)
            | Credential::Client(_)
            | Credential::None
            | Credential::Operator
            | Credential::Service => {
                let message = "this route requires a login session; sign in and send the session's token";
                Err(Problem::new(&protocol::SESSION_REQUIRED, message))
            }
        }
    }
}

impl Describe for CurrentToken {
    fn describe(operation: &mut Operation) {
        operation.require_caller(PolicyTarget::Account, None, None);
        operation.code(&Code::NOT_FOUND);
        operation.accepts_restricted_tokens = true;
    }
}

impl Extract for CurrentToken {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let caller = authenticate(request, payload, Target::Account).await?;
        match caller.credential {
            Credential::Token(token) => Ok(Self { actor: caller.actor(request, None), user: caller.user, token }),
            Credential::Session(_)
            | Credential::Grant(_)
            | Credential::SshKey(_)
            | Credential::Client(_)
            | Credential::None
            | Credential::Operator
            | Credential::Service => {
                Err(Problem::new(&Code::NOT_FOUND, "the request is not authenticated with a personal access token"))
            }
        }
    }
}

impl_caller_policies! {
    [S: RequiredScope] SignedIn<S>;
    [S: RequiredScope] SignedInFiltered<S>;
    [] Session;
    [] CurrentToken;
}
