//! The service about itself.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use actix_web::web::Data;
use kernel::Code;
use serde::Serialize;
use store::Store;
use utoipa::ToSchema;

use crate::authority::Open;
use crate::config::{Config, Site};
use crate::http::{Bytes, Json, Moved, Path, Routes, path_texts};
use crate::openapi::Reference;
use crate::problem::Problem;

/// The reference runs its own scripts and styles, and asks nobody but this API.
const REFERENCE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("service", "The service about itself.");
    area.get("config", "/v1/config", config).summary("What this deployment is called and where its parts are").fixed();
    area.get("openapi", "/v1/openapi.json", openapi).summary("This API as an OpenAPI 3.1 document");
    area.get("docs_index", "/docs", docs_index).summary("The reference, for reading and trying");
    area.get("docs", "/docs/{file}", docs).summary("A file of the reference");
    area.get("healthz", "/healthz", healthz).summary("Whether the process is up").fixed();
    area.get("readyz", "/readyz", readyz)
        .summary("Whether requests can be served: the database answers and is migrated");
}

path_texts! {
    FileName: "The file's name.", "index.html";
}

/// The service is well.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({ "status": "up" }))]
struct Health {
    status: &'static str,
}

async fn config(_: Open, config: Data<Config>) -> Result<Json<Site>, Problem> {
    Ok(Json(config.site.clone()))
}

async fn openapi(_: Open, reference: Data<Reference>) -> Result<Bytes, Problem> {
    let document = Bytes::whole("application/json", reference.document.clone());
    Ok(document.with_header(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60")))
}

async fn docs_index(_: Open) -> Result<Moved, Problem> {
    Ok(Moved("/docs/index.html"))
}

async fn docs(_: Open, Path(FileName(file)): Path<FileName>, reference: Data<Reference>) -> Result<Bytes, Problem> {
    let found = utoipa_swagger_ui::serve(&file, reference.swagger.clone()).ok().flatten();
    let file = found.ok_or_else(Problem::not_found)?;
    let answer = Bytes::whole(&file.content_type, file.bytes.into_owned());
    Ok(answer.with_header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(REFERENCE_POLICY)))
}

async fn healthz(_: Open) -> Result<Json<Health>, Problem> {
    Ok(Json(Health { status: "up" }))
}

async fn readyz(_: Open, store: Data<Store>) -> Result<Json<Health>, Problem> {
    let mut connection = store.connection().await?;
    match store::migrations::pending(&mut connection).await {
        Ok(pending) if pending.is_empty() => Ok(Json(Health { status: "ready" })),
        Ok(_) => Err(Problem::new(&Code::UNAVAILABLE, "the database is not migrated; run `xtask migrate up`")),
        Err(error) => {
            tracing::warn!(%error, "the migrations cannot be read");
            Err(Problem::new(&Code::UNAVAILABLE, "which migrations the database has cannot be read; see the log"))
        }
    }
}
