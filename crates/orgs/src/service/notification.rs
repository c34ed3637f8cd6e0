//! Use cases of notifications. Other contexts raise them through their own ports.

use kernel::audit::Event;
use kernel::{NotificationId, OrgId, Page, Paging, ProjectId};
use serde_json::json;
use store::Connection;

use super::{Orgs, Result};
use crate::error::OrgError;
use crate::mail::{NOTIFICATION, NotificationMail};
use crate::model::Notification;
use crate::notice::Notice;
use crate::repository::{NotificationRepository as _, OrgRepository as _};

/// The name of the system actor in the audit log.
const ACTOR: &str = "orgs.raise";

impl Orgs {
    /// Returns the notifications, newest first.
    pub async fn notifications(&self, org: OrgId, paging: &Paging<NotificationId>) -> Result<Page<Notification>> {
        let notifications = self.store.connection().await?.notification_list(org, paging).await?;
        Ok(Page::cut(notifications, paging, |notification| notification.id))
    }

    /// Returns the newest notifications of a project.
    pub async fn notifications_of(&self, org: OrgId, project: ProjectId, limit: u16) -> Result<Vec<Notification>> {
        Ok(self.store.connection().await?.notification_recent(org, project, limit).await?)
    }

    /// Raises a notification in the transaction of its cause, and mails it to the admins who have an address. Returns
    /// `None` if the same notification was raised recently.
    ///
    /// Locks the organization's row for kinds that have a deduplication interval.
    ///
    /// # Errors
    /// Returns [`OrgError::OrgNotFound`].
    pub async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> Result<Option<NotificationId>> {
        let now = self.store.clock_rng().now();
        let (kind, project, interval) = notice.deduplication();
        let project_id = project.map(|project| project.id);
        if let Some(seconds) = interval {
            tx.org_lock(org).await?.ok_or(OrgError::OrgNotFound)?;
            if tx.notification_exists_since(org, kind, project_id, now.plus_seconds(-seconds)).await? {
                return Ok(None);
            }
        }
        let (id, (title, message)) = (self.store.clock_rng().id_at(now), notice.text());
        let project = project.map(|project| project.name.clone());
        let notification = Notification { id, kind, project, title, message, created_at: now, sent_at: None };
        tx.notification_insert(org, project_id, &notification).await?;
        if self.site.sends_mail {
            let record = tx.org_find(org).await?.ok_or(OrgError::OrgNotFound)?;
            for (recipient, to) in tx.admin_emails(org).await? {
                let mail = NotificationMail::new(&notification, recipient, to, &record);
                self.store.enqueue_for(tx, NOTIFICATION, org, &id.to_string(), &mail).await?;
            }
        }
        Ok(Some(id))
    }

    /// Like [`Self::raise`], for a notification whose cause is not an operation with an audit event, such as the report
    /// of a node or the run of a background job. Also appends the audit event of the notification.
    ///
    /// # Errors
    /// Returns [`OrgError::OrgNotFound`].
    pub async fn raise_audited(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> Result<()> {
        let (kind, project, _) = notice.deduplication();
        let data = json!({ "kind": kind, "project": project.map(|project| project.id) });
        if let Some(id) = self.raise(tx, org, notice).await? {
            self.store.append_system_event(tx, ACTOR, &Event::in_org("notification.raise", org, id, data)).await?;
        }
        Ok(())
    }
}
