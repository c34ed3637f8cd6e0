//! Repositories: the API, and git clients that use a running `svc-git`.

mod access;
mod browsing;
mod clients;
mod hostile;
mod journal;
pub mod kit;
mod repositories;

use kit::Kit;

const REPOS: &str = "/v1/orgs/ada/projects/site/repos";
const REPO: &str = "/v1/orgs/ada/projects/site/repos/app";
