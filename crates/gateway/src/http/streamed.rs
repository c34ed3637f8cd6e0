//! Responses that are sent while they are produced, for content that is too large for memory.
//!
//! A task writes the body in chunks, and waits until the client has received the previous ones. A body of one chunk is
//! sent with its length. An error before the first chunk becomes a normal error response. After the first chunk, an
//! error closes the connection before the end of the body, so that the client notices it.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::BodyStream;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use kernel::Code;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use super::body::MIN_RATE;
use super::{Describe, IntoResponse, Json, Operation};
use crate::problem::Problem;

/// The size at which a chunk is sent, in bytes. A chunk is larger only if a single value is.
const CHUNK_BYTES: usize = 64 * 1024;

/// The longest wait for the client to receive a chunk.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The time for which a response may wait for its client before the minimum rate applies.
const SLOW_GRACE: Duration = Duration::from_secs(10);

/// A response of 200 with a body that is sent while it is produced. The OpenAPI document describes the route as if it
/// returned an `R`.
pub struct Streamed<R> {
    response: HttpResponse,
    described_as: PhantomData<R>,
}

/// Writes the body of a [`Streamed`] response.
#[derive(Debug)]
pub struct BodyWriter {
    buffer: Vec<u8>,
    parts: mpsc::Sender<Part>,
    sent_bytes: usize,
    /// The time for which the body has waited for the client.
    waited: Duration,
}

#[derive(Debug)]
enum Part {
    Chunk(Bytes),
    /// The last chunk.
    End(Bytes),
    Failed(Problem),
}

impl<R> Streamed<R> {
    /// Starts to produce a body, and waits for its first chunk.
    ///
    /// # Errors
    /// Returns an error of `produce` that occurs before the first chunk.
    pub async fn produce(
        content_type: &'static str,
        produce: impl AsyncFnOnce(&mut BodyWriter) -> Result<(), Problem> + 'static,
    ) -> Result<Self, Problem> {
        let (sender, mut parts) = mpsc::channel(1);
        let task = async move {
            let mut body = BodyWriter::new(sender);
            let end = match produce(&mut body).await {
                Ok(()) => Part::End(std::mem::take(&mut body.buffer).into()),
                Err(problem) => Part::Failed(problem),
            };
            // Sending fails only if the client has closed the connection.
            let _ = body.send(end).await;
        };
        actix_web::rt::spawn(task.in_current_span());
        let mut response = HttpResponse::Ok();
        response.insert_header((CONTENT_TYPE, content_type));
        let response = match parts.recv().await {
            Some(Part::Chunk(first)) => response.body(BodyStream::new(rest_of(first, parts).boxed_local())),
            Some(Part::End(whole)) => response.body(whole),
            Some(Part::Failed(problem)) => return Err(problem),
            None => return Err(Problem::internal("the task that produces a response ended")),
        };
        Ok(Self { response, described_as: PhantomData })
    }
}

impl<T: Serialize> Streamed<Json<T>> {
    /// Sends a value as JSON. Drops `permit` when the client has received all but the last chunks.
    ///
    /// # Errors
    /// Returns an error if the value cannot be serialized.
    pub async fn json<P: 'static>(value: T, permit: P) -> Result<Self, Problem> {
        let json = serde_json::to_vec(&value).map_err(|error| Problem::internal(error.to_string()))?;
        // Only the JSON stays in memory while it is sent.
        drop(value);
        let body = async move |body: &mut BodyWriter| {
            for chunk in json.chunks(CHUNK_BYTES) {
                body.write(chunk).await?;
            }
            drop(permit);
            Ok(())
        };
        Self::produce("application/json", body).await
    }
}

/// Returns the chunks of a body. The last item is an error if the body is incomplete.
fn rest_of(first: Bytes, parts: mpsc::Receiver<Part>) -> impl Stream<Item = io::Result<Bytes>> {
    let rest = stream::unfold(Some(parts), async |parts| {
        let mut parts = parts?;
        Some(match parts.recv().await {
            Some(Part::Chunk(chunk)) => (Ok(chunk), Some(parts)),
            Some(Part::End(chunk)) => (Ok(chunk), None),
            Some(Part::Failed(problem)) => {
                problem.log();
                tracing::warn!(code = problem.code().name, "failed to produce the rest of a response");
                (Err(io::Error::other("the response is incomplete")), None)
            }
            None => (Err(io::Error::other("the client is too slow")), None),
        })
    });
    stream::iter([Ok(first)]).chain(rest)
}

impl BodyWriter {
    fn new(parts: mpsc::Sender<Part>) -> Self {
        Self { buffer: Vec::new(), parts, sent_bytes: 0, waited: Duration::ZERO }
    }

