//! The platform's nameservers, as this process serves them: the hidden primary, notices, and the look at the signer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use dns::Dns;
use dns::primary::{Notifier, Primary};
use dns::signer::Signer;
use store::Store;
use store::outbox::Pass;
use tokio::task::JoinHandle;

use crate::config::{Config, DNS_CATALOG};

/// How often it is seen to what is due to be looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How often zones are held against the nameservers of the settings.
const FOLLOW: Duration = Duration::from_secs(3600);

/// What runs for nameservers.
pub(crate) struct Nameservers {
    dns: Dns,
    primary: Option<(Primary, Arc<Notifier>)>,
    signer: Option<(Dns, Signer)>,
}

impl Nameservers {
    /// Listens. Needs a tokio runtime.
    pub(crate) fn bind(config: &Config, store: &Store, dns: &Dns) -> anyhow::Result<Self> {
        let signer = config.signer.map(|signer| (dns.clone(), Signer::new(signer, store.world().clone())));
        let Some((primary, hosting)) = config.primary.as_ref().zip(config.dns.as_ref()) else {
            return Ok(Self { dns: dns.clone(), primary: None, signer });
        };
        let notifier = Notifier::new(primary, store.world().clone());
        let notifier = notifier.ok_or_else(|| anyhow!(DNS_CATALOG.malformed("no domain name")))?;
        let bound = Primary::bind(primary.clone(), store.clone(), hosting.clone());
        let bound = bound.with_context(|| format!("SVC_DNS_LISTEN {}", primary.listen))?;
        Ok(Self { dns: dns.clone(), primary: Some((bound, Arc::new(notifier))), signer })
    }

    /// Where zones are transferred from.
    pub(crate) fn listen(&self) -> Option<SocketAddr> {
        self.primary.as_ref().map(|(primary, _)| primary.listen)
    }

    /// Tells secondaries of changes.
    pub(crate) fn notices(&self, store: &Store) -> Option<Pass> {
        self.primary.as_ref().map(|(_, notifier)| store.deliver(notifier.clone()))
    }

    /// Answers secondaries, and looks at the signer, until the tasks are aborted.
    pub(crate) fn run(self) -> Vec<JoinHandle<()>> {
        let follow = crate::serve::every(FOLLOW, "giving zones their nameservers", self.dns, async |dns| {
            dns.nameservers_follow().await.map(drop)
        });
        let primary = self.primary.map(|(primary, _)| tokio::spawn(primary.run()));
        let signer = self.signer.map(|part| {
            crate::serve::every(LOOK, "looking at the signer", part, async |(dns, signer)| {
                dns.signers_look(&signer).await.map(drop)
            })
        });
        primary.into_iter().chain(signer).chain([follow]).collect()
    }
}
