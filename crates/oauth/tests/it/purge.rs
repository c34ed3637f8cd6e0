//! Rows that no grant needs.

use crate::kit::Kit;

#[tokio::test]
async fn purge_deletes_only_what_no_grant_needs() {
    let kit = Kit::with_grace(30).await;
    let first = kit.sign_in().await;
    let unused = kit.code().await;
    let device = kit.oauth.device_authorize(&kit.client, None).await.unwrap();
    let second = kit.refresh(&first).await.unwrap();
    let count = async |table: &str| kit.db_number(&format!("SELECT count(*) FROM oauth.{table}")).await;
    let stored = "SELECT count(*) FROM oauth.grants WHERE successor IS NOT NULL";
    kit.oauth.purge().await.unwrap();
    assert_eq!((count("codes").await, count("device_codes").await, kit.db_number(stored).await), (2, 1, 1));

    kit.advance(61);
    kit.oauth.purge().await.unwrap();
    // The used code is kept as long as its grant.
    assert_eq!((count("codes").await, kit.db_number(stored).await), (1, 0));
    kit.exchange(unused).await.unwrap_err();

    // A device code is kept for some time after its expiry, so that its client learns that it expired.
    kit.advance(600);
    kit.oauth.purge().await.unwrap();
    let expired = kit.oauth.exchange_device_code(&kit.client, device.device_code.reveal(), None, "req-1").await;
    assert_eq!(expired.unwrap_err().to_string(), "the device code has expired; start again");
    kit.advance(600);
    kit.oauth.purge().await.unwrap();
    assert_eq!(count("device_codes").await, 0);

    kit.clock.advance_days(59);
    kit.oauth.purge().await.unwrap();
    assert_eq!((count("grants").await, count("refresh_tokens").await), (1, 2));
    kit.refresh(&second).await.unwrap();
    kit.clock.advance_days(60);
    kit.oauth.purge().await.unwrap();
    assert_eq!((count("grants").await, count("refresh_tokens").await, count("codes").await), (0, 0, 0));
}
