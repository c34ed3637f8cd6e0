//! The catalog, and the AI access of a project.

use serde_json::{Value, json};

use super::{AI, Kit, MODELS, SMALL};
use crate::support::{App, ManualNode};

#[tokio::test(flavor = "multi_thread")]
async fn catalog_is_shown_without_upstream_names() {
    let kit = Kit::start().await;
    let models = kit.ada.get(MODELS).await.expect(200).clone();
    assert_eq!(
        models,
        json!({ "models": [
            { "id": "lab/large", "lane": "frontier", "listPrice": true, "provider": "lab",
              "inputMicroCentsPerMTok": 300_000_000, "outputMicroCentsPerMTok": 1_500_000_000, "contextTokens": 200_000 },
            { "id": SMALL, "lane": "value", "inputMicroCentsPerMTok": 6_000_000, "outputMicroCentsPerMTok": 24_000_000,
              "contextTokens": 128_000 },
        ] })
    );
    kit.app.anonymous().get(MODELS).await.expect(401);
    // An installation without a catalog.
    let app = App::start().await;
    assert_eq!(*app.sign_in("ada").await.get(MODELS).await.expect(200), json!({ "models": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn access_is_granted_and_revoked_idempotently() {
    let kit = Kit::start().await;
    let node = ManualNode::new(&kit.app).await;
    let project = kit.project_id().await;
    let shown = kit.ada.get(AI).await.expect(200).clone();
    // The limits are those of the plan, and billing shows the same ones.
    let limits = kit.ada.get("/v1/orgs/ada/billing").await.expect(200)["limits"]["free"].clone();
    assert_eq!(shown["limits"]["requestsPerMinute"], limits["aiRequestsPerMinute"]);
    assert_eq!(shown["limits"]["spendPerDayMicroCents"], limits["aiSpendPerDayMicroCents"]);
    assert_eq!((&shown["limits"]["maxInputTokens"], &shown["limits"]["maxOutputTokens"]), (&json!(0), &json!(0)));
    assert_eq!((&shown["granted"], &shown["balanceMicroCents"]), (&json!(false), &json!(0)));
    assert_eq!(shown["usage24h"], json!({ "calls": 0, "inputTokens": 0, "outputTokens": 0 }));
    assert_eq!(shown["spentMicroCents24h"], 0);
    for _ in 0..2 {
        assert_eq!(kit.ada.post(AI, json!({})).await.expect(200)["granted"], true);
    }
    assert_eq!(node.part(&project, "ai").await, json!({}));
    assert_eq!(kit.ada.get(AI).await.expect(200)["granted"], true);
    for _ in 0..2 {
        kit.ada.delete(AI).await.expect(204);
    }
    assert_eq!(node.part(&project, "ai").await, Value::Null);
    assert_eq!(kit.ada.get(AI).await.expect(200)["granted"], false);
    let audit = kit.app.db_audit("ada").await;
    let events: Vec<&str> = audit.iter().map(String::as_str).filter(|event| event.starts_with("ai.")).collect();
    assert_eq!(events, ["ai.grant", "ai.revoke"]);
}
