//! The certificate of the API itself.

use reqwest::Method;
use sandbox::RecordType;
use serde_json::{Value, json};
use server::Config;
use server::config::TlsConfig;

use super::eventually;
use super::rig::{Rig, ZONES, set_platform_org};

const API: &str = "api.svc.example";

/// Lets the server terminate TLS for its API at this hostname.
fn set_api(config: &mut Config, hostname: &str) {
    let listen = "127.0.0.1:0".parse().unwrap();
    config.tls = Some(TlsConfig { listen, hostname: hostname.to_owned(), files: None });
    config.gateway.site.public_url = format!("https://{hostname}");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_gets_a_certificate_that_nodes_cannot_have() {
    let Some(rig) = Rig::start_with(|config| set_api(config, API)).await else { return };
    rig.dns.set(API, RecordType::A, &["127.0.0.1"]);
    let root = reqwest::Certificate::from_pem(rig.pebble.root().await.as_bytes()).unwrap();
    let address = rig.app.tls.unwrap();
    // Each attempt is a new connection.
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).pool_max_idle_per_host(0);
    let client = client.resolve(API, address).build().unwrap();
    let url = format!("https://{API}:{}/v1/config", address.port());
    // The first order may precede the DNS record. It is then repeated without the delay.
    let retry = "UPDATE certificates.names SET due_at = now(), failures = 0 WHERE project_id IS NULL AND failures > 0";
    let served = async || {
        let response = client.get(&url).send().await.ok();
        if response.is_none() {
            rig.app.db_execute(retry).await.unwrap();
        }
        response
    };
    let response = eventually("the certificate", served).await;
    let config: Value = response.json().await.unwrap();
    assert_eq!(config["siteUrl"], json!("http://{hostname}"));

    let row = rig.app.db_rows("SELECT id, name FROM certificates.certificates WHERE name = 'api.svc.example'").await;
    let id = kernel::CertificateId::from_uuid(row[0]["id"].as_str().unwrap().parse().unwrap());
    rig.node.send(Method::GET, &format!("certificates/{id}"), |it| it).await.expect_error(404, "not_found");
    let desired = rig.node.send(Method::GET, "desired?since=0", |it| it).await.expect(200).clone();
    assert_eq!(desired["platform"]["certificates"], json!([]));
    let added = rig.app.db_rows("SELECT event FROM store.audit WHERE event = 'certificate.platform'").await;
    assert_eq!(added.len(), 1);

    // A renewed certificate is used without a restart.
    rig.app
        .db_execute(
            "UPDATE certificates.names SET renew_at = now() - interval '1 day', due_at = now() \
        WHERE name = 'api.svc.example'",
        )
        .await
        .unwrap();
    let statement = "SELECT id FROM certificates.certificates WHERE name = 'api.svc.example'";
    let renewed = async || (rig.app.db_rows(statement).await[0]["id"] != row[0]["id"]).then_some(());
    eventually("the renewal", renewed).await;
    assert!(served().await.is_some());
    let loads = async || {
        let metrics = reqwest::get(format!("{}/metrics", rig.app.internal)).await.unwrap().text().await.unwrap();
        metrics.contains("svc_tls_certificates{source=\"issued\"} 1").then_some(())
    };
    eventually("the metric", loads).await;
}

/// Returns when the issued certificate of a name expires, in seconds since 1970.
async fn expiry(rig: &Rig, name: &str) -> Option<i64> {
    let statement = format!(
        "SELECT extract(epoch FROM not_after)::bigint AS expiry FROM certificates.certificates WHERE name = '{name}'"
    );
    rig.app.db_rows(&statement).await.first().and_then(|row| row["expiry"].as_i64())
}

/// Returns `Some` if the server has only one issued certificate, which expires at this time.
async fn has_only(rig: &Rig, expiry: i64) -> Option<()> {
    let metrics = reqwest::get(format!("{}/metrics", rig.app.internal)).await.unwrap().text().await.unwrap();
    let lines = [
        "svc_tls_certificates{source=\"issued\"} 1\n".to_owned(),
        format!("svc_tls_earliest_expiry_timestamp_seconds{{source=\"issued\"}} {expiry}\n"),
    ];
    lines.iter().all(|line| metrics.contains(line)).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wildcard_replaces_the_expiring_certificate_of_the_api_in_the_store() {
    const API: &str = "api.apps.svc.example";
    let Some(rig) = Rig::start_with(|config| set_api(config, API)).await else { return };
    rig.dns.set(API, RecordType::A, &["127.0.0.1"]);
    let retry = "UPDATE certificates.names SET due_at = now(), failures = 0 WHERE project_id IS NULL AND failures > 0";
    let issued = async || {
        rig.app.db_execute(retry).await.unwrap();
        expiry(&rig, API).await
    };
    let own = eventually("the certificate of the hostname", issued).await;

    let org = rig.org().await;
    let rig = rig.continue_with(|config| set_platform_org(config, org)).await;
    eventually("the certificate of the hostname is in use", async || has_only(&rig, own).await).await;
    rig.ada.post(ZONES, json!({ "name": "svc.example" })).await.expect(200);
    rig.dns.set("svc.example", RecordType::NS, &["ns1.svc.example"]);
    rig.dns.set("svc.example", RecordType::SOA, &["ns1.svc.example. hostmaster.svc.example. 1"]);
    // The wildcard waits for its zone.
    rig.app.clock.advance(10);
    let wildcard = eventually("the wildcard", async || expiry(&rig, "*.apps.svc.example").await).await;
    has_only(&rig, own).await.expect("the certificate of the hostname is still in use");
    let expires = "UPDATE certificates.certificates SET not_after = now() + interval '1 day' \
        WHERE name = 'api.apps.svc.example'";
    rig.app.db_execute(expires).await.unwrap();
    eventually("the wildcard is in use", async || has_only(&rig, wildcard).await).await;
}
