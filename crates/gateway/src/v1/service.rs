//! Routes about the service.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use actix_web::web::Data;
use serde::Serialize;
use store::Store;
use utoipa::ToSchema;

use crate::authority::Open;
use crate::config::{Config, Site};
use crate::http::{Bytes, Json, Path, Routes, TemporaryRedirect, text_path_parameters};
use crate::openapi::Reference;
use crate::problem::Problem;
use crate::readiness::Readiness;

/// The content security policy of the API reference, which loads its own scripts and styles and calls only this API.
const REFERENCE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("service", "Configuration, documentation and health of the service.");
    area.get("config", "/v1/config", config)
        .summary("Get the name and addresses of this installation")
        .static_response();
    area.get("openapi", "/v1/openapi.json", openapi).summary("Get this API as an OpenAPI 3.1 document");
    area.get("docs_index", "/docs", docs_index).summary("Redirect to the interactive API reference");
    area.get("docs", "/docs/{file}", docs).summary("Get a file of the API reference");
    area.get("healthz", "/healthz", healthz).summary("Check that the process is alive").static_response();
    area.get("readyz", "/readyz", readyz).summary("Check that the database is reachable and migrated");
}

text_path_parameters! {
    FileName: "The file's name.", "index.html";
}

/// The result of a successful health check.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({ "status": "up" }))]
struct Health {
    status: &'static str,
}

async fn config(_: Open, config: Data<Config>) -> Result<Json<Site>, Problem> {
    Ok(Json(config.site.clone()))
}

async fn openapi(_: Open, reference: Data<Reference>) -> Result<Bytes, Problem> {
    let document = Bytes::whole("application/json", reference.document());
    Ok(document.with_header(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60")))
}

async fn docs_index(_: Open) -> Result<TemporaryRedirect, Problem> {
    Ok(TemporaryRedirect("/docs/index.html"))
}

async fn docs(_: Open, Path(FileName(file)): Path<FileName>, reference: Data<Reference>) -> Result<Bytes, Problem> {
    let found = utoipa_swagger_ui::serve(&file, reference.swagger.clone());
    let found = found.map_err(|error| Problem::internal(error.to_string()))?;
    let file = found.ok_or_else(Problem::not_found)?;
    let answer = Bytes::whole(&file.content_type, file.bytes.into_owned());
    Ok(answer.with_header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(REFERENCE_POLICY)))
}

async fn healthz(_: Open) -> Result<Json<Health>, Problem> {
    Ok(Json(Health { status: "up" }))
}

async fn readyz(_: Open, store: Data<Store>, readiness: Data<Readiness>) -> Result<Json<Health>, Problem> {
    readiness.check(&store).await?;
    Ok(Json(Health { status: "ready" }))
}
