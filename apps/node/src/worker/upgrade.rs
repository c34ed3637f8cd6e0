//! WebSockets: after the handshake, bytes are forwarded unchanged between the visitor and the worker.

use std::io;

use actix_web::body::BodyStream;
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{HttpResponse, rt};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};

use super::proxy::response_head;
use super::version::VisitorGuard;

type Connection = TokioIo<Upgraded>;

const CHUNK: usize = 16 * 1024;

/// Returns whether a response with status 101 switches to WebSocket, the only protocol that the node asks for.
pub fn is_websocket(response: &Response<Incoming>) -> bool {
    let mut protocols = response.headers().get_all(UPGRADE).iter();
    let protocol = protocols.next();
    protocol.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket")) && protocols.next().is_none()
}

/// Forwards the worker's handshake response to the visitor, then joins the two connections.
pub fn join(response: Response<Incoming>, visitor: Payload, guard: VisitorGuard) -> HttpResponse {
    let mut builder = response_head(&response);
    builder.upgrade("websocket").body(BodyStream::new(from_worker(response, visitor, guard)))
}

fn from_worker(
    response: Response<Incoming>,
    visitor: Payload,
    guard: VisitorGuard,
) -> impl Stream<Item = io::Result<Bytes>> {
    let joined = async move {
        let upgraded = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
        let (worker, to_worker) = split(TokioIo::new(upgraded));
        rt::spawn(to_worker_from(visitor, to_worker));
        io::Result::Ok(stream::try_unfold((worker, guard), next))
    };
    stream::once(joined).flat_map(|joined| match joined {
        Ok(chunks) => chunks.left_stream(),
        Err(error) => stream::iter([Err(error)]).right_stream(),
    })
}

async fn next(
    (mut worker, guard): (ReadHalf<Connection>, VisitorGuard),
) -> io::Result<Option<(Bytes, (ReadHalf<Connection>, VisitorGuard))>> {
    let mut chunk = BytesMut::with_capacity(CHUNK);
    let read = worker.read_buf(&mut chunk).await?;
    Ok((read > 0).then(|| (chunk.freeze(), (worker, guard))))
}

async fn to_worker_from(mut visitor: Payload, mut worker: WriteHalf<Connection>) {
    while let Some(Ok(chunk)) = visitor.next().await {
        if worker.write_all(&chunk).await.is_err() {
            return;
        }
    }
    // An error means that the worker closed the connection.
    let _ = worker.shutdown().await;
}
