//! `/v1`: one module an area, one function a route.

mod auth;
mod deployments;
mod me;
mod orgs;
mod projects;
mod service;

use crate::http::Routes;

/// The routes of the public listener; the development login among them where it is switched on.
#[must_use]
pub fn routes(dev_auth: bool) -> Routes {
    let mut routes = Routes::default();
    auth::routes(&mut routes, dev_auth);
    me::routes(&mut routes);
    orgs::routes(&mut routes);
    projects::routes(&mut routes);
    deployments::routes(&mut routes);
    service::routes(&mut routes);
    routes
}
