//! Requests that wait for a node do not block other requests.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::TOKENS;
use super::kit::Kit;
use crate::support::eventually;

/// Creates tokens. Returns their paths.
async fn tokens(kit: &Kit, count: usize) -> Vec<String> {
    let mut paths = Vec::new();
    for _ in 0..count {
        let user = kit.ada.post(TOKENS, json!({})).await.expect(201)["user"].clone();
        paths.push(format!("{TOKENS}/{}", user.as_str().unwrap()));
    }
    paths
}

/// Starts the revocations of these tokens at the same time, because each waits for the node for a limited time. Returns
/// when all of them wait.
async fn waiting_revocations(kit: &Kit, paths: &[String]) -> Vec<tokio::task::JoinHandle<u16>> {
    let valid = async || kit.part().await["tokens"].as_array().map_or(0, Vec::len);
    let expected = valid().await - paths.len();
    let start = |path: &String| {
        let (ada, path) = (kit.ada.clone(), path.clone());
        tokio::spawn(async move { ada.delete(&path).await.status })
    };
    let tasks = paths.iter().map(start).collect();
    let revoked = async || (valid().await == expected).then_some(());
    eventually("the tokens are revoked, and the requests wait", revoked).await;
    tasks
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_hold_no_permit_of_other_requests() {
    // The requests that wait for the node need six permits until they wait. The other requests need one of them.
    let kit = Kit::with(|config| config.gateway.max_concurrent_requests = 6).await;
    kit.ada.post(super::DATABASE, json!({})).await.expect(200);
    kit.apply().await;
    // Send more requests than the write limit of an organization allows.
    let waiting = waiting_revocations(&kit, &tokens(&kit, 6).await).await;
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "blog" })).await.expect(201);
    kit.ada.get("/v1/orgs/ada/projects/blog").await.expect(200);
    kit.apply().await;
    for status in join_all(waiting).await {
        assert_eq!(status.unwrap(), 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_waiting_requests_of_an_organization_is_limited() {
    let kit = Kit::enabled().await;
    // A request waits for a limited time. So create everything before.
    let mut waiting = tokens(&kit, 9).await;
    let path = waiting.pop().unwrap();
    let eve = kit.app.sign_in("eve").await;
    eve.post("/v1/orgs/eve/projects", json!({ "name": "site" })).await.expect(201);
    let waiting = waiting_revocations(&kit, &waiting).await;
    let refused = kit.ada.send(Method::DELETE, &path, |request| request).await;
    let details = &refused.expect_error(429, "rate_limited")["details"];
    assert_eq!(*details, json!({ "limit": 8, "of": "organization" }));
    assert_eq!(refused.header("retry-after"), "5");
    // Another organization is not affected.
    let tokens = "/v1/orgs/eve/projects/site/database/tokens";
    let unknown = format!("{tokens}/tok_01h455vb4pex5vsknk084sn02q");
    eve.delete(&unknown).await.expect_error(404, "not_found");
    kit.apply().await;
    let statuses: Vec<u16> = join_all(waiting).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(statuses, [204; 8]);
    let node = async {
        let revoked = async || Some(kit.part().await).filter(|part| part["tokens"] == json!([]));
        let part: Value = eventually("the token is revoked", revoked).await;
        kit.report("database", super::kit::status(&part, json!({}))).await.expect(200);
    };
    tokio::join!(kit.ada.delete(&path), node).0.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_a_request_that_waits_for_a_node() {
    let mut kit = Kit::enabled().await;
    let waiting = waiting_revocations(&kit, &tokens(&kit, 1).await).await;
    kit.app.begin_shutdown();
    let address = kit.app.base.strip_prefix("http://").unwrap().to_owned();
    let refuses = async || tokio::net::TcpStream::connect(&address).await.is_err().then_some(());
    eventually("the listener closes", refuses).await;
    // Nodes can still report.
    kit.apply().await;
    for status in join_all(waiting).await {
        assert_eq!(status.unwrap(), 204);
    }
}
