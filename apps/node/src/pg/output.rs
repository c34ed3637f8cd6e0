//! The JSON of a result, which is sent to the worker while it is written.
//!
//! `{"results":[{"fields":[[name, type, conversion], …],"rows":[[…], …],"rowCount":n}, …]}`. If a call fails after a
//! part was sent, the JSON ends with `"error":{"code":…,"message":…}`. The JSON stays incomplete if more than 1 MiB of a
//! row is unread then.

use std::mem;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::error::{DatabaseError, Failure, Result};

/// A full buffer is sent. Smaller results are a single chunk.
const CHUNK_BYTES: usize = 32 << 10;
/// A text is converted in parts of this size, so that its JSON does not exceed the limit by much.
const PART_CHARS: usize = 16 << 10;
/// The maximum length of the rest of a row that is sent after the call has failed, in bytes. The memory of a large row is
/// not reserved any more.
const MAX_REST_BYTES: usize = 1 << 20;
/// The longest time in which a worker does not read the end of a result.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a call for the worker: the chunks of the JSON, or one error if the call failed before the first chunk.
pub type Chunks = mpsc::Receiver<Result<Bytes>>;

/// Writes the JSON.
pub struct Output {
    chunks: mpsc::Sender<Result<Bytes>>,
    buffer: BytesMut,
    /// The bytes that were sent.
    sent: usize,
    /// The length of the buffer up to the last complete row.
    complete: usize,
    state: State,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    NoResults,
    BetweenResults,
    NoRows,
    Rows,
}

/// The result exceeds its limit in bytes.
#[derive(Debug)]
pub struct TooLarge(usize);

impl From<TooLarge> for Failure {
    fn from(TooLarge(limit): TooLarge) -> Self {
        // The connection cannot be used again, because the server may send any number of further rows.
        Self::Fatal(DatabaseError::ResultTooLarge(limit))
    }
}

impl Output {
    /// Creates the output of a result of at most `limit` bytes, and the receiver of its chunks.
    pub fn new(limit: usize) -> (Self, Chunks) {
        let (chunks, receiver) = mpsc::channel(1);
        (Self { chunks, buffer: BytesMut::new(), sent: 0, complete: 0, state: State::NoResults, limit }, receiver)
    }

    /// Returns a sender that is closed when the worker no longer waits for the result.
    pub fn receiver(&self) -> mpsc::Sender<Result<Bytes>> {
        self.chunks.clone()
    }

    /// Begins the result of a statement. A field is a name, a type and its conversion.
    pub fn begin_result(&mut self, fields: &[[&str; 3]]) -> std::result::Result<(), TooLarge> {
        self.push(if self.state == State::NoResults { b"{\"results\":[" } else { b"," })?;
        self.push(b"{\"fields\":")?;
        self.push(json!(fields).to_string().as_bytes())?;
        self.push(b",\"rows\":[")?;
        self.state = State::NoRows;
        self.complete = self.buffer.len();
        Ok(())
    }

    /// Begins a row.
    pub fn begin_row(&mut self) -> std::result::Result<(), TooLarge> {
        let is_first = mem::replace(&mut self.state, State::Rows) == State::NoRows;
        self.push(if is_first { b"[" } else { b",[" })
    }

    /// Ends a row. If the buffer is full, waits until the worker has read the earlier chunks, and sends the buffer.
    pub async fn end_row(&mut self) -> std::result::Result<(), Failure> {
        self.push(b"]")?;
        self.send_if_full().await
    }

    /// Ends the result of a statement. Sends a full buffer like [`Self::end_row`].
    pub async fn end_result(&mut self, row_count: u64) -> std::result::Result<(), Failure> {
        self.push(format!("],\"rowCount\":{row_count}}}").as_bytes())?;
        self.state = State::BetweenResults;
        self.send_if_full().await
    }

