//! Notifications (specification, "Notifications"; contract section 4).

use kernel::{NotificationId, Time};
use serde::Serialize;

kernel::words! {
    /// The kind of a notification.
    pub enum NotificationKind {
        LimitProjects = "limit.projects",
        LimitStorage = "limit.storage",
        LimitEmail = "limit.email",
        LimitAiCredit = "limit.ai_credit",
        BackupFailed = "backup.failed",
        BackupStale = "backup.stale",
        RestoreCompleted = "restore.completed",
        RestoreFailed = "restore.failed",
        DatabaseDeleted = "database.deleted",
        DomainExpiring = "domain.expiring",
        PaymentFailed = "payment.failed",
        LimitDatabase = "limit.database",
        HostnameUnproved = "hostname.unproved",
        HostnameTakenOver = "hostname.taken_over",
        CertificateFailed = "certificate.failed",
        ZoneTakenOver = "zone.taken_over",
    } example LimitProjects
}

/// A notification of an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "title": "Project limit reached",
        "message": "acme has as many projects as its plan allows.",
    }))
)]
pub struct Notification {
    pub id: NotificationId,
    pub kind: NotificationKind,
    /// The project's name at the time of the notification.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub project: Option<String>,
    pub title: String,
    pub message: String,
    pub created_at: Time,
    /// The time at which the first mail was sent. Null while the mails are queued, or if no admin has an address.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub sent_at: Option<Time>,
}
