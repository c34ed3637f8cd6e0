//! Failures of the upstream, the control plane and the node: each call is settled, and charged only if it was sent.

use std::time::Duration;

use node::ai::config::AiConfig;
use node::config::Config;
use protocol::AiUsage;
use reqwest::Method;
use sandbox::{AI_KEY, AiFault, AiServer};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{HOST, MANIFEST, Rig, question, reported, streamed, tokens};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, RunningNode, eventually, until};
use crate::visitor::{Visitor, VisitorResponse};
use crate::workers::{with_workers, workerd};

/// A node in the test process, whose calls have other timeouts.
struct TimeoutRig {
    core: ControlPlane,
    upstream: AiServer,
    node: RunningNode,
    _dir: Dir,
}

impl TimeoutRig {
    /// Starts the node. Returns `None` without `workerd`.
    async fn start(change: impl FnOnce(&mut AiConfig)) -> Option<Self> {
        let workerd = workerd()?;
        let (core, dir, upstream) = (ControlPlane::start().await, Dir::new(), AiServer::start().await);
        let authorization = format!("Bearer {AI_KEY}").parse().unwrap();
        let mut ai = AiConfig::new(upstream.url(), authorization);
        change(&mut ai);
        core.set_part("app", "ai", json!({}));
        core.deploy_with(MANIFEST, "app", &[("worker/index.js", include_bytes!("worker.js"))]);
        let config = Config { ai: Some(ai), ..with_workers(&core, &dir, workerd) };
        let node = RunningNode::start_as(&config).await;
        node.visitor.sees(HOST, "/granted", 200, "true").await;
        Some(Self { core, upstream, node, _dir: dir })
    }

    fn visitor(&self) -> &Visitor {
        &self.node.visitor
    }

    async fn post(&self, body: &Value) -> VisitorResponse {
        Visitor::send(self.visitor().request(Method::POST, HOST, "/fetch").body(body.to_string())).await
    }

    /// Waits until this number of calls is settled. Returns the usage of the last one.
    async fn usage(&self, count: usize) -> Option<AiUsage> {
        until("the settlement", || self.core.settled_ai_calls().len() == count).await;
        self.core.settled_ai_calls().pop().unwrap().usage
    }
}

/// Returns the status and the code of an error.
fn error(response: &VisitorResponse) -> (u16, String) {
    let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
    (response.status, body["error"]["code"].as_str().unwrap_or(&response.body).to_owned())
}

