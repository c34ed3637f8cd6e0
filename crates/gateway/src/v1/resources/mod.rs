//! Optional resources of a project.

mod auth;
mod secrets;
mod storage;

use ::resources::Target;

use crate::authority::InProject;
use crate::http::Routes;

pub(super) fn routes(routes: &mut Routes) {
    auth::routes(routes);
    secrets::routes(routes);
    storage::routes(routes);
}

impl<R, S> From<&InProject<R, S>> for Target {
    fn from(at: &InProject<R, S>) -> Self {
        Self { org: at.org.id, plan: at.org.plan, project: at.project.id }
    }
}
