//! Observed states, for the control plane and the project's members.

use protocol::{
    DatabaseReport, DeletedBackupsReport, DeletedStorageReport, DeploymentReport, DeploymentState, Report, ReportKind,
    StorageReport,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// A report to send.
#[derive(Debug)]
pub struct Observation {
    /// The subject within the project and the kind. A later report with the same subject replaces this one.
    pub subject: String,
    pub report: Report,
    /// Notified when the control plane has accepted the report; dropped if it is replaced or rejected.
    pub accepted: Option<oneshot::Sender<()>>,
}

impl Observation {
    /// Creates a report of kind `K`. Returns `None` if it cannot be serialized.
    pub fn new<K: ReportKind>(project: &str, subject: String, report: &K) -> Option<Self> {
        let written = Report::new(project.to_owned(), report);
        let written = written
            .inspect_err(|error| tracing::error!(project, %error, kind = K::NAME, "failed to serialize a report"));
        Some(Self { subject, report: written.ok()?, accepted: None })
    }

    /// Creates a report of a deployment's state.
    pub fn deployment(project: &str, version: i32, state: DeploymentState, message: Option<String>) -> Option<Self> {
        Self::new(project, version.to_string(), &DeploymentReport { version, state, message })
    }

    /// Returns the size in a batch, in bytes.
    pub fn size(&self) -> usize {
        serde_json::to_vec(&self.report).map_or(0, |written| written.len() + 1)
    }
}

/// The sender of observations.
#[derive(Clone)]
pub struct Observer(UnboundedSender<Observation>);

impl Observer {
    pub const fn new(sender: UnboundedSender<Observation>) -> Self {
        Self(sender)
    }

    /// Logs the state of a deployment and reports it.
    pub fn report_deployment(&self, project: &str, version: i32, state: DeploymentState, message: Option<String>) {
        tracing::info!(project, version, ?state, message, "deployment state observed");
        self.send(Observation::deployment(project, version, state, message));
    }

    /// Reports the usage of a project's storage.
    pub fn report_storage(&self, project: &str, report: &StorageReport) {
        self.send(Observation::new(project, String::new(), report));
    }

    /// Reports the state of a project's database.
    pub fn report_database(&self, project: &str, report: &DatabaseReport) {
        self.send(Observation::new(project, String::new(), report));
    }

    /// Reports that the objects of a purged project were deleted.
    pub fn report_deleted_storage(&self, project: &str, report: &DeletedStorageReport) {
        self.send(Observation::new(project, String::new(), report));
    }

    /// Reports that the backups of a purged project were deleted.
    pub fn report_deleted_backups(&self, project: &str) {
        self.send(Observation::new(project, String::new(), &DeletedBackupsReport {}));
    }

    /// Sends a report, and waits until the control plane has accepted it. Returns false if the report was rejected, or
    /// replaced by a later one with the same subject. If the caller stops waiting, the report is still sent.
    pub fn send_acknowledged<K: ReportKind>(
        &self,
        project: &str,
        subject: String,
        report: &K,
    ) -> impl Future<Output = bool> + Send + use<K> {
        let (sender, accepted) = oneshot::channel();
        let observation = Observation::new(project, subject, report);
        self.send(observation.map(|observation| Observation { accepted: Some(sender), ..observation }));
        async move { accepted.await.is_ok() }
    }

    /// Queues a report. This cannot fail before the shutdown, because the receiver is dropped only then.
    fn send(&self, observation: Option<Observation>) {
        if let Some(observation) = observation {
            let _ = self.0.send(observation);
        }
    }
}
