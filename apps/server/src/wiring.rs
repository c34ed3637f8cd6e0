//! The contexts, put together.

use std::sync::Arc;

use anyhow::Context as _;
use convergence::{Convergence, Core, Embedded};
use dns::Dns;
use gateway::{Contexts, Services};
use identity::{CodeHostLogin, Identity};
use kernel::World;
use orgs::{InviteMails, NotificationMails, Orgs};
use projects::{Bundles, Ports, Projects};
use prometheus::Registry;
use protocol::{DeploymentReport, Platform};
use providers::{CodeHost, Resolver, Smtp};
use resources::Resources;
use store::Store;
use store::outbox::Pass;

use crate::config::{
    BUNDLE_STORE, BundleStore, CODEHOST_TOKEN_URL, Config, CoreLink, DATABASE_URL, DNS_RESOLVER, MailConfig, SMTP_URL,
};
use crate::nameservers::Nameservers;
use crate::ports::{CodeHostPort, ConvergencePort, DeploymentsPort, OrgsPort, PostPort, ResolverPort, ZonesPort};

/// The contexts behind the listeners, and the passes beside them.
pub(crate) struct Parts {
    pub(crate) services: Services,
    pub(crate) projects: Projects,
    pub(crate) passes: Vec<Pass>,
    pub(crate) bundles: Bundles,
    pub(crate) nameservers: Nameservers,
}

/// Everything that the process runs. Needs a tokio runtime.
pub(crate) fn parts(config: &Config, world: World, registry: Registry) -> anyhow::Result<Parts> {
    let store = Store::new(&config.database, world).map_err(|error| DATABASE_URL.malformed(error))?;
    let site = orgs::Site {
        name: config.gateway.site.name.clone(),
        dashboard_url: config.gateway.site.dashboard_url.clone(),
        sends_mail: config.mail.is_some(),
    };
    let mut passes = passes(config, &store, &site)?;
    let orgs = Orgs::new(store.clone(), config.limits, site);
    let core: Option<Arc<dyn Core>> = match config.core {
        CoreLink::Embedded => Some(Arc::new(Embedded::listening(&store))),
        CoreLink::Off => None,
    };
    let platform =
        Platform { dashboard_url: config.gateway.site.dashboard_url.clone(), https: config.site_url.is_https() };
    let mut convergence = Convergence::builder(store.clone(), core, platform);
    let (site_part, removal) = (convergence.own::<protocol::Site>()?, convergence.removal());
    convergence.receive::<DeploymentReport>(Arc::new(DeploymentsPort))?;
    let convergence = convergence.build();
    let orgs_port = Arc::new(OrgsPort(orgs.clone()));
    let mut identity = Identity::new(store.clone(), orgs_port.clone(), orgs_port.clone());
    if let Some(login) = &config.code_host {
        let host = CodeHost::new(login.host.clone()).map_err(|error| CODEHOST_TOKEN_URL.malformed(error))?;
        let callback = format!("{}/v1/auth/codehost/callback", config.gateway.site.public_url);
        let redirects = login.redirects.clone();
        identity = identity.with_code_host(CodeHostLogin { host: Arc::new(CodeHostPort(host)), callback, redirects });
    }
    let names = projects::Site {
        url: config.site_url.clone(),
        platform_domain: config.gateway.site.platform_domain.clone(),
        fallback_origin: config.gateway.site.fallback_origin.clone(),
        own_domains: config.own_domains.clone(),
    };
    let resolver = Resolver::new(config.dns_resolver).map_err(|error| DNS_RESOLVER.malformed(error))?;
    let dns = Dns::new(store.clone(), config.dns.clone());
    let nameservers = Nameservers::bind(config, &store, &dns)?;
    passes.extend(nameservers.notices(&store));
    let ports = Ports {
        organizations: orgs_port,
        placements: Arc::new(ConvergencePort { site: site_part, removal }),
        zones: Arc::new(ZonesPort(dns.clone())),
        resolver: Arc::new(ResolverPort(resolver)),
    };
    let bundles = bundles(&config.bundle_store)?;
    let projects = Projects::new(store.clone(), bundles.clone(), config.limits, names, ports);
    let resources = Resources::new(store.clone());
    let contexts = Contexts { identity, orgs, projects: projects.clone(), convergence, dns, resources };
    let services = Services::new(config.gateway.clone(), store, contexts, registry)?;
    Ok(Parts { services, projects, bundles, passes, nameservers })
}

/// What delivers the outbox's effects.
fn passes(config: &Config, store: &Store, site: &orgs::Site) -> anyhow::Result<Vec<Pass>> {
    let Some(MailConfig { server, from }) = &config.mail else { return Ok(Vec::new()) };
    let smtp = Smtp::new(server, from.clone()).map_err(|error| SMTP_URL.malformed(error))?;
    let (site, post) = (site.clone(), Arc::new(PostPort(smtp)));
    Ok(vec![
        store.deliver(Arc::new(InviteMails { site: site.clone(), post: post.clone() })),
        store.deliver(Arc::new(NotificationMails { site, post })),
    ])
}

fn bundles(store: &BundleStore) -> anyhow::Result<Bundles> {
    match store {
        BundleStore::Folder(folder) => {
            Bundles::in_folder(folder).with_context(|| format!("the bundle store {}", folder.display()))
        }
        BundleStore::S3(s3) => Bundles::in_s3(s3).map_err(|error| BUNDLE_STORE.malformed(error).into()),
    }
}
