//! The limits of grants and of requests of devices.

use std::net::IpAddr;

use kernel::ApiError as _;
use oauth::OAuthError;

use crate::kit::{ADDRESS, Kit};

/// Adds 100,000 undecided requests of other addresses, of which the first expires in 20 seconds.
const ADD_DEVICES: &str = "
    INSERT INTO oauth.device_codes (device_code_hash, user_code, client_id, limit_key, scopes, state, poll_interval,
        created_at, expires_at)
    SELECT sha256(n::text::bytea), n::text, c.id, sha256((n / 50)::text::bytea), '{}'::text[], 'pending', 5,
        $now$::timestamptz, $now$::timestamptz + make_interval(secs => 19 + n)
    FROM oauth.clients c, generate_series(1, 100000) n";

/// Adds 498 undecided requests of other addresses of the network of the only request.
const COPY_DEVICE: &str = "
    INSERT INTO oauth.device_codes (device_code_hash, user_code, client_id, limit_key, network_key, scopes, state,
        poll_interval, created_at, expires_at)
    SELECT sha256(n::text::bytea), n::text, client_id, sha256(n::text::bytea), network_key, scopes, state,
        poll_interval, created_at, expires_at
    FROM oauth.device_codes, generate_series(1, 498) n";

#[tokio::test]
async fn new_grant_above_the_limit_ends_the_one_that_was_used_least_recently() {
    let kit = Kit::start().await;
    let oldest = kit.sign_in().await;
    kit.advance(1);
    let second = kit.sign_in().await;
    for _ in 0..98 {
        kit.advance(1);
        kit.sign_in().await;
    }
    assert_eq!(kit.grants().await, 100);
    kit.advance(1);
    let oldest = kit.refresh(&oldest).await.unwrap();
    kit.advance(1);
    kit.audited().await;
    kit.sign_in().await;
    assert_eq!(kit.grants().await, 100);
    let [event] = &kit.audited().await[..] else { panic!("one event") };
    assert_eq!((event.event.as_str(), event.data["ended"].as_array().unwrap().len()), ("oauth.grant.create", 1));
    kit.refresh(&second).await.unwrap_err();
    kit.refresh(&oldest).await.unwrap();
    // The model-lending service receives a message about the end.
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox WHERE topic = 'oauth.revocation'").await, 1);
    // A new grant is kept even if the clock was set back, so that all others are more recent.
    kit.advance(-3600);
    let new = kit.sign_in().await;
    assert_eq!(kit.grants().await, 100);
    kit.refresh(&new).await.unwrap();
}

/// One network has many addresses.
#[tokio::test]
async fn device_requests_of_a_network_are_limited() {
    let addresses = [
        ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.3.1"],
        ["2001:db8:1:1::", "2001:db8:1:2::", "2001:db8:1:3::", "2001:db8:2:1::"],
    ];
    for [first, second, third, other] in addresses {
        let kit = Kit::start().await;
        let authorize = async |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            kit.oauth.device_authorize(&kit.client, None, address).await
        };
        authorize(first).await.unwrap();
        kit.db_execute(COPY_DEVICE).await;
        authorize(second).await.unwrap();
        let refused = authorize(third).await.unwrap_err();
        assert!(matches!(refused, OAuthError::TooManyDeviceRequests { number: 500, .. }), "{refused}");
        authorize(other).await.unwrap();
    }
}

/// The requests of all addresses together are limited by the size of the table.
#[tokio::test]
async fn total_number_of_device_requests_is_limited() {
    let kit = Kit::start().await;
    kit.db_execute(&ADD_DEVICES.replace("$now$", &format!("'{}'", kit.now()))).await;
    let authorize = async || kit.oauth.device_authorize(&kit.client, None, ADDRESS).await;
    let refused = authorize().await.unwrap_err();
    assert!(matches!(refused, OAuthError::TooManyDeviceRequests { .. }), "{refused}");
    assert_eq!(refused.retry_after(), Some(20));
    kit.advance(20);
    authorize().await.unwrap();
    assert_eq!(authorize().await.unwrap_err().retry_after(), Some(1));
    // Public clients do not block a confidential one.
    let confidential = kit.confidential_client().await;
    kit.oauth.device_authorize(&confidential, None, ADDRESS).await.unwrap();
}
