//! Enables the resources that a manifest declares (specification, general convention 4), and lists the bindings of a
//! project.
//!
//! The OpenAPI document of the API states which resources it supports, so that `svc` works with older and newer APIs.

use bundle::Manifest;
use client::types::Resources;
use client::{Client, Error, Method, Paging};
use serde_json::Value;

use crate::error::CliError;
use crate::output::Output;

/// Returns the declared resources that the project lacks, in the order in which they must be enabled: `auth` requires
/// the database.
fn missing(manifest: &Manifest, has: Option<&Resources>) -> Vec<&'static str> {
    let Manifest { auth, database, email, ai, storage, .. } = manifest;
    let all = [
        ("database", *database || *auth, has.is_some_and(|has| has.database)),
        ("auth", *auth, has.is_some_and(|has| has.auth)),
        ("email", *email, has.is_some_and(|has| has.email)),
        ("ai", *ai, has.is_some_and(|has| has.ai)),
        ("storage", *storage, has.is_some_and(|has| has.storage)),
    ];
    all.into_iter().filter(|(_, declared, has)| *declared && !has).map(|(name, ..)| name).collect()
}

/// Returns whether the OpenAPI document has an operation that enables the resource.
fn supports(document: &Value, resource: &str) -> bool {
    let path = format!("/v1/orgs/{{orgSlug}}/projects/{{projectName}}/{resource}");
    document.get("paths").and_then(|paths| paths.get(path)?.get("post")).is_some()
}

/// Enables the missing resources. Warns about each resource that the API does not support or the token may not enable.
///
/// # Errors
/// Returns `NotEnabled` with the resources that it failed to enable, after it has tried all and printed the causes.
pub async fn enable(client: &Client, project: (&str, &str), manifest: &Manifest, out: &Output) -> Result<(), CliError> {
    let declared = missing(manifest, None);
    if declared.is_empty() {
        return Ok(());
    }
    let failed = enable_missing(client, project, manifest, out).await.unwrap_or_else(|error| {
        out.warn_error("failed to check the resources of the project", &error.into());
        declared
    });
    if failed.is_empty() { Ok(()) } else { Err(CliError::NotEnabled(failed)) }
}

/// Returns the resources that it failed to enable.
async fn enable_missing(
    client: &Client,
    (org, project): (&str, &str),
    manifest: &Manifest,
    out: &Output,
) -> Result<Vec<&'static str>, Error> {
    // The token may deploy but not read the project, so all declared resources are tried.
    let has = match client.projects_get(org, project).send().await {
        Err(error) if is_insufficient_scope(&error) => None,
        answer => Some(answer?.value.resources),
    };
    let (missing, mut failed, mut is_any_enabled) = (missing(manifest, has.as_ref()), Vec::new(), false);
    if missing.is_empty() {
        return Ok(failed);
    }
    let document = client.call::<Value>(Method::GET, &["v1", "openapi.json"]).send().await?.value;
    for resource in missing {
        if !supports(&document, resource) {
            out.warn(format!("svc.json declares {resource}, which this API does not support yet"));
            continue;
        }
        let path = ["v1", "orgs", org, "projects", project, resource];
        match client.call::<Value>(Method::POST, &path).idempotent().send().await {
            Ok(_) => {
                out.success(format!("enabled {resource}"));
                is_any_enabled = true;
            }
            Err(error) if is_insufficient_scope(&error) => {
                out.warn(format!("svc.json declares {resource}, but your token has no scope to enable it"));
            }
            Err(error) => {
                out.warn_error(&format!("failed to enable {resource}"), &error.into());
                failed.push(resource);
            }
        }
    }
    if is_any_enabled {
        out.info("The code receives enabled resources within a few seconds.");
    }
    Ok(failed)
}

/// Returns the names of a project's bindings, which its worker code uses as properties of `env`.
///
/// # Errors
/// Returns the error of the API, for example if the token may not read the project.
pub async fn bindings(client: &Client, (org, project): (&str, &str)) -> Result<Vec<String>, Error> {
    let Resources { ai, auth, database, email, storage } =
        client.projects_get(org, project).send().await?.value.resources;
    // A page can contain 200 secrets, which is the maximum of a project.
    let all = Paging { limit: Some(200), cursor: None };
    let secrets = client.secrets_list(org, project, &all).send().await?;
    let objects =
        [("assets", true), ("db", database), ("auth", auth), ("email", email), ("ai", ai), ("storage", storage)];
    let objects = objects.into_iter().filter(|(_, is_bound)| *is_bound).map(|(name, _)| name);
    Ok(objects.chain(secrets.items.iter().map(|secret| secret.name.as_str())).map(str::to_owned).collect())
}

pub fn is_insufficient_scope(error: &Error) -> bool {
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
    fn auth_requires_the_database_and_is_enabled_after_it() {
        let missing = |text| missing(&manifest(text), None);
        assert_eq!(missing(r#"{ "auth": true }"#), ["database", "auth"]);
        let all = r#"{ "storage": true, "ai": true, "email": true, "auth": true, "database": true }"#;
        assert_eq!(missing(all), ["database", "auth", "email", "ai", "storage"]);
        assert!(missing(r#"{ "auth": false, "name": "site" }"#).is_empty());
    }

    #[test]
    fn existing_resources_are_not_missing() {
        let has = Resources { ai: true, auth: false, database: true, email: false, storage: false };
        let all = manifest(r#"{ "storage": true, "ai": true, "email": true, "auth": true, "database": true }"#);
        assert_eq!(missing(&all, Some(&has)), ["auth", "email", "storage"]);
    }

    #[test]
    fn supported_resources_come_from_the_openapi_document() {
        let path = "/v1/orgs/{orgSlug}/projects/{projectName}/database";
        let document =
            json!({ "paths": { path: { "get": {}, "post": {} }, path.replace("database", "ai"): { "get": {} } } });
        assert!(supports(&document, "database"));
        assert!(!supports(&document, "ai") && !supports(&document, "auth"));
    }
}