    /// Appends JSON.
    pub fn push(&mut self, json: &[u8]) -> std::result::Result<(), TooLarge> {
        if self.sent + self.buffer.len() + json.len() > self.limit {
            return Err(TooLarge(self.limit));
        }
        self.buffer.extend_from_slice(json);
        Ok(())
    }

    /// Appends a string.
    pub fn push_text(&mut self, mut text: &str) -> std::result::Result<(), TooLarge> {
        self.push(b"\"")?;
        while !text.is_empty() {
            let (part, rest) = text.split_at(text.floor_char_boundary(PART_CHARS));
            let quoted = json!(part).to_string();
            self.push(quoted.get(1..quoted.len() - 1).unwrap_or_default().as_bytes())?;
            text = rest;
        }
        self.push(b"\"")
    }

    async fn send_if_full(&mut self) -> std::result::Result<(), Failure> {
        self.complete = self.buffer.len();
        if self.buffer.len() >= CHUNK_BYTES {
            self.send().await.map_err(|_| Failure::Abandoned)?;
        }
        Ok(())
    }

    /// Sends the buffer. If this future is dropped, the buffer contains the rest, which is complete.
    async fn send(&mut self) -> std::result::Result<(), mpsc::error::SendError<()>> {
        while !self.buffer.is_empty() {
            let permit = self.chunks.reserve().await?;
            let chunk = self.buffer.split_to(self.buffer.len().min(CHUNK_BYTES));
            self.sent += chunk.len();
            self.complete = self.buffer.len();
            // The chunk is a copy, so an unread chunk does not keep the memory of a large row.
            permit.send(Ok(Bytes::copy_from_slice(&chunk)));
        }
        self.buffer = BytesMut::new();
        Ok(())
    }

    /// Ends the JSON. If the worker no longer waits, this is not an error. If the worker does not read the end within
    /// [`UNREAD_TIMEOUT`], the JSON stays incomplete.
    pub async fn finish(mut self, result: Result<()>) {
        match result {
            Err(error) if self.sent == 0 => drop(self.chunks.send(Err(error)).await),
            Err(_) if self.complete > MAX_REST_BYTES => {}
            result => {
                self.close(result);
                drop(timeout(UNREAD_TIMEOUT, self.send()).await);
            }
        }
    }

    fn close(&mut self, result: Result<()>) {
        self.buffer.truncate(self.complete);
        // Releases the memory of a large row.
        self.buffer = BytesMut::from(&*self.buffer);
        match self.state {
            State::NoResults => self.buffer.extend_from_slice(b"{\"results\":["),
            State::BetweenResults => {}
            State::NoRows | State::Rows => self.buffer.extend_from_slice(b"]}"),
        }
        self.buffer.extend_from_slice(b"]");
        if let Err(error) = result {
            let error = json!({ "code": error.code(), "message": error.to_string() });
            self.buffer.extend_from_slice(format!(",\"error\":{error}").as_bytes());
        }
        self.buffer.extend_from_slice(b"}");
    }