    /// Appends bytes. Waits if the client has not received the previous chunks.
    ///
    /// # Errors
    /// Returns an error if the client is too slow or has closed the connection.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < CHUNK_BYTES {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK_BYTES));
        self.send(Part::Chunk(chunk.into())).await
    }

    /// Appends a value as JSON.
    ///
    /// # Errors
    /// Returns the errors of [`BodyWriter::write`].
    pub async fn write_json(&mut self, value: &impl Serialize) -> Result<(), Problem> {
        serde_json::to_writer(&mut self.buffer, value).map_err(|error| Problem::internal(error.to_string()))?;
        self.write(&[]).await
    }

    /// Appends the items of a JSON array. `is_first` states whether the array is still empty, and is set to false.
    ///
    /// # Errors
    /// Returns the errors of [`BodyWriter::write`].
    pub async fn write_items(
        &mut self,
        items: impl Iterator<Item = impl Serialize>,
        is_first: &mut bool,
    ) -> Result<(), Problem> {
        for item in items {
            if !std::mem::take(is_first) {
                self.buffer.push(b',');
            }
            self.write_json(&item).await?;
        }
        Ok(())
    }

    /// Appends a JSON object without its closing brace.
    ///
    /// # Errors
    /// Returns the errors of [`BodyWriter::write`].
    pub async fn open_object(&mut self, object: &impl Serialize) -> Result<(), Problem> {
        serde_json::to_writer(&mut self.buffer, object).map_err(|error| Problem::internal(error.to_string()))?;
        match self.buffer.pop() {
            Some(b'}') => self.write(&[]).await,
            _ => Err(Problem::internal("the value is not a JSON object")),
        }
    }

    async fn send(&mut self, part: Part) -> Result<(), Problem> {
        if let Part::Chunk(chunk) = &part {
            self.sent_bytes += chunk.len();
        }
        let started = Instant::now();
        let sent = timeout(STALL_TIMEOUT, self.parts.send(part)).await;
        self.waited += started.elapsed();
        let is_slow =
            self.waited > SLOW_GRACE && (self.sent_bytes as f64) < self.waited.as_secs_f64() * f64::from(MIN_RATE);
        match sent {
            Ok(Ok(())) if !is_slow => Ok(()),
            _ => Err(Problem::new(&Code::UNAVAILABLE, "the client is too slow or has closed the connection")),
        }
    }
}

impl<R: Describe> Describe for Streamed<R> {
    fn describe(operation: &mut Operation) {
        R::describe(operation);
    }
}

impl<R: Describe> IntoResponse for Streamed<R> {
    fn into_response(self) -> HttpResponse {
        self.response
    }
}

impl<R> std::fmt::Debug for Streamed<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Streamed(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actix_web::body::to_bytes;
    use tokio::sync::Semaphore;

    use super::*;

    async fn writer() -> (BodyWriter, mpsc::Receiver<Part>) {
        let (sender, parts) = mpsc::channel(1);
        (BodyWriter::new(sender), parts)
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_client_ends_the_response() {
        let (mut body, parts) = writer().await;
        let chunk = vec![b'x'; CHUNK_BYTES];
        body.write(&chunk).await.unwrap();
        let started = Instant::now();
        assert!(body.write(&chunk).await.is_err());
        assert_eq!(started.elapsed(), STALL_TIMEOUT);
        drop(body);
        let first = Bytes::from_static(b"first");
        let received: Vec<_> = rest_of(first, parts).collect().await;
        assert_eq!(received.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_ends_the_response_after_the_grace_time() {
        let (mut body, mut parts) = writer().await;
        let client = tokio::spawn(async move {
            let mut received = 0;
            while let Some(Part::Chunk(_)) = parts.recv().await {
                received += 1;
                // 64 KiB in 8 s is below the minimum rate.
                tokio::time::sleep(Duration::from_secs(8)).await;
            }
            received
        });
        let chunk = vec![b'x'; CHUNK_BYTES];
        let mut written = 0;
        while body.write(&chunk).await.is_ok() {
            written += 1;
        }
        drop(body);
        // The task writes two chunks without waiting for the client.
        assert_eq!(written, 4);
        assert_eq!(client.await.unwrap(), 5);
    }

    #[tokio::test]
    async fn failed_response_is_incomplete() {
        let (mut body, parts) = writer().await;
        let chunks =
            tokio::spawn(rest_of(Bytes::from_static(b"first"), parts).map(|it| it.is_ok()).collect::<Vec<_>>());
        body.send(Part::Failed(Problem::bad_request("broken"))).await.unwrap();
        assert_eq!(chunks.await.unwrap(), [true, false]);
    }

    #[actix_web::test]
    async fn permit_of_a_value_is_held_until_most_of_it_is_sent() {
        let semaphore = Arc::new(Semaphore::new(1));
        for (length, available) in [(CHUNK_BYTES / 2, 1), (4 * CHUNK_BYTES, 0)] {
            let (value, permit) = ("x".repeat(length), Arc::clone(&semaphore).try_acquire_owned().unwrap());
            let response = Streamed::json(value.clone(), permit).await.unwrap().into_response();
            assert_eq!(semaphore.available_permits(), available);
            let body = to_bytes(response.into_body()).await.unwrap();
            assert_eq!(body, serde_json::to_vec(&value).unwrap());
            assert_eq!(semaphore.available_permits(), 1);
        }
    }

    #[tokio::test]
    async fn values_are_joined_to_json() {
        let (mut body, mut parts) = writer().await;
        body.open_object(&serde_json::json!({ "name": "a" })).await.unwrap();
        body.write(b",\"items\":[").await.unwrap();
        let mut is_first = true;
        body.write_items([1, 2].iter(), &mut is_first).await.unwrap();
        body.write_items([3].iter(), &mut is_first).await.unwrap();
        body.write(b"]}").await.unwrap();
        assert_eq!(body.buffer, b"{\"name\":\"a\",\"items\":[1,2,3]}");
        assert!(parts.try_recv().is_err());
    }
}
