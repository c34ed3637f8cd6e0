//! Authentication of the caller, and counting of the request.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use identity::Identity;
use kernel::audit::{Actor, Credential, RequiredRole};
use kernel::{CallerError, Role, Scope, ZoneId, error_chain};
use oauth::OAuth;
use serde_json::json;
use store::Store;

use super::credential::{
    PresentedCredential, count_rejected_token, invalid_credential, rate_limit_address, read_credential,
};
use super::resolve::{Lookup, ResolvedCaller, RestrictedTargets, resolve};
use super::statement::Target;
use crate::config::Config;
use crate::http::Extract as _;
use crate::limits::{CallerPermits, Limit, Limiters};
use crate::problem::Problem;
use crate::protocol::{self, PROTECTED_RESOURCE};
use crate::request_id::RequestId;

/// Authenticates the caller, finds the target, and counts the request by its credential and its user. Counts a request
/// without a valid credential by its address. Only existing credentials have a bucket, so that invented ones cannot
/// exhaust memory.
pub(super) async fn authenticate(
    request: &HttpRequest,
    payload: &mut Payload,
    target: Target<'_>,
) -> Result<ResolvedCaller, Problem> {
    let credential = read_credential(request).await;
    authenticate_with(request, payload, credential, target).await
}

/// Like `authenticate`, with a credential that the caller of this function has already read from the request.
pub(crate) async fn authenticate_with(
    request: &HttpRequest,
    payload: &mut Payload,
    credential: Result<PresentedCredential, Problem>,
    target: Target<'_>,
) -> Result<ResolvedCaller, Problem> {
    let limiters = web::Data::<Limiters>::extract(request, payload).await?;
    let store = web::Data::<Store>::extract(request, payload).await?;
    let credential = match credential {
        Ok(credential) => credential,
        Err(problem) => return Err(reject_anonymous(request, &store, &limiters, problem).await),
    };
    let (hash, address) = (credential.hash(), rate_limit_address(request));
    let needed = match limiters.take_as_caller(request, hash, address)? {
        CallerPermits::Taken => None,
        CallerPermits::Ask(needed) => Some(needed),
    };
    let lookup = Lookup { credential, target, permit_request: needed };
    let caller = match resolve(&store, lookup).await {
        // Postgres rejects writes, so it cannot store the taken permits. The caller can still be authenticated.
        Err(error) if needed.is_some() && error.refuses_writes() => {
            resolve(&store, Lookup { permit_request: None, ..lookup }).await?
        }
        caller => caller?,
    };
    let Some(caller) = caller else {
        limiters.forget(hash);
        if matches!(credential, PresentedCredential::ConnectedApp(_)) {
            count_rejected_token("grant");
        }
        return Err(reject_anonymous(request, &store, &limiters, invalid_credential()).await);
    };
    if let Some(needed) = needed {
        let granted =
            caller.permit_grant.unwrap_or_else(|| limiters.grant_caller_locally(hash, caller.user.id, needed));
        limiters.accept_as_caller(request, (hash, caller.user.id), needed, granted)?;
    }
    let identity = web::Data::<Identity>::extract(request, payload).await?;
    let oauth = web::Data::<OAuth>::extract(request, payload).await?;
    record_use(&caller, identity, oauth);
    Ok(caller)
}

/// Records the use of the caller's credential, if the recorded use is too old.
pub(super) fn record_use(caller: &ResolvedCaller, identity: web::Data<Identity>, oauth: web::Data<OAuth>) {
    match caller.credential {
        Credential::Grant(grant) if oauth.is_use_due(caller.last_used_at) => {
            touch(async move { oauth.touch(grant).await });
        }
        Credential::Grant(_) => {}
        credential if identity.is_use_due(caller.last_used_at) => {
            touch(async move { identity.touch(credential).await });
        }
        _ => {}
    }
}

/// Stores the use of a credential in the background: the response does not depend on it, and the next request repeats a
/// failed update.
fn touch<E: std::error::Error + 'static>(touch: impl Future<Output = Result<(), E>> + 'static) {
    actix_web::rt::spawn(async move {
        if let Err(error) = touch.await {
            tracing::debug!(error = %error_chain(&error), "failed to record the use of a credential");
        }
    });
}

