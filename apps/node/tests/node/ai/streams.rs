//! Streams: their events pass through as they arrive, and every end is settled.

use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use protocol::AiUsage;
use reqwest::{Method, Response};
use sandbox::AiFault;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{HOST, Rig, question, reported, streamed, tokens};
use crate::running::until;
use crate::timeout::TIMEOUT;

/// Returns the data of the events in a stream.
fn events(stream: &str) -> Vec<&str> {
    stream.split("\n\n").filter(|event| !event.is_empty()).map(|event| event.strip_prefix("data: ").unwrap()).collect()
}

/// Returns the text of the events.
fn text(events: &[&str]) -> String {
    let events = events.iter().filter(|event| **event != "[DONE]");
    let events = events.map(|event| serde_json::from_str::<Value>(event).unwrap());
    events.map(|event| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Reads a response until it contains a text.
async fn read_until(response: &mut Response, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let chunk = response.chunk().await.unwrap().unwrap();
        read.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn events_pass_through_as_they_arrive() {
    let Some(rig) = Rig::start().await else { return };
    let body = streamed("Is the answer longer than one event?");
    for path in ["/chat", "/fetch"] {
        rig.upstream.inject(Some(AiFault::Pause(3)));
        let mut response = rig.post(path, &body).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        // The upstream sends no further event until the visitor has read these.
        let mut stream = read_until(&mut response, "You said").await;
        rig.upstream.inject(None);
        stream.push_str(&response.text().await.unwrap());
        let events = events(&stream);
        assert_eq!(text(&events), "You said: Is the answer longer than one event?");
        assert_eq!(events.last(), Some(&"[DONE]"));
        // The worker code did not request the usage.
        assert!(!stream.contains("usage"), "{stream}");
    }
    let usage = Some(reported(&body));
    assert!(rig.settlements(2).await.iter().all(|ended| ended.usage == usage), "{:?}", rig.core.settled_ai_calls());
    assert_eq!(rig.upstream.calls()[0].0["stream_options"], json!({ "include_usage": true }));
    let mut asking = body.clone();
    asking["stream_options"] = json!({ "include_usage": true });
    let stream = rig.post_whole("/chat", &asking).await.body;
    assert_eq!(stream.matches(r#""usage""#).count(), 1, "{stream}");
    assert_eq!(rig.usage(3).await, usage);
    rig.waits_for_an_empty_journal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_only_after_its_usage_is_in_the_journal() {
    let Some(rig) = Rig::start().await else { return };
    let mut body = streamed("Is the answer longer than one event?");
    body["stream_options"] = json!({ "include_usage": true });
    // After this number of events, only the last one follows.
    rig.upstream.inject(Some(AiFault::Pause(7)));
    let mut response = rig.post("/chat", &body).await;
    read_until(&mut response, r#""usage""#).await;
    // If the stream took a second so far, the node records its progress now.
    sleep(Duration::from_millis(100)).await;
    // The next write to the journal waits until this pipe is read.
    let call = std::fs::read_dir(rig.dir.path().join("ai")).unwrap().next().unwrap().unwrap().path();
    let pipe = call.with_extension("tmp");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    rig.upstream.inject(None);
    let mut rest = pin!(response.text());
    let early = timeout(Duration::from_millis(300), &mut rest).await;
    assert!(early.is_err(), "{early:?}");
    let (sender, written) = oneshot::channel();
    std::thread::spawn(|| sender.send(std::fs::read_to_string(pipe)));
    let written = timeout(TIMEOUT, written).await.unwrap().unwrap().unwrap();
    assert!(written.starts_with(r#"{"ended":"#), "{written}");
    assert!(rest.await.unwrap().contains("[DONE]"));
    assert_eq!(rig.usage(1).await, Some(reported(&body)));
    rig.waits_for_an_empty_journal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_stream_is_aborted_and_charged_by_an_estimate() {
    let Some(rig) = Rig::start().await else { return };
    let body = streamed("Is the answer longer than one event?");
    let input_tokens = tokens(&body["messages"].to_string());
    rig.upstream.inject(Some(AiFault::Pause(3)));
    // The visitor closes the connection.
    let mut response = rig.post("/chat", &body).await;
    read_until(&mut response, " the ").await;
    drop(response);
    rig.upstream_sees("aborted").await;
    // The estimate is for two events with 12 bytes each.
    assert_eq!(rig.usage(1).await, Some(AiUsage { input_tokens, output_tokens: 6, estimated: true }));
    // The worker cancels the stream.
    assert_eq!(rig.post("/leave", &body).await.status(), 200);
    rig.upstream_sees("aborted").await;
    let usage = rig.usage(2).await.unwrap();
    assert!(usage.estimated && usage.input_tokens == input_tokens && usage.output_tokens <= 6, "{usage:?}");
    rig.waits_for_an_empty_journal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_that_its_reader_leaves_before_the_first_event_is_aborted() {
    let Some(rig) = Rig::start().await else { return };
    let body = streamed("Is the answer longer than one event?");
    let input_tokens = tokens(&body["messages"].to_string());
    // The first response has no event, and the second one has not begun.
    for (count, fault) in [(1, AiFault::Pause(0)), (2, AiFault::Hang)] {
        rig.upstream.inject(Some(fault));
        let request = rig.visitor().request(Method::POST, HOST, "/chat").body(body.to_string());
        let waiting = tokio::spawn(request.send());
        until("the call", || rig.upstream.calls().len() == count).await;
        waiting.abort();
        assert_eq!(rig.usage(count).await, Some(AiUsage { input_tokens, output_tokens: 0, estimated: true }));
        if fault != AiFault::Hang {
            rig.upstream_sees("aborted").await;
        }
    }
    rig.has_metrics(&[r#"svc_node_ai_calls_total{outcome="abandoned"} 2"#]).await;
    rig.waits_for_an_empty_journal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_pass_through_before_the_first_event() {
    let Some(rig) = Rig::start().await else { return };
    let body = streamed("Is the answer longer than one event?");
    rig.upstream.inject(Some(AiFault::Comment));
    let mut response = rig.post("/chat", &body).await;
    let mut stream = read_until(&mut response, ": PROCESSING\n\n").await;
    rig.upstream.inject(None);
    stream.push_str(&response.text().await.unwrap());
    let events = events(stream.strip_prefix(": PROCESSING\n\n").unwrap());
    assert_eq!(text(&events), "You said: Is the answer longer than one event?");
    assert_eq!(events.last(), Some(&"[DONE]"));
    assert_eq!(rig.usage(1).await, Some(reported(&body)));
    // A failure after the comments is the last event of the stream, without the upstream's text.
    rig.upstream.inject(Some(AiFault::Comment));
    let mut response = rig.post("/chat", &body).await;
    let mut stream = read_until(&mut response, ": PROCESSING\n\n").await;
    rig.upstream.inject(Some(AiFault::WrongShape));
    stream.push_str(&response.text().await.unwrap());
    assert!(stream.contains(r#""code":"no_upstream""#) && !stream.contains("told to fail"), "{stream}");
    assert!(!stream.contains("[DONE]"), "{stream}");
    assert_eq!(rig.usage(2).await, None);
    rig.has_metrics(&[
        r#"svc_node_ai_calls_total{outcome="ok"} 1"#,
        r#"svc_node_ai_calls_total{outcome="no_upstream"} 1"#,
    ])
    .await;
    // The reader leaves before the first event.
    rig.upstream.inject(Some(AiFault::Comment));
    let mut response = rig.post("/chat", &body).await;
    read_until(&mut response, ": PROCESSING\n\n").await;
    drop(response);
    rig.upstream_sees("aborted").await;
    let input_tokens = tokens(&body["messages"].to_string());
    assert_eq!(rig.usage(3).await, Some(AiUsage { input_tokens, output_tokens: 0, estimated: true }));
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_stream_with_an_image_is_charged_for_a_fixed_number_of_tokens() {
    let Some(rig) = Rig::start().await else { return };
    let image = json!({ "url": format!("data:image/png;base64,{}", "A".repeat(200_000)) });
    let mut body = streamed("");
    body["messages"][0]["content"] = json!([{ "type": "image_url", "image_url": image }]);
    rig.upstream.inject(Some(AiFault::Pause(3)));
    let mut response = rig.post("/chat", &body).await;
    read_until(&mut response, "You said").await;
    drop(response);
    rig.upstream_sees("aborted").await;
    let usage = rig.usage(1).await.unwrap();
    assert!(usage.estimated && (1_600..1_700).contains(&usage.input_tokens), "{usage:?}");
    assert_eq!(rig.core.asked_ai_calls()[0].input_tokens, usage.input_tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_stream_is_an_error_and_charged_by_an_estimate() {
    let Some(rig) = Rig::start().await else { return };
    let body = streamed("Is the answer longer than one event?");
    rig.upstream.inject(Some(AiFault::Cut(3)));
    let mut response = rig.post("/chat", &body).await;
    let mut read = String::new();
    let interrupted = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => read.push_str(std::str::from_utf8(&chunk).unwrap()),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    // The visitor can distinguish this stream from a complete one.
    assert!(interrupted && !read.contains("[DONE]"), "{read}");
    let input_tokens = tokens(&body["messages"].to_string());
    assert_eq!(rig.usage(1).await, Some(AiUsage { input_tokens, output_tokens: 6, estimated: true }));
}

#[tokio::test(flavor = "multi_thread")]
async fn implausible_usage_is_replaced_by_an_estimate() {
    let Some(rig) = Rig::start().await else { return };
    let mut count = 0;
    for fault in [AiFault::NoUsage, AiFault::NegativeUsage, AiFault::HugeUsage] {
        rig.upstream.inject(Some(fault));
        for body in [question("How much?"), streamed("How much?")] {
            assert_eq!(rig.post_whole("/chat", &body).await.status, 200);
            count += 1;
            assert_eq!(rig.usage(count).await, Some(AiUsage { estimated: true, ..reported(&body) }), "{fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_stream_outlives_the_grant() {
    let Some(rig) = Rig::start().await else { return };
    let body = streamed("Is the answer longer than one event?");
    rig.upstream.inject(Some(AiFault::Pause(3)));
    let mut response = rig.post("/chat", &body).await;
    read_until(&mut response, "You said").await;
    rig.core.set_part("app", "ai", Value::Null);
    rig.sees_granted("false").await;
    rig.upstream.inject(None);
    let rest = response.text().await;
    let usage = rig.usage(1).await.unwrap();
    // The old process serves its open requests until they end.
    assert!(rest.unwrap().contains("[DONE]"));
    assert_eq!(usage, reported(&body));
}
