//! Failed validations.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::rig::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn failed_validation_is_explained_and_repeated() {
    let Some(rig) = Rig::start().await else { return };
    rig.answers.store(false, Ordering::SeqCst);
    rig.activate("www.example.net").await;
    let failed = rig.tls_becomes("www.example.net", "failed").await;
    let error = failed["lastError"].as_str().unwrap();
    assert!(error.contains("the validation failed") && error.contains("404"), "{error}");
    assert!(failed["expiresAt"].is_null(), "{failed}");
    rig.answers.store(true, Ordering::SeqCst);
    rig.app.clock.advance(200);
    let active = rig.tls_becomes("www.example.net", "active").await;
    assert!(active["lastError"].is_null(), "{active}");
    let failures = rig.app.db_rows("SELECT failures FROM certificates.names WHERE name = 'www.example.net'").await;
    assert_eq!(failures, [json!({ "failures": 0 })]);
}
