//! The database of a project: its connection, tokens, backups and operations.

mod backups;
mod connection;
mod operations;
mod tokens;

use ::databases::Target;

use crate::authority::InProject;
use crate::http::Routes;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("database", "The Postgres database of a project, which worker code uses as `env.db`.");
    connection::routes(&mut area);
    tokens::routes(&mut area);
    backups::routes(&mut area);
    operations::routes(&mut area);
}

impl<R, S> From<&InProject<R, S>> for Target {
    fn from(at: &InProject<R, S>) -> Self {
        Self { org: at.org.id, plan: at.org.plan, project: at.project.id }
    }
}
