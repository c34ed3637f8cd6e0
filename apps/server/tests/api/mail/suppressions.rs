//! Suppressed recipients.

use serde_json::json;

use super::{Kit, LOG, new_id};

const SUPPRESSIONS: &str = "/v1/orgs/ada/projects/site/email/suppressions";

#[tokio::test(flavor = "multi_thread")]
async fn suppressed_recipient_is_listed_and_can_be_cleared() {
    let kit = Kit::start().await;
    assert_eq!(kit.ada.get(SUPPRESSIONS).await.expect(200), &json!({ "items": [], "nextCursor": null }));
    let insert = "INSERT INTO mail.suppressions SELECT id, 'ada+x@example.org', 'bounce', '550 unknown', now() \
                  FROM projects.projects";
    kit.app.db_execute(insert).await.unwrap();
    let listed = kit.ada.get(SUPPRESSIONS).await.expect(200)["items"].clone();
    let created_at = &listed[0]["createdAt"];
    let expected = json!({
        "address": "ada+x@example.org", "reason": "bounce", "detail": "550 unknown", "createdAt": created_at,
    });
    assert_eq!(listed, json!([expected]));
    let id = new_id();
    let refused = kit.submit(&id, json!({ "to": ["Ada+X@example.org"] })).await.expect(200).clone();
    assert_eq!(refused["refused"]["code"], "suppressed");
    let entry = kit.ada.get(&format!("{LOG}/{id}")).await.expect(200).clone();
    assert_eq!((&entry["outcome"], &entry["hasRaw"]), (&json!("rejected"), &json!(false)));
    assert!(entry["detail"].as_str().unwrap().contains("ada+x@example.org"));
    kit.ada.get(&format!("{LOG}/{id}/raw")).await.expect_error(404, "not_found");
    for address in ["ada%2Bx@example.org", "ada%2bx%40example.org", "nobody@example.org"] {
        kit.ada.delete(&format!("{SUPPRESSIONS}/{address}")).await.expect(204);
    }
    let refused = kit.ada.delete(&format!("{SUPPRESSIONS}/nobody")).await;
    assert_eq!(refused.expect_error(400, "bad_request")["details"]["fields"][0]["path"], "address");
    assert_eq!(kit.ada.get(SUPPRESSIONS).await.expect(200)["items"], json!([]));
    kit.send(json!({ "to": ["ada+x@example.org"] })).await;
    let audit = kit.app.db_rows("SELECT data FROM store.audit WHERE event = 'suppression.delete'").await;
    assert_eq!(audit, [json!({ "data": {} })]);
    let insert = "INSERT INTO mail.suppressions SELECT id, address, 'bounce', NULL, now() FROM projects.projects, \
                  (VALUES ('\"a b\"@example.org'), ('joerg@xn--mller-kva.example')) AS suppressed (address)";
    kit.app.db_execute(insert).await.unwrap();
    for address in ["%22A%20b%22@example.org", "joerg@m%C3%BCller.example"] {
        kit.ada.delete(&format!("{SUPPRESSIONS}/{address}")).await.expect(204);
    }
    assert_eq!(kit.ada.get(SUPPRESSIONS).await.expect(200)["items"], json!([]));
    kit.ada.delete(&format!("{SUPPRESSIONS}/%22A%20b%22@example.org")).await.expect_error(400, "bad_request");
    let viewer = kit.app.add_member(&kit.ada, "ada", "viewer", "viewer").await;
    viewer.get(SUPPRESSIONS).await.expect(200);
    let response = viewer.delete(&format!("{SUPPRESSIONS}/nobody")).await;
    assert_eq!(response.expect_error(403, "forbidden")["details"], json!({ "required": "member" }));
}
