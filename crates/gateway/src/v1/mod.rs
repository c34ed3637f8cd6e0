//! `/v1` and its services. There is a folder for each context with routes, a file for each area, and a function for
//! each route.

mod ai;
mod billing;
mod databases;
mod dns;
mod domains;
mod git;
mod identity;
mod mail;
mod oauth;
mod orgs;
mod projects;
mod resources;
mod service;

use ::billing::Billing;
use ::certificates::Certificates;
use ::convergence::Convergence;
use ::databases::Databases;
use ::dns::Dns;
use ::domains::Domains;
use ::git::Repositories;
use ::identity::Identity;
use ::mail::{Mail, MailHook};
use ::oauth::OAuth;
use ::orgs::Orgs;
use ::projects::Projects;
use ::resources::Resources;
use actix_web::web::{Data, ServiceConfig};

pub(crate) use self::dns::ZoneParameter;
use crate::config::SignInMethods;
use crate::http::Routes;
use crate::problem::{BareStatus, OauthErrors};

/// The services that routes call.
#[derive(Clone)]
pub struct Contexts {
    pub identity: Identity,
    pub orgs: Orgs,
    pub projects: Projects,
    pub convergence: Convergence,
    pub dns: Dns,
    pub domains: Domains,
    pub git: Repositories,
    pub resources: Resources,
    pub databases: Databases,
    pub oauth: OAuth,
    pub billing: Billing,
    pub mail: Mail,
    pub mail_hook: MailHook,
    pub certificates: Certificates,
}

impl Contexts {
    /// Registers the services, so that handlers can extract them.
    pub(crate) fn register(&self, app: &mut ServiceConfig) {
        let Self {
            identity,
            orgs,
            projects,
            convergence,
            dns,
            domains,
            git,
            resources,
            databases,
            oauth,
            billing,
            mail,
            mail_hook,
            certificates,
        } = self.clone();
        app.app_data(Data::new(identity))
            .app_data(Data::new(orgs))
            .app_data(Data::new(projects))
            .app_data(Data::new(convergence))
            .app_data(Data::new(dns))
            .app_data(Data::new(domains))
            .app_data(Data::new(git))
            .app_data(Data::new(resources))
            .app_data(Data::new(databases))
            .app_data(Data::new(oauth))
            .app_data(Data::new(billing))
            .app_data(Data::new(mail))
            .app_data(Data::new(mail_hook))
            .app_data(Data::new(certificates));
    }
}

/// Returns the routes of the public listener, with those of the enabled sign-in methods.
#[must_use]
pub fn routes(sign_ins: SignInMethods) -> Routes {
    let mut routes = Routes::default();
    routes.error_format("/oauth", &OauthErrors);
    routes.error_format("/v1/hooks", &BareStatus);
    identity::routes(&mut routes, sign_ins);
    orgs::routes(&mut routes);
    projects::routes(&mut routes);
    resources::routes(&mut routes);
    databases::routes(&mut routes);
    mail::routes(&mut routes);
    domains::routes(&mut routes);
    dns::routes(&mut routes);
    git::routes(&mut routes);
    billing::routes(&mut routes);
    ai::routes(&mut routes);
    oauth::routes(&mut routes);
    service::routes(&mut routes);
    routes
}
