//! Organizations: their construction, the workers of their mail, and the mail server as their port.

use std::sync::Arc;

use async_trait::async_trait;
use orgs::{InviteMails, NotificationMails, Orgs, Site};
use providers::{Mail, MailError, Smtp};
use store::Store;
use store::outbox::Undelivered;

use crate::config::{Config, MailConfig, SMTP_URL};
use crate::jobs::Background;

pub(super) fn wire(config: &Config, store: &Store, background: &mut Background) -> anyhow::Result<Orgs> {
    let site = Site {
        name: config.gateway.site.name.clone(),
        dashboard_url: config.gateway.site.dashboard_url.clone(),
        sends_mail: config.mail.is_some(),
    };
    if let Some(MailConfig { server, from }) = &config.mail {
        let smtp = Smtp::new(server, from.clone()).map_err(|error| SMTP_URL.malformed(error))?;
        let post = Arc::new(PostPort(smtp));
        background.outbox(store.deliver(Arc::new(InviteMails { site: site.clone(), post: post.clone() })));
        background.outbox(store.deliver(Arc::new(NotificationMails { site: site.clone(), post })));
    }
    Ok(Orgs::new(store.clone(), config.limits, site))
}

struct PostPort(Smtp);

#[async_trait]
impl orgs::Post for PostPort {
    async fn send(&self, letter: orgs::Letter) -> Result<(), Undelivered> {
        let orgs::Letter { id, to, date, subject, heading, paragraphs, action, footer } = letter;
        let action = action.map(|(label, url)| providers::Action::new(label, &url)).transpose();
        let action = action.map_err(|error| Undelivered::Never(error.to_string()))?;
        let letter = providers::Letter { subject, heading, paragraphs, action, footer };
        let sent = self.0.send(&Mail { to, message_id: id, date, letter }).await;
        sent.map_err(|error| match error {
            MailError::Later(cause) => Undelivered::Later(cause.to_string()),
            MailError::Never(cause) => Undelivered::Never(cause.to_string()),
        })
    }
}
