//! The policy of the deploy of a push. It has the same rules as an upload, and checks the credential of the push.

use git::Deploy;
use identity::Profile;
use kernel::audit::{Actor, RequiredRole};
use kernel::{ProjectId, ResourceSet, Role, Scope};
use projects::Org;
use store::Store;

use super::credential::PresentedCredential;
use super::resolve::{Lookup, ResolvedOrg, ResolvedProject, resolve};
use super::statement::Target;
use crate::problem::Problem;

/// The pusher, and the project to deploy.
pub(crate) struct Deployer {
    pub(crate) actor: Actor,
    pub(crate) user: Profile,
    pub(crate) org: Org,
    pub(crate) project: ProjectId,
    /// The resources that the project has.
    pub(crate) granted_resources: ResourceSet,
}

/// The decision about a deploy.
pub(crate) enum DeployDecision {
    Allowed(Box<Deployer>),
    /// The reason, for the user.
    Rejected(String),
}

/// Decides whether a push may be deployed. The transaction of the deployment checks the credential and the role again.
pub(crate) async fn authorize_deploy(
    store: &Store,
    deploy: &Deploy,
    request_id: String,
) -> Result<DeployDecision, Problem> {
    let reject = |reason: &str| Ok(DeployDecision::Rejected(reason.to_owned()));
    if !deploy.is_wanted {
        return Ok(DeployDecision::Rejected(format!("the repository does not deploy {} any more", deploy.branch)));
    }
    let Some(project) = &deploy.project else { return reject("the project was deleted") };
    let Some(credential) = PresentedCredential::from_stored(&deploy.credential) else {
        return reject("the credential of the push cannot deploy");
    };
    let target = Target::Project { org: &project.slug, project: &project.name };
    // Another user may have registered the SSH key by now.
    let caller = resolve(store, Lookup { credential, target, permit_request: None }).await?;
    let Some(caller) = caller.filter(|caller| caller.user.id == deploy.pusher) else {
        return reject("the credential of the push is not valid any more");
    };
    let scope = Scope::Deploy;
    if !caller.has_scope(scope) {
        let message = format!("the token lacks the scope {scope}; create a token that has it and git:write");
        return Ok(DeployDecision::Rejected(message));
    }
    let minimum = Role::Member;
    let actor = |org| Actor::user(caller.user.id, caller.credential, Some(RequiredRole { org, minimum }), request_id);
    match (caller.org, caller.project) {
        // The names may belong to another project by now.
        (Some(org), Some(found)) if org.id != project.org || found.id != project.id => {
            reject("the project was renamed during the deploy; push again")
        }
        (Some(ResolvedOrg { id, slug, plan, role: Some(role) }), Some(found)) if role >= minimum => {
            let ResolvedProject { id: project, granted_resources, .. } = found;
            let org = Org { id, slug, plan };
            let actor = actor(id);
            Ok(DeployDecision::Allowed(Box::new(Deployer {
                actor,
                user: caller.user,
                org,
                project,
                granted_resources,
            })))
        }
        _ => Ok(DeployDecision::Rejected(format!("deploying requires the role {minimum} in the organization"))),
    }
}
