//! The mails of the organization context: their outbox messages and their texts.

use std::sync::Arc;

use kernel::{InviteId, NotificationId, OrgId, Role, Time, Token, TokenKind, UserId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::outbox::{DeliveryError, Message, OutboxHandler};
use store::{Connection, Quota, Store};

use crate::model::Notification;
use crate::ports::{MailMessage, Mailer};
use crate::repository::{InviteRecord, InviteRepository as _, NotificationRepository as _, OrgRecord};
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
    /// The creator of the organization, or the organization itself if the creator no longer exists.
    sender: String,
    recipient: UserId,
    to: String,
    org_id: OrgId,
    org: String,
    title: String,
    message: String,
}

/// The outbox handler of invitation mails.
pub struct InviteMails {
    pub store: Store,
    pub site: Site,
    pub mailer: Arc<dyn Mailer>,
}

/// The outbox handler of notification mails.
pub struct NotificationMails {
    pub store: Store,
    /// The maximum number of mails to an address in any hour, over all organizations of the same creator.
    pub max_per_recipient: u32,
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
    pub(crate) fn new(notification: &Notification, recipient: UserId, to: String, org: &OrgRecord) -> Self {
        let Notification { id, title, message, .. } = notification.clone();
        let sender = org.created_by.map_or_else(|| org.id.to_string(), |user| user.to_string());
        Self { notification: id, sender, recipient, to, org_id: org.id, org: org.name.clone(), title, message }
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
        // The mail can wait for days, and its link would no longer work.
        if self.store.has_elapsed(Some(mail.expires_at), 0) {
            let _ = message.response.set(Value::Bool(false));
            return Ok(());
        }
        let is_sent = self.mailer.send(mail.render(&self.site, message.id.to_string(), message.created_at)).await?;
        let _ = message.response.set(Value::Bool(is_sent));
        Ok(())
    }

    async fn on_delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> store::Result<()> {
        if message.response.get() != Some(&Value::Bool(true)) {
            return Ok(());
        }
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
        // The first attempt takes the permit for all attempts. If the first attempt itself fails, the next ones need none.
        let has_permit = message.attempts > 1 || self.take_permit(&mail).await?;
        let is_sent = has_permit
            && self.is_recipient(&mail).await?
            && self.mailer.send(mail.render(&self.site, message.id.to_string(), message.created_at)).await?;
        let _ = message.response.set(Value::Bool(is_sent));
        Ok(())
    }

    async fn on_delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> store::Result<()> {
        if message.response.get() != Some(&Value::Bool(true)) {
            return Ok(());
        }
        let mail: NotificationMail = message.parse_delivered()?;
        tx.notification_mark_sent(mail.notification, at).await
    }
}

impl NotificationMails {
    /// Returns whether the recipient is still an admin with the same address. The mail can wait for hours, and
    /// notifications are only for members.
    async fn is_recipient(&self, mail: &NotificationMail) -> Result<bool, DeliveryError> {
        let is_admin =
            async { self.store.connection().await?.admin_has_email(mail.org_id, mail.recipient, &mail.to).await };
        is_admin.await.map_err(|error| DeliveryError::transient(&error))
    }

    /// Returns whether another mail may be sent to the address. The mails of all organizations of a creator count
    /// together, because anyone can create organizations and add others as admins. The mails of different creators
    /// count separately. Otherwise a user could use up the limit of an address, and so hide the notifications of others.
    async fn take_permit(&self, mail: &NotificationMail) -> Result<bool, DeliveryError> {
        let key = format!("notification-mail {} {}", mail.sender, mail.to.to_lowercase());
        let taken = self.store.permits_take(&key, Quota::at_most_per_hour(self.max_per_recipient), 1).await;
        Ok(taken.map_err(|error| DeliveryError::transient(&error))?.is_none())
    }
}
