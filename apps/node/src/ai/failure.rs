//! Failures of calls that were sent to the upstream.

use super::AiError;

/// Why a call has no complete response.
pub enum Failure {
    /// The upstream failed, or sent something else than a completion: the call is free.
    Failed(AiError),
    /// The response began and did not end. The upstream charges for it, so the call is charged with an estimate of the
    /// part that arrived.
    Interrupted(AiError),
    /// The node did not read the response to its end, because it took too long or the node has no memory for it. The
    /// upstream may have written all of it, so the estimate contains at least the expected output.
    Unread(AiError),
}

impl Failure {
    pub fn failed(reason: &str) -> Self {
        Self::Failed(failed(reason))
    }

    pub fn interrupted(reason: &str) -> Self {
        Self::Interrupted(failed(reason))
    }

    pub fn unread(reason: &str) -> Self {
        Self::Unread(failed(reason))
    }

    /// The reader of a stream left, so the node closes the call to the upstream.
    pub const fn abandoned() -> Self {
        Self::Interrupted(AiError::Abandoned)
    }
}

/// Logs a failure of the upstream.
fn failed(reason: &str) -> AiError {
    tracing::warn!(reason, "the upstream of the AI models failed");
    AiError::NoUpstream
}
