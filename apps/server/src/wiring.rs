//! The contexts, put together.

use std::fs;
use std::sync::Arc;

use anyhow::Context as _;
use convergence::Convergence;
use gateway::Services;
use identity::{CodeHostLogin, Identity};
use kernel::World;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use orgs::{InviteMails, NotificationMails, Orgs};
use projects::{Bundles, Projects};
use prometheus::Registry;
use providers::{CodeHost, Smtp};
use store::Store;
use store::outbox::Pass;

use crate::config::{BundleStore, CODEHOST_TOKEN_URL, Config, DATABASE_URL, MailConfig, SMTP_URL};
use crate::ports::{CodeHostPort, ConvergencePort, OrgsPort, PostPort};

/// The contexts behind the listeners, and the passes beside them.
pub(crate) struct Parts {
    pub(crate) services: Services,
    pub(crate) passes: Vec<Pass>,
}

/// Everything that the process runs. Needs a tokio runtime.
pub(crate) fn parts(config: &Config, world: World, registry: Registry) -> anyhow::Result<Parts> {
    let store = Store::new(&config.database, world).map_err(|error| DATABASE_URL.malformed(error))?;
    let site = orgs::Site {
        name: config.gateway.site.name.clone(),
        dashboard_url: config.gateway.site.dashboard_url.clone(),
        sends_mail: config.mail.is_some(),
    };
    let passes = passes(config, &store, &site)?;
    let orgs = Orgs::new(store.clone(), config.limits, site);
    let convergence = Convergence::new(store.clone()).listening();
    let orgs_port = Arc::new(OrgsPort(orgs.clone()));
    let mut identity = Identity::new(store.clone(), orgs_port.clone(), orgs_port.clone());
    if let Some(login) = &config.code_host {
        let host = CodeHost::new(login.host.clone()).map_err(|error| CODEHOST_TOKEN_URL.malformed(error))?;
        let callback = format!("{}/v1/auth/codehost/callback", config.gateway.site.public_url);
        let redirects = login.redirects.clone();
        identity = identity.with_code_host(CodeHostLogin { host: Arc::new(CodeHostPort(host)), callback, redirects });
    }
    let projects = Projects::new(
        store.clone(),
        Bundles::new(objects(&config.bundle_store)?),
        config.limits,
        &config.gateway.site.platform_domain,
        orgs_port,
        Arc::new(ConvergencePort(convergence.clone())),
    );
    let services = Services::new(config.gateway.clone(), store, identity, orgs, projects, convergence, registry);
    Ok(Parts { services, passes })
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

fn objects(store: &BundleStore) -> anyhow::Result<Arc<dyn ObjectStore>> {
    let BundleStore::Folder(folder) = store;
    fs::create_dir_all(folder).with_context(|| format!("the bundle store {}", folder.display()))?;
    Ok(Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true)))
}
