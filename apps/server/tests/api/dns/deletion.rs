//! Deletion of zones.

use reqwest::Method;
use serde_json::json;

use super::{ZONE, put, serial, setup};
use crate::support::{ApiResponse, Caller};

async fn delete_if_match(caller: &Caller, tag: &str) -> ApiResponse {
    caller.send(Method::DELETE, ZONE, |request| request.header("if-match", tag)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_honors_if_match() {
    let (app, ada) = setup().await;
    let before = serial(&ada).await;
    put(&ada, "www/A", &["192.0.2.1"]).await;
    let now = serial(&ada).await;
    for tag in [format!("\"{before}\""), "\"0\"".to_owned(), format!("W/\"{now}\""), now.to_string()] {
        let refused = delete_if_match(&ada, &tag).await;
        assert_eq!(refused.expect_error(412, "precondition_failed")["details"], json!({ "serial": now }), "{tag}");
    }
    assert_eq!(serial(&ada).await, now);
    delete_if_match(&ada, &format!("\"{before}\", \"{now}\"")).await.expect(204);
    delete_if_match(&ada, &format!("\"{now}\"")).await.expect_error(404, "not_found");
    assert_eq!(app.db_audit("ada").await, ["dns.zone.create", "dns.rrset.set", "dns.zone.delete"]);
    super::create(&ada, "ada", "example.org").await;
    delete_if_match(&ada, "*").await.expect(204);
}
