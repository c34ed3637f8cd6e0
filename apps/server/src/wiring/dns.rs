//! Construction of DNS, the hidden primary with its NOTIFY worker, and the background jobs of zones.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use dns::Dns;
use dns::primary::{Notifier, Primary};
use dns::signer::Signer;
use store::Store;

use crate::config::{Config, DNS_CATALOG};
use crate::jobs::{Background, HOUR, Job, SECOND};

/// Returns the service and the address for zone transfers. Binds the hidden primary, which requires a tokio runtime.
pub(super) fn wire(
    config: &Config,
    store: &Store,
    background: &mut Background,
) -> anyhow::Result<(Dns, Option<SocketAddr>)> {
    let dns = Dns::new(store.clone(), config.dns.clone());
    let mut listen = None;
    if let Some((settings, hosting)) = config.primary.as_ref().zip(config.dns.as_ref()) {
        let notifier = Notifier::new(settings, store.clock_rng().clone());
        let notifier = notifier.ok_or_else(|| anyhow!(DNS_CATALOG.malformed("not a domain name")))?;
        let primary = Primary::bind(settings.clone(), store.clone(), hosting.clone());
        let primary = primary.with_context(|| format!("SVC_DNS_LISTEN {}", settings.listen))?;
        listen = Some(primary.listen);
        background.outbox(store.spawn_outbox_worker(Arc::new(notifier)));
        background.task(primary.run());
    }
    background.job(Job::every(HOUR, "dns.reconcile_nameservers"), dns.clone(), async |dns| {
        dns.reconcile_nameservers().await.map(drop)
    });
    if let Some(settings) = config.signer {
        let signer = Signer::new(settings, store.clock_rng().clone());
        background.job(Job::every(SECOND, "dns.check_signers"), (dns.clone(), signer), async |(dns, signer)| {
            dns.check_signers(&signer).await.map(drop)
        });
    }
    Ok((dns, listen))
}
