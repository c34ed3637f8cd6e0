//! Optional resources of projects.

mod auth;
mod auth_races;
mod deletion;
mod node_state;
mod secrets;
mod storage;

use serde_json::json;

use crate::support::{App, Caller};

/// The value of a secret. Only the desired state that a node fetches contains it.
const CANARY: &str = "canary-6f1c0d";

const SECRETS: &str = "/v1/orgs/ada/projects/site/secrets";
const AUTH: &str = "/v1/orgs/ada/projects/site/auth";
const STORAGE: &str = "/v1/orgs/ada/projects/site/storage";

/// Signs in Ada, and creates her project `site`.
async fn ada_with_project(app: &App) -> Caller {
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada
}
