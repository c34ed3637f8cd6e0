//! The sign-in of a project's end users.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use resources::{AuthProvider, AuthProviderPut, AuthSettingsPatch, AuthStatus, ResourceError, Resources};

use crate::authority::InProject;
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Body, Describe, Extract, Json, NoContent, Operation, Path, Routes, text_path_parameters};
use crate::problem::Problem;
use crate::require::RequireCore;

const AUTH: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/auth";
const PROVIDER: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/auth/providers/{provider}";

pub(super) fn routes(routes: &mut Routes) {
    let mut area =
        routes.area("app_auth", "The sign-in of a project's end users, whom worker code knows as `env.auth.users`.");
    area.get("get", AUTH, get)
        .summary("Get whether app sign-in is enabled, with its settings, providers and hosts")
        .description("Settings and providers are present also while app sign-in is disabled, because they stay.");
    area.post("grant", AUTH, grant)
        .summary("Enable app sign-in for a project, or return the existing settings")
        .description(
            "The users are in the project's database, which must exist. The sign-in at `/__svc/auth/login` of each host \
             works within seconds, without a new deployment, once a provider is registered.",
        )
        .codes(&[&ResourceError::DATABASE_REQUIRED]);
    area.patch("update", AUTH, update)
        .summary("Change the settings of app sign-in")
        .description("Absent fields keep their values, and null resets a brand field.")
        .codes(&[&ResourceError::NOT_GRANTED]);
    area.delete("revoke", AUTH, revoke)
        .summary("Disable app sign-in for a project, and end all sessions of its users")
        .description(
            "Users, settings and providers stay. Within seconds, requests to `/__svc/auth/*` reach the worker code.",
        );
    area.put("set_provider", PROVIDER, set_provider)
        .summary("Register an identity provider of app sign-in, or replace its client")
        .description(
            "Create an app at the provider first, with the callback address \
             `https://<host>/__svc/auth/callback/<provider>` for each host. No response contains the client secret.",
        )
        .codes(&[&ResourceError::NOT_GRANTED]);
    area.delete("delete_provider", PROVIDER, delete_provider)
        .summary("Delete an identity provider of app sign-in")
        .description(
            "Ends its sessions and removes its identities. If app sign-in is disabled, the identities are removed when \
             it is enabled again. Users stay. Safe to repeat: the response is 204 also for a provider that is not \
             registered.",
        );
}

text_path_parameters! {
    ProviderParameter as AuthProvider: "The identity provider.", "codehost";
}

/// The identity provider in the path. The error of an unknown name is 400 (specification, "App user auth", rule 1).
struct Provider(AuthProvider);

impl Describe for Provider {
    fn describe(operation: &mut Operation) {
        Path::<ProviderParameter>::describe(operation);
        operation.code(&ResourceError::INVALID_PROVIDER);
    }
}

impl Extract for Provider {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let Path(ProviderParameter(name)) = Path::extract(request, payload).await?;
        Ok(Self(name.parse().map_err(|_| ResourceError::UnknownProvider)?))
    }
}

async fn get(
    at: InProject<Viewer, ProjectRead>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<Json<AuthStatus>, Problem> {
    Ok(Json(resources.auth(at.project.id).await?))
}

async fn grant(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<Json<AuthStatus>, Problem> {
    Ok(Json(resources.auth_grant(&at.actor, (&at).into()).await?))
}

async fn update(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
    Body(patch): Body<AuthSettingsPatch>,
) -> Result<Json<AuthStatus>, Problem> {
    Ok(Json(resources.auth_change(&at.actor, (&at).into(), patch).await?))
}

async fn revoke(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<NoContent, Problem> {
    resources.auth_revoke(&at.actor, (&at).into()).await?;
    Ok(NoContent)
}

async fn set_provider(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    Provider(provider): Provider,
    resources: Data<Resources>,
    Body(put): Body<AuthProviderPut>,
) -> Result<Json<AuthStatus>, Problem> {
    Ok(Json(resources.auth_provider_set(&at.actor, (&at).into(), provider, put).await?))
}

async fn delete_provider(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    Provider(provider): Provider,
    resources: Data<Resources>,
) -> Result<NoContent, Problem> {
    resources.auth_provider_delete(&at.actor, (&at).into(), provider).await?;
    Ok(NoContent)
}
