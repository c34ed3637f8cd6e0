//! The certificate of the API itself.

use reqwest::Method;
use sandbox::RecordType;
use serde_json::{Value, json};
use server::config::TlsConfig;

use super::rig::Rig;
use crate::support::eventually;

const API: &str = "api.svc.example";

#[tokio::test(flavor = "multi_thread")]
async fn api_gets_a_certificate_that_nodes_cannot_have() {
    let rig = Rig::start_with(|config| {
        let listen = "127.0.0.1:0".parse().unwrap();
        config.tls = Some(TlsConfig { listen, hostname: API.to_owned(), files: None });
        config.gateway.site.public_url = format!("https://{API}");
    });
    let Some(rig) = rig.await else { return };
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
