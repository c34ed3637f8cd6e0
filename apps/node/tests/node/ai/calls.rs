//! Calls with a whole response, and the decisions of the control plane.

use futures_util::future::join_all;
use protocol::RefusalCode;
use serde_json::{Value, json};

use super::{HOST, MANIFEST, Rig, question, reported, tokens};
use crate::running::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn call_is_settled_once_with_the_reported_usage() {
    let Some(rig) = Rig::start().await else { return };
    for (path, content) in [("/chat", "Grüße"), ("/fetch", "hello")] {
        let body = question(content);
        let answer: Value = rig.post(path, &body).await.json().await.unwrap();
        assert_eq!(answer["choices"][0]["message"]["content"], format!("You said: {content}"), "{path}");
        assert_eq!(answer["usage"]["prompt_tokens"], reported(&body).input_tokens, "{path}");
    }
    let settled = rig.settlements(2).await;
    assert_eq!(settled[0].usage, Some(reported(&question("Grüße"))));
    assert_eq!(settled[1].usage, Some(reported(&question("hello"))));
    rig.waits_for_an_empty_journal().await;
    assert_eq!(rig.core.settled_ai_calls().len(), 2);
    let asked = &rig.core.asked_ai_calls()[0];
    assert_eq!((asked.project.as_str(), asked.model.as_str()), ("app", "lab/small"));
    assert_eq!(asked.input_tokens, tokens(&question("Grüße")["messages"].to_string()));
    assert_eq!(asked.max_output_tokens, None);
    // The upstream receives its own name of the model and the node's key, because it rejects other names and keys.
    let (received, outcome) = &rig.upstream.calls()[0];
    assert_eq!((&received["model"], *outcome), (&json!("small-v1"), "complete"));
    rig.has_metrics(&[
        r#"svc_node_ai_calls_total{outcome="ok"} 2"#,
        r#"svc_node_ai_tokens_total{direction="output",origin="reported"}"#,
        "svc_node_ai_open_calls 0",
        "svc_node_ai_unsettled_calls 0",
        "svc_node_ai_admission_seconds_count 2",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_and_other_endpoints_refused() {
    let Some(rig) = Rig::start().await else { return };
    let models: Value = serde_json::from_str(&rig.visitor().get(HOST, "/models").await.body).unwrap();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0], json!({ "id": "lab/small", "object": "model", "created": 0, "owned_by": "lab" }));
    // Many calls share a request to the control plane.
    let visitor = rig.visitor();
    let listed = join_all((0..20).map(|_| visitor.get(HOST, "/models"))).await;
    assert!(listed.iter().all(|response| response.status == 200));
    assert!(rig.core.listed_ai_models() < 20);
    let unknown = rig.visitor().get(HOST, "/unknown").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body.contains(r#""code":"unknown_endpoint""#), "{}", unknown.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_errors_in_the_shape_of_openai() {
    let Some(rig) = Rig::start().await else { return };
    for (refusal, status, code, kind) in [
        (RefusalCode::ModelNotFound, 400, "model_not_found", "invalid_request_error"),
        (RefusalCode::ContextLengthExceeded, 400, "context_length_exceeded", "invalid_request_error"),
        (RefusalCode::InsufficientCredit, 402, "insufficient_credit", "insufficient_quota"),
        (RefusalCode::NotGranted, 403, "not_granted", "invalid_request_error"),
        (RefusalCode::SpendLimit, 429, "spend_limit", "rate_limit_error"),
        (RefusalCode::RateLimited, 429, "rate_limited", "rate_limit_error"),
    ] {
        rig.core.refuse_ai_calls(Some(refusal));
        // The node repeats the previous refusal for a moment.
        let response = eventually(code, async || {
            Some(rig.post_whole("/fetch", &question("x")).await).filter(|response| response.body.contains(code))
        });
        let response = response.await;
        assert_eq!(response.status, status, "{}", response.body);
        assert_eq!(response.header("retry-after"), if code == "rate_limited" { "7" } else { "" });
        let error = json!({ "message": "The reason of the test.", "type": kind, "code": code });
        assert_eq!(serde_json::from_str::<Value>(&response.body).unwrap(), json!({ "error": error }));
        // `chat` throws an error with the same properties.
        let thrown: Value = serde_json::from_str(&rig.post_whole("/chat", &question("x")).await.body).unwrap();
        let mut expected = error;
        expected["status"] = json!(status);
        expected["isError"] = json!(true);
        assert_eq!(thrown, expected);
    }
    rig.waits_for_an_empty_journal().await;
    assert_eq!((rig.upstream.calls().len(), rig.core.settled_ai_calls().len()), (0, 0));
    // The calls of code that ignores the refusal cost the control plane few requests, and succeed soon after its end.
    let asked = rig.core.asked_ai_calls().len();
    let body = question("x");
    join_all((0..50).map(|_| rig.post_whole("/fetch", &body))).await;
    assert!(rig.core.asked_ai_calls().len() < asked + 50);
    rig.core.refuse_ai_calls(None);
    let admitted = async || (rig.post("/fetch", &question("x")).await.status() == 200).then_some(());
    eventually("an admitted call", admitted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_model_is_reported_while_other_calls_are_refused() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.refuse_ai_calls(Some(RefusalCode::RateLimited));
    assert_eq!(rig.post("/fetch", &question("x")).await.status(), 429);
    let mut unknown = question("x");
    unknown["model"] = json!("lab/unknown");
    let response = rig.post_whole("/fetch", &unknown).await;
    assert_eq!(response.status, 400, "{}", response.body);
    assert!(response.body.contains(r#""code":"model_not_found""#), "{}", response.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_rejected_before_the_admission() {
    let Some(rig) = Rig::start().await else { return };
    for (body, named) in [
        (json!([]), "object"),
        (json!({ "messages": [] }), "model"),
        (json!({ "model": "a\0", "messages": [] }), "without U+0000"),
        (json!({ "model": "m", "messages": "x" }), "messages"),
        (json!({ "model": "m", "messages": [], "stream": 1 }), "stream"),
        (json!({ "model": "m", "messages": [], "n": 5 }), "n must be 1"),
        (json!({ "model": "m", "messages": [], "models": ["expensive"] }), "models is not supported"),
    ] {
        let response = rig.post_whole("/fetch", &body).await;
        assert_eq!(response.status, 400, "{}", response.body);
        let error: Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!(error["error"]["code"], "invalid_request", "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(named), "{error}");
    }
    let response = rig.post_whole("/fetch", &question(&"x".repeat(9 << 20))).await;
    assert_eq!(response.status, 400);
    assert!(response.body.contains("8388608 bytes"), "{}", response.body);
    assert_eq!((rig.core.asked_ai_calls().len(), rig.journal()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_limited_by_the_plan() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.limit_ai_output(50);
    assert_eq!(rig.post("/chat", &question("x")).await.status(), 200);
    let mut body = question("x");
    body["max_completion_tokens"] = json!(7);
    assert_eq!(rig.post("/chat", &body).await.status(), 200);
    let calls = rig.upstream.calls();
    assert_eq!(calls[0].0["max_tokens"], 50);
    // The control plane holds the cost of this output while the call is in progress.
    let asked: Vec<_> = rig.core.asked_ai_calls().iter().map(|call| call.max_output_tokens).collect();
    assert_eq!(asked, [None, Some(7)]);
    assert_eq!((&calls[1].0["max_completion_tokens"], calls[1].0.get("max_tokens")), (&json!(7), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_requires_the_grant_and_the_declaration() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_part("app", "ai", Value::Null);
    rig.sees_granted("false").await;
    rig.core.set_part("app", "ai", json!({}));
    rig.sees_granted("true").await;
    for manifest in ["{}", r#"{"ai":false}"#] {
        rig.core.deploy_with(manifest, "app", &[("worker/index.js", include_bytes!("worker.js"))]);
        rig.sees_granted("false").await;
        rig.core.deploy_with(MANIFEST, "app", &[("worker/index.js", include_bytes!("worker.js"))]);
        rig.sees_granted("true").await;
    }
}
