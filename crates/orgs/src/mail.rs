//! The mails of the organization context: their outbox messages and their texts.

use std::sync::Arc;

use kernel::{InviteId, NotificationId, Role, Time, Token, TokenKind};
use serde::{Deserialize, Serialize};
use store::Connection;
use store::outbox::{DeliveryError, Message, OutboxHandler};

use crate::model::Notification;
use crate::ports::{MailMessage, Mailer};
use crate::repository::{InviteRecord, InviteRepository as _, NotificationRepository as _};
use crate::service::Site;

/// The topic of invitation mails.
pub(crate) const INVITE: &str = "orgs.invite";
/// The topic of notification mails.
pub(crate) const NOTIFICATION: &str = "orgs.notification";

/// The outbox message of an invitation mail.
#[derive(Serialize, Deserialize)]
pub(crate) struct InviteMail {
    invite: InviteId,
    token: String,
    to: String,
    org: String,
    inviter: String,
    role: Role,
    expires_at: Time,
}

/// The outbox message of a notification mail.
#[derive(Serialize, Deserialize)]
pub(crate) struct NotificationMail {
    notification: NotificationId,
    to: String,
    org: String,
    title: String,
    message: String,
}

/// The outbox handler of invitation mails.
pub struct InviteMails {
    pub site: Site,
    pub mailer: Arc<dyn Mailer>,
}

/// The outbox handler of notification mails.
pub struct NotificationMails {
    pub site: Site,
    pub mailer: Arc<dyn Mailer>,
}

impl InviteMail {
    pub(crate) fn new(invite: &InviteRecord, token: &Token, org: String, inviter: String) -> Self {
        let InviteRecord { id, email, role, expires_at, .. } = invite.clone();
        Self { invite: id, token: token.reveal().to_owned(), to: email, org, inviter, role, expires_at }
    }

    fn render(self, site: &Site, id: String, date: Time) -> MailMessage {
        let Self { token, to, org, inviter, role, expires_at, .. } = self;
        let (site_name, until) =
            (&site.name, expires_at.to_string().replace('T', " ").chars().take(16).collect::<String>());
        MailMessage {
            id,
            date,
            subject: format!("{inviter} invites you to join {org} on {site_name}"),
            heading: format!("Join {org}"),
            paragraphs: vec![
                format!("{inviter} invites you to join the organization {org} on {site_name} with the role {role}."),
                format!("The link below works once and expires at {until} UTC."),
            ],
            action: Some(("Accept the invitation".to_owned(), site.accept_url(&token))),
            footer: format!(
                "You get this mail because a user of {site_name} invited {to}. If you do not know the user, ignore \
                 this mail. You join only if you use the link."
            ),
            to,
        }
    }
}

impl NotificationMail {
    pub(crate) fn new(notification: &Notification, to: String, org: String) -> Self {
        let Notification { id, title, message, .. } = notification.clone();
        Self { notification: id, to, org, title, message }
    }

    fn render(self, site: &Site, id: String, date: Time) -> MailMessage {
        let Self { to, org, title, message, .. } = self;
        MailMessage {
            id,
            to,
            date,
            subject: format!("{org}: {title}"),
            heading: title,
            paragraphs: vec![message],
            action: Some((format!("Open {}", site.name), site.dashboard_url.clone())),
            footer: format!("You get this mail because you are an admin of {org} on {}.", site.name),
        }
    }
}

#[async_trait::async_trait]
impl OutboxHandler for InviteMails {
    fn topic(&self) -> &'static str {
        INVITE
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let mail: InviteMail = message.parse()?;
        self.mailer.send(mail.render(&self.site, message.id.to_string(), message.created_at)).await
    }

    async fn on_delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> store::Result<()> {
        let mail: InviteMail = message.parse_delivered()?;
        let token = Token::parse(TokenKind::Invite, &mail.token);
        let token = token.ok_or_else(|| store::Error::inconsistent("the queued mail has no token"))?;
        tx.invite_mark_sent(mail.invite, token.hash(), at).await
    }
}

#[async_trait::async_trait]
impl OutboxHandler for NotificationMails {
    fn topic(&self) -> &'static str {
        NOTIFICATION
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let mail: NotificationMail = message.parse()?;
        self.mailer.send(mail.render(&self.site, message.id.to_string(), message.created_at)).await
    }

    async fn on_delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> store::Result<()> {
        let mail: NotificationMail = message.parse_delivered()?;
        tx.notification_mark_sent(mail.notification, at).await
    }
}
