//! Repositories: the API, and git clients that use a running `svc-git`.

mod access;
mod browsing;
mod clients;
mod deploys;
mod hostile;
mod hostile_packs;
mod journal;
pub mod kit;
mod libraries;
mod limits;
mod maintenance;
mod packs;
mod protocol;
mod repositories;

use kit::Kit;

const REPOS: &str = "/v1/orgs/ada/projects/site/repos";
const REPO: &str = "/v1/orgs/ada/projects/site/repos/app";
