//! The policies of routes about the caller's own account.

use std::marker::PhantomData;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use identity::Profile;
use kernel::audit::{Actor, Credential};
use kernel::{Code, OrgId, SessionId, TokenId};

use super::caller::policies_of_callers;
use super::find::find;
use super::resolve::TokenRestriction;
use super::scope::Needs;
use super::statement::Target;
use crate::http::{Describe, Extract, Operation, Place};
use crate::problem::Problem;
use crate::protocol;

/// Anyone with a live credential that has the scope and is not limited to a part of what its user reaches.
#[derive(Debug)]
pub struct SignedIn<S> {
    pub actor: Actor,
    pub user: Profile,
    scope: PhantomData<S>,
}

/// Anyone with a live credential that has the scope. A limited token is shown what it reaches, and no more.
#[derive(Debug)]
pub struct SignedInPart<S> {
    pub actor: Actor,
    pub user: Profile,
    /// The organizations that may be shown; all of the user's when none are named.
    pub orgs: Option<Vec<OrgId>>,
    scope: PhantomData<S>,
}

/// Anyone with a login session; no token serves.
#[derive(Debug)]
pub struct Session {
    pub actor: Actor,
    pub user: Profile,
    pub session: SessionId,
}

/// Anyone with a live personal access token, whatever its scopes and limits: it may ask about itself.
#[derive(Debug)]
pub struct ThisToken {
    pub actor: Actor,
    pub user: Profile,
    pub token: TokenId,
}

impl<S: Needs> Describe for SignedIn<S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, Some(S::SCOPE));
        // A token that is limited to a part of what its user reaches.
        operation.code(&Code::FORBIDDEN);
    }
}

impl<S: Needs> Extract for SignedIn<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload, Target::Account).await?;
        let found = found.with_scope(S::SCOPE)?;
        if found.restriction.is_some() {
            let message = "the token is limited to an organization; this concerns the whole account";
            return Err(Problem::new(&Code::FORBIDDEN, message));
        }
        Ok(Self { actor, user: found.user, scope: PhantomData })
    }
}

impl<S: Needs> Describe for SignedInPart<S> {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, Some(S::SCOPE));
        operation.takes_limited = true;
    }
}

impl<S: Needs> Extract for SignedInPart<S> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload, Target::Account).await?;
        let found = found.with_scope(S::SCOPE)?;
        let orgs = found.restriction.map(|TokenRestriction { org, parts }| match parts {
            Some(_) => Vec::new(),
            None => vec![org],
        });
        Ok(Self { actor, user: found.user, orgs, scope: PhantomData })
    }
}

impl Describe for Session {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, None);
        operation.session_only = true;
        operation.code(&protocol::SESSION_REQUIRED);
    }
}

impl Extract for Session {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload, Target::Account).await?;
        match found.credential {
            Credential::Session(session) => Ok(Self { actor, user: found.user, session }),
            Credential::Token(_) | Credential::None | Credential::Operator | Credential::Service => {
                let message = "this route requires a login session; sign in and send the session's token";
                Err(Problem::new(&protocol::SESSION_REQUIRED, message))
            }
        }
    }
}

impl Describe for ThisToken {
    fn describe(operation: &mut Operation) {
        operation.signed_in(Place::Account, None, None);
        operation.code(&Code::NOT_FOUND);
        operation.takes_limited = true;
    }
}

impl Extract for ThisToken {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let (actor, found) = find(request, payload, Target::Account).await?;
        match found.credential {
            Credential::Token(token) => Ok(Self { actor, user: found.user, token }),
            Credential::Session(_) | Credential::None | Credential::Operator | Credential::Service => {
                Err(Problem::new(&Code::NOT_FOUND, "the request was not made with a personal access token"))
            }
        }
    }
}

policies_of_callers! {
    [S: Needs] SignedIn<S>;
    [S: Needs] SignedInPart<S>;
    [] Session;
    [] ThisToken;
}
