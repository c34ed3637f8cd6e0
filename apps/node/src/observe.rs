//! What became of what was wanted, as the control plane and through it the project's people are told.

use serde::Serialize;
use tokio::sync::mpsc::UnboundedSender;

/// Something that happened to a version of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// The project's id.
    pub project: String,
    /// The deployment's version.
    pub version: u64,
    pub state: State,
    /// Why, in words for the project's people.
    pub message: Option<String>,
}

impl Observation {
    /// About how many bytes it takes in a report; each byte of a message may be escaped.
    pub fn size(&self) -> usize {
        200 + self.project.len() + 2 * self.message.as_ref().map_or(0, String::len)
    }
}

/// How it stands with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is served, or is again.
    Serving,
    /// Its worker ended by itself or had to be ended; the next request starts it again.
    Crashed,
    /// Its worker does not start. The version before, where there is one, is served on.
    Failed,
}

/// Where observations go.
#[derive(Clone)]
pub struct Observer(UnboundedSender<Observation>);

impl Observer {
    /// An observer that sends there.
    pub const fn new(sender: UnboundedSender<Observation>) -> Self {
        Self(sender)
    }

    /// Logs the observation and passes it on. When nobody listens any more, the node is about to end.
    pub fn tell(&self, project: &str, version: u64, state: State, message: Option<String>) {
        tracing::info!(project, version, ?state, message, "observed");
        let _ = self.0.send(Observation { project: project.to_owned(), version, state, message });
    }
}
