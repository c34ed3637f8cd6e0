//! Each internal route accepts only the credentials of its kind of node.

use reqwest::Method;
use serde_json::json;
use server::config::CoreLink;

use super::{Kit, claim};
use crate::support::{ManualNode, client};

const ROUTES: [(&str, &str, bool); 7] = [
    ("POST", "submissions", true),
    ("POST", "deliveries", true),
    ("POST", "deliveries/mail_01h455vb4pex5vsknk084sn02q", true),
    ("GET", "messages/mail_01h455vb4pex5vsknk084sn02q/raw", true),
    ("POST", "recipients", false),
    ("PUT", "uploads/prj_01h455vb4pex5vsknk084sn02q/mail_01h455vb4pex5vsknk084sn02q", false),
    ("PUT", "inbound/mail_01h455vb4pex5vsknk084sn02q", false),
];

#[tokio::test(flavor = "multi_thread")]
async fn routes_accept_only_their_kind_of_node() {
    let kit = Kit::start().await;
    let call = async |node: &ManualNode, method: &str, path: &str| {
        let method: Method = method.parse().unwrap();
        node.send(method, &format!("mail/{path}"), |request| request.json(&json!({}))).await
    };
    for (method, path, is_for_nodes) in ROUTES {
        let (accepted, rejected) = if is_for_nodes { (&kit.node, &kit.mx) } else { (&kit.mx, &kit.node) };
        let response = call(accepted, method, path).await;
        assert_ne!(response.status, 401, "{method} {path}");
        call(rejected, method, path).await.expect_error(401, "unauthenticated");
        let url = format!("{}/internal/v1/mail/{path}", kit.app.internal);
        for token in [None, Some("garbage"), kit.ada.token.as_deref()] {
            let request = client().request(method.parse().unwrap(), &url).json(&json!({}));
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            assert_eq!(request.send().await.unwrap().status(), 401, "{method} {path}");
        }
        // The public listener has no such route.
        let public = client().request(method.parse().unwrap(), format!("{}/internal/v1/mail/{path}", kit.app.base));
        assert_eq!(public.json(&json!({})).send().await.unwrap().status(), 404, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_the_link_gets_no_core() {
    let kit = Kit::start().await;
    let detached = kit.app.another_with(|config| config.core = CoreLink::Off).await;
    let node = ManualNode::named(&detached, "detached").await;
    claim(&node, 30, &[]).await.expect_error(503, "no_core");
}
