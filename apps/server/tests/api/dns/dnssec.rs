//! The DNSSEC state of a zone in the API. `nameservers` tests the signing itself.

use serde_json::json;

use super::{ZONE, serial, setup};

#[tokio::test(flavor = "multi_thread")]
async fn dnssec_changes_from_off_to_signing_to_ds_pending_and_back() {
    let (app, ada) = setup().await;
    let (switch, ds) = (format!("{ZONE}/dnssec"), format!("{ZONE}/dnssec/ds"));
    let digest = "03c3".repeat(16);
    let record = json!({ "keyTag": 36923, "algorithm": 13, "digestType": 2, "digest": digest });
    ada.put(&ds, json!({ "ds": [record] })).await.expect_error(409, "dnssec_off");
    assert_eq!(*ada.get(&switch).await.expect(200), json!({ "state": "off", "ds": [], "signer": null }));

    let before = serial(&ada).await;
    let signing = ada.post(&switch, json!({ "enabled": true })).await.expect(200).clone();
    assert_eq!(signing["dnssec"], json!({ "state": "signing", "ds": [] }));
    assert!(signing.get("rrsets").is_none() && signing["serial"].as_u64().unwrap() > before);
    let again = ada.post(&switch, json!({ "enabled": true })).await.expect(200).clone();
    assert_eq!(again, signing);
    let not_yet = ada.put(&ds, json!({ "ds": [] })).await.expect(200).clone();
    assert_eq!(not_yet["dnssec"]["state"], "signing");

    let pending = ada.put(&ds, json!({ "ds": [record, record] })).await.expect(200).clone();
    let recorded = json!([{ "keyTag": 36923, "algorithm": 13, "digestType": 2, "digest": digest.to_uppercase() }]);
    assert_eq!(pending["dnssec"], json!({ "state": "ds_pending", "ds": recorded }));
    for (faulty, path) in [
        (json!({ "keyTag": 1, "algorithm": 13, "digestType": 2, "digest": "03c3" }), "ds[0].digest"),
        (json!({ "keyTag": 1, "algorithm": 13, "digestType": 2, "digest": "xyz" }), "ds[0].digest"),
        (json!({ "keyTag": 1, "algorithm": 0, "digestType": 2, "digest": digest }), "ds[0].algorithm"),
        (json!({ "keyTag": 65536, "algorithm": 13, "digestType": 2, "digest": digest }), "ds[0].keyTag"),
        (json!({ "algorithm": 13, "digestType": 2, "digest": digest }), "ds[0].keyTag"),
    ] {
        let refused = ada.put(&ds, json!({ "ds": [faulty] })).await;
        assert_eq!(refused.expect_error(400, "bad_request")["details"]["fields"][0]["path"], path);
    }
    let faulty = json!({ "keyTag": 1, "algorithm": 0, "digestType": 2, "digest": "03c3" });
    let refused = ada.put(&ds, json!({ "ds": [faulty, record, faulty] })).await;
    let fields = refused.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap();
    let paths: Vec<&str> = fields.iter().map(|field| field["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["ds[0].algorithm", "ds[0].digest", "ds[2].algorithm", "ds[2].digest"]);
    let off = ada.post(&switch, json!({ "enabled": false })).await.expect(200).clone();
    assert_eq!(off["dnssec"], json!({ "state": "off", "ds": [] }));
    ada.post(&switch, json!({})).await.expect_error(400, "bad_request");
    ada.post("/v1/orgs/ada/dns/zones/x.example/dnssec", json!({ "enabled": true }))
        .await
        .expect_error(404, "not_found");
    let events = app.db_audit("ada").await;
    assert_eq!(events[1..], ["dns.dnssec.on", "dns.ds.set", "dns.dnssec.off"]);
}
