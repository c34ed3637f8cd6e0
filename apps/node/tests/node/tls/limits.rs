//! The limits of connections with HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use h2::Ping;
use hyper::{Method, Request};
use sandbox::Certificate;
use tokio::time::timeout;

use super::requests::Http2;
use super::{HOST, NAMES, Rig};
use crate::running::eventually;
use crate::timeout::TIMEOUT;
use crate::workers::workerd;

#[tokio::test(flavor = "multi_thread")]
async fn small_frames_that_the_code_reads_are_not_limited() {
    const CODE: &str = "export default { fetch({ body }) { return new Response(body ?? 'ready'); } };";
    const BATCH: usize = 500;
    let Some(workerd) = workerd() else { return };
    let (rig, certificate) = Rig::start_with_code(workerd, CODE, |_| {}).await;
    let other = Http2::connect_with(rig.client(&[&certificate])).await;
    super::wait_for("the worker", async || other.get("/").await.body == "ready").await;

    let client = rig.client(&[&certificate]).with(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
    // By default, the client ends a connection with about 100 small frames that the test has not read.
    let mut builder = h2::client::Builder::new();
    builder.data_frame_budget(usize::MAX);
    let (send, connection) = builder.handshake::<_, Bytes>(client.connect(HOST).await.unwrap()).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(Method::POST).uri(format!("https://{HOST}/")).body(()).unwrap();
    let (response, mut outgoing) = send.ready().await.unwrap().send_request(request, false).unwrap();
    let mut send_batch = || {
        for _ in 0..BATCH {
            outgoing.send_data(Bytes::from_static(b"x"), false).unwrap();
        }
    };
    send_batch();
    let mut incoming = response.await.unwrap().into_body();
    // In total, the client sends more small frames than may be unread.
    for _ in 0..12 {
        let mut received = 0;
        while received < BATCH {
            let chunk = incoming.data().await.unwrap().unwrap();
            incoming.flow_control().release_capacity(chunk.len()).unwrap();
            received += chunk.len();
        }
        send_batch();
    }
    connection.abort();
    drop(other);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_whose_client_pauses_many_responses_is_closed() {
    let rig = Rig::start_with(|config| config.write_timeout = Duration::from_secs(1)).await;
    let certificate = Certificate::generate_for(&NAMES);
    rig.core.issue("shop", HOST, &certificate);
    rig.client(&[&certificate]).presents(HOST, &certificate).await;
    let client = rig.client(&[&certificate]).with(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
    let mut builder = h2::client::Builder::new();
    // The client reads no body, but the responses to its pings.
    builder.initial_window_size(0);
    let (send, mut connection) = builder.handshake::<_, Bytes>(client.connect(HOST).await.unwrap()).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let connection = tokio::spawn(connection);
    let mut responses = Vec::new();
    for _ in 0..40 {
        let request = Request::builder().uri(format!("https://{HOST}/")).body(()).unwrap();
        let (response, _) = send.clone().ready().await.unwrap().send_request(request, true).unwrap();
        responses.push(response.await.unwrap());
    }
    // The node checks the connection when it receives something.
    eventually("the end of the connection", async || pings.ping(Ping::opaque()).await.err()).await;
    assert!(timeout(TIMEOUT, connection).await.is_ok(), "the connection stays open");
    drop(responses);
    rig.node.stop().await;
}
