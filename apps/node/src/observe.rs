//! What this node observed, for the control plane and the project's members.

use protocol::{DeploymentReport, DeploymentState, Report, ReportKind};
use tokio::sync::mpsc::UnboundedSender;

/// A report that waits to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// What the report is about, within the project and the kind. A later report about the same replaces this one.
    pub subject: String,
    pub report: Report,
}

impl Observation {
    /// A report of kind `K`; none when it cannot be written as JSON.
    pub fn new<K: ReportKind>(project: &str, subject: String, report: &K) -> Option<Self> {
        let written = Report::new(project.to_owned(), report);
        let written = written.inspect_err(|error| tracing::error!(project, %error, kind = K::NAME, "failed to report"));
        Some(Self { subject, report: written.ok()? })
    }

    /// The state of a deployment.
    pub fn deployment(project: &str, version: i32, state: DeploymentState, message: Option<String>) -> Option<Self> {
        Self::new(project, version.to_string(), &DeploymentReport { version, state, message })
    }

    /// The number of bytes that it takes in a batch.
    pub fn size(&self) -> usize {
        serde_json::to_vec(&self.report).map_or(0, |written| written.len() + 1)
    }
}

/// Where observations go.
#[derive(Clone)]
pub struct Observer(UnboundedSender<Observation>);

impl Observer {
    /// An observer that sends there.
    pub const fn new(sender: UnboundedSender<Observation>) -> Self {
        Self(sender)
    }

    /// Logs the state of a deployment and reports it.
    pub fn tell(&self, project: &str, version: i32, state: DeploymentState, message: Option<String>) {
        tracing::info!(project, version, ?state, message, "observed");
        self.report(Observation::deployment(project, version, state, message));
    }

    /// Reports. When the receiver is gone, the node is about to end.
    fn report(&self, observation: Option<Observation>) {
        if let Some(observation) = observation {
            let _ = self.0.send(observation);
        }
    }
}
