//! Requests for a static file over TLS, on connections that are kept alive.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use h2::client::SendRequest;
use http::Request;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::client::{Client, Expected, Version};
use super::load::{self, Load, Operations};
use super::target::Target;
use crate::bench::edge::page;
use crate::bench::report::Report;

/// The path of the page at the node and nginx.
pub const PATH: &str = "/page.html";

/// The number of concurrent requests on a connection with HTTP/2.
const STREAMS: usize = 8;
/// The receive windows of HTTP/2, which never limit the server.
const WINDOW: u32 = 1 << 20;

/// Adds a row for each version of HTTP and target.
pub async fn compare(
    report: &mut Report,
    targets: &[&Target],
    (expected, host): (&Arc<Expected>, &str),
    load: Load,
) -> Result<()> {
    let connections = load.clients.div_ceil(STREAMS);
    report.paragraph(&format!(
        "**Requests.** A file of 10 KiB over TLS 1.3, without compression: {} connections with HTTP/1.1, {connections} \
         with HTTP/2 and {STREAMS} concurrent requests each.",
        load.clients
    ))?;
    load::head(report)?;
    for (label, protocol) in [("HTTP/1.1", "http/1.1"), ("HTTP/2", "h2")] {
        let is_http_2 = protocol == "h2";
        let client =
            |target: &&Target| Client::new(target.address, expected, Version::Tls13, protocol, Resumption::disabled());
        let clients: Vec<Client> = targets.iter().map(client).collect::<Result<_>>()?;
        let load = Load { clients: if is_http_2 { connections } else { load.clients }, ..load };
        let visit = |target: usize, _, until| visit(clients.get(target).cloned(), host.to_owned(), is_http_2, until);
        load::compare(report, label, targets, load, visit).await?;
    }
    Ok(())
}

async fn visit(client: Option<Client>, host: String, is_http_2: bool, until: Instant) -> Result<Operations> {
    let client = client.context("no client")?;
    let stream = client.connect(&ServerName::try_from(host.clone())?).await?;
    let protocol = stream.get_ref().1.alpn_protocol().unwrap_or_default();
    ensure!((protocol == b"h2") == is_http_2, "the server selected another protocol");
    if is_http_2 { http_2(stream, &host, until).await } else { http_1(stream, &host, until).await }
}

/// Sends requests until an instant, each after the response to the last one.
async fn http_1(mut stream: TlsStream<TcpStream>, host: &str, until: Instant) -> Result<Operations> {
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let (mut operations, mut buffer, length) = (Operations::default(), vec![0; 64 << 10], page().len());
    loop {
        let start = Instant::now();
        if start >= until {
            return Ok(operations);
        }
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let is_complete = read_response(&mut stream, &mut buffer, length).await?;
        operations.add(start, is_complete).await;
    }
}

/// Reads a response with a body of this length. Returns whether its status is 200.
async fn read_response(stream: &mut TlsStream<TcpStream>, buffer: &mut [u8], length: usize) -> Result<bool> {
    let (mut filled, mut head) = (0, None);
    while head.is_none_or(|head| filled < head + length) {
        let free = buffer.get_mut(filled..).filter(|free| !free.is_empty()).context("the response is too long")?;
        let read = stream.read(free).await?;
        ensure!(read > 0, "the server closed the connection");
        filled += read;
        let received = buffer.get(..filled).unwrap_or_default();
        head = head.or_else(|| received.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4));
    }
    ensure!(head.is_some_and(|head| filled == head + length), "the response has another length");
    Ok(buffer.starts_with(b"HTTP/1.1 200 "))
}

async fn http_2(stream: TlsStream<TcpStream>, host: &str, until: Instant) -> Result<Operations> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let (send, connection) = builder.handshake::<_, Bytes>(stream).await?;
    let connection = tokio::spawn(connection);
    let url = format!("https://{host}{PATH}");
    let streams = (0..STREAMS).map(|_| send_requests(send.clone(), &url, until));
    let done = try_join_all(streams).await?;
    connection.abort();
    Ok(done.into_iter().fold(Operations::default(), Operations::and))
}

async fn send_requests(send: SendRequest<Bytes>, url: &str, until: Instant) -> Result<Operations> {
    let (mut operations, length) = (Operations::default(), page().len());
    loop {
        let start = Instant::now();
        if start >= until {
            return Ok(operations);
        }
        let (response, _) = send.clone().ready().await?.send_request(Request::get(url).body(())?, true)?;
        let (head, mut body) = response.await?.into_parts();
        let mut received = 0;
        while let Some(chunk) = body.data().await {
            let chunk = chunk?.len();
            received += chunk;
            body.flow_control().release_capacity(chunk)?;
        }
        operations.add(start, head.status.as_u16() == 200 && received == length).await;
    }
}
