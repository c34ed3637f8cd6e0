//! The use cases of notifications. Other contexts raise them through ports of their own.

use kernel::audit::{Actor, Event};
use kernel::{NotificationId, OrgId, Page, Paging};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Orgs, Result};
use crate::error::OrgError;
use crate::mail::{NOTIFICATION, NotificationMail};
use crate::model::{NewNotification, Notification};
use crate::repository::{NotificationRepository as _, OrgRepository as _};

/// How long nobody is told the same again: a day.
const QUIET_SECONDS: i64 = 24 * 3600;

impl Orgs {
    /// The notifications, newest first.
    ///
    /// # Errors
    /// [`OrgError::Store`].
    pub async fn notifications(&self, org: OrgId, paging: &Paging<NotificationId>) -> Result<Page<Notification>> {
        let notifications = self.store.connection().await?.notification_list(org, paging).await?;
        Ok(Page::cut(notifications, paging, |notification| notification.id))
    }

    /// The newest notifications about a project.
    ///
    /// # Errors
    /// [`OrgError::Store`].
    pub async fn notifications_of(&self, org: OrgId, project: &str, most: u16) -> Result<Vec<Notification>> {
        Ok(self.store.connection().await?.notification_recent(org, project, most).await?)
    }

    /// Raises a notification, and mails it to the admins who have an address. The same one is not raised again within
    /// a day.
    ///
    /// # Errors
    /// [`OrgError::OrgNotFound`].
    pub async fn notify(&self, actor: &Actor, org: OrgId, new: NewNotification) -> Result<()> {
        self.store
            .transaction(actor, async |tx| {
                tx.org_lock(org).await?.ok_or(OrgError::OrgNotFound)?;
                let since = self.store.world().now().plus_seconds(-QUIET_SECONDS);
                if tx.notification_raised(org, new.kind, new.project.as_deref(), since).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let data = json!({ "kind": new.kind, "project": new.project });
                let id = self.raise(tx, org, new).await?;
                let event = Event::in_org("notification.raise", org, id, data);
                Ok(Outcome::Changed((), event))
            })
            .await
    }

    /// Raises a notification in the transaction of what it tells of.
    ///
    /// # Errors
    /// [`OrgError::OrgNotFound`].
    pub async fn raise(&self, tx: &mut Connection, org: OrgId, new: NewNotification) -> Result<NotificationId> {
        let NewNotification { kind, project, title, message } = new;
        let now = self.store.world().now();
        let id = self.store.world().id_at(now);
        let notification = Notification { id, kind, project, title, message, created_at: now, sent_at: None };
        tx.notification_insert(org, &notification).await?;
        if self.site.sends_mail {
            let org_name = tx.org_find(org).await?.ok_or(OrgError::OrgNotFound)?.name;
            for to in tx.admin_emails(org).await? {
                let mail = NotificationMail::new(&notification, to, org_name.clone());
                self.store.enqueue(tx, NOTIFICATION, &id.to_string(), &mail).await?;
            }
        }
        Ok(id)
    }
}
