//! Projects, their deployments, hostnames and access policies.

mod access;
mod compose;
mod deployments;
mod hostnames;
mod project;

use crate::http::Routes;

pub(super) fn routes(routes: &mut Routes) {
    project::routes(routes);
    deployments::routes(routes);
    hostnames::routes(routes);
    access::routes(routes);
}
