//! A mail store in a bucket.

use std::time::Duration;

use kernel::{ClockRng, Limits};
use objects::{S3Config, StoreConfig, Timeouts};
use sandbox::S3Server;
use settings::Secret;
use tempfile::TempDir;

use crate::inbound::MESSAGE;
use crate::kit::{Kit, outgoing};

const BUCKET: &str = "mail";
const DAY: i64 = 24 * 3600;

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_stored_and_deleted_in_a_bucket() {
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
    let server = S3Server::start(folder.path()).await.unwrap();
    let store = StoreConfig::S3(S3Config {
        bucket: BUCKET.to_owned(),
        prefix: "raw".to_owned(),
        region: "us-east-1".to_owned(),
        endpoint: Some(format!("http://{}", server.address())),
        access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
        secret_access_key: Secret::new(S3Server::SECRET_ACCESS_KEY.to_owned()),
        session_token: None,
        timeouts: Timeouts { read: Duration::from_secs(30), retry: Duration::from_secs(5) },
    });
    let kit = Kit::on(folder, &store, Limits::default(), |mail| mail).await;
    let shop = kit.project("shop").await;
    // The age of an object depends on the system's clock, not on the clock of the tests.
    kit.advance((ClockRng::system().now().unix_seconds() - kit.now().unix_seconds()) / DAY * DAY);
    let received = kit.receive(shop, "eve@example.org").await;
    // The mail node can repeat both steps.
    kit.upload(shop, received, MESSAGE).await.unwrap();
    kit.mail.receive(kit.inbound(received, shop, "eve@example.org")).await.unwrap();
    let sent = kit.send(shop, &["ada@example.org"]).await;
    assert_eq!(kit.mail.raw(shop.project, received).await.unwrap().0, MESSAGE.len() as u64);
    let (size, _) = kit.mail.raw(shop.project, sent).await.unwrap();
    assert_eq!(size, kit.relay.sent()[0].1.len() as u64);
    // An upload that is never committed, and a message without a row.
    kit.upload(shop, kit.new_id(), MESSAGE).await.unwrap();
    let orphan = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    let orphaned = format!("id = '{}'", orphan.as_uuid());
    kit.db_execute(&format!("DELETE FROM store.outbox; DELETE FROM mail.messages WHERE {orphaned}")).await;
    let objects = || server.files().into_iter().filter(|name| name.contains("mail_")).count();
    kit.mail.purge_orphans().await.unwrap();
    assert_eq!(objects(), 4);
    kit.advance(2 * DAY);
    kit.mail.purge_orphans().await.unwrap();
    assert_eq!(objects(), 2);
    kit.advance(38 * DAY);
    kit.mail.purge_old().await.unwrap();
    assert_eq!(objects(), 0);
}
