//! Finding out who calls, and counting the request.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use identity::Identity;
use kernel::audit::{Actor, Credential};
use kernel::{Code, Role, Scope};
use serde_json::json;
use store::Store;

use super::credential::{Presented, counted_address, invalid, presented};
use super::resolve::{Found, Lookup, Parts, resolve};
use super::statement::Target;
use crate::http::Extract as _;
use crate::limits::{Key, Limit, Limiters, Taking};
use crate::problem::Problem;
use crate::protocol;
use crate::request_id::RequestId;

/// Authenticates the caller, finds the target, and counts the request: by its credential, or by its address without a live
/// one. Only credentials that exist have a bucket, or made-up ones would fill the memory.
pub(super) async fn find(
    request: &HttpRequest,
    payload: &mut Payload,
    target: Target<'_>,
) -> Result<(Actor, Found), Problem> {
    find_by(request, payload, presented(request), target).await
}

/// The same, by a credential that was read from the request already.
pub(crate) async fn find_by(
    request: &HttpRequest,
    payload: &mut Payload,
    presented: Result<Presented, Problem>,
    target: Target<'_>,
) -> Result<(Actor, Found), Problem> {
    let limiters = web::Data::<Limiters>::extract(request, payload).await?;
    let store = web::Data::<Store>::extract(request, payload).await?;
    let presented = match presented {
        Ok(presented) => presented,
        Err(problem) => return Err(stranger(request, &store, &limiters, problem).await),
    };
    let key = Key::Credential(presented.hash());
    let wanted = match limiters.take(request, Limit::General, key, store.world().now())? {
        Taking::Taken => None,
        Taking::Ask(wanted) => Some(wanted),
    };
    let lookup = Lookup { presented, target, wanted };
    let found = match resolve(&store, lookup).await {
        // The permits cannot be written down; the caller can be found all the same.
        Err(error) if wanted.is_some() && error.refuses_writes() => {
            resolve(&store, Lookup { wanted: None, ..lookup }).await?
        }
        found => found?,
    };
    let Some(found) = found else {
        return Err(stranger(request, &store, &limiters, invalid()).await);
    };
    if let Some(wanted) = wanted {
        let granted = found.granted.unwrap_or_else(|| limiters.alone(Limit::General, key, wanted));
        limiters.granted(request, Limit::General, key, wanted, granted)?;
    }
    let identity = web::Data::<Identity>::extract(request, payload).await?;
    if identity.is_stale(found.noted) {
        let credential = found.credential;
        // Beside the request: nobody waits for a note, and one that is lost is made by the next request.
        actix_web::rt::spawn(async move {
            if let Err(error) = identity.touch(credential).await {
                tracing::debug!(%error, "the use of a credential was not noted");
            }
        });
    }
    Ok((actor(request, Some(found.user.id), found.credential), found))
}

/// What somebody without a live credential is told: that there is none, or that they came too often.
async fn stranger(request: &HttpRequest, store: &Store, limiters: &Limiters, problem: Problem) -> Problem {
    let counted = limiters.count(request, store, Limit::General, counted_address(request)).await;
    counted.err().unwrap_or(problem)
}

/// Counts a request that needs no credential.
pub(super) async fn count(request: &HttpRequest, payload: &mut Payload, limit: Limit) -> Result<(), Problem> {
    let limiters = web::Data::<Limiters>::extract(request, payload).await?;
    let store = web::Data::<Store>::extract(request, payload).await?;
    limiters.count(request, &store, limit, counted_address(request)).await
}

impl Found {
    /// Refuses a token that lacks the scope.
    pub(crate) fn with_scope(self, needed: Scope) -> Result<Self, Problem> {
        match &self.scopes {
            Some(held) if !held.iter().any(|held| held.covers(needed)) => {
                let message = format!("the token lacks the scope {needed}; make one that has it");
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
                let problem = Problem::new(&protocol::INSUFFICIENT_SCOPE, message);
                Err(problem
                    .with_details(Some(json!({ "required": needed })))
                    .with_header(actix_web::http::header::WWW_AUTHENTICATE, challenge))
            }
            _ => Ok(self),
        }
    }

    /// Refuses a token that is restricted to parts of the path's organization, unless the target is one of them. The
    /// token does not learn whether the target exists, nor which role it takes.
    pub(crate) fn require_reach(&self, reached: bool) -> Result<(), Problem> {
        if self.parts().is_some() && self.org.is_some() && !reached { Err(not_a_member()) } else { Ok(()) }
    }

    /// The parts of an organization that the token is restricted to.
    pub(crate) fn parts(&self) -> Option<&Parts> {
        self.restriction.as_ref().and_then(|restriction| restriction.parts.as_ref())
    }
}

/// What an outsider is told, and a token outside of what it is limited to: the same whatever lies within.
pub(super) fn not_a_member() -> Problem {
    Problem::new(&Code::FORBIDDEN, "you are not a member of this organization, or the token does not reach it")
}

/// Refuses a role that is below the least.
pub(crate) fn least(role: Role, least: Role) -> Result<(), Problem> {
    if role >= least {
        return Ok(());
    }
    let message = format!("this needs the role {least}, and you are {role}; ask an admin of the organization");
    Err(Problem::new(&Code::FORBIDDEN, message).with_details(Some(json!({ "required": least }))))
}

fn actor(request: &HttpRequest, user: Option<kernel::UserId>, credential: Credential) -> Actor {
    Actor { user, credential, request_id: RequestId::text(request), once: None }
}

pub(super) fn nobody(request: &HttpRequest) -> Actor {
    actor(request, None, Credential::None)
}
