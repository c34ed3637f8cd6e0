//! Construction of organizations, their mail workers, and the mailer port.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use opentelemetry::metrics::Counter;
use orgs::{InviteMails, NotificationMails, Orgs, Site};
use providers::{Cause, Mail, MailError, Smtp};
use store::Store;
use store::outbox::DeliveryError;

use crate::config::{Config, MailConfig, SMTP_URL};
use crate::jobs::Background;

static REFUSED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.mails.refused")
        .with_description("Invitations and notifications that the mail server refused permanently")
        .build()
});

pub(super) fn wire(config: &Config, store: &Store, background: &mut Background) -> anyhow::Result<Orgs> {
    let site = Site {
        name: config.gateway.site.name.clone(),
        dashboard_url: config.gateway.site.dashboard_url.clone(),
        sends_mail: config.mail.is_some(),
    };
    // The counter of an alert exists from the start.
    REFUSED.add(0, &[]);
    if let Some(MailConfig { server, from }) = &config.mail {
        let smtp = Smtp::new(server, from.clone()).map_err(|error| SMTP_URL.malformed(error))?;
        let mailer = Arc::new(MailerPort(smtp));
        let invites = InviteMails { store: store.clone(), site: site.clone(), mailer: mailer.clone() };
        background.outbox(store.spawn_outbox_worker(Arc::new(invites)));
        let notifications = NotificationMails {
            store: store.clone(),
            max_per_recipient: config.abuse_limits.notification_mails_per_recipient,
            site: site.clone(),
            mailer,
        };
        background.outbox(store.spawn_outbox_worker(Arc::new(notifications)));
    }
    Ok(Orgs::new(store.clone(), config.limits, site).with_abuse_limits(config.abuse_limits))
}

struct MailerPort(Smtp);

#[async_trait]
impl orgs::Mailer for MailerPort {
    async fn send(&self, message: orgs::MailMessage) -> Result<bool, DeliveryError> {
        let orgs::MailMessage { id, to, date, subject, heading, paragraphs, action, footer } = message;
        let action = action.map(|(label, url)| providers::Action::new(label, &url)).transpose();
        let action = action.map_err(|error| DeliveryError::Permanent(error.to_string()))?;
        let content = providers::MailContent { subject, heading, paragraphs, action, footer };
        match self.0.send(&Mail { to, message_id: id.clone(), date, content }).await {
            Ok(()) => Ok(true),
            Err(MailError::Transient(cause)) => Err(DeliveryError::Transient(cause.to_string())),
            Err(MailError::Permanent(cause @ Cause::MessageId)) => Err(DeliveryError::Permanent(cause.to_string())),
            Err(MailError::Permanent(error)) => {
                REFUSED.add(1, &[]);
                tracing::info!(%id, %error, "the mail server refused a mail");
                Ok(false)
            }
        }
    }
}
