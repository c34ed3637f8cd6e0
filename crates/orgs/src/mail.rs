//! The mails of this context: what is queued in the outbox, and the words that are sent.

use std::sync::Arc;

use kernel::{InviteId, NotificationId, Role, Time, Token, TokenKind};
use serde::{Deserialize, Serialize};
use store::Connection;
use store::outbox::{Deliver, Message, Undelivered};

use crate::model::Notification;
use crate::ports::{Letter, Post};
use crate::repository::{InviteRecord, InviteRepository as _, NotificationRepository as _};
use crate::service::Site;

/// The topic of invitations' mails.
pub(crate) const INVITE: &str = "orgs.invite";
/// The topic of notifications' mails.
pub(crate) const NOTIFICATION: &str = "orgs.notification";

/// A mail that invites, as it is queued.
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

/// A mail that notifies, as it is queued.
#[derive(Serialize, Deserialize)]
pub(crate) struct NotificationMail {
    notification: NotificationId,
    to: String,
    org: String,
    title: String,
    message: String,
}

/// Sends the mails that invite.
pub struct InviteMails {
    pub site: Site,
    pub post: Arc<dyn Post>,
}

/// Sends the mails that notify.
pub struct NotificationMails {
    pub site: Site,
    pub post: Arc<dyn Post>,
}

impl InviteMail {
    pub(crate) fn new(invite: &InviteRecord, token: &Token, org: String, inviter: String) -> Self {
        let InviteRecord { id, email, role, expires_at, .. } = invite.clone();
        Self { invite: id, token: token.reveal().to_owned(), to: email, org, inviter, role, expires_at }
    }

    fn letter(self, site: &Site, id: String, date: Time) -> Letter {
        let Self { token, to, org, inviter, role, expires_at, .. } = self;
        let (site_name, until) =
            (&site.name, expires_at.to_string().replace('T', " ").chars().take(16).collect::<String>());
        Letter {
            id,
            date,
            subject: format!("{inviter} invites you to {org} on {site_name}"),
            heading: format!("Join {org}"),
            paragraphs: vec![
                format!("{inviter} invites you to the organization {org} on {site_name}, as {role}."),
                format!("The link below works once, until {until} UTC."),
            ],
            action: Some(("Accept the invitation".to_owned(), site.accept_url(&token))),
            footer: format!(
                "{to} was invited by a user of {site_name}. If you do not know them, ignore this mail: nothing happens \
                 unless the link is used."
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

    fn letter(self, site: &Site, id: String, date: Time) -> Letter {
        let Self { to, org, title, message, .. } = self;
        Letter {
            id,
            to,
            date,
            subject: format!("{org}: {title}"),
            heading: title,
            paragraphs: vec![message],
            action: Some((format!("Open {}", site.name), site.dashboard_url.clone())),
            footer: format!("You get this as an admin of {org} on {}.", site.name),
        }
    }
}

#[async_trait::async_trait]
impl Deliver for InviteMails {
    fn topic(&self) -> &'static str {
        INVITE
    }

    async fn deliver(&self, message: &Message) -> Result<(), Undelivered> {
        let mail: InviteMail = message.parse()?;
        self.post.send(mail.letter(&self.site, message.id.to_string(), message.created_at)).await
    }

    async fn delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> store::Result<()> {
        let mail: InviteMail = message.parse().map_err(|error| store::Error::inconsistent(format!("{error:?}")))?;
        let token = Token::parse(TokenKind::Invite, &mail.token);
        let token = token.ok_or_else(|| store::Error::inconsistent("the queued mail holds no token"))?;
        tx.invite_sent(mail.invite, token.hash(), at).await
    }
}

#[async_trait::async_trait]
impl Deliver for NotificationMails {
    fn topic(&self) -> &'static str {
        NOTIFICATION
    }

    async fn deliver(&self, message: &Message) -> Result<(), Undelivered> {
        let mail: NotificationMail = message.parse()?;
        self.post.send(mail.letter(&self.site, message.id.to_string(), message.created_at)).await
    }

    async fn delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> store::Result<()> {
        let mail: NotificationMail =
            message.parse().map_err(|error| store::Error::inconsistent(format!("{error:?}")))?;
        tx.notification_sent(mail.notification, at).await
    }
}
