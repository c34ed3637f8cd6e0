//! Hostnames of a project.

use actix_web::web::Data;
use kernel::Page;
use kernel::ownership::VerifyRecord;
use projects::{Hostname, NewHostname, NewHsts, ProjectError, Projects};

use crate::authority::InProject;
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Body, Json, NoContent, Path, Routes, text_path_parameters};
use crate::problem::Problem;

const HOSTNAMES: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/hostnames";
const HSTS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/hsts";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("hostnames", "Hostnames of a project.");
    area.get("list", HOSTNAMES, list).summary("List the hostnames of a project, the default one first");
    area.post("add", HOSTNAMES, add)
        .summary("Claim a hostname, which is served after its ownership is verified")
        .codes(&[&ProjectError::HOSTNAME_LIMIT])
        .error_detail::<VerifyRecord>(&ProjectError::HOSTNAME_TAKEN, "verify")
        .link("hostnames.verify", "host", "/name")
        .link("hostnames.delete", "host", "/name");
    area.delete("delete", "/v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}", delete)
        .summary("Release a custom hostname")
        .codes(&[&kernel::Code::BAD_REQUEST]);
    area.put("hsts_set", HSTS, hsts_set)
        .summary("Set Strict-Transport-Security of a hostname, with which browsers use only https for it");
    area.delete("hsts_delete", HSTS, hsts_delete)
        .summary("Stop sending Strict-Transport-Security, which browsers remember until its time is over");
    area.post("verify", "/v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/verify", verify)
        .summary("Verify the ownership of a hostname now");
}

text_path_parameters! {
    HostnameParameter: "The hostname, in Unicode or punycode.", "www.example.org";
}

async fn list(at: InProject<Viewer, ProjectRead>, projects: Data<Projects>) -> Result<Json<Page<Hostname>>, Problem> {
    Ok(Json(Page { items: projects.hostnames(at.project.id).await?, next_cursor: None }))
}

async fn add(
    at: InProject<Member, ProjectWrite>,
    projects: Data<Projects>,
    Body(new): Body<NewHostname>,
) -> Result<Json<Hostname>, Problem> {
    let hostname = projects.hostname_add(&at.actor, &(&at.org).into(), at.project.id, at.zones.as_deref(), new).await?;
    Ok(Json(hostname))
}

async fn delete(
    at: InProject<Member, ProjectWrite>,
    Path(HostnameParameter(host)): Path<HostnameParameter>,
    projects: Data<Projects>,
) -> Result<NoContent, Problem> {
    projects.hostname_delete(&at.actor, &(&at.org).into(), at.project.id, &host).await?;
    Ok(NoContent)
}

async fn verify(
    at: InProject<Member, ProjectWrite>,
    Path(HostnameParameter(host)): Path<HostnameParameter>,
    projects: Data<Projects>,
) -> Result<Json<Hostname>, Problem> {
    Ok(Json(projects.hostname_verify(&at.actor, at.project.id, &host).await?))
}

async fn hsts_set(
    at: InProject<Admin, ProjectWrite>,
    Path(HostnameParameter(host)): Path<HostnameParameter>,
    projects: Data<Projects>,
    Body(new): Body<NewHsts>,
) -> Result<Json<Hostname>, Problem> {
    Ok(Json(projects.hsts_set(&at.actor, &(&at.org).into(), at.project.id, &host, new).await?))
}

async fn hsts_delete(
    at: InProject<Admin, ProjectWrite>,
    Path(HostnameParameter(host)): Path<HostnameParameter>,
    projects: Data<Projects>,
) -> Result<NoContent, Problem> {
    projects.hsts_remove(&at.actor, &(&at.org).into(), at.project.id, &host).await?;
    Ok(NoContent)
}
