//! The metering of calls, as a node requests it.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::random_id;

use super::{AI, Kit, SMALL};
use crate::support::{ApiResponse, ManualNode};

const CALLS: &str = "ai/calls";
const SETTLEMENTS: &str = "ai/settlements";

async fn send(node: &ManualNode, path: &str, body: &Value) -> ApiResponse {
    node.send(Method::POST, path, |request| request.json(body)).await
}

pub async fn admit(node: &ManualNode, project: &Value, id: &str, model: &str) -> Value {
    let call = json!({ "id": id, "project": project, "model": model, "inputTokens": 10 });
    send(node, CALLS, &call).await.expect(200).clone()
}

pub async fn settle(node: &ManualNode, id: &str, usage: Value) {
    let ended = json!({ "ended": [{ "id": id, "usage": usage }], "open": [] });
    send(node, SETTLEMENTS, &ended).await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_meters_calls_of_its_projects() {
    let kit = Kit::start().await;
    let node = ManualNode::new(&kit.app).await;
    let project = kit.project_id().await;
    let id = || random_id().to_string();
    let refused = async |model: &str, code: &str| {
        let refused = admit(&node, &project, &id(), model).await;
        assert_eq!(refused["refused"]["code"], code, "{refused}");
    };
    refused(SMALL, "not_granted").await;
    kit.ada.post(AI, json!({})).await.expect(200);
    refused("gpt-99", "model_not_found").await;
    refused(SMALL, "insufficient_credit").await;
    kit.buy().await;
    let call = id();
    assert_eq!(
        admit(&node, &project, &call, SMALL).await,
        json!({ "admitted": { "upstreamModel": "small-v1", "contextTokens": 128_000, "maxOutputTokens": 0 } })
    );
    let open = json!({ "ended": [], "open": [{ "id": call, "outputTokens": 3 }] });
    send(&node, SETTLEMENTS, &open).await.expect(204);
    for _ in 0..2 {
        settle(&node, &call, json!({ "inputTokens": 100, "outputTokens": 7, "estimated": true })).await;
        settle(&node, &call, Value::Null).await;
    }
    let cost = 100 * 6 + 7 * 24;
    let row = &kit.ledger().await[0];
    let fields =
        ["ledger_id", "kind", "amountMicroCents", "project", "model", "inputTokens", "outputTokens", "estimated"];
    let row: Vec<&Value> = fields.iter().map(|field| &row[field]).collect();
    assert_eq!(json!(row), json!([2, "call", -cost, "site", SMALL, 100, 7, true]));
    let status = kit.ada.get(AI).await.expect(200).clone();
    assert_eq!(status["usage24h"], json!({ "calls": 1, "inputTokens": 100, "outputTokens": 7 }));
    assert_eq!(
        (&status["spentMicroCents24h"], &status["balanceMicroCents"]),
        (&json!(cost), &json!(500_000_000 - cost))
    );

    // Another node can neither make calls for the project nor end its calls.
    let other = ManualNode::named(&kit.app, "other").await;
    assert_eq!(admit(&other, &project, &id(), SMALL).await["refused"]["code"], "not_granted");
    let call = id();
    admit(&node, &project, &call, SMALL).await;
    settle(&other, &call, json!({ "inputTokens": 9, "outputTokens": 9, "estimated": false })).await;
    // A call in progress is charged even after its grant was revoked.
    kit.ada.delete(AI).await.expect(204);
    refused(SMALL, "not_granted").await;
    settle(&node, &call, json!({ "inputTokens": 1, "outputTokens": 1, "estimated": false })).await;
    assert_eq!(kit.balance().await, 500_000_000 - cost - 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_reports_change_nothing() {
    let kit = Kit::start().await;
    let node = ManualNode::new(&kit.app).await;
    let project = kit.project_id().await;
    kit.ada.post(AI, json!({})).await.expect(200);
    kit.buy().await;
    let id = random_id().to_string();
    admit(&node, &project, &id, SMALL).await;
    let usage = json!({ "inputTokens": 1, "outputTokens": 1, "estimated": false });
    for ended in [
        json!([{ "id": id, "usage": usage }, { "id": "call_1", "usage": usage }]),
        json!([{ "id": id, "usage": { "inputTokens": -1, "outputTokens": 1, "estimated": false } }]),
        json!([{ "id": id, "usage": { "inputTokens": 1.5, "outputTokens": 1, "estimated": false } }]),
        json!([{ "id": id, "usage": { "inputTokens": 1 } }]),
        json!([{ "id": id, "usage": usage, "cost": 1 }]),
    ] {
        let body = json!({ "ended": ended, "open": [] });
        send(&node, SETTLEMENTS, &body).await.expect_error(400, "bad_request");
    }
    for (field, value) in [
        ("id", json!("call_1")),
        ("project", json!("prj_1")),
        ("inputTokens", json!(-1)),
        ("maxOutputTokens", json!(-1)),
    ] {
        let mut call = json!({ "id": id, "project": project, "model": SMALL, "inputTokens": 10 });
        call[field] = value;
        send(&node, CALLS, &call).await.expect_error(400, "bad_request");
    }
    assert_eq!(kit.balance().await, 500_000_000);
    settle(&node, &id, usage).await;
    assert_eq!(kit.balance().await, 500_000_000 - 30);
}
