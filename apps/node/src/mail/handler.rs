//! The call of `email()` for a received mail.
//!
//! The request to the worker contains the length of the head in four bytes, the head in JSON, and then the mail, which
//! streams from the control plane. The response is a [`DeliveryResult`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::Builder;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::{DeliveryResult, MailDelivery};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::header;
use crate::client::Core;
use crate::routes::Routes;
use crate::text::one_line;
use crate::worker::{MAX_HEAD_BYTES, Rejection, RequestGuard, Unavailable};

const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The longest text in a result. The log of mail shows it in one line.
const MAX_TEXT_CHARS: usize = 1000;

/// Runs `email()` of the projects on this node.
pub struct Handlers {
    core: Core,
    routes: watch::Receiver<Arc<Routes>>,
}

/// Why the result of `email()` is unknown, for the members of the project.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("The project has no live deployment.")]
    NotDeployed,
    #[error("The code of the project does not run on this node.")]
    NoWorkers,
    #[error("The code has not started with the mail address yet.")]
    NotStarted,
    #[error("The code is not running, because it crashed or did not start.")]
    BackingOff,
    #[error("The node has no memory to start the code.")]
    NoMemory,
    #[error("The code has too many concurrent requests.")]
    Full,
    #[error("The node could not read the mail.")]
    Download(#[source] io::Error),
    #[error("The code stopped before email() returned.")]
    Stopped(#[source] anyhow::Error),
    /// `workerd` ends a call that waits only for a promise that nothing can resolve.
    #[error("The runtime ended email(), because it waits for a promise that nothing resolves.")]
    NeverReturns,
    #[error("email() did not return within {} seconds.", .0.as_secs())]
    TimedOut(Duration),
}

impl Handlers {
    /// Creates the handlers. `routes` contains the worker of each project.
    pub const fn new(core: Core, routes: watch::Receiver<Arc<Routes>>) -> Self {
        Self { core, routes }
    }

    /// Calls `email()`. Starts the process if it is not running.
    pub async fn call(&self, mail: &MailDelivery) -> DeliveryResult {
        match self.try_call(mail).await {
            Ok(DeliveryResult::Rejected(reason)) => DeliveryResult::Rejected(one_line(&reason, MAX_TEXT_CHARS)),
            Ok(DeliveryResult::Failed(error)) => DeliveryResult::Failed(one_line(&error, MAX_TEXT_CHARS)),
            Ok(result) => result,
            Err(failure) => {
                let (id, project, cause) = (&mail.id, &mail.project, std::error::Error::source(&failure));
                tracing::debug!(id, project, %failure, ?cause, "failed to deliver a mail to a worker");
                DeliveryResult::Failed(failure.to_string())
            }
        }
    }

    async fn try_call(&self, mail: &MailDelivery) -> Result<DeliveryResult, Failure> {
        // A project can have a mail address before its first deployment.
        let site = self.routes.borrow().of_project(&mail.project).ok_or(Failure::NotDeployed)?;
        let index = site.index.as_ref().ok_or(Failure::NotDeployed)?;
        if index.code.is_none() {
            return Ok(DeliveryResult::NoHandler);
        }
        let worker = site.worker.as_ref().map_err(|unavailable| match unavailable {
            Unavailable::NoWorkers => Failure::NoWorkers,
            Unavailable::NoEnvironment => Failure::NotStarted,
        })?;
        let guard = worker.admit_request().await.map_err(|rejection| match rejection {
            Rejection::BackingOff(_) => Failure::BackingOff,
            Rejection::NoMemory => Failure::NoMemory,
            Rejection::Full | Rejection::ClientFull => Failure::Full,
        })?;
        let time = worker.email_timeout();
        timeout(time, self.run(mail, &guard)).await.unwrap_or(Err(Failure::TimedOut(time)))
    }

    async fn run(&self, mail: &MailDelivery, guard: &RequestGuard) -> Result<DeliveryResult, Failure> {
        let stopped = |error: hyper::Error| match error.is_user() {
            // The stream of the mail failed.
            true => Failure::Download(io::Error::other(error)),
            false => Failure::Stopped(error.into()),
        };
        let socket = guard.connect_email().await.map_err(|error| Failure::Stopped(error.into()))?;
        let socket = socket.ok_or(Failure::NotStarted)?;
        let body = self.body(mail).await.map_err(Failure::Download)?;
        let request = Request::post("/").header("host", "email").body(StreamBody::new(body.map_ok(Frame::data)));
        let request = request.map_err(|error| Failure::Stopped(error.into()))?;
        let connected = Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(socket)).await;
        let (mut sender, connection) = connected.map_err(stopped)?;
        // When this function returns, the set is dropped. This closes the connection and ends the worker's call.
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let response = sender.send_request(request).await.map_err(stopped)?;
        match response.status() {
            StatusCode::OK => result(response).await.map_err(Failure::Stopped),
            StatusCode::INTERNAL_SERVER_ERROR => Err(Failure::NeverReturns),
            status => Err(Failure::Stopped(anyhow::anyhow!("the worker returned {status}"))),
        }
    }

    /// Returns the head and the mail.
    async fn body(&self, mail: &MailDelivery) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
        let raw = self.core.mail(&mail.id).await.map_err(io::Error::other)?;
        let mut raw = raw.bytes_stream().map_err(|error| io::Error::other(error.without_url())).boxed();
        let mut begin = BytesMut::new();
        while begin.len() < header::MAX_BYTES && !header::is_complete(&begin) {
            match raw.try_next().await? {
                Some(chunk) => begin.extend_from_slice(&chunk),
                None => break,
            }
        }
        let begin = begin.freeze();
        let head = head(mail, begin.get(..header::MAX_BYTES).unwrap_or(&begin))?;
        let mail = exactly(mail.size_bytes, stream::once(async { Ok(begin) }).chain(raw));
        Ok(stream::once(async { Ok(head) }).chain(mail))
    }
}