/// Returns the error of a request without a valid credential: `problem`, or 429 if the address is above its rate limit.
async fn reject_anonymous(request: &HttpRequest, store: &Store, limiters: &Limiters, problem: Problem) -> Problem {
    let counted = limiters.count_address(request, store, Limit::General, rate_limit_address(request)).await;
    counted.err().unwrap_or(problem)
}

/// Counts a request that needs no credential.
pub(super) async fn count_anonymous(request: &HttpRequest, payload: &mut Payload, limit: Limit) -> Result<(), Problem> {
    let limiters = web::Data::<Limiters>::extract(request, payload).await?;
    let store = web::Data::<Store>::extract(request, payload).await?;
    limiters.count_address(request, &store, limit, rate_limit_address(request)).await
}

impl ResolvedCaller {
    /// Returns the caller as the actor of an operation. `required_role` is the role that the operation needs in an
    /// organization, if any. The transaction of the operation checks the credential and the role again.
    pub(crate) fn actor(&self, request: &HttpRequest, required_role: Option<RequiredRole>) -> Actor {
        Actor::user(self.user.id, self.credential, required_role, RequestId::text(request))
    }

    /// Rejects a role below the minimum. Returns the caller as the actor of an operation that needs the role.
    pub(crate) fn require_role(
        &self,
        request: &HttpRequest,
        role: Role,
        required: RequiredRole,
    ) -> Result<Actor, CallerError> {
        let RequiredRole { minimum, .. } = required;
        if role < minimum {
            return Err(CallerError::RoleTooLow { role, minimum });
        }
        Ok(self.actor(request, Some(required)))
    }

    /// Returns whether the credential has the scope.
    pub(crate) fn has_scope(&self, needed: Scope) -> bool {
        self.scopes.as_ref().is_none_or(|granted| granted.iter().any(|granted| granted.covers(needed)))
    }

    /// Rejects a token that lacks the scope.
    pub(crate) fn with_scope(self, request: &HttpRequest, needed: Scope) -> Result<Self, Problem> {
        if self.has_scope(needed) {
            return Ok(self);
        }
        let message = match self.credential {
            Credential::Grant(_) => format!("the user did not grant the app the scope {needed}; ask for it"),
            _ => format!("the token lacks the scope {needed}; create a token that has it"),
        };
        let mut challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
        if let Some(metadata) = resource_metadata(request) {
            challenge += &format!(", resource_metadata=\"{metadata}\"");
        }
        Err(Problem::new(&protocol::INSUFFICIENT_SCOPE, message)
            .with_details(Some(json!({ "required": needed })))
            .with_header(actix_web::http::header::WWW_AUTHENTICATE, challenge))
    }

    /// Rejects a token that is restricted to projects or zones, unless the target is one of them. The response reveals
    /// neither whether the target exists nor which role it requires.
    pub(crate) fn require_access(&self, is_accessible: bool) -> Result<(), Problem> {
        if self.restricted_targets().is_some() && self.org.is_some() && !is_accessible {
            Err(CallerError::NotAMember.into())
        } else {
            Ok(())
        }
    }

    /// Returns the projects and zones that the token is restricted to.
    pub(crate) fn restricted_targets(&self) -> Option<&RestrictedTargets> {
        self.restriction.as_ref().and_then(|restriction| restriction.targets.as_ref())
    }

    /// Returns the zones that the token is restricted to. `None` if it may access all zones of its organizations.
    pub(crate) fn accessible_zones(&self) -> Option<Vec<ZoneId>> {
        self.restricted_targets().map(|targets| targets.zones.clone().unwrap_or_default())
    }
}

/// Returns the URL of the metadata of this API as a protected resource (RFC 9728 section 5.1). Returns `None` if apps
/// cannot be connected, or if the audience of their tokens is not the address of this API.
fn resource_metadata(request: &HttpRequest) -> Option<String> {
    let oauth = request.app_data::<web::Data<OAuth>>()?.config().ok()?;
    let public_url = &request.app_data::<web::Data<Config>>()?.site.public_url;
    oauth.is_resource_at(public_url).then(|| format!("{public_url}{PROTECTED_RESOURCE}"))
}

pub(super) fn anonymous_actor(request: &HttpRequest) -> Actor {
    Actor::anonymous(RequestId::text(request))
}