fn no_upstream() -> (u16, String) {
    (503, "no_upstream".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_is_free() {
    let Some(rig) = Rig::start().await else { return };
    let mut count = 0;
    let faults = [401, 403, 429, 500, 503].map(AiFault::Status);
    let pages = [AiFault::Html, AiFault::ErrorPage(400), AiFault::WrongShape, AiFault::Redirect];
    for fault in pages.into_iter().chain(faults) {
        rig.upstream.inject(Some(fault));
        for body in [question("x"), streamed("x")] {
            assert_eq!(error(&rig.post_whole("/fetch", &body).await), no_upstream(), "{fault:?}");
            count += 1;
            assert_eq!(rig.usage(count).await, None, "{fault:?}");
        }
    }
    // For an error of the request, worker code receives the status, and no text of the upstream.
    let empty = json!({ "model": "lab/small", "messages": [] });
    for (fault, body, status, code, hint) in [
        (AiFault::Status(400), question("x"), 400, "invalid_request", "Check its fields."),
        (AiFault::OtherError(422), streamed("x"), 422, "invalid_request", "Check its fields."),
        (AiFault::OtherError(413), empty, 400, "empty_array", "Check messages."),
    ] {
        rig.upstream.inject(Some(fault));
        let rejected = rig.post_whole("/fetch", &body).await;
        assert_eq!(error(&rejected), (status, code.to_owned()), "{fault:?}");
        let has_text = ["told to fail", "sandbox_fault", "too short"].iter().any(|text| rejected.body.contains(text));
        assert!(rejected.body.contains(hint) && !has_text, "{}", rejected.body);
        count += 1;
        assert_eq!(rig.usage(count).await, None, "{fault:?}");
    }
    rig.has_metrics(&[r#"svc_node_ai_calls_total{outcome="rejected"} 3"#]).await;
    rig.waits_for_an_empty_journal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn response_that_began_and_did_not_end_is_charged() {
    let Some(rig) = Rig::start().await else { return };
    let input_tokens = tokens(&question("x")["messages"].to_string());
    let mut count = 0;
    // The longest permitted whole response is 16 MiB.
    for fault in [AiFault::Cut(0), AiFault::LongAnswer(17 << 20)] {
        rig.upstream.inject(Some(fault));
        assert_eq!(error(&rig.post_whole("/fetch", &question("x")).await), no_upstream(), "{fault:?}");
        count += 1;
        let usage = rig.usage(count).await.unwrap();
        assert!(usage.estimated && usage.input_tokens == input_tokens && usage.output_tokens > 0, "{usage:?}");
    }
    // This stream ends before its first event.
    rig.upstream.inject(Some(AiFault::Cut(0)));
    assert_eq!(error(&rig.post_whole("/fetch", &streamed("x")).await), no_upstream());
    assert_eq!(rig.usage(count + 1).await, Some(AiUsage { input_tokens, output_tokens: 0, estimated: true }));
    rig.waits_for_an_empty_journal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_use_a_limited_memory() {
    let Some(rig) = Rig::start().await else { return };
    // Each response reserves half of the memory of an owner.
    rig.upstream.inject(Some(AiFault::LongAnswer(15 << 20)));
    let statuses = rig.post_whole("/unread", &question("x")).await.body;
    let statuses: Vec<u16> = serde_json::from_str(&statuses).unwrap();
    assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
    // The upstream charges for each response.
    assert!(rig.settlements(4).await.iter().all(|ended| ended.usage.is_some()), "{:?}", rig.core.settled_ai_calls());
    // The worker canceled the responses when it responded.
    let read = async || Some(rig.post("/fetch", &question("x")).await).filter(|response| response.status() == 200);
    let response = eventually("a response", read).await;
    assert!(response.bytes().await.unwrap().len() > 15 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_in_a_response_use_little_memory() {
    let Some(rig) = Rig::start().await else { return };
    assert_eq!(rig.post_whole("/fetch", &question("x")).await.status, 200);
    let before = rig.memory("VmRSS");
    rig.reset_peak();
    // The response has 12 MiB.
    rig.upstream.inject(Some(AiFault::LongLists(3 << 20)));
    assert_eq!(rig.post_whole("/fetch", &question("x")).await.status, 200);
    let peak = rig.memory("VmHWM");
    assert!(peak < before + (64 << 20), "from {before} to {peak} bytes");
    assert!(rig.usage(2).await.unwrap().estimated);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_times_out_is_charged_for_its_expected_output() {
    let change = |config: &mut AiConfig| config.max_duration = Duration::from_secs(1);
    let Some(rig) = TimeoutRig::start(change).await else { return };
    rig.upstream.inject(Some(AiFault::Hang));
    let input_tokens = tokens(&question("x")["messages"].to_string());
    let mut limited = question("x");
    limited["max_tokens"] = json!(7);
    for (count, (body, output_tokens)) in (1..).zip([(question("x"), 4_096), (limited, 7), (streamed("x"), 4_096)]) {
        assert_eq!(error(&rig.post(&body).await), no_upstream());
        assert_eq!(rig.usage(count).await, Some(AiUsage { input_tokens, output_tokens, estimated: true }), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_must_begin_in_time() {
    let change = |config: &mut AiConfig| config.head_timeout = Duration::from_secs(1);
    let Some(rig) = TimeoutRig::start(change).await else { return };
    rig.upstream.inject(Some(AiFault::Hang));
    let input_tokens = tokens(&question("x")["messages"].to_string());
    for (count, body) in (1..).zip([question("x"), streamed("x")]) {
        assert_eq!(error(&rig.post(&body).await), no_upstream());
        assert_eq!(
            rig.usage(count).await,
            Some(AiUsage { input_tokens, output_tokens: 4_096, estimated: true }),
            "{body}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_only_a_response_that_began() {
    let silence_timeout = Duration::from_secs(3);
    let Some(rig) = TimeoutRig::start(|config| config.silence_timeout = silence_timeout).await else { return };
    let input_tokens = tokens(&question("x")["messages"].to_string());
    // The upstream begins the response late.
    rig.upstream.inject(Some(AiFault::Delay));
    let question = question("x");
    let response = rig.post(&question);
    let late = async {
        until("the call", || rig.upstream.calls().len() == 1).await;
        sleep(2 * silence_timeout).await;
        rig.upstream.inject(None);
    };
    let (response, ()) = tokio::join!(response, late);
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(rig.usage(1).await, Some(reported(&question)));
    // The response has no event.
    let body = streamed("Is the answer longer than one event?");
    rig.upstream.inject(Some(AiFault::Pause(0)));
    assert_eq!(error(&rig.post(&body).await), no_upstream());
    let usage = rig.usage(2).await.unwrap();
    assert!(usage.estimated && usage.input_tokens > input_tokens && usage.output_tokens == 4_096, "{usage:?}");
    // The stream stops after two events with text of 12 bytes each.
    rig.upstream.inject(Some(AiFault::Pause(3)));
    let response = rig.visitor().request(Method::POST, HOST, "/fetch").body(body.to_string()).send().await.unwrap();
    response.bytes().await.unwrap_err();
    let usage = rig.usage(3).await.unwrap();
    assert!(usage.estimated && usage.output_tokens == 6, "{usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_or_missing_upstream_is_named() {
    let unreachable = format!("http://{}/v1", testkit::reserved_address());
    let settings = [("SVC_NODE_AI_URL", unreachable), ("SVC_NODE_AI_KEY", AI_KEY.to_owned())];
    let Some(rig) = Rig::start_with(AiServer::start().await, settings).await else { return };
    assert_eq!(error(&rig.post_whole("/fetch", &question("x")).await), no_upstream());
    assert_eq!(rig.usage(1).await, None);
    // A node without an upstream does not ask for an admission.
    let Some(rig) = Rig::start_with(AiServer::start().await, []).await else { return };
    assert_eq!(error(&rig.post_whole("/fetch", &question("x")).await), no_upstream());
    assert_eq!(rig.core.asked_ai_calls(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_settled_when_the_control_plane_is_back() {
    let Some(mut rig) = Rig::start().await else { return };
    // The response to an admission is lost, so the call is not sent and is free.
    rig.core.lose_ai_admissions(true);
    assert_eq!(error(&rig.post_whole("/fetch", &question("x")).await), no_upstream());
    rig.core.lose_ai_admissions(false);
    assert_eq!((rig.usage(1).await, rig.upstream.calls().len()), (None, 0));
    // The settlement fails.
    rig.core.fail_ai_settlements(true);
    assert_eq!(rig.post("/chat", &question("x")).await.status(), 200);
    until("the call in the journal", || rig.journal() == 1).await;
    rig.core.fail_ai_settlements(false);
    assert_eq!(rig.usage(2).await, Some(reported(&question("x"))));
    // The control plane fails in the middle of a stream.
    rig.upstream.inject(Some(AiFault::Pause(3)));
    let response = rig.post("/chat", &streamed("x")).await;
    rig.node.core.stop().await;
    rig.upstream.inject(None);
    assert!(response.text().await.unwrap().contains("[DONE]"));
    assert_eq!(error(&rig.post_whole("/fetch", &question("x")).await), no_upstream());
    rig.node.core.restart().await;
    assert_eq!(rig.usage(3).await, Some(reported(&question("x"))));
    rig.waits_for_an_empty_journal().await;
    // The control plane never received the request to admit the call of the outage. Its end is reported anyway, so that
    // it cannot be admitted later.
    let settled = rig.core.settled_ai_calls();
    let unknown: Vec<_> =
        settled.iter().filter(|ended| !rig.core.asked_ai_calls().iter().any(|it| it.id == ended.id)).collect();
    assert!(unknown.len() == 1 && unknown[0].usage.is_none(), "{settled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_settles_its_calls_after_its_next_start() {
    let Some(mut rig) = Rig::start().await else { return };
    // This call ended, and its settlement was not accepted.
    rig.core.fail_ai_settlements(true);
    assert_eq!(rig.post("/chat", &question("ended")).await.status(), 200);
    // This call is in the middle of a stream.
    rig.upstream.inject(Some(AiFault::Pause(3)));
    let body = streamed("Is the answer longer than one event?");
    let mut response = rig.post("/chat", &body).await;
    while !response.chunk().await.unwrap().unwrap().windows(3).any(|bytes| bytes == b"the") {}
    // The upstream has not answered this call.
    rig.upstream.inject(Some(AiFault::Pause(0)));
    let waiting =
        tokio::spawn(rig.visitor().request(Method::POST, HOST, "/chat").body(streamed("x").to_string()).send());
    until("the third call", || rig.upstream.calls().len() == 3).await;
    rig.node.kill();
    std::fs::write(rig.dir.path().join("ai/unfinished.tmp"), "").unwrap();
    rig.upstream.inject(None);
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(rig.core.settled_ai_calls(), []);
    rig.core.fail_ai_settlements(false);
    rig.node.restart().await;
    let settled = rig.settlements(3).await;
    assert_eq!(settled[0].usage, Some(reported(&question("ended"))));
    // These are estimates, with the output that the journal recorded.
    let input_tokens = tokens(&body["messages"].to_string());
    assert!(
        matches!(settled[1].usage, Some(AiUsage { input_tokens: input, output_tokens: 0..=6, estimated: true })
        if input == input_tokens),
        "{settled:?}"
    );
    assert!(settled[2].usage.is_some_and(|usage| usage.estimated && usage.output_tokens == 0), "{settled:?}");
    rig.waits_for_an_empty_journal().await;
    assert_eq!(rig.core.settled_ai_calls().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_charges_what_it_read_of_a_whole_response() {
    let Some(mut rig) = Rig::start().await else { return };
    // The upstream sends five bytes a second.
    rig.upstream.inject(Some(AiFault::Trickle));
    let body = question("x");
    let waiting = tokio::spawn(rig.visitor().request(Method::POST, HOST, "/chat").body(body.to_string()).send());
    until("recorded output", || rig.recorded_output() > 0).await;
    rig.node.kill();
    rig.upstream.inject(None);
    assert!(waiting.await.unwrap().is_err());
    rig.node.restart().await;
    let usage = rig.usage(1).await.unwrap();
    assert_eq!(usage.input_tokens, tokens(&body["messages"].to_string()));
    assert!(usage.estimated && usage.output_tokens > 0, "{usage:?}");
    rig.waits_for_an_empty_journal().await;
}
