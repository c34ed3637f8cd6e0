//! Responses that are not streams.

use bytes::{Bytes, BytesMut};
use protocol::AiUsage;
use tokio::time::{Instant, timeout_at};

use super::{Call, Completion, TOO_LONG};
use crate::ai::failure::Failure;
use crate::ai::upstream::{ResponseBody, Upstream};
use crate::ai::usage::{Metered, reported};
use crate::ai::{AiError, Result};
use crate::memory::{Memory, Reservation};

/// The longest response that is not a stream.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The memory that a call reserves before it is sent. Most responses are shorter.
const SMALL_BYTES: usize = 32 << 10;
/// The memory to read and parse a longer response: its text, and a copy of its longest string, which serde_json makes if
/// the string has escapes.
const LARGE_BYTES: usize = 2 * MAX_RESPONSE_BYTES;
/// The limits on the memory of all short responses and of all longer ones, in bytes.
const MAX_SMALL_BYTES: usize = 256 << 20;
const MAX_LARGE_BYTES: usize = 512 << 20;
/// The share of an owner in both limits: an eighth, which is two long responses.
const SHARES: usize = 8;

/// The memory for the responses of all projects that are not streams, until the workers have read them.
///
/// Each call reserves memory for a short response before it is sent, so a call without memory is free. All reservations of
/// a limit have the same size, and short responses never wait for longer ones.
pub struct ResponsesMemory {
    small: Memory,
    large: Memory,
}

/// The memory for the response of a call.
pub struct ResponseMemory<'a> {
    reserved: Reservation,
    is_large: bool,
    large: &'a Memory,
    owner: &'a str,
}

impl ResponsesMemory {
    pub fn new() -> Self {
        let memory = |bytes| Memory::new(bytes, bytes / SHARES);
        Self { small: memory(MAX_SMALL_BYTES), large: memory(MAX_LARGE_BYTES) }
    }

    /// Waits until there is memory for a short response.
    ///
    /// # Errors
    /// Returns [`AiError::NoResponseMemory`] if other responses use the memory for too long.
    pub async fn reserve<'a>(&'a self, owner: &'a str) -> Result<ResponseMemory<'a>> {
        let reserved = self.small.reserve(owner, SMALL_BYTES).await.map_err(|_| AiError::NoResponseMemory)?;
        Ok(ResponseMemory { reserved, is_large: false, large: &self.large, owner })
    }
}

impl ResponseMemory<'_> {
    /// Waits until there is memory for a response of this length.
    async fn grow(&mut self, length: usize) -> std::result::Result<(), Failure> {
        if !self.is_large && length > SMALL_BYTES {
            self.reserved = self.large.reserve(self.owner, LARGE_BYTES).await.map_err(Failure::no_memory)?;
            self.is_large = true;
        }
        Ok(())
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
            Ok((body, reserved, usage)) => {
                self.end(Some(usage)).await;
                Ok(Completion::Whole(body, reserved))
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
        let (body, mut reserved) = read.unwrap_or_else(|_| Err(Failure::timed_out(TOO_LONG)))?;
        let completion: Metered =
            serde_json::from_slice(&body).map_err(|_| Failure::failed("a response that is not a completion"))?;
        self.set_output_bytes(completion.message_bytes());
        let usage = completion.usage.and_then(|usage| reported(usage, self.tokens.context, self.output_bytes));
        reserved.shrink(body.capacity());
        Ok((body.freeze(), reserved, usage.unwrap_or_else(|| self.estimate())))
    }

    async fn read_body(
        &mut self,
        mut response: ResponseBody,
        mut memory: ResponseMemory<'_>,
    ) -> std::result::Result<(BytesMut, Reservation), Failure> {
        let (mut body, mut recorded) = (BytesMut::new(), Instant::now());
        while let Some(chunk) = response.next_chunk().await? {
            let length = body.len() + chunk.len();
            self.set_output_bytes(length);
            if length > MAX_RESPONSE_BYTES {
                return Err(Failure::interrupted("a response that is too long"));
            }
            memory.grow(length).await?;
            body.extend_from_slice(&chunk);
            self.record_periodically(&mut recorded).await;
        }
        Ok((body, memory.reserved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unread_responses_leave_memory_to_short_ones_and_to_other_owners() {
        let memory = ResponsesMemory::new();
        let mut long = Vec::new();
        for _ in 0..2 {
            let mut response = memory.reserve("usr_1").await.unwrap();
            response.grow(SMALL_BYTES + 1).await.ok().unwrap();
            // A longer response needs no further memory.
            response.grow(MAX_RESPONSE_BYTES).await.ok().unwrap();
            long.push(response);
        }
        let mut short = memory.reserve("usr_1").await.unwrap();
        short.grow(SMALL_BYTES).await.ok().unwrap();
        assert!(matches!(short.grow(SMALL_BYTES + 1).await, Err(Failure::Unread(AiError::NoResponseMemory))));
        // Other owners use the rest of the node's memory. The project is then not charged for its output.
        let mut others = Vec::new();
        for owner in 2..9 {
            for _ in 0..2 {
                let large = memory.large.reserve(&format!("usr_{owner}"), LARGE_BYTES).await.unwrap();
                others.push(large);
            }
        }
        let mut response = memory.reserve("usr_9").await.unwrap();
        assert!(matches!(response.grow(SMALL_BYTES + 1).await, Err(Failure::Undelivered(AiError::NoResponseMemory))));
        // A response that was read keeps only its own memory.
        long.iter_mut().for_each(|response| response.reserved.shrink(SMALL_BYTES));
        short.grow(SMALL_BYTES + 1).await.ok().unwrap();
    }
}
