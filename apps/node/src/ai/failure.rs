//! Failures of calls that were sent to the upstream.

use super::AiError;
use crate::memory::Exhausted;

/// Why a call has no complete response.
pub enum Failure {
    /// The upstream failed, or sent something else than a completion: the call is free.
    Failed(AiError),
    /// The response began and did not end. The upstream charges for it, so the call is charged with an estimate of the
    /// part that arrived.
    Interrupted(AiError),
    /// The node did not read the response to its end, because it took too long, or because the same owner has other
    /// responses that are not read. The upstream may have written all of it, so the estimate contains at least the
    /// expected output.
    Unread(AiError),
    /// The node has no memory for the response, because other owners use it. The call is charged for its input only.
    Undelivered(AiError),
}

impl Failure {
    pub fn failed(reason: &str) -> Self {
        log(reason);
        Self::Failed(AiError::NoUpstream)
    }

    pub fn interrupted(reason: &str) -> Self {
        log(reason);
        Self::Interrupted(AiError::NoUpstream)
    }

    pub fn timed_out(reason: &str) -> Self {
        log(reason);
        Self::Unread(AiError::TimedOut)
    }

    pub fn no_memory(exhausted: Exhausted) -> Self {
        match exhausted {
            Exhausted::Owner => Self::Unread(AiError::NoResponseMemory),
            Exhausted::Node => {
                tracing::warn!("there is no memory for a response of an AI model");
                Self::Undelivered(AiError::NoResponseMemory)
            }
        }
    }

    /// The reader of a stream left, so the node closes the call to the upstream.
    pub const fn abandoned() -> Self {
        Self::Interrupted(AiError::Abandoned)
    }
}

/// Logs a failure of the upstream.
fn log(reason: &str) {
    tracing::warn!(reason, "the upstream of the AI models failed");
}
