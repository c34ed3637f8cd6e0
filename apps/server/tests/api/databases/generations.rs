//! Backups, as nodes report them and the API lists them.

use serde_json::{Value, json};

use super::GENERATIONS;
use super::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn generations_are_listed_newest_first_as_reported() {
    let kit = Kit::enabled().await;
    let mut reported = Vec::new();
    for seq in 1..=3 {
        let generation = kit.generation("scheduled").await;
        // The node repeats a report until it is accepted.
        for _ in 0..2 {
            kit.report("generation", generation.clone()).await.expect(200);
        }
        reported.insert(
            0,
            json!({
                "epoch": 1, "seq": seq, "kind": "scheduled", "sizeBytes": 1024, "sha256": generation["sha256"],
                "offsiteKey": generation["key"], "createdAt": generation["createdAt"],
            }),
        );
    }
    let all = json!({ "items": reported, "lastCheckedAt": null });
    assert_eq!(kit.ada.get(GENERATIONS).await.expect(200), &all);
    let checked = json!(kit.app.clock.clock_rng().now());
    kit.apply_with(json!({ "checkedAt": checked })).await;
    assert_eq!(kit.ada.get(GENERATIONS).await.expect(200)["lastCheckedAt"], checked);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_stale_backups_are_notified_once() {
    let kit = Kit::enabled().await;
    let now = || json!(kit.app.clock.clock_rng().now());
    for _ in 0..2 {
        kit.apply_with(json!({ "backupError": "the object store refused the object" })).await;
        assert_eq!(kit.notifications().await, ["backup.failed"]);
        // A node that has just started does not know the state of backups.
        kit.apply_with(json!({})).await;
    }
    kit.apply_with(json!({ "freshAt": now() })).await;
    kit.apply_with(json!({ "freshAt": now(), "backupError": "pg_dump failed" })).await;
    assert_eq!(kit.notifications().await, ["backup.failed", "backup.failed"]);
    let page = kit.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"][0].clone();
    assert_eq!(page["project"], "site");
    let audit = "SELECT data ->> 'kind' AS kind FROM store.audit WHERE event = 'notification.raise'";
    assert_eq!(kit.app.db_rows(audit).await, [json!({ "kind": "backup.failed" }), json!({ "kind": "backup.failed" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn size_above_the_limit_is_notified_once_for_each_crossing() {
    let kit = Kit::enabled().await;
    assert_eq!(kit.part().await["sizeBytes"], 1_073_741_824_u64);
    for (read_only, notified) in [(true, 1), (true, 1), (false, 1), (true, 2)] {
        kit.apply_with(json!({ "readOnly": read_only, "sizeBytes": 2_000_000_000 })).await;
        assert_eq!(kit.notifications().await, vec!["limit.database"; notified]);
    }
    kit.app.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await.unwrap();
    assert_eq!(kit.part().await["sizeBytes"], 53_687_091_200_u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_expire_with_the_retention_of_the_plan() {
    let kit = Kit::enabled().await;
    kit.back_up().await;
    let operation = kit.delete().await;
    kit.execute(&operation).await;
    let kinds = async || {
        let listed = kit.generations().await;
        listed.iter().map(|item| item["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds().await, ["final", "scheduled"]);
    // The steps of the clock are short, because the session of the caller expires after 30 days.
    kit.app.clock.advance_days(7);
    assert_eq!(kinds().await, ["final"]);
    kit.app.clock.advance_days(22);
    assert_eq!(kinds().await, ["final"]);
    let none: Vec<Value> = Vec::new();
    kit.app.clock.advance_days(1);
    let ada = kit.app.sign_in("ada").await;
    assert_eq!(ada.get(GENERATIONS).await.expect(200)["items"], json!(none));
}
