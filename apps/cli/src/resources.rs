//! Turning on what a manifest declares (specification, general convention 4).
//!
//! Whether an API can turn a resource on, its own document tells: a newer API may do what an older one could not, and
//! the other way round.

use bundle::Manifest;
use client::types::Resources;
use client::{Client, Error, Method};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::Output;

/// What a manifest wants and the project does not have, in the order in which it is to be turned on: sign-in of users
/// needs the database.
fn wanted(manifest: &Manifest, has: Option<&Resources>) -> Vec<&'static str> {
    let Manifest { auth, database, email, ai, storage, .. } = manifest;
    let all = [
        ("database", *database || *auth, has.is_some_and(|has| has.database)),
        ("auth", *auth, has.is_some_and(|has| has.auth)),
        ("email", *email, has.is_some_and(|has| has.email)),
        ("ai", *ai, has.is_some_and(|has| has.ai)),
        ("storage", *storage, has.is_some_and(|has| has.storage)),
    ];
    all.into_iter().filter(|(_, wanted, has)| *wanted && !has).map(|(name, ..)| name).collect()
}

/// Whether the API that this document describes turns the resource on.
fn offers(document: &Value, resource: &str) -> bool {
    let path = format!("/v1/orgs/{{orgSlug}}/projects/{{projectName}}/{resource}");
    document.get("paths").and_then(|paths| paths.get(path)?.get("post")).is_some()
}

/// Turns on what the manifest declares, and tells what this API cannot turn on, or not for whoever deploys.
pub async fn enable(
    client: &Client,
    (org, project): (&str, &str),
    manifest: &Manifest,
    out: &Output,
) -> Result<(), Failure> {
    if wanted(manifest, None).is_empty() {
        return Ok(());
    }
    // A token that may deploy need not be one that may read or change.
    let has = match client.projects_get(org, project).send().await {
        Err(error) if is_narrow(&error) => None,
        answer => Some(answer?.value.resources),
    };
    let wanted = wanted(manifest, has.as_ref());
    if wanted.is_empty() {
        return Ok(());
    }
    let document = client.call::<Value>(Method::GET, &["v1", "openapi.json"]).send().await?.value;
    for resource in wanted {
        if !offers(&document, resource) {
            out.warn(format!("svc.json declares {resource}, and this API cannot turn that on yet"));
            continue;
        }
        let path = ["v1", "orgs", org, "projects", project, resource];
        match client.call::<Value>(Method::POST, &path).once().send().await {
            Err(error) if is_narrow(&error) => {
                out.warn(format!("svc.json declares {resource}, and your token may not turn that on"));
            }
            answer => {
                answer?;
                out.done(format!("{resource} is on"));
            }
        }
    }
    Ok(())
}

/// Whether it is the token that does not suffice, whoever it belongs to.
fn is_narrow(error: &Error) -> bool {
    error.code() == Some("insufficient_scope")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(text: &str) -> Manifest {
        Manifest::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn sign_in_of_users_brings_the_database_and_comes_after_it() {
        let wanted = |text| wanted(&manifest(text), None);
        assert_eq!(wanted(r#"{ "auth": true }"#), ["database", "auth"]);
        let all = r#"{ "storage": true, "ai": true, "email": true, "auth": true, "database": true }"#;
        assert_eq!(wanted(all), ["database", "auth", "email", "ai", "storage"]);
        assert!(wanted(r#"{ "auth": false, "name": "site" }"#).is_empty());
    }

    #[test]
    fn what_a_project_has_is_not_wanted_again() {
        let has = Resources { ai: true, auth: false, database: true, email: false, storage: false };
        let all = manifest(r#"{ "storage": true, "ai": true, "email": true, "auth": true, "database": true }"#);
        assert_eq!(wanted(&all, Some(&has)), ["auth", "email", "storage"]);
    }

    #[test]
    fn what_an_api_offers_is_in_its_document() {
        let path = "/v1/orgs/{orgSlug}/projects/{projectName}/database";
        let document =
            json!({ "paths": { path: { "get": {}, "post": {} }, path.replace("database", "ai"): { "get": {} } } });
        assert!(offers(&document, "database"));
        assert!(!offers(&document, "ai") && !offers(&document, "auth"));
    }
}
