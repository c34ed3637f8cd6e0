//! Responses that are not streams.

use bytes::{Bytes, BytesMut};
use protocol::AiUsage;
use tokio::time::{Instant, timeout_at};

use super::{Call, Completion, TOO_LONG};
use crate::ai::failure::Failure;
use crate::ai::upstream::{ResponseBody, Upstream};
use crate::ai::usage::{Metered, reported};
use crate::ai::{AiError, Result};
use crate::memory::{ProjectsMemory, Reservation};

/// The longest response that is not a stream.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The memory for a response that the node begins to read. Most responses are shorter.
const SMALL_BYTES: usize = 64 << 10;
/// The memory to read and parse a longer response. Its buffer has up to twice the length of the response.
const LARGE_BYTES: usize = 2 * MAX_RESPONSE_BYTES;

/// The memory for the responses of a project.
///
/// A response reserves at most twice: [`SMALL_BYTES`], and then [`LARGE_BYTES`], which suffices for every response. So a
/// response that waits holds little, and the responses that others wait for never wait themselves.
#[derive(Clone, Copy)]
pub struct ResponseMemory<'a> {
    pub memory: &'a ProjectsMemory,
    pub project: &'a str,
}

impl ResponseMemory<'_> {
    /// Waits until memory is available.
    async fn reserve(self, bytes: usize) -> std::result::Result<Reservation, Failure> {
        let reserved = self.memory.reserve(self.project, bytes).await;
        reserved.ok_or(Failure::Unread(AiError::NoResponseMemory))
    }
}

impl Call {
    /// Waits for the whole response, even if the worker is gone, because the upstream charges for it.
    pub async fn complete(
        mut self,
        upstream: &Upstream,
        body: Vec<u8>,
        memory: ResponseMemory<'_>,
    ) -> Result<Completion> {
        match self.read_whole(upstream, body, memory).await {
            Ok((body, memory, usage)) => {
                self.end(Some(usage)).await;
                Ok(Completion::Whole(body, memory))
            }
            Err(failure) => Err(self.fail(failure).await),
        }
    }

    async fn read_whole(
        &mut self,
        upstream: &Upstream,
        body: Vec<u8>,
        memory: ResponseMemory<'_>,
    ) -> std::result::Result<(Bytes, Reservation, AiUsage), Failure> {
        let response = self.send_upstream(upstream, body, "application/json").await?;
        let read = timeout_at(self.deadline, self.read_body(response, memory)).await;
        let (body, mut memory) = read.unwrap_or_else(|_| Err(Failure::unread(TOO_LONG)))?;
        let completion: Metered =
            serde_json::from_slice(&body).map_err(|_| Failure::failed("a response that is not a completion"))?;
        self.set_output_bytes(completion.message_bytes());
        let usage = completion.usage.and_then(|usage| reported(&usage, self.tokens.context, self.output_bytes));
        memory.shrink(body.capacity());
        Ok((body.freeze(), memory, usage.unwrap_or_else(|| self.estimate())))
    }

    async fn read_body(
        &mut self,
        mut response: ResponseBody,
        memory: ResponseMemory<'_>,
    ) -> std::result::Result<(BytesMut, Reservation), Failure> {
        let (mut body, mut recorded) = (BytesMut::new(), Instant::now());
        let (mut reserved, mut is_small) = (memory.reserve(SMALL_BYTES).await?, true);
        while let Some(chunk) = response.next_chunk().await? {
            let length = body.len() + chunk.len();
            self.set_output_bytes(length);
            if length > MAX_RESPONSE_BYTES {
                return Err(Failure::interrupted("a response that is too long"));
            }
            if is_small && length > SMALL_BYTES {
                reserved = memory.reserve(LARGE_BYTES).await?;
                is_small = false;
            }
            body.extend_from_slice(&chunk);
            self.record_periodically(&mut recorded).await;
        }
        Ok((body, reserved))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::ai::{MAX_BYTES, MAX_PROJECT_BYTES};

    #[test]
    fn unread_responses_leave_memory_to_other_projects_and_never_wait_for_each_other() {
        let memory = ProjectsMemory::new(MAX_BYTES, MAX_PROJECT_BYTES);
        let reserve = |project: &str, bytes| {
            ResponseMemory { memory: &memory, project }.reserve(bytes).now_or_never().and_then(std::result::Result::ok)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        // These responses have begun, and the next ones are long.
        let begun: Vec<_> = (0..500).map(|_| reserve("prj_1", SMALL_BYTES).unwrap()).collect();
        let mut long: Vec<_> = std::iter::from_fn(|| reserve("prj_1", LARGE_BYTES)).collect();
        assert_eq!(long.len(), 3, "a project holds at most 128 MiB");
        assert!(reserve("prj_2", LARGE_BYTES).is_some());
        // A response that was read keeps only its own memory, so another one can be read.
        long[0].shrink(SMALL_BYTES);
        long[1].shrink(SMALL_BYTES);
        assert!(reserve("prj_1", LARGE_BYTES).is_some());
        drop((begun, long));
    }
}
