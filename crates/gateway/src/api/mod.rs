//! `/v1`: one module an area, one function a route.

mod access;
mod auth;
mod codehost;
mod credentials;
mod deployments;
mod dns;
mod hostnames;
mod invites;
mod me;
mod orgs;
mod projects;
mod service;

use crate::http::Routes;

/// The ways to sign in that a deployment offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignIns {
    /// The development login.
    pub dev: bool,
    /// The code host.
    pub code_host: bool,
}

/// The routes of the public listener, those of the ways to sign in among them.
#[must_use]
pub fn routes(sign_ins: SignIns) -> Routes {
    let mut routes = Routes::default();
    auth::routes(&mut routes, sign_ins.dev);
    if sign_ins.code_host {
        codehost::routes(&mut routes);
    }
    me::routes(&mut routes);
    credentials::routes(&mut routes);
    orgs::routes(&mut routes);
    invites::routes(&mut routes);
    projects::routes(&mut routes);
    deployments::routes(&mut routes);
    hostnames::routes(&mut routes);
    access::routes(&mut routes);
    dns::routes(&mut routes);
    service::routes(&mut routes);
    routes
}
