//! The database of a project. The node is a part of the tests, and does only what a test tells it to do.

mod connection;
mod exports;
mod generations;
mod idempotency;
mod kills;
pub mod kit;
mod lifecycle;
pub mod node_task;
mod operations;
mod permits;
mod reports;
mod tokens;

const PROJECT: &str = "/v1/orgs/ada/projects/site";
const DATABASE: &str = "/v1/orgs/ada/projects/site/database";
const AUTH: &str = "/v1/orgs/ada/projects/site/auth";
const CONNECT: &str = "/v1/orgs/ada/projects/site/database/connect";
const ENDPOINT: &str = "/v1/orgs/ada/projects/site/database/endpoint";
const TOKENS: &str = "/v1/orgs/ada/projects/site/database/tokens";
const EXPORT: &str = "/v1/orgs/ada/projects/site/database/export";
const GENERATIONS: &str = "/v1/orgs/ada/projects/site/database/generations";
const RESTORE: &str = "/v1/orgs/ada/projects/site/database/restore";
const DELETE: &str = "/v1/orgs/ada/projects/site/database/delete";