fn head(mail: &MailDelivery, begin: &[u8]) -> io::Result<Bytes> {
    let MailDelivery { id, from, to, size_bytes, .. } = mail;
    let fields = header::fields(begin);
    let head = json!({ "id": id, "from": from, "to": to, "headers": fields, "rawSize": size_bytes });
    let head = serde_json::to_vec(&head)?;
    let length = u32::try_from(head.len()).map_err(io::Error::other)?;
    Ok([&length.to_be_bytes()[..], &head].concat().into())
}

/// Fails if the chunks do not have this length in total, because the worker must not handle an incomplete mail.
fn exactly(
    length: u64,
    chunks: impl Stream<Item = io::Result<Bytes>> + Send,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let chunks = chunks.map(Some).chain(stream::once(async { None }));
    chunks.scan(length, |left, chunk| {
        let checked = match chunk {
            Some(Ok(chunk)) => left.checked_sub(chunk.len() as u64).map(|rest| {
                *left = rest;
                Ok(chunk)
            }),
            None if *left == 0 => return std::future::ready(None),
            None => None,
            Some(Err(error)) => Some(Err(error)),
        };
        std::future::ready(Some(checked.unwrap_or_else(|| Err(io::Error::other("the mail has another length")))))
    })
}

async fn result(response: Response<Incoming>) -> anyhow::Result<DeliveryResult> {
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn mail_of_another_length_is_an_error() {
        let read = async |length, chunks: &[&'static str]| {
            let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk.as_bytes()))).collect();
            let read: io::Result<Vec<Bytes>> = exactly(length, stream::iter(chunks)).try_collect().await;
            read.map(|chunks| chunks.concat()).ok()
        };
        assert_eq!(read(5, &["ab", "", "cde"]).await, Some(b"abcde".to_vec()));
        assert_eq!(read(0, &[]).await, Some(Vec::new()));
        for (length, chunks) in [(5, &["ab", "cd"][..]), (5, &["ab", "cdef"]), (1, &[]), (0, &["a"])] {
            assert_eq!(read(length, chunks).await, None, "{length} {chunks:?}");
        }
    }
}