    #[cfg(test)]
    pub fn take_text(&mut self) -> String {
        String::from_utf8(mem::take(&mut self.buffer).into()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    async fn write(output: &mut Output, rows: &[&str]) -> std::result::Result<(), Failure> {
        output.begin_result(&[["a\"", "text", ""]])?;
        for row in rows {
            output.begin_row()?;
            output.push_text(row)?;
            output.end_row().await?;
        }
        output.end_result(rows.len() as u64).await
    }

    /// Returns the result as the worker receives it, and the number of chunks.
    async fn read(mut chunks: Chunks) -> Result<(Value, usize)> {
        let (mut json, mut count) = (Vec::new(), 0);
        while let Some(chunk) = chunks.recv().await {
            json.extend_from_slice(&chunk?);
            count += 1;
        }
        Ok((serde_json::from_slice(&json).unwrap(), count))
    }

    #[tokio::test]
    async fn small_result_is_one_chunk() {
        let (mut output, chunks) = Output::new(1000);
        write(&mut output, &["x", "é\""]).await.unwrap();
        write(&mut output, &[]).await.unwrap();
        tokio::spawn(output.finish(Ok(())));
        let fields = json!([["a\"", "text", ""]]);
        let results = json!({ "results": [
            { "fields": fields, "rows": [["x"], ["é\""]], "rowCount": 2 },
            { "fields": fields, "rows": [], "rowCount": 0 },
        ] });
        assert_eq!(read(chunks).await, Ok((results, 1)));
    }

    #[tokio::test]
    async fn error_without_results_has_no_json() {
        let (mut output, chunks) = Output::new(1000);
        write(&mut output, &["x"]).await.unwrap();
        tokio::spawn(output.finish(Err(DatabaseError::FAILED)));
        assert_eq!(read(chunks).await, Err(DatabaseError::FAILED));
    }

    #[tokio::test]
    async fn error_after_a_chunk_ends_the_json() {
        let (mut output, chunks) = Output::new(100_000);
        let written = tokio::spawn(async move {
            let failed = write(&mut output, &["x".repeat(60_000).as_str(), &"y".repeat(60_000)]).await;
            assert!(matches!(failed, Err(Failure::Fatal(DatabaseError::ResultTooLarge(100_000)))));
            output.finish(Err(DatabaseError::ResultTooLarge(100_000))).await;
        });
        let (json, count) = read(chunks).await.unwrap();
        written.await.unwrap();
        assert_eq!((json["error"]["code"].as_str(), count), (Some("result_too_large"), 3));
        assert_eq!(json["results"][0]["rows"].as_array().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn error_ends_the_json_after_the_rest_of_a_row() {
        for length in [MAX_REST_BYTES / 2, 2 * MAX_REST_BYTES] {
            let (mut output, mut chunks) = Output::new(4 * MAX_REST_BYTES);
            let row = "x".repeat(length);
            assert!(timeout(UNREAD_TIMEOUT, write(&mut output, &[row.as_str()])).await.is_err());
            tokio::spawn(output.finish(Err(DatabaseError::FAILED)));
            let mut json = Vec::new();
            while let Some(chunk) = chunks.recv().await {
                json.extend_from_slice(&chunk.unwrap());
            }
            let json = serde_json::from_slice(&json).ok();
            let seen = json.map(|json: Value| (json["results"][0]["rows"].clone(), json["error"]["code"].clone()));
            let expected = (json!([[row]]), json!(DatabaseError::FAILED.code()));
            assert!(seen == (length < MAX_REST_BYTES).then_some(expected), "{length}");
        }
    }

    #[tokio::test]
    async fn writer_stops_when_the_worker_is_gone() {
        let (mut output, chunks) = Output::new(1 << 20);
        drop(chunks);
        let failed = write(&mut output, &["x".repeat(60_000).as_str()]).await;
        assert!(matches!(failed, Err(Failure::Abandoned)), "{failed:?}");
    }

    #[tokio::test]
    async fn chunk_does_not_keep_the_memory_of_a_row() {
        let (mut output, mut chunks) = Output::new(1 << 20);
        tokio::spawn(async move { write(&mut output, &["x".repeat(100_000).as_str()]).await });
        assert!(chunks.recv().await.unwrap().unwrap().is_unique());
    }

    #[tokio::test(start_paused = true)]
    async fn unread_end_is_dropped() {
        let (mut output, mut chunks) = Output::new(1 << 20);
        let finished = tokio::spawn(async move {
            write(&mut output, &["x".repeat(CHUNK_BYTES).as_str()]).await.unwrap();
            output.finish(Ok(())).await;
        });
        let mut json = chunks.recv().await.unwrap().unwrap().to_vec();
        timeout(2 * UNREAD_TIMEOUT, finished).await.unwrap().unwrap();
        while let Some(chunk) = chunks.recv().await {
            json.extend_from_slice(&chunk.unwrap());
        }
        assert!(serde_json::from_slice::<Value>(&json).is_err());
    }
}
