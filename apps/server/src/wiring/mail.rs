//! Construction of mail, its background jobs, the worker that relays mail, and the ports.

use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use convergence::{Builder, Core};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kernel::{NodeId, OrgId, Time};
use mail::{
    Envelope, Mail, MailHook, MailRelay, Notice, NotificationSource, Ports, RawMails, RefusedRecipient, RelayError,
    Relayed, ServiceUnavailable,
};
use orgs::Orgs;
use providers::{Relay, SnsClient};
use store::{Connection, Store};
use url::Url;
use webhooks::sns::SnsCertificate;

use super::error::IntoStoreError as _;
use crate::config::{Config, MAILHOOK_CA, MailConfig, MailHookConfig, SMTP_URL};
use crate::jobs::{Background, HOUR, Job, MINUTE, SECOND};

pub(super) fn wire(
    config: &Config,
    store: &Store,
    orgs: &Orgs,
    convergence: &Builder,
    background: &mut Background,
) -> anyhow::Result<Mail> {
    let raws = RawMails::new(config.mail_store.open().context("failed to open the mail store")?);
    let nodes = Arc::new(NodesPort(convergence.core()));
    let ports = Ports { organizations: Arc::new(OrgsPort(orgs.clone())), nodes };
    let domain = config.gateway.site.mail_domain.clone();
    let mail = Mail::new(store.clone(), raws, config.limits, domain, ports).with_dkim(config.dkim.clone());
    if let Some(MailConfig { server, from }) = &config.mail {
        let relay = Relay::new(server, from.email.domain()).map_err(|error| SMTP_URL.malformed(error))?;
        let relay = MailRelay::new(mail.clone(), Arc::new(RelayPort(relay)));
        background.outbox(store.spawn_outbox_worker(Arc::new(relay)));
    }
    background.job(Job::every(10 * SECOND, "mail.apply_events"), mail.clone(), async |mail| {
        mail.apply_pending_events().await
    });
    background
        .job(Job::every(MINUTE, "mail.expire_deliveries"), mail.clone(), async |mail| mail.expire_deliveries().await);
    background
        .job(Job::every(HOUR, "mail.maintain_partitions"), mail.clone(), async |mail| mail.maintain_partitions().await);
    background.job(Job::every(HOUR, "mail.purge_old"), mail.clone(), async |mail| mail.purge_old().await);
    background.job(Job::every(24 * HOUR, "mail.purge_orphans"), mail.clone(), async |mail| mail.purge_orphans().await);
    background.job(Job::every(HOUR, "mail.purge_deleted"), mail.clone(), async |mail| mail.purge_deleted().await);
    Ok(mail)
}

/// Creates the hook of the relay's notification service.
pub(super) fn wire_hook(config: &Config, mail: &Mail) -> anyhow::Result<MailHook> {
    let source = match config.mail_hook.clone() {
        Some(MailHookConfig { topic, hosts, ca }) => {
            let client = SnsClient::new(hosts, ca.as_deref()).map_err(|error| MAILHOOK_CA.malformed(error))?;
            Some(NotificationSource { topic, service: Arc::new(NotificationPort(client)) })
        }
        None => None,
    };
    Ok(MailHook::new(mail.clone(), source))
}

struct NotificationPort(SnsClient);

#[async_trait]
impl mail::NotificationService for NotificationPort {
    async fn certificate(&self, url: &Url, now: Time) -> Result<Arc<SnsCertificate>, ServiceUnavailable> {
        self.0.certificate(url, now).await.map_err(|error| ServiceUnavailable(error.to_string()))
    }

    async fn confirm(&self, url: &Url) -> Result<(), ServiceUnavailable> {
        self.0.confirm(url).await.map_err(|error| ServiceUnavailable(error.to_string()))
    }
}

struct RelayPort(Relay);

#[async_trait]
impl mail::Relay for RelayPort {
    async fn send(&self, envelope: &Envelope, message: &[u8]) -> Result<Relayed, RelayError> {
        let envelope = providers::Envelope { from: envelope.from.clone(), to: envelope.to.clone() };
        let relayed = self.0.send(&envelope, message).await.map_err(|error| match error {
            providers::RelayError::Transient(cause) => RelayError::Transient(cause.to_string()),
            providers::RelayError::Permanent(reply) => RelayError::Permanent(reply),
        })?;
        let refused = relayed.refused.into_iter();
        let refused = refused.map(|providers::RefusedRecipient { address, reply }| RefusedRecipient { address, reply });
        Ok(Relayed { id: relayed.id, refused: refused.collect() })
    }
}

struct OrgsPort(Orgs);

#[async_trait]
impl mail::Organizations for OrgsPort {
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        let notice = match notice {
            Notice::EmailLimit { project, per_hour } => orgs::Notice::EmailLimit { project, per_hour },
        };
        self.0.raise_audited(tx, org, notice).await.map_err(|error| error.into_store_error())
    }
}

/// The link to the nodes. Without it, there are no wake-ups.
struct NodesPort(Option<Arc<dyn Core>>);

#[async_trait]
impl mail::Nodes for NodesPort {
    async fn wake(&self, tx: &mut Connection, node: NodeId) -> store::Result<()> {
        match &self.0 {
            Some(core) => core.wake(tx, node).await,
            None => Ok(()),
        }
    }

    fn next_wake_up(&self, node: NodeId) -> BoxFuture<'static, ()> {
        let Some(core) = &self.0 else { return std::future::pending().boxed() };
        let mut wake_ups = core.subscribe();
        async move { wake_ups.wait_for_change(node).await }.boxed()
    }
}
