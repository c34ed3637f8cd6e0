//! DS records of a domain that is bought here: from the signer to the registry, and never without keys.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sandbox::{PaymentsServer, RegistrarServer};
use serde_json::{Value, json};

use super::dnssec::validate;
use super::query::query_twice;
use super::rig::Rig;
use crate::domains::purchase;
use crate::support::client;

const DOMAIN: &str = "signed.com";
const WWW: &str = "www.signed.com";

/// Queries the signer until stopped, while the registry has a DS record. Returns the number of answers, and the number
/// of answers without a signature.
async fn watch(rig: &Rig, registrar: &RegistrarServer, stopped: &AtomicBool) -> (usize, Vec<String>) {
    let (mut answers, mut unsigned) = (0, Vec::new());
    while !stopped.load(Ordering::SeqCst) {
        let has_ds = !registrar.ds_records(DOMAIN).is_empty();
        let answer = query_twice(rig.knot.port, WWW, "A").await;
        if has_ds {
            answers += 1;
            if !answer.is_signed {
                unsigned.push(format!("{answer:?}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (answers, unsigned)
}

async fn delete_zone(rig: &Rig) -> (u16, Value) {
    let url = format!("{}/v1/orgs/ada/dns/zones/{DOMAIN}", rig.server.base);
    let response = client().delete(url).bearer_auth(&rig.token).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_has_the_ds_record_of_the_signer_only_while_it_signs() {
    let (registrar, payments) = (RegistrarServer::start().await, PaymentsServer::start(None).await);
    let settings = [&registrar.settings()[..], &payments.settings()].concat();
    let Some(rig) = Rig::start_with(&settings).await else { return };
    let orgs = rig.server.json(&rig.token, "GET", "/v1/orgs", None).await;
    payments.set_card(orgs["items"][0]["id"].as_str().unwrap(), false);
    rig.server.json(&rig.token, "POST", "/v1/orgs/ada/domains", Some(purchase(DOMAIN))).await;
    rig.put(DOMAIN, "www", "A", &["192.0.2.1"]).await;
    rig.until("Knot serves the zone", async || rig.knot.query(WWW, "A").await.is(&["192.0.2.1"])).await;
    let stopped = AtomicBool::new(false);
    let switch = async {
        rig.dnssec(DOMAIN, true).await;
        let has_ds = async || !registrar.ds_records(DOMAIN).is_empty();
        rig.until("the registry has a DS record", has_ds).await;
        let state = rig.call("GET", &format!("/{DOMAIN}/dnssec"), None).await;
        assert_eq!(json!(registrar.ds_records(DOMAIN)), state["signer"]["cds"]);
        let output = validate(&rig, rig.knot.port, WWW, DOMAIN, &registrar.ds_records(DOMAIN)[0]);
        assert!(output.contains("; fully validated"), "{output}");
        let (status, error) = delete_zone(&rig).await;
        assert_eq!((status, &error["code"]), (409, &json!("dnssec_on")), "{error}");

        rig.dnssec(DOMAIN, false).await;
        let has_no_ds = async || registrar.ds_records(DOMAIN).is_empty();
        rig.until("the registry has no DS record", has_no_ds).await;
        // Resolvers may still have it.
        assert!(rig.knot.query(WWW, "A").await.is_signed);
        assert_eq!(delete_zone(&rig).await.0, 409);
        stopped.store(true, Ordering::SeqCst);
    };
    let ((answers, unsigned), ()) = tokio::join!(watch(&rig, &registrar, &stopped), switch);
    assert!(answers > 10 && unsigned.is_empty(), "{} of {answers} answers: {unsigned:#?}", unsigned.len());

    // Two days later.
    let held = "SELECT count(*) FROM dns.zones WHERE ds_removed_at IS NOT NULL";
    rig.until("the zone is held", async || rig.server.database.number(held).await == 1).await;
    rig.server.database.run("UPDATE dns.zones SET ds_removed_at = ds_removed_at - interval '2 days'").await;
    rig.server.database.run("UPDATE store.outbox SET next_attempt_at = created_at WHERE topic = 'dns.ds'").await;
    rig.until("the zone is not signed", async || !rig.knot.query(WWW, "A").await.is_signed).await;
    assert!(rig.knot.query(WWW, "A").await.is(&["192.0.2.1"]));
    assert_eq!(delete_zone(&rig).await.0, 204);
}
