//! `/v1`: one folder per context, one file per area, one function per route.

mod dns;
mod identity;
mod orgs;
mod projects;
mod service;

pub(crate) use self::dns::ZoneParameter;
use crate::config::SignIns;
use crate::http::Routes;
use crate::problem::{BareStatus, OauthErrors};

/// The routes of the public listener, with those of the enabled ways to sign in.
#[must_use]
pub fn routes(sign_ins: SignIns) -> Routes {
    let mut routes = Routes::default();
    routes.error_format("/oauth", &OauthErrors);
    routes.error_format("/v1/hooks", &BareStatus);
    identity::routes(&mut routes, sign_ins);
    orgs::routes(&mut routes);
    projects::routes(&mut routes);
    dns::routes(&mut routes);
    service::routes(&mut routes);
    routes
}
