//! Git repositories of a project.

mod browse;
mod repos;

use ::git::{ProjectPath, Target};

use crate::authority::InProject;
use crate::http::Routes;

const REPO: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("repos", "Git repositories of a project.");
    repos::routes(&mut area);
    browse::routes(&mut area);
}

impl<R, S> From<&InProject<R, S>> for Target {
    fn from(at: &InProject<R, S>) -> Self {
        Self { org: at.org.id, project: at.project.id }
    }
}

fn path<R, S>(at: &InProject<R, S>) -> ProjectPath<'_> {
    ProjectPath { org: &at.org.slug, project: &at.project.name }
}
